"""Were these rows drawn by this policy? The exact check, where the policy can be asked."""

from __future__ import annotations

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import DataError, require, short
from depsue.protocols import Environment, Policy

TOLERANCE = 1e-3
"""Propensities are the same if they differ by less than 0.1%."""


def unlike(
    policy: Policy,
    requests: Requests,
    action: IntArray,
    context: IntArray,
    propensity: FloatArray,
) -> tuple[IntArray, FloatArray]:
    """Which of n rows the policy did not draw with their propensity; and (n,) what it says."""
    own = np.exp(policy.log_prob(requests, action, context))
    return np.flatnonzero(~(np.abs(own / propensity - 1) < TOLERANCE)), own


def drawn_probabilities(policy: Policy, logs: LoggedData) -> FloatArray:
    """(n,) with which probability a policy draws each row as it was logged."""
    ask = getattr(policy, "drawn_probabilities", None)  # of every BasePolicy
    if ask is not None:
        return np.asarray(ask(logs))
    return np.exp(policy.log_prob(logs.requests, logs.action, logs.context))


def require_drawn_by(policy: Policy, logs: LoggedData) -> None:
    """Refuse propensities that are not the policy's own probabilities, to 0.1%."""
    own = drawn_probabilities(policy, logs)
    wrong = np.flatnonzero(~(np.abs(own / logs.propensity - 1) < TOLERANCE))
    if len(wrong):
        row = int(wrong[0])
        _require_one_version(logs, wrong)
        raise DataError(
            "propensities must be those of the deployed policy, to 0.1%",
            column="propensity",
            row=row,
            value=f"{logs.propensity[row]:.6g}, while the policy says {own[row]:.6g}",
            count=len(wrong),
            cure="log the probability that policy.sample returned with the action",
        )


def _require_one_version(logs: LoggedData, wrong: IntArray) -> None:
    """Say so where rows of some versions of pi0 are this policy's, and those of others are not."""
    if logs.version is None:
        return
    bad, rows = np.unique(logs.version[wrong], return_counts=True)
    good = np.setdiff1d(logs.version, bad)
    if len(good):
        named = ", ".join(f"{name!r} ({n:,})" for name, n in zip(bad[:3], rows[:3], strict=True))
        raise DataError(
            "pi0 changed: rows of another version are not this policy's",
            column="version",
            found=f"{len(wrong):,} rows of {named}; those of {', '.join(map(repr, good[:3]))} are",
            cure="give the rows of one version, and the policy of that version",
        )


def observe_deployment(environment: Environment, policy: Policy, m: int, k: int) -> LoggedData:
    """Deploy a policy for m decisions, as round k, and check that it drew the rows logged."""
    logs = environment.deploy(policy, m, round=k)
    require(
        isinstance(logs, LoggedData),
        "deploy must return LoggedData",
        found=short(logs),
        cure="build it with LoggedData.from_arrays or from_frame",
    )
    wrong = np.flatnonzero(logs.round != k)
    if len(wrong):
        raise DataError(
            f"the logs of deployment {k} must have round {k}",
            column="round",
            row=int(wrong[0]),
            value=int(np.asarray(logs.round)[wrong[0]]),
            count=len(wrong),
            cure=f"pass rounds=np.full(n, {k})",
        )
    require_drawn_by(policy, logs)
    return logs
