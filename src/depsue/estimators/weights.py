"""What a policy does on logs: the one computation that all estimators share.

Rows cost one call of `log_prob`; whole distributions are read once per distinct context, a chunk
at a time, and summed on the spot. Shapes: n rows, u distinct contexts, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.terms import Terms
from depsue.errors import PolicyError, require
from depsue.estimators.predictions import predictions
from depsue.protocols import Policy, RewardModel


def importance_weights(policy: Policy, logs: LoggedData) -> FloatArray:
    """(n,) w_i = pi(a_i | x_i) / p_i, where p_i is the row's own propensity."""
    check_actions(policy, logs)
    chosen = np.exp(policy.log_prob(logs.contexts, logs.action, logs.context))
    weights: FloatArray = np.asarray(chosen, dtype=np.float64) / logs.propensity
    return weights


def average(values: FloatArray, logs: LoggedData) -> float:
    """The mean of (n,) values over rows, or over units where the logs have them."""
    return Terms(values, -math.inf, unit=logs.unit).mean()


@dataclass(frozen=True, eq=False)
class Unseen:
    """Where a policy leaves the logs: novel actions that they never show.

    Args:
        actions: (k,) positions of the novel actions that do not occur in the logs.
        mass: the policy's probability of choosing one of them, averaged over rows (or units).
    """

    actions: IntArray
    mass: float


def unseen_actions(logs: LoggedData) -> IntArray:
    """(k,) positions of the novel actions that do not occur in the logs."""
    shown = np.zeros(len(logs.catalogue), dtype=bool)
    shown[logs.action] = True
    return np.flatnonzero(logs.catalogue.novel & ~shown)


def unseen(policy: Policy, logs: LoggedData) -> Unseen:
    """The unseen novel actions and the policy's mass on them."""
    actions = unseen_actions(logs)
    return Unseen(actions, mass_on(policy, logs, actions))


def mass_on(policy: Policy, logs: LoggedData, actions: IntArray) -> float:
    """The policy's probability of the given actions, averaged over rows (or units)."""
    if len(actions) == 0:
        return 0.0
    mass = np.empty(len(logs.contexts))
    for piece, probabilities in distributions(policy, logs):
        mass[piece] = probabilities[:, actions].sum(axis=1, dtype=np.float64)
    return average(mass[logs.context], logs)


@dataclass(frozen=True, eq=False)
class ModelSums:
    """What a reward model says of a policy.

    Args:
        value: (n,) sum over all actions of pi(a|x) q(x, a), at each row's context.
        unseen_value: the part of its average that comes from the unseen novel actions.
        unseen: those actions and the policy's mass on them.
    """

    value: FloatArray
    unseen_value: float
    unseen: Unseen


def model_sums(policy: Policy, logs: LoggedData, model: RewardModel) -> ModelSums:
    """The sums of pi q, over all actions and over the unseen ones, in one pass."""
    actions = unseen_actions(logs)
    value, unseen_value, mass = np.empty((3, len(logs.contexts)))
    for piece, probabilities in distributions(policy, logs):
        predicted = predictions(model, logs, piece)
        value[piece] = _sum_of_products(probabilities, predicted)
        some = probabilities[:, actions]
        unseen_value[piece] = _sum_of_products(some, predicted[:, actions])
        mass[piece] = some.sum(axis=1, dtype=np.float64)
    return ModelSums(
        value[logs.context],
        average(unseen_value[logs.context], logs),
        Unseen(actions, average(mass[logs.context], logs)),
    )


def distributions(policy: Policy, logs: LoggedData) -> Iterator[tuple[slice, FloatArray]]:
    """The policy's distributions over the distinct contexts: (slice, (c, A)) in turn."""
    check_actions(policy, logs)
    return policy.distributions(logs.contexts)


def check_actions(policy: Policy, logs: LoggedData) -> None:
    """Refuse a policy over other actions than the catalogue's."""
    require(
        policy.n_actions == len(logs.catalogue),
        "a policy must be over the actions of the catalogue",
        found=f"{policy.n_actions} actions in the policy, {len(logs.catalogue)} in the catalogue",
        cure="build both from the same catalogue",
        error=PolicyError,
    )


def _sum_of_products(left: FloatArray, right: FloatArray) -> FloatArray:
    """(c,) row-wise sums of left * right, in double precision whatever the inputs are."""
    sums: FloatArray = np.einsum("ca,ca->c", left, right, dtype=np.float64, casting="same_kind")
    return sums
