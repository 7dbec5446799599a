"""How many rows a level needs, and what more rows would buy: from a forecast, or from assumptions.

`RowsAhead` goes by the candidates of a round (`exploration.round`). Where logs cannot tell, or
there are none yet, it is assumed that, among the actions that pi0 shows in a context, log q is
normal with standard deviation `spread` as far as a reward model can learn it, and that pi_old is
the exponential tilt of pi0 by it. With z standard normal over pi0's choices::

    w = exp(s z - s^2 / 2),   q = rate exp(spread z - spread^2 / 2),   V(pi_old) = rate e^(s spread)

Rewards are 0 or r_max, and new items earn nothing. That gives the sums of `exploration.headroom`;
the strength s that needs the fewest rows is taken. Where there are several promises, the reward of
each is taken to gain alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depsue import defaults
from depsue.certificates import FRACTIONS
from depsue.certificates.terms import threshold
from depsue.data.checks import FloatArray
from depsue.data.logs import joined
from depsue.errors import is_real, require, short
from depsue.exploration.forecast import FEWEST_REWARDS
from depsue.exploration.headroom import (
    MixtureSums,
    Requirement,
    Sums,
    clip_for,
    headroom,
    likely,
)
from depsue.exploration.parts import Candidate
from depsue.exploration.round import Prospect
from depsue.exploration.settings import ExploreSettings
from depsue.promises import Promise

STRENGTHS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5)
POINTS = 1201
"""Of the grid over z, from -6 to 6."""
STEP = 0.001
"""Between novelties."""
CERTIFYING = FRACTIONS[2]
"""Share of the rows that certify."""
MOST_ROWS = 1e10
"""Where the search for a number of rows ends."""
TIMES = (1, 2, 4, 10)
"""Multiples of the rows at hand that a plan looks at."""
MORE = 0.01
"""Novelty above the certain level that counts as more."""
NOTHING = Sums(0.0, 0.0, 0.0, 0.0, 0.0)

Sides = Sequence[MixtureSums]
"""The sums of one candidate for every promise, in their order."""


@dataclass(frozen=True)
class MoreRows:
    """What `rows` rows, so many times those at hand, are likely to allow."""

    times: int
    rows: int
    novelty: float


@dataclass(frozen=True)
class RowsNeeded:
    """The rows in all that a novelty needs; None if nothing shows that any number would do."""

    novelty: float
    rows: float | None


@dataclass(frozen=True)
class AssumedRows:
    """What numbers of rows rest on where the logs cannot tell which items are better.

    Args:
        rate, spread: as in `Assumed`.
        novelty: the one that the others are about.
        at_half, at_double: rows for it with half and with twice the spread; None: no number.
    """

    rate: float
    spread: float
    novelty: float
    at_half: float | None
    at_double: float | None


@dataclass(frozen=True, eq=False)
class RowsAhead:
    """What more rows would buy in a round.

    Args:
        prospect: what is known ahead of the round.
        rows: of the newest logs.
        certain: the novelty that needs no data.
        top: the boldest level that is likely to pass now, or certain.
    """

    prospect: Prospect
    rows: int
    certain: float
    top: float

    @cached_property
    def _with_most_rows(self) -> list[Candidate]:
        """The candidates with weights clipped as for the most rows; none if rewards are few."""
        if self.prospect.rewarded < FEWEST_REWARDS:
            return []
        return self.prospect.candidates_for(self.prospect.n * TIMES[-1])

    @cached_property
    def assumed(self) -> Assumed | None:
        """What is assumed where the logs cannot tell what more rows would buy; None where they can.

        They cannot where no number of rows helps the candidates, and where rows as few as those at
        hand would not have shown a spread of the usual size either.
        """
        usual = self._usual(defaults.SPREAD)
        if self.rows_for(self.certain + MORE, None) is not None:
            return None
        shown = novelty_before_logs(self.prospect.n / CERTIFYING, usual, *self._terms())
        return usual if shown <= self.top + 1e-9 else None

    def _usual(self, spread: float) -> Assumed:
        """That pi0's rewards are as they are, and that items differ so much."""
        folds, fewest = self.prospect.folds, 0.5 / max(self.rows, 1)
        readable, rates = joined([folds.learn, folds.select]), []
        for view in self.prospect.forecast.views:  # of all rows: the model knows few of them
            mean = view.promise.rows(readable)[0].mean_reward()
            rates.append(Rate(min(max(mean / view.r_max, fewest), 0.9), view.rows_share))
        return Assumed(rates[0].rate, spread, tuple(rates))

    def _terms(self) -> tuple[ExploreSettings, float]:
        return self.prospect.settings, self.prospect.folds.learn.r_max

    def times(self) -> tuple[MoreRows, ...]:
        """What more rows would buy; more rows never buy less, for they need not be used."""
        prospect, rows, best = self.prospect, [], 0.0
        for k in TIMES:
            n = prospect.n * k
            if self.assumed is not None:
                novelty = novelty_before_logs(n / CERTIFYING, self.assumed, *self._terms())
            else:
                path = prospect.best_path(prospect.candidates_for(n), n)
                novelty = prospect.likely_choice(path, n).novelty
            best = max(best, round(novelty, 9))
            rows.append(MoreRows(k, self.rows * k, best))
        return tuple(rows)

    def needed(self, wish: float | None) -> tuple[RowsNeeded, ...]:
        """Rows in all that a little more, much more and the wished novelty need."""
        certain, most = self.certain, self.prospect.settings.max_novelty
        asked = (certain + MORE, max(2 * certain, 0.1), wish or certain + MORE)
        wishes = sorted({round(nu, 6) for nu in asked if certain < nu <= most})
        return tuple(RowsNeeded(nu, self.rows_for(nu, self.assumed)) for nu in wishes)

    def rows_for(self, wish: float, assumed: Assumed | None) -> float | None:
        """The rows in all that a novelty needs, from the candidates or by assumption."""
        per_value = self.rows / self.prospect.n
        if assumed is not None:
            rows = rows_before_logs(wish, assumed, *self._terms())
            return None if rows is None else rows * CERTIFYING * per_value
        rules, forecast = self.prospect.rules, self.prospect.forecast
        asked = forecast.requirements(rules, rules.left(rules.delta))
        sums = [candidate.sums for candidate in self._with_most_rows]
        n = rows_for(sums, wish, asked, self.certain)
        return None if n is None else n * per_value

    def assumed_rows(self) -> AssumedRows | None:
        """What the numbers of rows rest on."""
        if self.assumed is None:
            return None
        wish = round(self.certain + MORE, 6)
        half, double = (self._usual(x * defaults.SPREAD) for x in (0.5, 2.0))
        return AssumedRows(
            rate=self.assumed.rate,
            spread=self.assumed.spread,
            novelty=wish,
            at_half=self.rows_for(wish, half),
            at_double=self.rows_for(wish, double),
        )


