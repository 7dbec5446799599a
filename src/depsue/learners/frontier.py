"""The frontier from logs alone: how much novelty a certificate is likely to allow, at what value.

Planning reads the learn and select folds, never the certifying one: it fits q-hat on the first,
calibrates it on the second, and asks of every candidate pi_old how far the mixture
(1 - nu) pi_old + nu pi_new can go until its anticipated bound meets the floor. A plan promises
nothing; the certificate does, on rows that the plan has not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from depsue.certificates import Folds, three_folds
from depsue.certificates.propensities import PropensityReport, require_propensities
from depsue.data.checks import FloatArray
from depsue.data.joined import joined
from depsue.data.logs import LoggedData
from depsue.errors import require
from depsue.learners.anticipate import Anticipation
from depsue.learners.assumed import SHARE, Assumed, novelty_before_logs, rows_before_logs
from depsue.learners.candidates import (
    Calibration,
    Option,
    Options,
    mixtures,
    reward_ratios,
    tilts,
)
from depsue.learners.planned import (
    Plan,
    PlanSettings,
    Point,
    about_words,
    assumed_spread_words,
    assumed_words,
    rests_on_words,
    why_words,
)
from depsue.learners.room import Aim, Moments, boldest, clip_for, reach, room, rows_for
from depsue.policies.tilted import Remembering
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel
from depsue.rewards import Blend, LinearRewardModel, fit_linear, fit_rewards

TIMES = (1, 2, 5, 10)
"""Multiples of the rows at hand that the plan looks at."""
MORE = 0.01
"""Novelty above the certain level that counts as more."""
LEVELS = 9
"""Of the frontier's table, about."""
SPREAD = 0.3
"""Of log rewards among what pi0 shows; assumed where the logs cannot tell."""
NAIVE = "Naive Safe Exploration (pi0)"


def plan(
    logs: LoggedData,
    settings: PlanSettings | None = None,
    *,
    logging_policy: Policy | None = None,
    seed: int = 0,
    watch: Watch = silent,
) -> Plan:
    """The frontier of one round's logs.

    Args:
        logs: rows that pi0 logged.
        settings: what is planned for.
        logging_policy: pi0, if it can be called.
        seed: of the reward model.
        watch: shows progress.
    """
    settings = settings or PlanSettings()
    require(
        bool(logs.catalogue.novel.any()),
        "there must be a novel item to plan for",
        found="none",
        cure="mark the novel items",
    )
    folds = three_folds(logs, settings.campaign, settings.fractions)
    watch("propensities", 0, 1, "")
    report = require_propensities(folds.learn, folds.select, logging_policy=logging_policy)
    watch("propensities", 1, 1, "nothing refutes them")
    model = _fitted(folds, settings, seed, watch)
    readable = joined([folds.learn, folds.select])
    n = independent(readable, folds)
    calibration = Calibration.of(model, folds.learn, folds.select)

    watch("frontier", 0, 1, "")
    described = settings.described
    if logging_policy is None:
        options = mixtures(
            readable,
            model,
            calibration,
            n=n,
            described=described,
            seed=seed,
        )
    else:
        known = Anticipation(
            folds.select, model, logging_policy, logging_policy, clip=clip_for(n), seed=seed
        )
        options = tilts(known, calibration, reward_ratios(readable), described=described)
    found = _Frontier(options, n, settings)
    watch("frontier", 1, 1, "")
    return found.plan(logs, readable, calibration, report, assumed_words(readable, n, settings))


def independent(readable: LoggedData, folds: Folds) -> float:
    """How many independent values the certifying fold is worth, its rewards unread.

    Rows, or where rows repeat units: units, times how much less their means vary than rows do.
    """
    if folds.certify.units is None or readable.unit is None:
        return float(len(folds.certify))
    means = np.bincount(readable.unit, readable.reward) / np.bincount(readable.unit)
    rows, units = float(readable.reward.var()), float(means.var())
    less = min(max(units / rows, 1e-3), 1.0) if rows > 0 else 1.0
    return min(len(folds.certify.units) / less, float(len(folds.certify)))


