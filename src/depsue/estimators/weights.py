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
from depsue.errors import PolicyError, require, short
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
    """Where a policy leaves the logs: novel actions that a row's round never shows.

    Rows of round 0 never can show them; those of a later round show some.

    Args:
        actions: (k,) positions of the novel actions that some round does not show.
        mass: the policy's probability of choosing one that the row's own round does not show,
            averaged over rows (or units).
    """

    actions: IntArray
    mass: float


class UnseenByRound:
    """Which novel actions each round of the logs does not show.

    Args:
        logs: the logs, of one round or several.
    """

    def __init__(self, logs: LoggedData) -> None:
        self._logs = logs
        rounds, self._round = np.unique(np.asarray(logs.round), return_inverse=True)
        shown = np.zeros((len(rounds), len(logs.catalogue)), dtype=bool)
        shown[self._round, logs.action] = True
        hidden = logs.catalogue.novel & ~shown
        self.actions = np.flatnonzero(hidden.any(axis=0))
        self._hidden = hidden[:, self.actions].T.astype(np.float64)

    def of(self, some: FloatArray) -> FloatArray:
        """(c, rounds) sums over the unseen actions of each round, from (c, k) at `actions`."""
        sums: FloatArray = np.asarray(some, dtype=np.float64) @ self._hidden
        return sums

    def average(self, sums: FloatArray) -> float:
        """The mean over rows (or units) of (u, rounds) sums, each row at its own round."""
        return average(sums[self._logs.context, self._round], self._logs)


def unseen(policy: Policy, logs: LoggedData) -> Unseen:
    """The unseen novel actions and the policy's mass on them."""
    rounds = UnseenByRound(logs)
    if len(rounds.actions) == 0:
        check_actions(policy, logs)
        return Unseen(rounds.actions, 0.0)
    mass = np.concatenate(
        [rounds.of(some[:, rounds.actions]) for _, some in distributions(policy, logs)]
    )
    return Unseen(rounds.actions, rounds.average(mass))


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
    rounds = UnseenByRound(logs)
    value = np.empty(len(logs.contexts))
    unseen_value, mass = [], []
    for piece, probabilities in distributions(policy, logs):
        predicted = predictions(model, logs, piece)
        value[piece] = _sum_of_products(probabilities, predicted)
        some = probabilities[:, rounds.actions]
        unseen_value.append(rounds.of(some * predicted[:, rounds.actions]))
        mass.append(rounds.of(some))
    return ModelSums(
        value[logs.context],
        rounds.average(np.concatenate(unseen_value)),
        Unseen(rounds.actions, rounds.average(np.concatenate(mass))),
    )


def distributions(policy: Policy, logs: LoggedData) -> Iterator[tuple[slice, FloatArray]]:
    """The policy's distributions over the distinct contexts: (slice, (c, A)) in turn."""
    check_actions(policy, logs)
    return policy.distributions(logs.contexts)


def check_actions(policy: Policy, logs: LoggedData) -> None:
    """Refuse what is not a policy, or one over other actions than the catalogue's."""
    require(
        isinstance(policy, Policy),
        "estimators take a policy",
        found=short(policy),
        cure="for a trained one: trained.policy",
        error=PolicyError,
    )
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
