"""The frontier from logs alone: how much novelty a certificate is likely to allow, at what value.

Planning reads the learn and select folds, never the certifying one: it rehearses every candidate
pi_old on them and asks how far the mixture (1 - nu) pi_old + nu pi_new can go until its anticipated
bound meets a floor. A plan promises nothing; the certificate does, on rows that the plan has not
seen.

What a plan is: its settings, its points, its numbers, and the sentences that go with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from depsue.certificates import FRACTIONS, Folds, MixtureLadder, Rules, three_folds
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics.propensities import PropensityReport, require_propensities
from depsue.errors import require
from depsue.exploration.before_logs import MORE, USUAL, Assumed, MoreRows, require_wish
from depsue.exploration.candidates import (
    EVEN,
    FEWEST_REWARDS,
    Rehearsal,
    novel_choice,
    parts_of,
    rehearse,
    value_by,
)
from depsue.exploration.forecast import FIRST_NOVEL_STRENGTH
from depsue.exploration.headroom import Aim, Moments, clip_for, reach, rooms, tighter_bound
from depsue.exploration.settings import MOST_NOVELTY, in_words, require_objective, worth
from depsue.exploration.trust import trust_on_hidden_items
from depsue.policies.cached import CachedRewardModel
from depsue.progress import Watch, silent
from depsue.promises import Promise
from depsue.protocols import Policy, RewardModel
from depsue.rewards import Blend, LinearRewardModel, RewardSettings, fit_linear, fit_rewards


@dataclass(frozen=True)
class PlanSettings:
    """What is planned for."""

    aim: Aim = Aim()
    """Floors, delta, the most novelty."""
    objective: str | float = MOST_NOVELTY
    """"most novelty", "most value", "balanced", or a weight: value / V(pi0) + weight x novelty."""
    wish: float | None = None
    """A novelty whose number of rows is asked for."""
    campaign: str = "exploration"
    """The name that the folds depend on: the same as when certifying."""
    fractions: tuple[float, float, float] = FRACTIONS
    """Shares of learn, select and certify."""
    described: bool = True
    """Whether features say anything of the novel items."""
    rewards: RewardSettings = RewardSettings()
    """How q-hat is fitted."""

    def __post_init__(self) -> None:
        require_objective(self.objective)
        if self.wish is not None:
            require_wish(self.wish, self.aim)


@dataclass(frozen=True)
class Point:
    """One level of one candidate; values are relative to V(pi0).

    Args:
        novelty: nu.
        value: anticipated, novel items as q-hat sees them.
        worst: anticipated, if novel items earn nothing.
        room: how far above its floor the bound is likely to lie, for the promise that binds.
        policy: pi_old, in words.
        binds: the promise with the least room.
    """

    novelty: float
    value: float
    worst: float
    room: float
    policy: str
    binds: str = "reward"


@dataclass(frozen=True)
class Kept:
    """One promise, at the pick.

    Args:
        name, floor: of the promise; the floor in words.
        delta: its part.
        rows: certifying rows (or independent units) that it is about.
        logging_value: pi0's value in it.
        room: how far above the floor its bound is likely to lie, over that value.
    """

    name: str
    floor: str
    delta: float
    rows: float
    logging_value: float
    room: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """The pick as something to certify: `certify(chosen.levels, folds, chosen.rules, Reads())`.

    Args:
        levels: mixtures with the pick's pi_old, safest first; None stands for a pi0 that cannot
            be called.
        rules: the promises, delta, the clip, and the bound that is likely to cost least.
    """

    levels: MixtureLadder
    rules: Rules


@dataclass(frozen=True)
class Plan:
    """What the logs say about showing new items.

    Args:
        rows, certifying: logged rows, and independent values (rows or units) in the fold to come.
        certain: the novelty that needs no data.
        frontier: for rising novelty, the best anticipated value that is likely to be certified.
        reaches: the boldest point of each candidate that has one.
        pick: what the objective says.
        why: in a sentence.
        enough: whether more than the certain level is likely.
        times: (multiple of the rows, novelty likely then).
        needed: (novelty, rows in all; None if no number would do).
        needed_rests_on: what the numbers of rows rest on.
        model: what was found about q-hat.
        propensities: what the test of them said.
        notes, assumptions: a sentence each.
        promises: each promise at the pick.
        chosen: the pick as something to certify; None where it is certain. Not in the JSON.
    """

    rows: int
    certifying: float
    certain: float
    frontier: tuple[Point, ...]
    reaches: tuple[Point, ...]
    pick: Point
    why: str
    enough: bool
    times: tuple[tuple[int, float], ...]
    needed: tuple[tuple[float, float | None], ...]
    needed_rests_on: str
    model: str
    propensities: str
    notes: tuple[str, ...]
    assumptions: tuple[str, ...]
    promises: tuple[Kept, ...]
    chosen: Chosen | None = field(repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        found = asdict(replace(self, chosen=None))
        del found["chosen"]
        return found


@dataclass(frozen=True)
class Calibration:
    """reward = level + used (q-hat - centre): what rows that q-hat has not seen say of it.

    Args:
        slope: of rewards on predictions.
        error: its standard error.
        level: the mean reward.
        centre: the mean prediction.
        r_max: the largest possible reward.
    """

    slope: float
    error: float
    level: float
    centre: float
    r_max: float

    @classmethod
    def of(cls, q_hat: FloatArray, rows: LoggedData) -> Calibration:
        """From (m,) predictions for rows that the model has not seen."""
        variance, y = float(q_hat.var()), rows.reward
        slope = error = 0.0
        if variance > 1e-12:
            slope = float(((q_hat - q_hat.mean()) * y).mean()) / variance
            error = float(y.std()) / math.sqrt(variance * len(y))
        level = max(float(y.mean()), 0.5 * rows.r_max / len(y))  # never quite 0
        return cls(slope, error, level, float(q_hat.mean()), rows.r_max)

    @property
    def used(self) -> float:
        """The slope less one standard error, within [0, 1]."""
        return min(max(self.slope - self.error, 0.0), 1.0)

    def __call__(self, q_hat: FloatArray) -> FloatArray:
        """Predictions, corrected."""
        wide = np.asarray(q_hat, dtype=np.float64)
        return np.asarray(np.clip(self.level + self.used * (wide - self.centre), 0.0, self.r_max))


def about_rows(rows: float | None) -> str:
    """A number of rows to two digits, for it is no better known."""
    if rows is None:
        return "no number"
    if rows < 1:
        return "0"
    step = 10 ** max(int(np.floor(np.log10(rows))) - 1, 0)
    return f"{int(np.ceil(rows / step) * step):,}"


def why_words(
    pick: Point,
    settings: PlanSettings,
    enough: bool,
    certain: float,
    needed: Sequence[tuple[float, float | None]],
) -> str:
    """Why this point, or why not more."""
    if not enough:
        more = next(((wish, rows) for wish, rows in needed if wish > certain), None)
        would = "nothing shows that more rows would do: so far q-hat sees too little difference"
        if more is not None and more[1] is not None:
            would = f"about {about_rows(more[1])} rows would do for {more[0]:.1%}"
        said = f"not enough data for more than the certain level, {certain:.1%}: {would}"
        if pick.novelty < certain - 1e-9:
            said += f"; of what is certain, {pick.novelty:.1%} has the most of the objective"
        if pick.room < 0:
            said += (
                f"; pi0 itself is not likely to be certified: its bound would lie {-pick.room:.1%} "
                f"of its value below the floor of {pick.binds!r}"
            )
        return said
    several = len(settings.aim.promises) > 1
    return (
        f"{in_words(settings.objective)} among levels that are likely to pass (three times in four "
        f"or more); the bound on its value is likely to lie {pick.room:.1%} of V(pi0) above the "
        f"floor" + (f" in the promise that binds, {pick.binds!r}" if several else "") + ", or more"
    )


def rests_on_words(assumed: Assumed | None, wish: float, others: Sequence[float | None]) -> str:
    """What the numbers of rows rest on, and how much hangs on what is assumed.

    Args:
        assumed: None where the logs tell.
        wish: the novelty of `others`.
        others: rows for it with half and with twice the spread.
    """
    if assumed is None:
        return (
            "q-hat as it is now; fitted on more rows it would be better, and on fewer worse, which "
            "is not counted"
        )
    half, double = (about_rows(rows) for rows in others)
    return (
        f"an assumption, for these rows cannot tell which items are better: that an item one "
        f"standard deviation better than others earns {np.exp(assumed.spread):.2f} times as much "
        f"(spread {assumed.spread:g}) at a reward rate of {assumed.rate:.2g}; with half that "
        f"spread {wish:.1%} needs {half} rows, with twice of it {double}"
    )


def about_words(found: Calibration, rows: LoggedData, trust: float | None) -> str:
    """What was found about q-hat; `trust` is how much of its promises of unseen items is believed.

    None says that nothing was rehearsed.
    """
    believed = ""
    if trust is not None:
        believed = (
            f"; {trust:.0%} of what it says of new items is believed, as much as came true, less a "
            "standard error, when items were hidden from it"
        )
    return (
        f"mean reward {found.level:.4g} over {len(rows):,} learn and select rows "
        f"({int((rows.reward > 0).sum()):,} with a reward); on rows that it was not fitted on, "
        f"rewards follow q-hat with slope {found.slope:.2f}, standard error {found.error:.2f}"
        f"{believed}"
    )


def assumed_words(rows: LoggedData, n: float, settings: PlanSettings) -> tuple[str, ...]:
    """What the figures rest on."""
    limits = [f"rewards lie between 0 and {rows.r_max:g}"] + [
        f"{one.reward} lies between 0 and {one.r_max:g}"
        for one in settings.aim.promises
        if one.reward is not None
    ]
    return (
        "every logged propensity is the probability with which its action was drawn",
        ", ".join(limits),
        f"units are independent: the rows of those left to certify with count for about {n:,.0f} "
        "independent rows"
        if rows.unit is not None
        else f"rows are independent draws: {n:,.0f} of them are left to certify with",
        "novel items count as worth nothing until they have been shown, so the levels do not rest "
        "on what q-hat says of them; the column value does",
        "what is served meets the same users and rewards as the logs",
        f"the certificate is asked for once, in the campaign {settings.campaign!r}, on rows that "
        "this plan has not read; a plan promises nothing",
    )


LEVELS = 9
"""Of the frontier's table, about."""
NAIVE = "Naive Safe Exploration (pi0)"


