"""The files of a campaign: a folder for each round, all written whole or not at all.

::

    HOME/ledger.db                    the ledger, unless it is elsewhere
    HOME/NAME/pi0/                    the logging policy
    HOME/NAME/round-0/items.parquet   the catalogue that round 0's rows are read with
    HOME/NAME/round-0/mapping.toml    which column of its logs is what
    HOME/NAME/round-1/candidate-.../  what was fixed before the verdict: two policies, q-hat
    HOME/NAME/round-1/policy-.../     what may be served: certified, or certain

Rows of logs stay where the team keeps them. A candidate's hash is over everything that it fixed,
hashes of its policies and of q-hat included: what is certified is what was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from depsue import codec
from depsue.campaigns.records import CandidateFacts
from depsue.data.catalogue import Catalogue
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping, read_mapping, to_toml
from depsue.data.writing import write_items
from depsue.errors import FileError, require, short
from depsue.exploration.round import FrozenCandidate, RoundInputs
from depsue.files import write_file
from depsue.policies import BasePolicy, load, save
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.rewards.base import BaseRewardModel, save_model
from depsue.savable import hash_of
from depsue.scores import Scores

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class CampaignFiles:
    """Where the files of one campaign are.

    Args:
        home: the folder of all campaigns.
        name: of the campaign.
    """

    def __init__(self, home: str | Path, name: str) -> None:
        require(
            isinstance(name, str) and _NAME.fullmatch(name) is not None,
            "a campaign's name has 1 to 64 letters, digits, - and _: it names a folder",
            found=short(name),
            cure="for example spring-2027",
        )
        self.folder = Path(home) / name

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
        return self.round(k) / f"policy-{hash[:16]}"

    def save_items(self, k: int, catalogue: Catalogue) -> None:
        """Keep the catalogue of round k; it is an items file like the team's own."""
        write_items(catalogue, self.round(k) / "items.parquet")

    def items(self, k: int) -> Catalogue:
        """The catalogue of round k."""
        items = read_items(self.round(k) / "items.parquet", id="id").catalogue
        features = None if items.features is None else np.asarray(items.features)
        return Catalogue(items.ids, items.novel, features)

    def save_place(self, k: int, place: str) -> None:
        """Remember that the logs of round k were moved."""
        write_file(self.round(k) / "place.txt", place.encode())

    def place(self, k: int) -> str | None:
        """Where the logs of round k were moved to; None if they were not."""
        path = self.round(k) / "place.txt"
        return path.read_text() if path.exists() else None

    def save_mapping(self, k: int, mapping: LogMapping) -> None:
        """Keep the mapping of round k."""
        write_file(self.round(k) / "mapping.toml", to_toml(mapping).encode())

    def has_mapping(self, k: int) -> bool:
        """Whether there is a mapping of round k."""
        return (self.round(k) / "mapping.toml").exists()

    def mapping(self, k: int) -> LogMapping:
        """The mapping of round k."""
        return read_mapping(self.round(k) / "mapping.toml")


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
    catalogue, contexts = inputs.tested.certify.catalogue, inputs.tested.certify.contexts
    loaded = [load(folder / name, catalogue=catalogue, outside=outside) for name in PARTS]
    inner = load_model(folder)
    hashes = [hash_of(part) for part in loaded]
    require(
        hashes == [facts.old, facts.new] and hash_of(inner) == facts.model,
        "the files of a candidate must be those that were recorded",
        found=f"other policies or another model in {folder}",
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
        facts.rules(base, model),
        facts.expected,
        trust=facts.trust,
        model=model,
    )


def load_model(folder: Path) -> BaseRewardModel:
    """q-hat of the candidate in `folder`, on which a control variate rests."""
    return BaseRewardModel.load(folder / "model")
