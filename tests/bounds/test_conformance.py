"""Every bound passes the one conformance suite."""

from __future__ import annotations

from depsue.bounds import Betting, Hcope, Smoothing
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


class TestBettingWithEverySetting(BoundConformance):
    bound = Betting(cap=0.75, horizon=5_000, order="shuffled", unit_scale=2.0)
    fixed = Betting(cap=0.75, horizon=5_000, order="shuffled", unit_scale=2.0, bets_for=0.05)
    effort = 0.1
