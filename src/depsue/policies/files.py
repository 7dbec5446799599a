"""Policies on disk: `save` and `load`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from depsue import artifacts
from depsue.data.catalogue import ActionCatalogue
from depsue.errors import DepsueError, FileError, PolicyError, require, short
from depsue.policies.base import BasePolicy
from depsue.policies.restricted import RestrictedPolicy
from depsue.policies.scores import HANDED_IN, OwnPolicy, Scores
from depsue.policies.simple import ByItem, EpsilonGreedy, Mixture, SoftmaxOfScores, Uniform
from depsue.policies.tilted import ModelSoftmax, Tilted

FAMILY = "policy"


def save(
    policy: BasePolicy, folder: str | Path, *, catalogue: ActionCatalogue | None = None
) -> None:
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
    settings, arrays = policy.state()
    actions = None if catalogue is None else catalogue.hash
    artifacts.write(
        folder,
        family=FAMILY,
        kind=policy.kind,
        settings={"catalogue": actions, "policy": settings},
        arrays=arrays,
    )


def load(
    folder: str | Path,
    *,
    catalogue: ActionCatalogue | None = None,
    outside: Mapping[str, Scores] | None = None,
) -> BasePolicy:
    """The policy in `folder`; a damaged one, or one of another version, is refused.

    With a catalogue, a policy that was saved for another one is refused, too: its actions are
    positions in the catalogue and would come out as other items. `outside` hands in the callables
    that were saved by name (`depsue.policies.scores.ExternalModel`).
    """
    kind, settings, arrays = artifacts.read(folder, family=FAMILY)
    saved_for = settings.get("catalogue")
    require(
        catalogue is None or saved_for == catalogue.hash,
        "the policy must have been saved for this catalogue",
        found=f"catalogue {saved_for} in {folder}" if saved_for else f"no catalogue in {folder}",
        cure="load it with the catalogue that it was saved with: save(policy, folder, catalogue=)",
        error=FileError,
    )
    token = HANDED_IN.set({} if outside is None else outside)
    try:
        return rebuild(kind, settings.get("policy"), arrays)
    finally:
        HANDED_IN.reset(token)


def rebuild(kind: str, settings: Any, arrays: dict[str, Any]) -> BasePolicy:
    """A policy of the given kind from its settings and arrays."""
    from depsue.policies.network import NetworkPolicy

    known = (
        RestrictedPolicy,
        ByItem,
        ModelSoftmax,
        EpsilonGreedy,
        Mixture,
        NetworkPolicy,
        OwnPolicy,
        SoftmaxOfScores,
        Tilted,
        Uniform,
    )
    kinds: dict[str, Any] = {p.kind: p for p in known}
    if kind not in kinds:
        raise FileError(
            f"a saved policy must be one of {', '.join(kinds)}",
            found=kind,
            cure="use the version of depsue that wrote it",
        )
    try:
        policy: BasePolicy = kinds[kind].from_state(settings, arrays)
    except (KeyError, TypeError, ValueError, DepsueError) as problem:
        if isinstance(problem.__cause__, ImportError):  # an extra is missing: its error says which
            raise
        raise FileError(
            f"the settings and arrays of a saved {kind} policy must fit together",
            found=f"{type(problem).__name__}: {problem}",
        ) from problem
    return policy
