"""The seams of depsue. Read this first.

Everything that can be swapped answers one of these small protocols: a `Policy` chooses actions,
a `RewardModel` predicts rewards, an `Estimator` estimates V(pi) from logs, a `Bound` turns
conservative terms into a lower confidence bound, an `Environment` deploys a policy and returns
what happened. Estimators return terms, bounds take terms: neither knows of the other.

Shapes, everywhere: n rows, u distinct contexts, A actions, d features, B ensemble members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests, as_requests
from depsue.data.terms import ConservativeTerms, Terms


@runtime_checkable
class Policy(Protocol):
    """pi(a | request) over A actions. Three calls; none needs an (n, A) matrix in memory.

    What is asked about are `Requests`: contexts with their candidates. A policy that derives from
    `BasePolicy` also takes a plain (u, d) array of contexts, for all candidates.
    """

    @property
    def n_actions(self) -> int:
        """A."""
        ...

    def log_prob(
        self, requests: Requests, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) log pi(a_i | requests[rows_i]), -inf where the probability is 0.

        There are u requests and `rows` (n,) points at them; without `rows`, u = n.
        """
        ...

    def sample(
        self, requests: Requests, rng: np.random.Generator, rows: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """(n,) actions drawn from pi and (n,) the probabilities they were drawn with."""
        ...

    def distributions(
        self, requests: Requests, chunk: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Whole distributions, a chunk of requests at a time: (slice, (c, A) probabilities)."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """q-hat(x, a): predicted mean reward in [0, r_max]."""

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        ...

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs: `rows` points into the (u, d) contexts; without it, u = n."""
        ...


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate of V(pi).

    Args:
        value: the estimate.
        standard_error: of the mean of the terms; None where the estimate is not a mean.
        terms: per-row terms; None where the estimate is not a mean.
        unseen_mass: the mass of pi on actions that the logs never show and pi0 could not show.
        notes: what that mass does to this estimator, with figures.
    """

    value: float
    standard_error: float | None
    terms: Terms | None
    unseen_mass: float
    notes: tuple[str, ...] = ()


class Estimator(Protocol):
    """Estimates V(pi) from the logs of another policy."""

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The estimate, with a `NovelMassWarning` where pi leaves the logs' support."""
        ...


@dataclass(frozen=True)
class BoundValue:
    """A lower confidence bound and all that it rests on.

    Args:
        value: the bound; at most V(pi) in all but a fraction delta of repetitions.
        mean: the mean of the terms that the bound was computed from.
        n: how many independent values (rows, or units) it was computed from.
        delta: the error budget.
        constants: the declared and tuned numbers (tau, scale, ...) and the bound's name.
    """

    value: float
    mean: float
    n: int
    delta: float
    constants: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Bound(Protocol):
    """A one-sided lower confidence bound on the mean of conservative terms.

    Those of depsue derive from `depsue.bounds.BaseBound`: they conclude from sums over partitions.
    """

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        """The bound at delta; terms that are not conservative are refused."""
        ...


class Environment(Protocol):
    """Where policies are deployed: a simulator, or a service and its logs."""

    @property
    def catalogue(self) -> Catalogue:
        """The actions, novel ones included."""
        ...

    @property
    def logging_policy(self) -> Policy:
        """pi0, the policy in production."""
        ...

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """Serve n decisions by `policy` and return them as the logs of that round."""
        ...


def predicted(model: RewardModel, requests: Requests | FloatArray) -> FloatArray:
    """(m, L) predictions for the candidates of a chunk of requests; 0 at places without one."""
    requests = as_requests(requests)
    sets = requests.sets
    if sets is None:
        return np.asarray(model.predict(requests.contexts))
    ask = getattr(model, "predict_candidates", None)  # of a model that remembers its answers
    if ask is None:
        values = np.asarray(model.predict_pairs(requests.contexts, sets.items, sets.request))
    else:
        values = np.asarray(ask(requests))
    return requests.table(values, 0)
