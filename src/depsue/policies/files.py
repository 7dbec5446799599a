"""Policies on disk: `save` and `load`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import cast

from depsue import artifacts
from depsue.data.catalogue import Catalogue
from depsue.errors import FileError, PolicyError, require, require_path, short
from depsue.policies.base import BasePolicy
from depsue.savable import POLICY, described, rebuilt
from depsue.scores import Scores


def save(policy: BasePolicy, folder: str | Path, *, catalogue: Catalogue | None = None) -> None:
    """Write a policy to `folder`, replacing one that is there.

    Args:
        policy: the policy.
        folder: where.
        catalogue: the actions it chooses from; its hash is kept, so that `load` can tell.
    """
    require(
        isinstance(policy, BasePolicy),
        "save takes a policy",
        found=short(policy),
        cure="for a trained one: save(trained.policy, ...); a reward model has save of its own",
        error=PolicyError,
    )
    kind, settings, arrays = described(policy, POLICY)
    actions = None if catalogue is None else catalogue.hash
    artifacts.write(
        folder,
        family=POLICY,
        kind=kind,
        settings={"catalogue": actions, "policy": settings},
        arrays=arrays,
    )


def load(
    folder: str | Path,
    *,
    catalogue: Catalogue | None = None,
    outside: Mapping[str, Scores] | None = None,
) -> BasePolicy:
    """The policy in `folder`; a damaged one, or one of another version, is refused.

    With a catalogue, a policy that was saved for another one is refused, too: its actions are
    positions in the catalogue and would come out as other items. `outside` hands in the callables
    that were saved by name (`depsue.scores.ExternalModel`).
    """
    require_path(folder, "a saved policy")
    kind, settings, arrays = artifacts.read(folder, family=POLICY)
    saved_for = settings.get("catalogue")
    require(
        catalogue is None or saved_for == catalogue.hash,
        "the policy must have been saved for this catalogue",
        found=f"catalogue {saved_for} in {folder}" if saved_for else f"no catalogue in {folder}",
        cure="load it with the catalogue that it was saved with: save(policy, folder, catalogue=)",
        error=FileError,
    )
    _import_kinds()
    return cast(BasePolicy, rebuilt(POLICY, kind, settings.get("policy") or {}, arrays, outside))


@cache
def _import_kinds() -> None:
    """Import every module of the two packages: a kind registers itself when it is imported.

    Only here, because some of them load torch.
    """
    for name in ("depsue.policies", "depsue.rewards"):
        for module in iter_modules(import_module(name).__path__):
            import_module(f"{name}.{module.name}")
