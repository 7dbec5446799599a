"""Every bound passes the one conformance suite."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.bounds import Betting, Hcope, Normal, Pilot, Smoothing
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.protocols import BoundValue
from depsue.testing.bounds import BoundConformance


class TestHcope(BoundConformance):
    bound = Hcope()
    fixed = Hcope(tau=4.0)
    weighted_only = True


class TestHcopeAtOneTau(BoundConformance):
    bound = Hcope(tau=2.0)
    weighted_only = True
    effort = 0.1


class TestSmoothing(BoundConformance):
    bound = Smoothing()


class TestSmoothingAtOneScale(BoundConformance):
    bound = Smoothing(scale=10.0)
    effort = 0.1


class TestBetting(BoundConformance):
    bound = Betting()
    fixed = Betting(bets_for=0.05)
    on_units = Betting(order="shuffled")
    effort = 0.3


class TestBettingWithEverySetting(BoundConformance):
    bound = Betting(cap=0.75, horizon=5_000, order="shuffled", unit_scale=2.0)
    fixed = Betting(cap=0.75, horizon=5_000, order="shuffled", unit_scale=2.0, bets_for=0.05)
    in_partitions = False  # another order than that of the rows needs all of them
    effort = 0.1


class TestBettingWithAConstantBet(BoundConformance):
    bound = Betting(bets=(0.1,))


class TestBettingWithAGridOfBets(BoundConformance):
    bound = Betting(bets=(0.5, 0.125, 0.03, 0.008), cap=0.75)
    effort = 0.1


@dataclass(frozen=True)
class NormalOnBoth:
    """The suite's terms have weights, or are paired and at most .06: each kind has its limit."""

    tau: float
    pilot: Pilot | None = None

    @property
    def any_order(self) -> bool:
        return self.pilot is not None

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        paired = isinstance(terms, ConservativeTerms) and not isinstance(terms, WeightedTerms)
        limits = {"upper": 0.06} if paired else {"tau": self.tau}
        return Normal(**limits, pilot=self.pilot).lower(terms, delta)


class TestNormal(BoundConformance):
    bound = NormalOnBoth(tau=2.0)


class TestNormalWithAPilot(BoundConformance):
    bound = NormalOnBoth(tau=2.0, pilot=Pilot(0.45, 0.25, 0.02, 0.02))
    effort = 0.3


class TestNormalWithAWideRange(BoundConformance):
    bound = NormalOnBoth(tau=8.0)
    effort = 0.1
