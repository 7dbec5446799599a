"""Algorithm 1: Safe Off-Policy Policy Gradient (Safe OPG), Eq. 3 to 8.

`train_safe_opg` is the algorithm. `BoundOnLogs` below it computes the bound of a changing policy on
fixed logs (Eq. 4) fast enough for every step of training. A row with reward 0 has the term 0
whatever its weight, and rows share contexts. So one pass over the distinct contexts of rewarded
rows gives the normalising constants of the softmax, and only the logits of those rows are looked
up. Buffers are allocated once.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from depsue.bounds import Hcope, RewardedRows, hcope_from_rewarded, rewarded_rows, tuning_rows
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.errors import (
    is_real,
    is_whole,
    require,
    require_delta,
    require_positive,
    require_settings,
    short,
)
from depsue.learners.gradient import OpgSettings, PolicyGradient
from depsue.learners.history import History, SafelyTrained
from depsue.learners.opg import initial_policy
from depsue.policies.network import NetworkPolicy
from depsue.progress import Watch, silent
from depsue.protocols import Bound, BoundValue, RewardModel


@dataclass(frozen=True)
class SafeOpgSettings(OpgSettings):
    """How Safe OPG trains; the defaults are the paper's, but for `standardise`."""

    rate: float = 0.001
    """eta_psi: step size of the policy."""
    rate_lambda: float = 0.01
    """eta_lambda: step size of lambda."""
    delta: float = 0.05
    """The bound fails at most this share of the time."""
    bound: Bound = Hcope()
    """The bound on S2; the paper's is HCOPE's (Eq. 4)."""
    keep: Literal["last", "last passing"] = "last"
    """Which policy is returned: the last one, as in the paper, or the last whose bound passed."""
    bound_every: int = 1
    """Recompute the bound every so many steps; lambda moves at every step by the latest one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_delta(self.delta)
        require(
            is_whole(self.bound_every) and self.bound_every >= 1,
            "bound_every must be a whole number, at least 1",
            found=short(self.bound_every),
            cure="1 recomputes the bound at every step",
        )
        require(
            self.keep in ("last", "last passing"),
            "keep must be 'last' or 'last passing'",
            found=short(self.keep),
            cure="'last' is the paper's",
        )
        require_positive(self.rate_lambda, "rate_lambda", "the paper's is 0.01")
        require(
            isinstance(self.bound, Bound) and not isinstance(self.bound, str | type),
            "bound must be a bound, made",
            found=short(self.bound),
            cure="use Hcope(), Smoothing() or Betting()",
        )


def train_safe_opg(
    s1: LoggedData,
    s2: LoggedData,
    model: RewardModel,
    need: float,
    settings: SafeOpgSettings | None = None,
    *,
    seed: int,
    name: str = "Safe OPG",
    watch: Watch = silent,
) -> SafelyTrained:
    """Algorithm 1: learn a policy whose value exceeds the need with confidence 1 - delta (Eq. 3).

    ::

        max F(pi; S1)  subject to  V_-(pi; S2) > need             Eq. 5; V_- is the bound of Eq. 4
        min over lambda >= 0 of max over pi of F + lambda R       Eq. 6, how that is solved

        1  initialise psi
        2  lambda <- 0
        3  for s = 1 .. S:
        4      psi <- psi + eta_psi grad (F + lambda R)(pi; S1)                     Eq. 7
        5      lambda <- max(lambda - eta_lambda (V_-(pi; S2) - need), 0)           Eq. 8

    R rewards imitating pi0 where the action was rewarded, which raises the bound. Lambda makes the
    policy depend on S2, so the bound at the end is the paper's certificate and not a strict one
    (`certificates/strict.py`).

    Args:
        s1: the rows that the gradient is estimated on.
        s2: the rows that the bound is computed on.
        model: q-hat.
        need: what the bound must exceed: the floor C, less the margin of earlier deployments.
        settings: how to train; the defaults are the paper's.
        seed: of weights and minibatches.
        name: shown with the progress.
        watch: shows progress, with the bound against the need.
    """
    settings = settings or SafeOpgSettings()
    require_settings(settings, SafeOpgSettings)
    _check_problem(s1, s2, need)
    policy = initial_policy(s1, settings, seed)  # line 1
    gradient = PolicyGradient(policy, s1, model, settings, seed=seed)
    bound_on_s2 = BoundOnLogs(s2, settings.bound, settings.delta)
    history, interrupted = History(need=need), False
    lambda_, bound, passing = 0.0, 0.0, policy  # line 2
    try:
        for step in range(1, settings.steps + 1):
            facts = gradient.step(gradient.draw_rows(), lambda_)  # line 4, Eq. 7
            if (step - 1) % settings.bound_every == 0:
                began = time.perf_counter()
                bound = bound_on_s2.value(policy)  # Eq. 4
                history.bound_seconds += time.perf_counter() - began
                if settings.keep == "last passing" and bound > need:
                    passing = policy.copy()
            lambda_ = max(lambda_ - settings.rate_lambda * (bound - need), 0.0)  # line 5, Eq. 8
            history.add(facts, lambda_=lambda_, bound=bound)
            if step % 20 == 0 or step == settings.steps:
                sign = ">" if bound > need else "<"
                watch(
                    name,
                    step,
                    settings.steps,
                    f"bound {bound:.4f} {sign} {need:.4f} novelty {facts.novelty:.3f}",
                )
    except KeyboardInterrupt:
        interrupted = True
    last = bound_on_s2(policy)
    if passing is not policy and last.value <= need:
        policy, last = passing, bound_on_s2(passing)
    return SafelyTrained(policy, history, interrupted, last, need)


def _check_problem(s1: LoggedData, s2: LoggedData, need: float) -> None:
    require(
        is_real(need) and math.isfinite(need),
        "need must be a number",
        found=short(need),
        cure="for example 0.95 * logs.mean_reward()",
    )
    require(
        s1.catalogue.hash == s2.catalogue.hash,
        "S1 and S2 must have the same catalogue",
        found="catalogues with different ids, features or novel actions",
        cure="split one log: s1, s2 = logs.split((0.5, 0.5), salt=...)",
    )
    require(
        s1.hash != s2.hash,
        "S1 and S2 must be different rows: the bound needs rows that the policy did not learn on",
        found="the same rows twice",
        cure="split one log: s1, s2 = logs.split((0.5, 0.5), salt=...)",
    )


LOGITS_AT_ONCE = 1 << 19
"""Logits that are held at once: 2 MB, few enough to stay in the cache of the processor."""


FEWEST_AT_ONCE = 208
"""Contexts at once, at least, however many actions: fewer would waste the product with weights."""


LARGEST_EXPONENT = 60.0
"""Beyond it exp loses precision in float32, and logits are shifted by the largest first."""


class BoundOnLogs:
    """V_-(pi; logs) for fixed logs and a network that changes from step to step.

    Args:
        logs: the rows, with the propensities of the policy that drew them.
        bound: which bound.
        delta: the share of the time that it may fail.
    """

    def __init__(self, logs: LoggedData, bound: Bound, delta: float) -> None:
        self._logs, self._bound, self._delta = logs, bound, delta
        rewarded = np.flatnonzero(logs.reward > 0)
        self._rewarded = rewarded[np.argsort(logs.context[rewarded], kind="stable")]
        self._weights_of = _RewardedWeights(logs, self._rewarded)
        self._kernel = None
        if isinstance(bound, Hcope) and bound.tau is None and logs.unit is None:
            self._kernel = _HcopeKernel(logs, self._rewarded, delta)

    def __call__(self, policy: NetworkPolicy) -> BoundValue:
        """The bound for `policy`, with all that it rests on."""
        weights = np.zeros(len(self._logs))
        weights[self._rewarded] = self._weights_of(policy)
        terms = WeightedTerms.of(
            weights, self._logs.reward, r_max=self._logs.r_max, unit=self._logs.unit
        )
        return self._bound.lower(terms, self._delta)

    def value(self, policy: NetworkPolicy) -> float:
        """The bound's value alone; for `Hcope` without units, from rewarded rows only."""
        if self._kernel is None:
            return self(policy).value
        return self._kernel(self._weights_of(policy))