class _Frontier:
    """Every candidate's reach, and the choice among them."""

    def __init__(self, options: Options, n: float, settings: PlanSettings) -> None:
        self.options, self.n, self.settings, self.aim = options, n, settings, settings.aim
        self.nus = self.aim.novelties
        self.of = [(one, one.moments(clip_for(n))) for one in options.options]
        self.places = [reach(moments, n, self.aim) for _, moments in self.of]
        self.base = options.logging_value or 1.0

    def points(self, option: Option, moments: Moments, nu: FloatArray) -> list[Point]:
        """The candidate at each of the novelties."""
        worst = (1 - nu) * option.value / self.base
        value = worst + nu * self.options.novel_value / self.base
        left = room(moments, nu, self.n, self.aim) / self.base
        columns = (one.tolist() for one in (nu, value, worst, left))
        return [Point(a, b, c, d, option.name) for a, b, c, d in zip(*columns, strict=True)]

    def naive(self, nu: float) -> Point:
        """pi0 beside new items, at a level that is certain."""
        option, moments = self.of[0]
        point = self.points(option, moments, np.array([nu]))[0]
        left = max(1 - nu - self.aim.ratio, 0.0)
        return Point(nu, point.value, point.worst, left, NAIVE)

    def all_points(self) -> list[Point]:
        """Every level of every candidate that is likely to pass, and the certain ones."""
        found = [self.naive(float(nu)) for nu in self.nus if nu <= self.aim.certain + 1e-12]
        found.append(self.naive(self.aim.certain))
        for (option, moments), places in zip(self.of, self.places, strict=True):
            if len(places):
                found += self.points(option, moments, self.nus[places])
        return found

    def worth(self, point: Point) -> tuple[float, float]:
        """What the objective says of a point; ties go to the other of value and novelty."""
        if self.settings.objective == "most-novelty":
            return point.novelty, point.value
        weight = 0.0 if isinstance(self.settings.objective, str) else self.settings.objective
        return point.value + float(weight) * point.novelty, point.novelty

    def plan(
        self,
        logs: LoggedData,
        readable: LoggedData,
        calibration: Calibration,
        report: PropensityReport,
        assumptions: tuple[str, ...],
    ) -> Plan:
        """All of it, in words and numbers."""
        points, certain = self.all_points(), self.aim.certain
        pick = max(points, key=self.worth)
        top = max(point.novelty for point in points)
        enough = top > certain + 1e-9
        more = _More(self, len(logs), calibration, top)
        needed = more.needed()
        return Plan(
            rows=len(logs),
            certifying=self.n,
            certain=certain,
            frontier=_envelope(points, certain),
            reaches=tuple(
                self.points(option, moments, self.nus[places[-1:]])[0]
                for (option, moments), places in zip(self.of, self.places, strict=True)
                if len(places)
            ),
            pick=pick,
            why=why_words(pick, self.settings, enough, certain, needed),
            enough=enough,
            times=more.times(),
            needed=needed,
            needed_rests_on=more.rests_on(),
            model=about_words(calibration, readable),
            propensities=str(report).splitlines()[0],
            notes=report.notes,
            assumptions=assumptions,
        )


class _More:
    """What more rows would buy: as q-hat is calibrated, or as assumed where it cannot be told.

    It cannot be told where no number of rows helps the calibrated q-hat, and where rows as few as
    those at hand would not have shown a spread of the usual size either.
    """

    def __init__(self, frontier: _Frontier, rows: int, found: Calibration, top: float) -> None:
        self.aim, self.n, self.rows = frontier.aim, frontier.n, rows
        self.per = rows / frontier.n
        self.wish = frontier.settings.wish
        self._options = frontier.options.options
        self.later = self._moments(self.n * TIMES[-1])
        self.rate = min(found.level / found.r_max, 0.9)
        self.assumed: Assumed | None = None
        helped = rows_for(self.later, self.aim.certain + MORE, self.aim) is not None
        usual = Assumed(self.rate, SPREAD)
        if not helped and novelty_before_logs(self.n / SHARE, usual, self._unit) <= top + 1e-9:
            self.assumed = usual

    @property
    def _unit(self) -> Aim:
        """The same aim for rewards as shares of r_max."""
        return replace(self.aim, r_max=1.0)

    def _moments(self, n: float) -> list[Moments]:
        return [one.moments(clip_for(n)) for one in self._options]

    def times(self) -> tuple[tuple[int, float], ...]:
        """Multiples of the rows at hand, and the novelty that is likely then."""
        found = []
        for k in TIMES:
            n = self.n * k
            if self.assumed is None:
                found.append((k, boldest(self._moments(n), n, self.aim)))
            else:
                found.append((k, novelty_before_logs(n / SHARE, self.assumed, self._unit)))
        return tuple(found)

    def needed(self) -> tuple[tuple[float, float | None], ...]:
        """Novelties, and the rows in all that they need."""
        certain = self.aim.certain
        asked = (certain + MORE, 2 * certain, self.wish or certain + MORE)
        wishes = sorted({round(one, 6) for one in asked if certain < one <= self.aim.most})
        return tuple((wish, self._rows(wish, self.assumed)) for wish in wishes)

    def _rows(self, wish: float, assumed: Assumed | None) -> float | None:
        if assumed is None:
            n = rows_for(self.later, wish, self.aim)
            return None if n is None else n * self.per
        rows = rows_before_logs(wish, assumed, self._unit)
        return None if rows is None else rows * SHARE * self.per

    def rests_on(self) -> str:
        """What these numbers rest on."""
        if self.assumed is None:
            return rests_on_words()
        wish = round(self.aim.certain + MORE, 6)
        others = [self._rows(wish, Assumed(self.rate, s)) for s in (SPREAD / 2, 2 * SPREAD)]
        return assumed_spread_words(wish, self.rate, SPREAD, others)


def _fitted(folds: Folds, settings: PlanSettings, seed: int, watch: Watch) -> RewardModel:
    """q-hat from the learn fold: what certified exploration uses; linear without features."""
    learn = folds.learn
    if learn.catalogue.features is None:  # nothing tells items apart: no tilt
        flat = np.zeros(learn.contexts.shape[1]), np.zeros(len(learn.catalogue))
        return LinearRewardModel(float(learn.reward.mean()), *flat, learn.r_max)
    linear = fit_linear(learn)
    if not settings.described:
        return linear
    fitted = fit_rewards(folds.learn, settings.rewards, seed=seed, watch=watch)
    contexts = joined([folds.learn, folds.select]).contexts
    return Remembering(Blend([fitted, linear]), contexts)


def _envelope(points: Sequence[Point], certain: float) -> tuple[Point, ...]:
    """For rising novelty, the point with the most value among those at least as bold."""
    top = max(point.novelty for point in points)
    even = [x for x in np.linspace(0.0, top, LEVELS).tolist() if abs(x - certain) > top / 40]
    levels = sorted([*even, certain])
    found: list[Point] = []
    for level in levels:
        near = [p for p in points if abs(p.novelty - level) < 6e-4]
        if near:
            found.append(max(near, key=lambda p: p.value))
    return tuple(found)
