"""The files of a campaign: a folder for each round, all written whole or not at all.

::

    HOME/ledger.db                    the ledger, unless it is elsewhere
    HOME/NAME/secret.json             what its service draws by; readable by its owner only
    HOME/NAME/pi0/                    the logging policy
    HOME/NAME/round-0/items.parquet   the catalogue that round 0's rows are read with
    HOME/NAME/round-0/mapping.toml    which column of its logs is what
    HOME/NAME/round-1/candidate-.../  what was fixed before the verdict: two policies, q-hat
    HOME/NAME/round-1/policy-.../     what may be served: certified, or certain

Rows of logs stay where the team keeps them. A candidate's hash is over everything that it fixed,
hashes of its policies and of q-hat included: what is certified is what was recorded. Policies have
their hash in the ledger. Items and mapping of a round are pinned there by SHA-256: an edited file
is refused.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from depsue import codec
from depsue.campaigns.records import CandidateFacts
from depsue.data.catalogue import Catalogue
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping, read_mapping, to_toml
from depsue.data.tables import frame_of
from depsue.data.writing import write_items
from depsue.errors import FileError, require, short
from depsue.exploration.round import FrozenCandidate, RoundInputs
from depsue.files import write_file
from depsue.policies import BasePolicy, load, save
from depsue.policies.cached import NOWHERE, CachedPolicy, CachedRewardModel
from depsue.rewards.base import BaseRewardModel, save_model
from depsue.savable import hash_of
from depsue.scores import Scores

ITEMS, MAPPING = "items.parquet", "mapping.toml"
PINNED = (ITEMS, MAPPING)
"""Files of a round that the ledger pins."""
Pins = Callable[[], Mapping[tuple[int, str], str]]
"""Reads SHA-256 by round and name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class CampaignFiles:
    """Where the files of one campaign are.

    Args:
        home: the folder of all campaigns.
        name: of the campaign.
        pins: what the ledger pins; None where nothing is read that must be as recorded.
    """

    def __init__(self, home: str | Path, name: str, pins: Pins | None = None) -> None:
        require(
            isinstance(name, str) and _NAME.fullmatch(name) is not None,
            "a campaign's name has 1 to 64 letters, digits, - and _: it names a folder",
            found=short(name),
            cure="for example spring-2027",
        )
        self.folder = Path(home) / name
        self._pins = pins

    @property
    def pi0(self) -> Path:
        """The folder of the logging policy."""
        return self.folder / "pi0"

    def round(self, k: int) -> Path:
        """The folder of one round."""
        return self.folder / f"round-{k}"

    def candidate(self, k: int, hash: str) -> Path:
        """The folder of a candidate."""
        return self.round(k) / f"candidate-{hash[:16]}"

    def policy(self, k: int, hash: str) -> Path:
        """The folder of a policy that may be served."""
        return self.round(k) / _policy_name(hash)

    def stage(self, k: int, catalogue: Catalogue, mapping: LogMapping) -> dict[str, str]:
        """Write items and mapping of round k beside those that are there; SHA-256 by name.

        Once the ledger has pinned them, `settle` moves them into place. A process that is killed
        in between leaves what the ledger pins, in place or staged: `items` and `mapping` find it.
        """
        folder, hashes = self.round(k), {}
        write_items(catalogue, folder / f"{ITEMS}.new")
        write_file(folder / f"{MAPPING}.new", to_toml(mapping).encode())
        for name in PINNED:
            new = folder / f"{name}.new"
            hashes[name] = file_hash(new)
            new.replace(_staged(folder / name, hashes[name]))
        return hashes

    def settle(self, k: int, hashes: Mapping[str, str]) -> None:
        """Move what was staged, and is pinned now, into place; what is not pinned is removed."""
        pinned = None if self._pins is None else self._pins()
        for name, sha256 in hashes.items():
            path = self.round(k) / name
            if pinned is not None and pinned.get((k, name)) != sha256:
                _staged(path, sha256).unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):  # another process has done so
                _staged(path, sha256).replace(path)

    def hashes(self, k: int) -> dict[str, str]:
        """SHA-256 by name of what is there of round k's items and mapping."""
        paths = [self.round(k) / name for name in PINNED]
        return {path.name: file_hash(path) for path in paths if path.exists()}

    def _intact(self, k: int, name: str) -> Path:
        """A file of round k, if it is the one that the ledger pins."""
        path = self.round(k) / name
        sha256 = None if self._pins is None else self._pins().get((k, name))
        if sha256 is None or (path.exists() and file_hash(path) == sha256):
            return path
        if _staged(path, sha256).exists():  # the process that pinned it was killed
            self.settle(k, {name: sha256})
            return self._intact(k, name)
        raise FileError(
            "the files of a round must be those that were recorded with it",
            found=f"{path} {'was edited' if path.exists() else 'is not there'}; the ledger has "
            f"SHA-256 {sha256[:16]}",
            cure="restore the file from a copy; what is to change begins a new campaign",
        )

    def items(self, k: int) -> Catalogue:
        """The catalogue of round k; an items file like the team's own."""
        items = read_items(self._intact(k, ITEMS), id="id").catalogue
        features = None if items.features is None else np.asarray(items.features)
        names = items.feature_names
        return Catalogue(items.ids, items.novel, features, names, items.labels)

    def kept(self, k: int, logs: str | Path | Any) -> str | Path:
        """Where the logs of round k are: a path as it is; of a frame, a file that is written."""
        if isinstance(logs, str | Path):
            return logs
        buffer = io.BytesIO()
        frame_of(logs, "the frame of logs").write_parquet(buffer)
        content = buffer.getvalue()
        path = self.round(k) / f"logs-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        return path

    def save_place(self, k: int, place: str) -> None:
        """Remember that the logs of round k were moved."""
        write_file(self.round(k) / "place.txt", place.encode())

    def place(self, k: int) -> str | None:
        """Where the logs of round k were moved to; None if they were not."""
        path = self.round(k) / "place.txt"
        return path.read_text() if path.exists() else None

    def has_mapping(self, k: int) -> bool:
        """Whether there is a mapping of round k."""
        return (self.round(k) / MAPPING).exists()

    def mapping(self, k: int) -> LogMapping:
        """The mapping of round k."""
        return read_mapping(self._intact(k, MAPPING))