class _HcopeKernel:
    """Eq. 4 from the weights of rewarded rows."""

    def __init__(self, logs: LoggedData, rewarded: IntArray, delta: float) -> None:
        self._delta, self._r_max = delta, logs.r_max
        place = np.empty(len(logs), dtype=np.int64)
        place[rewarded] = np.arange(len(rewarded))
        tuning = len(tuning_rows(len(logs)))
        self._parts = [
            (place[rows], logs.reward[rows], n)
            for rows, n in zip(
                rewarded_rows(logs.reward), (tuning, len(logs) - tuning), strict=True
            )
        ]

    def __call__(self, weights: FloatArray) -> float:
        tuning, rest = (
            RewardedRows(weights[place].astype(np.float64), rewards, n)
            for place, rewards, n in self._parts
        )
        bound = hcope_from_rewarded(tuning, rest, r_max=self._r_max, delta=self._delta)
        return max(bound.value, 0.0)


class _RewardedWeights:
    """pi(a_i|x_i) / p_i of the given rows, which are in the order of their contexts."""

    def __init__(self, logs: LoggedData, rows: IntArray) -> None:
        used, context = np.unique(logs.context[rows], return_inverse=True)
        self._contexts, self._a = logs.contexts[used], len(logs.catalogue)
        self._context = torch.from_numpy(context)
        self._log_propensity = torch.from_numpy(np.log(logs.propensity[rows]).astype(np.float32))
        at_once = min(max(FEWEST_AT_ONCE, LOGITS_AT_ONCE // self._a), len(used))
        self._pieces = []
        for start in range(0, len(used), max(at_once, 1)):
            stop = min(start + at_once, len(used))
            first, last = np.searchsorted(context, [start, stop])
            places = (context[first:last] - start) * self._a + logs.action[rows[first:last]]
            self._pieces.append((slice(start, stop), slice(first, last), torch.from_numpy(places)))
        self._logits = torch.empty(at_once, self._a)
        self._normaliser = torch.empty(len(used))
        self._chosen = torch.empty(len(rows))
        self._spread = torch.empty(len(rows))
        self._inputs: torch.Tensor | None = None
        self._inputs_of: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(self, policy: NetworkPolicy) -> FloatArray:
        hidden = policy.hidden(self._inputs_for(policy))[-1]
        self._pass(policy, hidden, _log_of_sum)
        if not bool((self._normaliser.abs() < LARGEST_EXPONENT).all()):  # NaN is not below
            self._pass(policy, hidden, torch.logsumexp)
        torch.index_select(self._normaliser, 0, self._context, out=self._spread)
        return self._chosen.sub_(self._spread).sub_(self._log_propensity).exp_().numpy()

    def _pass(self, policy: NetworkPolicy, hidden: torch.Tensor, log_sum: Any) -> None:
        """The logits of the rows' actions, and log sum exp over all actions per context."""
        for contexts, mine, places in self._pieces:
            logits = self._logits[: contexts.stop - contexts.start]
            policy.logits(hidden[contexts], out=logits)
            torch.take(logits, places, out=self._chosen[mine])
            log_sum(logits, dim=1, out=self._normaliser[contexts])

    def _inputs_for(self, policy: NetworkPolicy) -> torch.Tensor:
        """The contexts as this policy takes them; the same for all steps of a training."""
        standard = (policy.shift, policy.scale)
        if (
            self._inputs is None
            or self._inputs_of is None
            or any(a is not b for a, b in zip(standard, self._inputs_of, strict=True))
        ):
            self._inputs, self._inputs_of = policy.inputs(self._contexts), standard
        return self._inputs


def _log_of_sum(logits: torch.Tensor, *, dim: int, out: torch.Tensor) -> None:
    """log sum exp without shifting by the largest first: faster, and overwrites the logits."""
    torch.sum(logits.exp_(), dim=dim, out=out).log_()
