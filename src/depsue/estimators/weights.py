"""What a policy does on logs: the one computation that all estimators share.

`importance_weights` are the rows' weights, by one call of `log_prob`. Sums over whole
distributions (`model_sums`, `unseen`, `mass_on`) read each distinct request once, a chunk at a
time, and are summed on the spot. Predictions of a reward model are checked to be finite, of the
right shape and within [0, r_max]: the lower limits that estimators declare rest on this range.
`mean_estimate` turns terms into an `Estimate`, with one warning where the policy leaves the logs.

Shapes: n rows, u distinct contexts, A actions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.data.terms import Terms
from depsue.errors import NovelMassWarning, PolicyError, require, short
from depsue.protocols import Estimate, Policy, RewardModel, predicted

SLACK = 1e-6
"""Predictions may leave [0, r_max] by this share of r_max (rounding), and are then moved in."""
LARGEST_TABLE = 1 << 22
"""Probabilities that are held at once."""
NEGLIGIBLE = 1e-12
"""Mass on unseen actions up to here is rounding: no warning."""


def importance_weights(policy: Policy, logs: LoggedData) -> FloatArray:
    """(n,) w_i = pi(a_i | x_i) / p_i, where p_i is the row's own propensity."""
    check_actions(policy, logs)
    ask = getattr(policy, "row_probabilities", None)  # of every BasePolicy
    if ask is None:
        chosen = np.exp(policy.log_prob(logs.requests, logs.action, logs.context))
    else:
        chosen = ask(logs)
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

    def of(self, table: FloatArray, requests: Requests) -> FloatArray:
        """(c, rounds) sums over the unseen actions of each round, from (c, L) values."""
        if requests.sets is None:
            columns = np.asarray(table[:, self.actions], dtype=np.float64)
            sums: FloatArray = columns @ self._hidden
            return sums
        hidden = np.zeros((self._hidden.shape[1], len(self._logs.catalogue)))
        hidden[:, self.actions] = self._hidden.T
        places = requests.places(hidden.shape[1])
        return np.stack([(table * places.pick(of_round)).sum(axis=1) for of_round in hidden], 1)

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
        [rounds.of(pi, logs.requests[piece]) for piece, pi in distributions(policy, logs)]
    )
    return Unseen(rounds.actions, rounds.average(mass))


def mass_on(policy: Policy, logs: LoggedData, actions: IntArray) -> float:
    """The policy's probability of the given actions, averaged over rows (or units)."""
    if len(actions) == 0:
        return 0.0
    mass, chosen = np.empty(len(logs.contexts)), np.zeros(len(logs.catalogue), dtype=bool)
    chosen[actions] = True
    for piece, probabilities in distributions(policy, logs):
        mass[piece] = mass_of(probabilities, logs.requests[piece], chosen)
    return average(mass[logs.context], logs)


def mass_of(table: FloatArray, requests: Requests, actions: Mask) -> FloatArray:
    """(c,) the sums of (c, L) values over some actions, given as a mask over all A."""
    if requests.sets is None:
        return np.asarray(table[:, actions].sum(axis=1, dtype=np.float64))
    mine = requests.places(len(actions)).pick(actions, False)
    return np.asarray((table * mine).sum(axis=1, dtype=np.float64))


def novelty_on(policy: Policy, logs: LoggedData) -> float:
    """N(pi) over the contexts of the logs, each counted as in the logs' mean reward."""
    novel = logs.catalogue.novel
    weights = np.bincount(logs.context, logs.row_weights, minlength=len(logs.contexts))
    return sum(
        float((weights[piece] * mass_of(pi, logs.requests[piece], novel)).sum())
        for piece, pi in _besides_pi0(policy, logs.requests)
    )


