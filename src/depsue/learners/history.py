"""What training returns: a policy, its bound where there is one, and the history of all steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from depsue.data.checks import FloatArray
from depsue.learners.gradient import StepFacts
from depsue.policies.network import NetworkPolicy
from depsue.protocols import BoundValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class History:
    """One entry a step; `bound` and `lambda_` stay empty where nothing is constrained."""

    need: float | None = None
    """What the bound must exceed (the floor C, for the first deployment)."""
    objective: list[float] = field(default_factory=list)
    regulariser: list[float] = field(default_factory=list)
    novelty: list[float] = field(default_factory=list)
    lambda_: list[float] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    bound_seconds: float = 0.0
    """Time spent on the bound, of all that training took."""

    def add(
        self, facts: StepFacts, *, lambda_: float | None = None, bound: float | None = None
    ) -> None:
        """Record a step."""
        self.objective.append(facts.objective)
        self.regulariser.append(facts.regulariser)
        self.novelty.append(facts.novelty)
        if lambda_ is not None:
            self.lambda_.append(lambda_)
        if bound is not None:
            self.bound.append(bound)

    def __repr__(self) -> str:
        return f"History({len(self):,} steps)"

    def __len__(self) -> int:
        return len(self.objective)

    def plot(self) -> Figure:
        """Objective, novelty, R, bound against need, lambda, and R against the bound.

        The last panel is the one to look at for the paper's Assumption 3: the constraint can be
        met by raising R only where a larger R goes with a larger bound.
        """
        from matplotlib.figure import Figure as NewFigure

        constrained = bool(self.bound)
        figure = NewFigure(figsize=(9, 5 if constrained else 2.6), layout="constrained")
        axes = figure.subplots(2, 3).ravel() if constrained else figure.subplots(1, 2)
        steps = np.arange(1, len(self) + 1)
        for axis, name in zip(axes, ("objective", "novelty"), strict=False):
            axis.plot(steps, smoothed(getattr(self, name)), color="#1f5a96", lw=1.4)
            axis.set(title=f"{name} (minibatch)")
        if constrained:
            axes[2].plot(steps, smoothed(self.regulariser), color="#1f5a96", lw=1.4)
            axes[2].set(title="R (minibatch)")
            axes[3].plot(steps, self.bound, color="#1f5a96", lw=1.4, label="bound on S2")
            if self.need is not None:
                axes[3].axhline(self.need, color="#b3312c", ls="--", lw=1.2, label="need")
            axes[3].set(title="bound against need")
            axes[3].legend(frameon=False)
            axes[4].plot(steps, self.lambda_, color="#1f5a96", lw=1.4)
            axes[4].set(title="lambda")
            dots = axes[5].scatter(
                smoothed(self.regulariser), self.bound, c=steps, s=4, cmap="viridis"
            )
            axes[5].set(title="R against the bound", xlabel="R (minibatch)", ylabel="bound")
            figure.colorbar(dots, ax=axes[5], label="step")
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
            axis.locator_params(nbins=5)
            if not axis.get_xlabel():
                axis.set_xlabel("step")
        return figure


@dataclass(frozen=True, eq=False)
class Trained:
    """A learned policy.

    Args:
        policy: the policy after the last step; usable also after an interrupt.
        history: what happened.
        interrupted: True if the user stopped training before its last step.
    """

    policy: NetworkPolicy
    history: History
    interrupted: bool


@dataclass(frozen=True, eq=False)
class SafelyTrained(Trained):
    """A policy that was learned under a constraint.

    Args:
        bound: the bound of this very policy on S2.
        need: what it has to exceed.
    """

    bound: BoundValue
    need: float

    def __str__(self) -> str:
        verdict, sign = ("passed", ">") if self.passed else ("FAILED", "<=")
        return f"{verdict}: bound {self.bound.value:.4f} {sign} need {self.need:.4f}"

    @property
    def passed(self) -> bool:
        """True if the bound exceeds the need."""
        return self.bound.value > self.need


def smoothed(values: list[float], window: int = 50) -> FloatArray:
    """Running mean over about `window` steps, shorter at the ends."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) <= 2:
        return array
    width = max(1, min(window, len(array) // 4))
    total = np.convolve(array, np.ones(width), mode="same")
    means: FloatArray = total / np.convolve(np.ones(len(array)), np.ones(width), mode="same")
    return means
