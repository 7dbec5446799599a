"""Rows per second of each bound against vw-estimators, on the same rows in one run.

    python benchmarks/bounds.py [--rows 500000] [--peer-rows 50000]
    python benchmarks/bounds.py --widths    how far each bound is below the mean; no peers, no times

Both sides start from the same three columns (propensity, reward, probability under pi) and end
with a lower limit: ours computes weights (into one array that is kept), checks and packs the terms,
and bounds them; theirs adds one example at a time, as its interface asks. Each time is the best
over rounds in which all take turns. The peers are slow, and their cost per row does not depend on
the number of rows, so they are given fewer of them; the table says how many.

Install the peers with `pip install vw-estimators` (0.2.2 was compared).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from depsue.bounds import Betting, Hcope, Normal, Pilot, Smoothing
from depsue.data.checks import FloatArray
from depsue.data.terms import WeightedTerms
from depsue.protocols import Bound

DELTA = 0.05
OURS: list[tuple[str, Bound, float | None]] = [
    ("hcope", Hcope(), 500),
    ("smoothing, grid of 9 scales", Smoothing(), 500),
    ("smoothing, one scale", Smoothing(scale=100.0), 500),
    ("betting", Betting(), 50),
    ("betting, shuffled", Betting(order="shuffled"), None),
    ("betting, one constant bet", Betting(bets=(0.006,)), 50),
    ("normal", Normal(tau=4.0), None),
    ("normal, pilot from elsewhere", Normal(tau=4.0, pilot=Pilot(0.25, 0.24, 0.5, 2.0)), None),
]
"""Name, bound, and how many times faster than the faster peer it has to be, if that is set."""


class Timed(NamedTuple):
    """The best time of one contender, and what it found."""

    name: str
    rows: int
    seconds: float
    lower: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def columns(n: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """n rows like the paper's: reward rate .25, weights lognormal around 1, all in [0, 1]."""
    rng = np.random.default_rng(seed)
    propensity = rng.uniform(0.001, 0.1, n)
    weights = np.minimum(np.exp(0.5 * rng.standard_normal(n) - 0.125), 1 / propensity)
    return propensity, (rng.random(n) < 0.25) * 1.0, weights * propensity


class Contender(NamedTuple):
    """Something to time on so many rows, so often in a round."""

    name: str
    rows: int
    repeats: int
    run: Callable[[], float]


def ours(rows: int) -> list[Contender]:
    """Every bound of depsue, from the three columns."""
    propensity, reward, probability = columns(rows)
    weights = np.empty(rows)

    def run(bound: Bound) -> float:
        np.divide(probability, propensity, out=weights)
        terms = WeightedTerms.of(weights, reward, r_max=1.0)
        return bound.lower(terms, DELTA).value

    return [Contender(name, rows, 5, partial(run, bound)) for name, bound, _ in OURS]


def peers(rows: int) -> list[Contender]:
    """The intervals of vw-estimators, on rows of the same kind."""
    from estimators.bandits import cressieread, cs

    # plain floats: numpy's scalars would slow the peers down further
    table = list(zip(*(column.tolist() for column in columns(rows)), strict=True))

    def run(interval: Callable[..., Any]) -> float:
        filled = interval(rmin=0, rmax=1)
        for propensity, reward, probability in table:
            filled.add_example(propensity, reward, probability)
        return float(filled.get(DELTA)[0])

    return [
        Contender("vw-estimators: confidence sequence", rows, 1, partial(run, cs.Interval)),
        Contender("vw-estimators: Cressie-Read", rows, 1, partial(run, cressieread.Interval)),
    ]


def race(contenders: list[Contender], rounds: int) -> list[Timed]:
    """The best time of each over rounds in which all take turns, so that all meet the same load."""
    best = [Timed(one.name, one.rows, float("inf"), float("nan")) for one in contenders]
    for _ in range(rounds):
        for place, one in enumerate(contenders):
            for _ in range(one.repeats):
                start = time.perf_counter()
                lower = one.run()
                seconds = time.perf_counter() - start
                best[place] = min(best[place], Timed(one.name, one.rows, seconds, lower), key=cost)
    return best


def cost(one: Timed) -> float:
    """What `race` minimises."""
    return one.seconds