def plan(
    logs: LoggedData,
    settings: PlanSettings | None = None,
    *,
    logging_policy: Policy | None = None,
    fit: Callable[[LoggedData], RewardModel] | None = None,
    seed: int = 0,
    watch: Watch = silent,
) -> Plan:
    """The frontier of one round's logs.

    Args:
        logs: rows that pi0 logged.
        settings: what is planned for.
        logging_policy: pi0, if it can be called.
        fit: fits a reward model of your own to rows; None fits what certified exploration does.
        seed: of the reward model.
        watch: shows progress.
    """
    settings = settings or PlanSettings()
    settings = replace(settings, aim=replace(settings.aim, r_max=logs.r_max))
    require(
        bool(logs.catalogue.novel.any()),
        "there must be a novel item to plan for",
        found="none",
        cure="mark the novel items",
    )
    folds = three_folds(logs, settings.campaign, settings.fractions)
    readable = joined([folds.learn, folds.select])
    for promise in settings.aim.promises:
        promise.rows(readable)  # refused before the work
    watch("propensities", 0, 1, "")
    report = require_propensities(folds.learn, folds.select, logging_policy=logging_policy)
    watch("propensities", 1, 1, "nothing refutes them")

    def fitted(rows: LoggedData, name: str) -> RewardModel:
        if fit is not None:
            return fit(rows)
        return _fitted(rows, settings, seed, lambda what, *more: watch(f"{name}: {what}", *more))

    n = independent(readable, folds)
    values = n * len(readable) / max(len(folds.certify), 1)
    rehearsal = rehearse(readable, fitted, logging_policy, values=values, n=n, seed=seed)
    model = CachedRewardModel(fitted(folds.learn, "candidates"), readable.contexts)
    watch("frontier", 0, 1, "")
    trust = None  # a model of your own is taken at its word
    if fit is None and settings.described and logs.catalogue.features is not None:
        trust = trust_on_hidden_items(
            readable, settings.rewards, strength=FIRST_NOVEL_STRENGTH, even=EVEN, seed=seed
        )
    found = _Frontier(rehearsal, model, readable, logging_policy, settings, trust)
    answer = found.plan(len(logs), report)
    watch("frontier", 1, 1, "")
    return answer


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

    def __init__(
        self,
        rehearsal: Rehearsal,
        model: RewardModel,
        readable: LoggedData,
        logging_policy: Policy | None,
        settings: PlanSettings,
        trust: float | None,
    ) -> None:
        self.trust = trust
        self.rehearsal, self.readable, self.settings = rehearsal, readable, settings
        self.aim, self.n, self.pi0 = settings.aim, rehearsal.n, logging_policy
        self.nus, self.sides = self.aim.novelties, rehearsal.sides(self.aim)
        fewest = min(int((side.reward > 0).sum()) for side in self.sides)
        self.told, self.names = fewest >= FEWEST_REWARDS, rehearsal.names
        self.of = self._moments(self.n)
        self.places = [reach(found, self.n, self.aim) for found in self.of] if self.told else []
        self.parts = parts_of(model, readable, logging_policy)
        self.new = novel_choice(model, readable, settings.described)
        self.calibration = Calibration.of(rehearsal.predicted, rehearsal.rows)
        whole, clip = rehearsal.side(Promise()), clip_for(self.n)
        earned = [rehearsal.moments(k, whole, clip) for k in range(len(self.names))]
        self.base = float(earned[0].first[0]) or 1.0
        gains = [float(one.first[1] - one.first[0] - one.error) for one in earned]
        self.values = [1 + gain / self.base for gain in gains]
        self.fresh = 0.0
        if settings.described:
            promised = value_by(model, self.new, readable, self.calibration)
            self.fresh = (1.0 if trust is None else trust) * promised / self.base

    def at(self, n: float) -> list[Sequence[Moments]]:
        """What is known of the candidates; of none where rewards are too few."""
        return self._moments(n) if self.told else []

    def _moments(self, n: float) -> list[Sequence[Moments]]:
        """For every candidate the moments of each promise, clipped as for n certifying rows."""
        return [
            [self.rehearsal.moments(k, side, clip_for(n)) for side in self.sides]
            for k in range(len(self.names))
        ]

    def points(self, k: int, nu: FloatArray, left: FloatArray | None = None) -> list[Point]:
        """Candidate k at each of the novelties."""
        left = rooms(self.of[k], nu, self.n, self.aim) if left is None else left
        worst = (1 - nu) * self.values[k]
        columns = (one.tolist() for one in (nu, worst + nu * self.fresh, worst, left.min(axis=0)))
        binds = [self.aim.promises[place].name for place in left.argmin(axis=0)]
        name = self.names[k]
        return [Point(a, b, c, d, name, e) for a, b, c, d, e in zip(*columns, binds, strict=True)]

    def certain_points(self, nu: FloatArray) -> list[Point]:
        """pi0 beside new items, at levels that are certain under relative floors."""
        left = rooms(self.of[0], nu, self.n, self.aim)
        for place, promise in enumerate(self.aim.promises):
            if promise.floor.ratio is not None:
                left[place] = np.maximum(1 - nu - promise.floor.ratio, 0.0)
        name = NAIVE if self.aim.certain > 0 else self.names[0]
        return [replace(point, policy=name) for point in self.points(0, nu, left)]

    def all_points(self) -> list[Point]:
        """Every level of every candidate that is likely to pass, and the certain ones."""
        certain = self.aim.certain
        found = self.certain_points(np.append(self.nus[self.nus < certain - 1e-9], certain))
        for k, places in enumerate(self.places):
            if len(places):
                found += self.points(k, self.nus[places])
        return found

    def worth(self, point: Point) -> tuple[float, float]:
        """What the objective says of a point; ties go to the other of value and novelty."""
        value, novelty = np.array([point.value]), np.array([point.novelty])
        other = point.value if self.settings.objective == MOST_NOVELTY else point.novelty
        return float(worth(self.settings.objective, value, novelty)[0]), other

    def plan(self, rows: int, report: PropensityReport) -> Plan:
        """All of it, in words and numbers."""
        points, aim, certain = self.all_points(), self.aim, self.aim.certain
        pick = max(points, key=self.worth)
        top = max(point.novelty for point in points)
        enough = top > certain + 1e-9
        usual = self._assumed(USUAL)
        more = MoreRows(self.at, aim, n=self.n, rows=rows, top=top, usual=usual)
        needed, wish = more.needed(self.settings.wish), round(certain + MORE, 6)
        spreads = (USUAL / 2, 2 * USUAL) if more.assumed else ()
        others = [more.rows(wish, self._assumed(spread)) for spread in spreads]
        return Plan(
            rows=rows,
            certifying=self.n,
            certain=certain,
            frontier=_envelope(points, certain),
            reaches=tuple(
                self.points(k, self.nus[places[-1:]])[0]
                for k, places in enumerate(self.places)
                if len(places)
            ),
            pick=pick,
            why=why_words(pick, self.settings, enough, certain, needed),
            enough=enough,
            times=more.times(),
            needed=needed,
            needed_rests_on=rests_on_words(more.assumed, wish, others),
            model=about_words(self.calibration, self.readable, self.trust),
            propensities=str(report).splitlines()[0],
            notes=report.notes,
            assumptions=assumed_words(self.readable, self.n, self.settings),
            promises=self._kept(pick),
            chosen=self._chosen(pick),
        )

    def _assumed(self, spread: float) -> Assumed:
        """What is assumed where the rehearsal cannot tell: pi0's rewards are as they are."""
        largest = [self.aim.largest(promise) for promise in self.aim.promises]
        rates = [
            (min(max(float(one.first[0]) / r_max, 1e-9), 0.9), one.share)
            for one, r_max in zip(self.of[0], largest, strict=True)
        ]
        rate = min(self.calibration.level / self.calibration.r_max, 0.9)
        return Assumed(rate, spread, tuple(rates))

    def _kept(self, pick: Point) -> tuple[Kept, ...]:
        """Each promise at the pick."""
        k = self._candidate(pick)
        left = rooms(self.of[k], np.array([pick.novelty]), self.n, self.aim)[:, 0]
        found = []
        for promise, one, room in zip(self.aim.promises, self.of[k], left, strict=True):
            ratio, base = promise.floor.ratio, float(one.first[0])
            if k == 0 and ratio is not None:
                room = max(1 - pick.novelty - ratio, 0.0)
            size = self.n * one.share
            found.append(
                Kept(promise.name, str(promise.floor), self.aim.each, size, base, float(room))
            )
        return tuple(found)

    def _candidate(self, pick: Point) -> int:
        return 0 if pick.policy == NAIVE else self.names.index(pick.policy)

    def _chosen(self, pick: Point) -> Chosen | None:
        """The pick's candidate, from its safest level on; None if it needs no certificate."""
        if pick.policy == NAIVE:
            return None
        k = self._candidate(pick)
        rules = Rules(self.aim.promises, self.aim.delta, clip=clip_for(self.n))
        left = rooms(self.of[k], self.nus, self.n, self.aim).min(axis=0)
        start, end = int(left.argmax()), len(self.nus) - 1
        if self.settings.objective != MOST_NOVELTY:
            end = int(np.abs(self.nus - pick.novelty).argmin())
        step = 1 if end >= start else -1
        nus = self.nus[np.arange(start, end + step, step)]
        part = self.parts[k]
        kept = part.kept if part.tilt is not None else 1.0
        shares = np.stack([(1 - nus) * kept, (1 - nus) * (1 - kept), nus], axis=1)
        tilt = part.tilt if part.tilt is not None else self.new
        used = [place for place in range(3) if shares[:, place].any()]
        every = (self.pi0, tilt, self.new)
        levels = MixtureLadder(tuple(every[place] for place in used), shares[:, used])
        bound = tighter_bound(self.of[k], pick.novelty, self.n, self.aim)
        return Chosen(levels, replace(rules, bound=bound))


def _fitted(rows: LoggedData, settings: PlanSettings, seed: int, watch: Watch) -> RewardModel:
    """q-hat: what certified exploration uses; linear without features."""
    if rows.catalogue.features is None:  # nothing tells items apart: no tilt
        flat = np.zeros(rows.contexts.shape[1]), np.zeros(len(rows.catalogue))
        return LinearRewardModel(float(rows.reward.mean()), *flat, rows.r_max)
    linear = fit_linear(rows)
    if not settings.described:
        return linear
    return Blend([fit_rewards(rows, settings.rewards, seed=seed, watch=watch), linear])


def _envelope(points: Sequence[Point], certain: float) -> tuple[Point, ...]:
    """For rising novelty, the point with the most value among those at that level."""
    top = max(point.novelty for point in points)
    even = [x for x in np.linspace(0.0, top, LEVELS).tolist() if abs(x - certain) > top / 40]
    levels = sorted({*even, certain})
    found: list[Point] = []
    for level in levels:
        near = [p for p in points if abs(p.novelty - level) < 6e-4]
        if near:
            found.append(max(near, key=lambda p: p.value))
    return tuple(found)