@dataclass(frozen=True)
class Rate:
    """What pi0 earns in one promise.

    Args:
        rate: the mean reward under pi0, as a share of its largest value.
        share: of all rows, those that the promise is about.
    """

    rate: float
    share: float = 1.0


@dataclass(frozen=True)
class Assumed:
    """What is assumed of the logs to come.

    Args:
        rate: the mean reward under pi0, as a share of r_max.
        spread: standard deviation of log q among what pi0 shows, as far as it can be learned.
        rates: for each promise; empty: `rate` and all rows, for every promise.
    """

    rate: float
    spread: float = defaults.SPREAD
    rates: tuple[Rate, ...] = ()

    def __post_init__(self) -> None:
        ok = is_real(self.rate) and 0 < self.rate < 1
        cure = "5 rewards in 100 rows are 0.05"
        require(ok, "the reward rate must lie in (0, 1)", found=short(self.rate), cure=cure)
        ok = is_real(self.spread) and 0 < self.spread <= 2
        cure = "0.3 says: an action one deviation better earns 1.35 times as much"
        require(ok, "the spread must lie in (0, 2]", found=short(self.spread), cure=cure)

    def of(self, promises: Sequence[Promise]) -> tuple[Rate, ...]:
        """What pi0 earns in each promise."""
        return self.rates or (Rate(self.rate),) * len(promises)

    def candidates(self, n: float, promises: Sequence[Promise]) -> list[Sides]:
        """For every tilt the sums of each promise, clipped as for n certifying rows."""
        z = np.linspace(-6.0, 6.0, POINTS)
        share = np.exp(-(z**2) / 2)
        share /= share.sum()
        rates = {of_pi0.rate for of_pi0 in self.of(promises)}
        q = {r: np.minimum(r * np.exp(self.spread * z - self.spread**2 / 2), 1.0) for r in rates}
        pi0 = {r: _sums(share, np.ones(POINTS), q[r], math.inf) for r in rates}
        candidates: list[Sides] = []
        for s in STRENGTHS:
            w = np.exp(s * z - s**2 / 2)
            old = {r: _sums(share, w, q[r], clip_for(n)) for r in rates}
            candidates.append(
                [MixtureSums(old[r.rate], NOTHING, pi0[r.rate]) for r in self.of(promises)]
            )
        return candidates

    def requirements(self, settings: ExploreSettings, r_max: float) -> tuple[Requirement, ...]:
        """What each promise asks, with rewards as shares of their largest value."""
        asked = []
        for promise, of_pi0 in zip(settings.promises, self.of(settings.promises), strict=True):
            largest = r_max if promise.r_max is None else promise.r_max
            asked.append(
                Requirement(
                    name=promise.name,
                    need=threshold(promise, None) / largest,
                    rho=promise.floor.ratio,
                    delta=settings.delta_of_deployment,
                    share=of_pi0.share,
                    pi0_value=of_pi0.rate,
                    r_max=1.0,
                )
            )
        return tuple(asked)


