"""The files of a campaign: a folder for each round, all written whole or not at all.

::

    HOME/ledger.db                    the ledger, unless it is elsewhere
    HOME/NAME/pi0/                    the logging policy
    HOME/NAME/round-0/items.parquet   the catalogue that round 0's rows are read with
    HOME/NAME/round-0/mapping.toml    which column of its logs is what
    HOME/NAME/round-1/candidate-.../  what was fixed before the verdict
    HOME/NAME/round-1/policy-.../     what may be served: certified, or certain

Rows of logs stay where the team keeps them.

What a round fixed before its verdict, on disk: both parts, q-hat, and `fixed.json`.

The hash of a candidate is over the parts, q-hat and everything fixed, so a candidate that is
certified is the one that was recorded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from depsue import artifacts
from depsue.certificates import Ceiling, Control, Credit, MixtureLadder, Rules, policy_hash
from depsue.certificates.strict import model_hash
from depsue.data.catalogue import ActionCatalogue
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping, read_mapping, to_toml
from depsue.data.writing import write_items
from depsue.errors import FileError, PolicyError, require, short
from depsue.exploration.round import Expected, FrozenCandidate, RoundInputs
from depsue.files import write_file
from depsue.policies import BasePolicy, load, save
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.policies.scores import Scores
from depsue.promises import Promise
from depsue.protocols import Policy, RewardModel
from depsue.rewards.linear import rebuilt, state_of

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

    def save_items(self, k: int, catalogue: ActionCatalogue) -> None:
        """Keep the catalogue of round k; it is an items file like the team's own."""
        write_items(catalogue, self.round(k) / "items.parquet")

    def items(self, k: int) -> ActionCatalogue:
        """The catalogue of round k."""
        found = read_items(self.round(k) / "items.parquet", id="id").catalogue
        features = None if found.features is None else np.asarray(found.features)
        return ActionCatalogue(found.ids, found.novel, features)

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

    def mapping(self, k: int) -> LogMapping:
        """The mapping of round k."""
        return read_mapping(self.round(k) / "mapping.toml")


FAMILY = "reward model"
PARTS = ("old", "new")


def fixed_of(prepared: FrozenCandidate) -> dict[str, Any]:
    """All that was fixed beforehand, as JSON values; policies and q-hat by their hashes."""
    rules = prepared.rules
    control = rules.control
    return {
        "promises": [one.to_dict() for one in rules.promises],
        "delta": rules.delta,
        "bound": rules.bound,
        "clip": rules.clip,
        "largest": rules.largest,
        "ceilings": {name: asdict(one) for name, one in rules.ceilings.items()},
        "credits": {name: asdict(one) for name, one in rules.credits.items()},
        "control": control and {"most": control.most, "coefficients": dict(control.coefficients)},
        "assumptions": list(rules.assumptions),
        "shares": [[float(x) for x in row] for row in prepared.levels.shares],
        "expected": asdict(prepared.expected),
        "trust": prepared.trust,
        "parts": [hash_of(part) for part in prepared.levels.parts],
        "model": model_hash(prepared.model),
    }


def candidate_hash(fixed: Mapping[str, Any]) -> str:
    """SHA-256 of what was fixed."""
    text = json.dumps(fixed, sort_keys=True, allow_nan=False)
    return hashlib.sha256(f"depsue candidate 1 {text}".encode()).hexdigest()


def hash_of(policy: Policy | None) -> str:
    """The hash of a policy that can be saved."""
    found = None if policy is None else policy_hash(policy)
    if found is None:
        raise PolicyError(
            "a campaign's policies must be savable, so that what was certified can be served",
            found=f"{type(policy).__name__}",
            cure="give pi0 as a saved folder, an ONNX file or a table; see the policies page",
        )
    return found


def said_of_outside(policy: BasePolicy) -> list[str]:
    """What a certificate must say if pi0 is saved by name alone."""
    name = policy.state()[0].get("outside")
    if name is None:
        return []
    return [f"pi0 is the model {name!r}, which is not in the files: what serves calls the same one"]


def save_prepared(
    prepared: FrozenCandidate, folder: Path, catalogue: ActionCatalogue
) -> dict[str, Any]:
    """Write a candidate; returns what was fixed."""
    fixed = fixed_of(prepared)
    for name, part in zip(PARTS, prepared.levels.parts, strict=True):
        if isinstance(part, BasePolicy):
            save(part, folder / name, catalogue=catalogue)
    kind, settings, arrays = state_of(_inner(prepared.model))
    artifacts.write(folder / "model", family=FAMILY, kind=kind, settings=settings, arrays=arrays)
    text = json.dumps(fixed, indent=1, sort_keys=True)
    write_file(folder / "fixed.json", text.encode())
    return fixed


def load_prepared(
    folder: Path, fixed: Mapping[str, Any], before: RoundInputs, outside: Mapping[str, Scores]
) -> FrozenCandidate:
    """The candidate in `folder`, every part checked against the hashes in `fixed`.

    Args:
        folder: where it was saved.
        fixed: what the ledger recorded.
        before: what it was made from.
        outside: callables that policies were saved with by name.
    """
    catalogue = before.folds.certify.catalogue
    contexts = before.folds.certify.contexts
    loaded = [load(folder / name, catalogue=catalogue, outside=outside) for name in PARTS]
    inner = load_model(folder)
    found = [policy_hash(part) for part in loaded]
    require(
        found == list(fixed["parts"]) and model_hash(inner) == fixed["model"],
        "the files of a candidate must be those that were recorded",
        found=f"other policies or another model in {folder}",
        cure="restore the folder from a copy; the ledger keeps the hashes",
        error=FileError,
    )
    model = CachedRewardModel(inner, contexts)
    base = before.logging_policy if before.base is None else before.base
    control = fixed["control"] and Control(base, model, **fixed["control"])
    rules = Rules(
        promises=tuple(Promise.from_dict(one) for one in fixed["promises"]),
        delta=fixed["delta"],
        bound=fixed["bound"],
        clip=fixed["clip"],
        largest=fixed["largest"],
        ceilings={name: Ceiling(**one) for name, one in fixed["ceilings"].items()},
        credits={name: Credit(**one) for name, one in fixed["credits"].items()},
        control=control or None,
        assumptions=tuple(fixed["assumptions"]),
    )
    pi0 = policy_hash(before.logging_policy)
    parts = tuple(
        before.logging_policy if own == pi0 else CachedPolicy(part, contexts)
        for part, own in zip(loaded, found, strict=True)
    )
    return FrozenCandidate(
        MixtureLadder(parts, fixed["shares"]),
        parts[1],
        rules,
        Expected(**fixed["expected"]),
        trust=fixed["trust"],
        model=model,
    )


def load_model(folder: Path) -> RewardModel:
    """q-hat of the candidate in `folder`, on which a control variate rests."""
    return rebuilt(*artifacts.read(folder / "model", family=FAMILY))


def _inner(model: RewardModel) -> RewardModel:
    return model.model if isinstance(model, CachedRewardModel) else model