def report(mine: list[Timed], theirs: list[Timed]) -> bool:
    """Print the table; True if every bar is met."""
    heads = [f"x {peer.name.split(': ')[1]}" for peer in theirs]
    print(f"{'':36}{'rows':>9}{'ms':>11}{'rows/s':>14}{'lower':>9}", *(f"{h:>22}" for h in heads))
    for one in theirs:
        print(_line(one))
    met = True
    for one, (_, _, bar) in zip(mine, OURS, strict=True):
        ratios = [one.rate / peer.rate for peer in theirs]
        verdict = ""
        if ratios and bar is not None:
            reached = min(ratios) >= bar
            met &= reached
            verdict = f"   bar {bar:g}: {'met' if reached else 'MISSED'}"
        print(_line(one), *(f"{ratio:>22,.0f}" for ratio in ratios), verdict)
    return met


def _line(one: Timed) -> str:
    cost = f"{1e3 * one.seconds:>11,.2f}{one.rate:>14,.0f}"
    return f"{one.name:36}{one.rows:>9,}{cost}{one.lower:>9.4f}"


def paired(n: int, rng: np.random.Generator) -> FloatArray:
    """(n,) terms (w - .95) r in [-.95, 34.05]: reward rate .24, w lognormal up to 35, sd 2.2."""
    weights = np.minimum(rng.lognormal(-(1.45**2) / 2, 1.45, n), 35.0)
    return np.asarray((weights - 0.95) * (rng.random(n) < 0.24))


def near(n: int, rng: np.random.Generator) -> FloatArray:
    """(n,) terms w r in [0, 2]: reward rate .24, w lognormal in [.5, 2], sd .34."""
    weights = np.clip(rng.lognormal(-(0.35**2) / 2, 0.35, n), 0.5, 2.0)
    return np.asarray(weights * (rng.random(n) < 0.24))


def widths(draws: int) -> None:
    """Print how many standard errors each bound lies below the mean, averaged over draws.

    Terms are shifted to start at 0 and carry r_max 1, so that all four see the same values;
    hcope gets the whole declared range as tau, so that it clips nothing either.
    """
    bounds = ("hcope", "smoothing", "betting", "normal")
    print(f"{'terms':22}{'rows':>9}", *(f"{name:>10}" for name in bounds), "  normal by")
    for name, draw, lower, width in (("(w - .95) r", paired, -0.95, 35.0), ("w r", near, 0.0, 2.0)):
        for n in (3_000, 10_000, 50_000, 100_000, 300_000):
            apart = dict.fromkeys(bounds, 0.0)
            ways = set()
            for seed in range(draws):
                values = draw(n, np.random.default_rng([n, seed])) - lower
                terms = WeightedTerms.of(values, np.ones(n), r_max=1.0)
                error = float(values.std()) / math.sqrt(n)
                made: list[Bound] = [Hcope(tau=width), Smoothing(), Betting(), Normal(tau=width)]
                for which, bound in zip(bounds, made, strict=True):
                    found = bound.lower(terms, DELTA)
                    apart[which] += (found.mean - found.value) / error / draws
                ways.add(found.constants["by"])
            print(
                f"{name:22}{n:>9,}",
                *(f"{one:>10.2f}" for one in apart.values()),
                "  " + ", ".join(sorted(ways)),
            )


def main() -> int:
    """Measure, print, and return 1 if a bar was missed, 2 if there was no peer."""
    parser = argparse.ArgumentParser(description="bounds against vw-estimators, rows per second")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--peer-rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--widths", action="store_true", help="widths in place of times")
    settings = parser.parse_args()
    if settings.widths:
        widths(draws=10)
        return 0
    mine = ours(settings.rows)
    try:
        theirs = peers(min(settings.rows, settings.peer_rows))
    except ModuleNotFoundError as missing:
        print(f"No peers ({missing}): pip install vw-estimators==0.2.2 to compare.\n")
        report(race(mine, settings.rounds), [])
        return 2
    if settings.peer_rows < settings.rows:
        print(
            f"The peers were given {settings.peer_rows:,} rows and the bounds {settings.rows:,}; "
            "ratios compare rows per second.\n"
        )
    timed = race([*mine, *theirs], settings.rounds)
    return 0 if report(timed[: len(mine)], timed[len(mine) :]) else 1


if __name__ == "__main__":
    sys.exit(main())
