"""Policies on disk: `save` and `load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from depsue import artifacts
from depsue.errors import DepsueError, FileError
from depsue.policies.base import BasePolicy
from depsue.policies.scores import OwnPolicy
from depsue.policies.simple import EpsilonGreedy, Mixture, SoftmaxOfScores, Uniform

FAMILY = "policy"


def save(policy: BasePolicy, folder: str | Path) -> None:
    """Write a policy to `folder`, replacing one that is there."""
    settings, arrays = policy.state()
    artifacts.write(folder, family=FAMILY, kind=policy.kind, settings=settings, arrays=arrays)


def load(folder: str | Path) -> BasePolicy:
    """The policy in `folder`; a damaged one, or one of another version, is refused."""
    return rebuild(*artifacts.read(folder, family=FAMILY))


def rebuild(kind: str, settings: dict[str, Any], arrays: dict[str, Any]) -> BasePolicy:
    """A policy of the given kind from its settings and arrays."""
    from depsue.policies.network import NetworkPolicy

    kinds: dict[str, Any] = {
        p.kind: p
        for p in (EpsilonGreedy, Mixture, NetworkPolicy, OwnPolicy, SoftmaxOfScores, Uniform)
    }
    if kind not in kinds:
        raise FileError(
            f"a saved policy must be one of {', '.join(kinds)}",
            found=kind,
            cure="use the version of depsue that wrote it",
        )
    try:
        policy: BasePolicy = kinds[kind].from_state(settings, arrays)
    except (KeyError, TypeError, ValueError, DepsueError) as problem:
        raise FileError(
            f"the settings and arrays of a saved {kind} policy must fit together",
            found=f"{type(problem).__name__}: {problem}",
        ) from problem
    return policy