def _sums(share: FloatArray, weight: FloatArray, q: FloatArray, clip: float) -> Sums:
    """Over points that carry a share of pi0's rows each, with rewards 0 or 1 and no control."""
    clipped = np.minimum(weight, clip)
    value, seen = float(share @ (weight * q)), float(share @ (clipped * q))
    square = float(share @ (clipped**2 * q)) - seen**2
    return Sums(value, seen, seen, square, float(share @ (clipped * q)) - seen * float(share @ q))


def rows_before_logs(
    level: float, assumed: Assumed, settings: ExploreSettings, r_max: float = 1.0
) -> float | None:
    """Logged rows in all from which on `level` is likely; 0 if it is certain, None if never."""
    require_wish(level, settings)
    asked = assumed.requirements(settings, r_max)

    def needed(n: float) -> float | None:
        candidates = assumed.candidates(n, settings.promises)
        return rows_for(candidates, level, asked, settings.certain)

    n = needed(1e6)
    if n is None or n == 0:
        return n
    again = needed(n)
    return None if again is None else again / CERTIFYING


def novelty_before_logs(
    rows: float, assumed: Assumed, settings: ExploreSettings, r_max: float = 1.0
) -> float:
    """The novelty that so many logged rows are likely to allow."""
    n = rows * CERTIFYING
    candidates = assumed.candidates(n, settings.promises)
    most = settings.max_novelty
    nus = np.minimum(np.arange(0.0, most + STEP / 2, STEP), most)
    asked = assumed.requirements(settings, r_max)
    return boldest(candidates, nus, asked, n, settings.certain)


def boldest(
    candidates: Sequence[Sides],
    nus: FloatArray,
    asked: Sequence[Requirement],
    n: float,
    certain: float,
) -> float:
    """The most novelty that is likely to pass with any candidate; at least what is certain."""
    tops = [certain]
    for sums in candidates:
        places = likely(headroom(sums, nus, asked, n))
        tops += [float(nus[places[-1]])] if len(places) else []
    return max(tops)


def rows_for(
    candidates: Sequence[Sides], level: float, asked: Sequence[Requirement], certain: float
) -> float | None:
    """Certifying rows from which on `level` is likely to pass; None if no number would do."""
    if level <= certain + 1e-12:
        return 0.0
    at = np.array([level])

    def enough(n: float) -> bool:
        return any(float(headroom(sums, at, asked, n).min()) >= 0 for sums in candidates)

    high = 40.0
    while not enough(high):
        high *= 2
        if high > MOST_ROWS:
            return None
    low = high / 2
    while high / low > 1.03:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def require_wish(level: float, settings: ExploreSettings) -> None:
    """Refuse a wished level that is no level."""
    require(
        is_real(level) and 0 < level <= settings.max_novelty,
        f"the wished novelty must lie in (0, {settings.max_novelty:g}]",
        found=short(level),
        cure="0.10 asks for one decision in ten; --max-novelty raises the limit",
    )


def about_rows(rows: float | None) -> str:
    """A number of rows to two digits, for it is no better known."""
    if rows is None:
        return "no number"
    if rows < 1:
        return "0"
    step = 10 ** max(int(np.floor(np.log10(rows))) - 1, 0)
    return f"{int(np.ceil(rows / step) * step):,}"
