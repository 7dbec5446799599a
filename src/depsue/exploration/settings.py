"""How certified exploration runs, and what is best among policies that are safe.

The settings are the same for a plan, a campaign and the dashboard. The objective says what to
prefer among policies that are likely to pass: more novelty, more value, or some of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from depsue import defaults
from depsue.assumptions import EXCHANGEABLE, Rung, checked_rungs
from depsue.certificates import FRACTIONS, UnitRows
from depsue.data.checks import FloatArray
from depsue.errors import is_real, is_whole, require, require_delta, require_settings, short
from depsue.promises import Promise, checked_promises
from depsue.rewards import RewardSettings

MOST_NOVELTY, MOST_VALUE, BALANCED = "most novelty", "most value", "balanced"
NAMED = (MOST_NOVELTY, MOST_VALUE, BALANCED)
DOUBLING, FIRST = 0.04, 0.01
POWERS = (3, 24)
"""Weight of log(1 + novelty / FIRST) beside the sum of (1 - (V(pi0) / value)^p) / p over POWERS:
the first novelty and the first gain in value count most. Who earns as much as pi0 gives up some
1.2% of it for twice the novelty, who earns 5% more some 2%, who earns a quarter more some 5%."""


def require_objective(objective: object) -> None:
    """Refuse what is neither a named objective nor a weight."""
    weight = not isinstance(objective, str) and is_real(objective)
    require(
        objective in NAMED or (weight and 0 <= float(objective) < np.inf),  # type: ignore[arg-type]
        f"the objective must be {', '.join(NAMED)}, or a weight >= 0 of novelty",
        found=short(objective),
        cure="0.5 says that a point of novelty is worth half a point of value",
    )


def worth(objective: str | float, value: FloatArray, novelty: FloatArray) -> FloatArray:
    """What an objective says of policies, from their value / V(pi0) and novelty."""
    if objective == MOST_NOVELTY:
        return np.asarray(novelty)
    if objective == BALANCED:
        safe = np.maximum(value, 0.5)  # far below any floor that is kept
        gain = sum((1 - safe ** -float(p)) / p for p in POWERS)
        return np.asarray(gain + DOUBLING * np.log1p(novelty / FIRST))
    weight = 0.0 if isinstance(objective, str) else float(objective)
    return np.asarray(value + weight * novelty)


def in_words(objective: str | float) -> str:
    """What is sought."""
    if objective == BALANCED:
        gain = " + ".join(f"(1 - (V(pi0) / value)^{p}) / {p}" for p in POWERS)
        return f"the most of {gain} + {DOUBLING:g} log(1 + novelty / {FIRST:g})"
    if isinstance(objective, str):
        return f"the {objective}"
    return f"the most of value + {objective:g} x novelty"


@dataclass(frozen=True)
class ExploreSettings:
    """How certified exploration runs."""

    promises: tuple[Promise, ...] = (Promise(),)
    """What must hold; the first is what value means."""
    delta: float = defaults.DELTA
    """How often the procedure may err."""
    per: Literal["deployment", "campaign"] = "deployment"
    """What delta is for: each deployment, or all of them together (delta / K each)."""
    safety: Literal["each", "cumulative"] = "each"
    """Every deployment above the floor, or their sum so far (Eq. 9): then margin is spent."""
    objective: str | float = defaults.OBJECTIVE
    """"most novelty", "most value", "balanced", or a weight: value / V(pi0) + weight x novelty."""
    deployments: int = defaults.ROUNDS
    """K."""
    max_novelty: float = defaults.MAX_NOVELTY
    """No policy shows novel actions more often than this."""
    fractions: tuple[float, float, float] = FRACTIONS
    """Shares of learn, select and certify."""
    rewards: RewardSettings = RewardSettings(members=1)
    """How the MLPs of q-hat are fitted: one, beside the linear model, which is fast;
    `novel="optimistic"` goes by how much several differ, and should have five."""
    most_rows: int = 1_000_000
    """Rows that q-hat is fitted on, at most: a sample of all that may be read."""
    novel: Literal["by model", "optimistic", "uniform"] = "by model"
    """How novel actions are chosen: by q-hat, by q-hat plus its uncertainty, or evenly."""
    even: float = 0.1
    """Share of the novel exposure that is spread evenly."""
    least: float = 0.0
    """Each novel action gets at least this share of the novel exposure."""
    most: float = 1.0
    """Each novel action gets at most this share of the novel exposure."""
    units: UnitRows | None = None
    """Where units have several rows: "all rows" declares that their number does not depend on what
    a unit was shown, which every round tests; "first row" promises the first row of each only."""
    no_drift: bool = False
    """Declare that pi0's value does not change over the campaign: later rounds then hold the bound
    against a ceiling on V(pi0) from the first logs, instead of pairing every row with pi0."""
    keep: float = 0.1
    """Share of pi0 in the old part of every policy of a campaign of several rounds without
    `no_drift`: pairing needs it."""
    reserve: float | None = None
    """Share of the certifying fold that every served round but the last reserves for later
    verdicts, which pool it with the newest rows: see `reserved`. None is 0.1. pi0's first logs
    reserve nothing, so it needs K >= 3; and `no_drift`, safety "each", and rows without units."""

    assume: tuple[Rung, ...] = ()
    """What is assumed beyond the logs, by name (`depsue.assumptions`); () is nothing. A round rests
    on the first that is not refuted and can help it, and on nothing where there is none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "assume", checked_rungs(self.assume))
        checked_promises(self.promises)
        require_delta(self.delta)
        require_objective(self.objective)
        for name, allowed in (
            ("per", ("deployment", "campaign")),
            ("safety", ("each", "cumulative")),
            ("units", ("all rows", "first row", None)),
            ("novel", ("by model", "optimistic", "uniform")),
        ):
            value = getattr(self, name)
            require(value in allowed, f"{name} must be one of {allowed}", found=short(value))
        require(
            is_whole(self.deployments) and self.deployments >= 1,
            "deployments (K) must be a whole number, at least 1",
            found=short(self.deployments),
        )
        require(
            is_whole(self.most_rows) and self.most_rows >= 1000,
            "most_rows must be a whole number, at least 1,000",
            found=short(self.most_rows),
            cure="leave it at 1,000,000, or lower it to be faster",
        )
        for name in ("max_novelty", "most"):
            value = getattr(self, name)
            ok = is_real(value) and 0 < value <= 1
            require(ok, f"{name} must lie in (0, 1]", found=short(value))
        for name in ("least", "even", "keep", "reserve"):
            value = getattr(self, name)
            ok = (is_real(value) and 0 <= value < 1) or (name == "reserve" and value is None)
            require(ok, f"{name} must lie in [0, 1)", found=short(value))
        require_settings(self.rewards, RewardSettings)
        require(
            (self.least == 0 and self.most == 1)
            or all(rung.name != EXCHANGEABLE for rung in self.assume),
            "where new items are drawn like old ones, a rule shows each by itself: it has no "
            "limits of exposure",
            found=f"least {self.least:g}, most {self.most:g}",
            cure="leave --least and --most out, or do not assume exchangeable",
        )
        require(
            self.novel != "optimistic" or self.rewards.members > 1,
            "novel='optimistic' goes by how much the members of the reward model differ",
            found=f"{self.rewards.members} member",
            cure="rewards=RewardSettings(members=5)",
        )

    @property
    def delta_of_deployment(self) -> float:
        """How often one deployment may err: delta, or delta / K where delta is the campaign's."""
        return self.delta if self.per == "deployment" else self.delta / self.deployments

    @property
    def pi0_share(self) -> float:
        """Share of pi0 in the old part of every policy."""
        return self.keep if self.deployments > 1 and not self.no_drift else 0.0

    @property
    def reserved(self) -> float:
        """The share that is reserved: 0 where later verdicts could not pool it."""
        if self.safety != "each" or not self.no_drift or self.deployments < 3:
            return 0.0
        return defaults.RESERVE if self.reserve is None else self.reserve

    @property
    def factor(self) -> float:
        """Gamma: within which factor logged propensities are declared to be right; 1 is exactly."""
        return max((rung.factor for rung in self.assume), default=1.0)

    @property
    def even_share(self) -> float:
        """Share of the novel exposure that is spread evenly: all of it where `novel` is uniform."""
        return 1.0 if self.novel == "uniform" else self.even

    @property
    def certain(self) -> float:
        """The novelty that needs no certificate: (1 - rho) beside pi0; 0 for absolute floors."""
        ratios = [promise.floor.ratio for promise in self.promises]
        if any(ratio is None for ratio in ratios):
            return 0.0
        return min(max(1 - max(r for r in ratios if r is not None), 0.0), self.max_novelty)
