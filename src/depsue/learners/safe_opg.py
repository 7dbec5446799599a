"""Algorithm 1: Safe Off-Policy Policy Gradient (Safe OPG)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal

from depsue.bounds import Hcope
from depsue.data.logs import LoggedData
from depsue.errors import (
    is_real,
    is_whole,
    require,
    require_level,
    require_positive,
    require_settings,
    short,
)
from depsue.learners.bound_on_logs import BoundOnLogs
from depsue.learners.gradient import OpgSettings, PolicyGradient
from depsue.learners.history import History, SafelyTrained
from depsue.learners.opg import initial_policy
from depsue.progress import Watch, silent
from depsue.protocols import Bound, RewardModel


@dataclass(frozen=True)
class SafeOpgSettings(OpgSettings):
    """How Safe OPG trains; the defaults are the paper's, but for `standardise`."""

    rate: float = 0.001
    """eta_psi: step size of the policy."""
    rate_lambda: float = 0.01
    """eta_lambda: step size of lambda."""
    delta: float = 0.05
    """Level of the bound."""
    bound: Bound = Hcope()
    """The bound on S2; the paper's is HCOPE's (Eq. 4)."""
    keep: Literal["last", "last passing"] = "last"
    """Which policy is returned: the last one, as in the paper, or the last whose bound passed."""
    bound_every: int = 1
    """Recompute the bound every so many steps; lambda moves at every step by the latest one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_level(self.delta)
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
    """Maximise F(pi; S1) subject to bound(pi; S2) > need (Eq. 5), by Algorithm 1.

    Each step moves the policy along the gradient of F + lambda R on a minibatch of S1 (Eq. 6
    and 7), then lambda by how far the bound on S2 is from what is needed (Eq. 8).

    The policy comes to depend on S2 through lambda, so the bound it ends with is the paper's
    certificate, not a strict one.

    Args:
        s1: the rows that the gradient is estimated on.
        s2: the rows that the bound is computed on.
        model: q-hat.
        need: what the bound must exceed: the floor C, less the margin that was earned.
        settings: how to train; the defaults are the paper's.
        seed: of weights and minibatches.
        name: shown with the progress.
        watch: shows progress, with the bound against the need.
    """
    settings = settings or SafeOpgSettings()
    require_settings(settings, SafeOpgSettings)
    _check_problem(s1, s2, need)
    policy = initial_policy(s1, settings, seed)
    gradient = PolicyGradient(policy, s1, model, settings, seed=seed)
    bound_on_s2 = BoundOnLogs(s2, settings.bound, settings.delta)
    history, interrupted = History(need=need), False
    lambda_, bound, passing = 0.0, 0.0, policy
    try:
        for step in range(1, settings.steps + 1):
            facts = gradient.step(gradient.draw_rows(), lambda_)  # Eq. 7
            if (step - 1) % settings.bound_every == 0:
                began = time.perf_counter()
                bound = bound_on_s2.value(policy)
                history.bound_seconds += time.perf_counter() - began
                if settings.keep == "last passing" and bound > need:
                    passing = policy.copy()
            lambda_ = max(lambda_ - settings.rate_lambda * (bound - need), 0.0)  # Eq. 8
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