def _policy_name(hash: str) -> str:
    return f"policy-{hash[:16]}"


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise FileError(
            "the files of a campaign must be readable", found=f"{path}: {problem.strerror}"
        ) from problem


def _staged(path: Path, sha256: str) -> Path:
    return path.with_name(f".{path.name}.{sha256[:16]}")


PARTS = ("old", "new")
"""Folders of a candidate's two policies."""


def save_candidate(
    candidate: FrozenCandidate, facts: CandidateFacts, folder: Path, catalogue: Catalogue
) -> None:
    """Write a candidate: both policies, q-hat, and what was fixed, to read.

    Args:
        candidate: its policies and q-hat.
        facts: what was fixed.
        folder: where.
        catalogue: the actions.
    """
    for name, part in zip(PARTS, candidate.levels.parts, strict=True):
        if isinstance(part, BasePolicy):
            save(part, folder / name, catalogue=catalogue)
    save_model(candidate.model, folder / "model")
    write_file(folder / "fixed.json", codec.encode(facts, indent=1, sort_keys=True).encode())


def load_candidate(
    folder: Path, facts: CandidateFacts, inputs: RoundInputs, outside: Mapping[str, Scores]
) -> FrozenCandidate:
    """The candidate in `folder`, every part checked against the hashes that were recorded.

    Args:
        folder: where it was saved.
        facts: what the ledger recorded.
        inputs: what it was made from.
        outside: callables that policies were saved with by name.
    """
    certify = inputs.tested.certify
    catalogue = certify.catalogue
    contexts = certify.contexts if certify.candidates is None else NOWHERE
    loaded = [load(folder / name, catalogue=catalogue, outside=outside) for name in PARTS]
    inner = load_model(folder, facts.model, outside)
    hashes = [hash_of(part) for part in loaded]
    require(
        hashes == [facts.old, facts.new],
        "the files of a candidate must be those that were recorded",
        found=f"other policies in {folder}",
        cure="restore the folder from a copy; the ledger keeps the hashes",
        error=FileError,
    )
    model = CachedRewardModel(inner, contexts)
    pi0 = inputs.require_pi0()
    base = inputs.drawn_by or pi0
    # pi0 itself, where it is a part: what compares policies with `is` sees that they are the same
    pi0_hash = hash_of(pi0)
    old, new = (
        pi0 if hash == pi0_hash else CachedPolicy(part, contexts)
        for part, hash in zip(loaded, hashes, strict=True)
    )
    return FrozenCandidate(
        facts.ladder(old, new),
        new,
        facts.rules(base, model, new, catalogue, inputs.tested.registration),
        facts.expected,
        trust=facts.trust,
        model=model,
        certain=_certain(folder, facts, outside),
    )


def _certain(
    folder: Path, facts: CandidateFacts, outside: Mapping[str, Scores]
) -> BasePolicy | None:
    """What needs no certificate beside the candidate in `folder`; None if nothing does so."""
    if facts.certain_policy is None:
        return None
    policy = load(folder.parent / _policy_name(facts.certain_policy), outside=outside)
    require(
        hash_of(policy) == facts.certain_policy,
        "a policy's files must be those that were recorded",
        found=f"another policy than {facts.certain_policy[:16]} in {folder.parent}",
        cure="restore the folder from a copy; the ledger keeps the hashes",
        error=FileError,
    )
    return policy


def load_model(
    folder: Path, hash: str | None, outside: Mapping[str, Scores] | None = None
) -> BaseRewardModel:
    """q-hat of the candidate in `folder`, on which a control variate rests, by its hash."""
    model = BaseRewardModel.load(folder / "model", outside=outside)
    require(
        hash_of(model) == hash,
        "the files of a candidate must be those that were recorded",
        found=f"another model in {folder / 'model'}",
        cure="restore the folder from a copy; the ledger keeps the hashes",
        error=FileError,
    )
    return model