def _besides_pi0(policy: Policy, requests: Requests) -> Iterator[tuple[slice, FloatArray]]:
    """What a policy shows, without what pi0 chose where only that is known: nothing novel."""
    if not getattr(policy, "rests_on_choice", False):
        yield from policy.distributions(requests)
        return
    ask = policy.besides_pi0  # type: ignore[attr-defined]  # of every BasePolicy
    for piece in requests.chunks(policy.n_actions, LARGEST_TABLE):
        yield piece, ask(requests[piece])


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
        q, requests = predictions(model, logs, piece), logs.requests[piece]
        value[piece] = _sum_of_products(probabilities, q)
        unseen_value.append(rounds.of(probabilities * q, requests))
        mass.append(rounds.of(probabilities, requests))
    return ModelSums(
        value[logs.context],
        rounds.average(np.concatenate(unseen_value)),
        Unseen(rounds.actions, rounds.average(np.concatenate(mass))),
    )


def distributions(policy: Policy, logs: LoggedData) -> Iterator[tuple[slice, FloatArray]]:
    """The policy's distributions over the distinct contexts: (slice, (c, A)) in turn."""
    check_actions(policy, logs)
    return policy.distributions(logs.requests)


def predictions(model: RewardModel, logs: LoggedData, piece: slice) -> FloatArray:
    """(c, L) q(x, a) for the distinct requests in `piece` and all of their candidates."""
    requests = logs.requests[piece]
    shape = (len(requests), requests.width(len(logs.catalogue)))
    return _checked(predicted(model, requests), shape, logs.r_max)


def logged_predictions(model: RewardModel, logs: LoggedData) -> FloatArray:
    """(n,) q(x_i, a_i) for the logged pairs."""
    pairs = model.predict_pairs(logs.contexts, logs.action, logs.context)
    return _checked(pairs, (len(logs),), logs.r_max)


def _checked(answers: Any, shape: tuple[int, ...], r_max: float) -> FloatArray:
    values = np.asarray(answers)
    require(
        values.shape == shape,
        "a reward model must predict one value per context and action",
        found=f"shape {values.shape} instead of {shape}",
        cure="predict for every action of the catalogue",
    )
    least, most = float(values.min()), float(values.max())
    # written so that NaN fails too
    require(
        least >= -SLACK * r_max and most <= (1 + SLACK) * r_max,
        f"a reward model must predict within [0, r_max] with r_max = {r_max:g}",
        found=f"[{least:g}, {most:g}]",
        cure="clip the predictions, or declare the r_max that the rewards have",
    )
    if least < 0 or most > r_max:
        return np.clip(values.astype(np.float64), 0, r_max)
    return values


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


def mean_estimate(name: str, terms: Terms, unseen: Unseen, effect: str) -> Estimate:
    """The mean of the terms, as an estimate.

    To be called by `estimate` itself, so that the warning points at the caller's line.

    Args:
        name: the estimator, as the warning calls it.
        terms: the per-row terms.
        unseen: the policy's mass on novel actions that the logs never show.
        effect: what that mass does to this estimator, with figures.
    """
    notes = unseen_notes(name, unseen, effect, stacklevel=4)
    return Estimate(terms.mean(), standard_error(terms), terms, unseen.mass, notes)


def unseen_notes(name: str, unseen: Unseen, effect: str, *, stacklevel: int) -> tuple[str, ...]:
    """The note on unseen mass, warned of at `stacklevel`; none if the mass is negligible."""
    if unseen.mass <= NEGLIGIBLE:
        return ()
    count = len(unseen.actions)
    note = (
        f"{name}: the policy makes {unseen.mass:.4g} of its choices among {count:,} novel "
        f"action{'s' if count > 1 else ''} that the logs never show; {effect}"
    )
    warnings.warn(note, NovelMassWarning, stacklevel=stacklevel)
    return (note,)


def standard_error(terms: Terms) -> float:
    """Of the mean of the terms (per unit where there are units); inf for a single value."""
    values = terms.per_unit(terms.values)
    if len(values) < 2:
        return math.inf
    return float(values.std(ddof=1)) / math.sqrt(len(values))
