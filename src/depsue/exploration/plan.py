"""The plan of a round: how much novelty its certificate is likely to allow, at what value.

Planning reads the learn and select folds, never the certifying one. It looks ahead as a campaign
does (`exploration.round.look_ahead`), so the candidate that it forecasts is the one that training
would freeze. A plan promises nothing; the certificate does, on rows that the plan has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from depsue import codec, rng
from depsue.assumptions import Rung
from depsue.certificates import Reads, Registration, three_folds, words_on_units
from depsue.check import read_logs
from depsue.data.logs import LoggedData, joined
from depsue.data.mapping import LogMapping
from depsue.diagnostics.propensities import require_propensities
from depsue.diagnostics.propensity_report import PropensityReport
from depsue.errors import PolicyError, is_real, require, require_settings, short
from depsue.exploration.assumed import RungForecast, by_rung
from depsue.exploration.learning import Fit
from depsue.exploration.parts import Candidate, Tilt
from depsue.exploration.round import FrozenCandidate, Prospect, RoundInputs, look_ahead
from depsue.exploration.rounds import CampaignState
from depsue.exploration.rows_needed import (
    AssumedRows,
    MoreRows,
    RowsAhead,
    RowsNeeded,
    about_rows,
    require_wish,
)
from depsue.exploration.settings import ExploreSettings, in_words
from depsue.policies import known_by
from depsue.progress import Watch, silent
from depsue.promises import Floor
from depsue.protocols import Policy

LEVELS = 9
"""Of the frontier's table, about."""
CAMPAIGN = "exploration"
"""The name of a campaign that nobody named: a label."""


@dataclass(frozen=True)
class Point:
    """One level of one candidate; values are relative to V(pi0).

    Args:
        novelty: nu.
        value: anticipated, novel items as q-hat sees them and as far as it is believed.
        worst: anticipated, if novel items earn nothing.
        headroom: how far above its floor the bound is likely to lie, for the promise that binds.
        binds: the name of that promise.
        what: something to certify, what is certain beside pi0, or pi0.
        tilt: how its pi_old is made.
    """

    novelty: float
    value: float
    worst: float
    headroom: float
    binds: str
    what: Literal["certified", "certain", "pi0"]
    tilt: Tilt = Tilt()

    @property
    def policy(self) -> str:
        """pi_old, in words."""
        return "Naive Safe Exploration (pi0)" if self.what == "certain" else str(self.tilt)


@dataclass(frozen=True)
class PromiseForecast:
    """One promise, at the pick.

    Args:
        name, floor: of the promise.
        delta: its part.
        rows: certifying rows (or independent units) that it is about.
        pi0_value: pi0's value in it.
        headroom: how far above the floor its bound is likely to lie, over that value.
    """

    name: str
    floor: Floor
    delta: float
    rows: float
    pi0_value: float
    headroom: float


@dataclass(frozen=True)
class RewardModelFacts:
    """What was found about q-hat.

    Args:
        rows, rewarded: learn and select rows, and those with a reward.
        mean_reward: of those rows.
        slope: of rewards by predictions on rows that it was not fitted on, less a standard error.
        trust: share of what it says of unseen items that is believed.
        own: whether it is a model of one's own, which is taken at its word.
    """

    rows: int
    rewarded: int
    mean_reward: float
    slope: float
    trust: float
    own: bool


@dataclass(frozen=True)
class PropensityFacts:
    """What the test of the propensities said: rows tested, mean of m/p, its lower bound, notes."""

    rows: int
    mean: float
    bound: float
    notes: tuple[str, ...]

    @classmethod
    def of(cls, report: PropensityReport) -> PropensityFacts:
        """What a plan shows of the report."""
        return cls(report.n, report.mean, report.bound, tuple(report.notes))


@dataclass(frozen=True)
class Plan:
    """What the logs say about showing new items in a round.

    Args:
        campaign, round: of which.
        settings: what is planned for.
        rows, certifying: logged rows, and independent values (rows or units) in the fold to come.
        units: whether rows belong to units.
        r_max: the largest possible reward.
        novel_shown: whether novel items have been shown, so that their rewards count.
        certain: the novelty that needs no data.
        frontier: for rising novelty, the best anticipated value that is likely to be certified.
        reaches: the boldest point of each candidate that has one.
        pick: what is likely to be served: the best by the objective of what is likely to pass, what
            is certain, and pi0.
        enough: whether more than the certain level is likely.
        times: what more rows would buy.
        needed: rows that novelties need.
        assumed: what those numbers rest on where the logs cannot tell; None where they can.
        reward_model: what was found about q-hat.
        propensities: what the test of them said; None where it was not asked.
        declared: assumptions of the one who plans, a sentence each.
        promises: each promise at the pick.
        candidate: what the round would put to the test. Not in the JSON.
        ladder: the pick on each declared rung and on none; () where nothing is declared.
    """

    campaign: str
    round: int
    settings: ExploreSettings
    rows: int
    certifying: float
    units: bool
    r_max: float
    novel_shown: bool
    certain: float
    frontier: tuple[Point, ...]
    reaches: tuple[Point, ...]
    pick: Point
    enough: bool
    times: tuple[MoreRows, ...]
    needed: tuple[RowsNeeded, ...]
    assumed: AssumedRows | None
    reward_model: RewardModelFacts
    propensities: PropensityFacts | None
    promises: tuple[PromiseForecast, ...]
    candidate: FrozenCandidate = field(repr=False, compare=False)
    declared: tuple[str, ...] = ()
    ladder: tuple[RungForecast, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """JSON values: every field but the candidate, and the sentences."""
        values: dict[str, Any] = codec.plain(replace(self, candidate=None))  # type: ignore[arg-type]
        del values["candidate"]
        sentences = {"why": self.why, "needed_rests_on": self.needed_rests_on, "model": self.model}
        return values | sentences | {"assumptions": list(self.assumptions)}

    @property
    def why(self) -> str:
        """Why this pick, or why not more."""
        pick, certain = self.pick, self.certain
        if self.enough:
            return _why_enough(pick, self.settings)
        more = next((wish for wish in self.needed if wish.novelty > certain), None)
        would = "nothing shows that more rows would do: so far q-hat sees too little difference"
        if more is not None and more.rows is not None:
            would = f"about {about_rows(more.rows)} rows would do for {more.novelty:.1%}"
        why = f"not enough data for more than the certain level, {certain:.1%}: {would}"
        if pick.novelty < certain - 1e-9:
            why += f"; by the objective, {pick.novelty:.1%} at value {pick.value:.3f} is better"
        if pick.headroom < 0:
            why += (
                f"; pi0 itself is not likely to be certified: its bound would lie "
                f"{-pick.headroom:.1%} of its value below the floor of {pick.binds!r}"
            )
        return why

    @property
    def needed_rests_on(self) -> str:
        """What the numbers of rows rest on, and how much hangs on what is assumed."""
        if self.assumed is None:
            return (
                "q-hat as it is now; fitted on more rows it would be better, and on fewer worse, "
                "which is not counted"
            )
        assumed = self.assumed
        return (
            f"an assumption, for these rows cannot tell which items are better: that an item one "
            f"standard deviation better than others earns {math.exp(assumed.spread):.2f} times as "
            f"much (spread {assumed.spread:g}) at a reward rate of {assumed.rate:.2g}; with half "
            f"that spread {assumed.novelty:.1%} needs {about_rows(assumed.at_half)} rows, with "
            f"twice of it {about_rows(assumed.at_double)}"
        )

    @property
    def model(self) -> str:
        """What was found about q-hat."""
        model = self.reward_model
        believed = (
            "it is taken at its word"
            if model.own
            else f"{model.trust:.0%} of what it says of new items is believed, as much as came "
            "true, less a standard error, when items were hidden from it"
        )
        return (
            f"mean reward {model.mean_reward:.4g} over {model.rows:,} learn and select rows "
            f"({model.rewarded:,} with a reward); on rows that it was not fitted on, rewards "
            f"follow q-hat with slope {model.slope:.2f}, a standard error taken off; {believed}"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures rest on."""
        limits = [f"rewards lie between 0 and {self.r_max:g}"] + [
            f"{promise.reward} lies between 0 and {promise.r_max:g}"
            for promise in self.settings.promises
            if promise.reward is not None
        ]
        assumed = self.candidate.rules.assumed
        worthless = (
            "new items count by their own rewards, as far as they were shown"
            if self.novel_shown
            else "novel items count as worth nothing until they have been shown, so the levels do "
            "not rest on what q-hat says of them; the column value does"
        )
        return (
            "every logged propensity is the probability with which its action was drawn",
            ", ".join(limits),
            f"units are independent: the rows of those left to certify with count for about "
            f"{self.certifying:,.0f} independent rows"
            if self.units
            else f"rows are independent draws: {self.certifying:,.0f} of them are left to certify "
            "with",
            *(words_on_units(self.settings.units) if self.units else ()),
            *((worthless,) if assumed is None else assumed.rung.words),
            "what is served meets the same users and rewards as the logs",
            f"the certificate is asked for once, in the campaign {self.campaign!r}, on rows that "
            "this plan has not read; a plan promises nothing",
            *self.declared,
        )


def _why_enough(pick: Point, settings: ExploreSettings) -> str:
    why = (
        f"{in_words(settings.objective)} among levels that are likely to pass (three times in four "
        "or more)"
    )
    if pick.what != "certified":
        return f"{why}, what is certain and pi0"
    several = len(settings.promises) > 1
    return (
        f"{why}; the bound on its value is likely to lie {pick.headroom:.1%} of V(pi0) above the "
        "floor" + (f" in the promise that binds, {pick.binds!r}" if several else "") + ", or more"
    )


def plan(
    logs: LoggedData | Any,
    settings: ExploreSettings | None = None,
    *,
    items: Any = None,
    mapping: LogMapping | str | Path | None = None,
    registration: Registration | None = None,
    campaign: str = CAMPAIGN,
    wish: float | None = None,
    logging_policy: Policy | None = None,
    fit: Fit | None = None,
    seed: int = 0,
    watch: Watch = silent,
) -> Plan:
    """Plan the first round of a campaign, on what pi0 logged.

    Args:
        logs: rows that pi0 logged: `LoggedData`, a file, or a frame of any library.
        settings: what is planned for; the campaign's.
        items, mapping: of a file or a frame: its catalogue, and which column is what, or a guess.
        registration: the ledger's of these rows, so that none is read that their campaign will
            certify on; None takes a split of the plan's own, which may read some.
        campaign: its name, a label.
        wish: a novelty whose number of rows is asked for.
        logging_policy: pi0; None is what logs of candidates know of it, if they are such.
        fit: fits a reward model of your own to rows; None fits what a campaign does.
        seed: of all training, as a campaign's.
        watch: shows progress.
    """
    settings = settings or ExploreSettings()
    require_settings(settings, ExploreSettings)
    if not isinstance(logs, LoggedData):
        cure = "plan(logs, items=...): a file or a frame with one row per item"
        require(items is not None, "a plan of a file or a frame needs its items", cure=cure)
        logs = read_logs(logs, items, mapping)
    require_plannable(settings, logs.r_max)
    require(
        bool(logs.catalogue.novel.any()),
        "there must be a novel item to plan for",
        found="none",
        cure="mark the novel items",
    )
    require(
        isinstance(campaign, str) and bool(campaign.strip()),
        "a campaign needs a name",
        found=short(campaign),
        cure="name it as its certificates shall",
    )
    ok = logging_policy is None or hasattr(logging_policy, "distributions")
    require(ok, "logging_policy must be a policy", found=short(logging_policy), error=PolicyError)
    require(fit is None or callable(fit), "fit must be a function of rows", found=short(fit))
    if registration is None:
        registration = Reads(secret=rng.secret(0, "plan")).register(logs, settings.fractions)
    pi0 = known_by(logs) if logging_policy is None else logging_policy
    if pi0 is None:
        how: Any = {"units": settings.units, "group": (1, settings.deployments)}
        inputs = RoundInputs(three_folds(logs, registration, campaign=campaign, **how), None)
    else:  # as the campaign's first round begins
        delta = settings.delta_of_deployment
        state = CampaignState(settings, pi0, logs, registration, delta, campaign=campaign)
        inputs = state.inputs(len(logs))
    learn, select, within = inputs.folds.learn, inputs.folds.select, settings.factor
    for promise in settings.promises:
        promise.rows(joined([learn, select]))  # refused before the work
    watch("propensities", 0, 1, "")
    report = require_propensities(learn, select, logging_policy=pi0, within=within)
    watch("propensities", 1, 1, "nothing refutes them")
    return plan_round(
        inputs,
        settings,
        campaign=campaign,
        rows=len(logs),
        wish=wish,
        fit=fit,
        propensities=report,
        seed=rng.derive(seed, "exploration", 1),
        watch=watch,
    )


def plan_round(
    inputs: RoundInputs,
    settings: ExploreSettings,
    *,
    campaign: str,
    rows: int,
    seed: int,
    round: int = 1,
    wish: float | None = None,
    fit: Fit | None = None,
    propensities: PropensityReport | None = None,
    watch: Watch = silent,
) -> Plan:
    """Plan any round, from what is there when it begins.

    Args:
        inputs: what is there.
        settings: what is planned for.
        campaign: its name.
        rows: of the newest logs, in all folds.
        seed: of the round's training.
        round: which one.
        wish, fit: as for `plan`.
        propensities: what a test of them said.
        watch: shows progress.
    """
    folds = inputs.folds
    require_plannable(settings, folds.learn.r_max)
    if wish is not None:
        require_wish(wish, settings)
    prospect = look_ahead(inputs, settings, seed=seed, fit=fit, watch=watch)
    watch("frontier", 0, 1, "")
    planner = _Planner(prospect)
    ahead = RowsAhead(prospect, rows, planner.certain, planner.top)
    calibration = prospect.forecast.calibration
    readable = joined([folds.learn, folds.select])
    planned = Plan(
        campaign=campaign,
        round=round,
        settings=settings,
        rows=rows,
        certifying=prospect.n,
        units=readable.unit is not None,
        r_max=readable.r_max,
        novel_shown=prospect.forecast.shown,
        certain=planner.certain,
        frontier=planner.frontier(),
        reaches=planner.reaches,
        pick=planner.pick,
        enough=planner.enough,
        times=ahead.times(),
        needed=ahead.needed(wish),
        assumed=ahead.assumed_rows(),
        reward_model=RewardModelFacts(
            rows=len(readable),
            rewarded=int((readable.reward > 0).sum()),
            mean_reward=float(readable.reward.mean()),
            slope=calibration.slope,
            trust=prospect.forecast.trust,
            own=fit is not None,
        ),
        propensities=None if propensities is None else PropensityFacts.of(propensities),
        promises=planner.promises(),
        candidate=prospect.frozen(),
    )
    watch("frontier", 1, 1, "")

    def pick(assume: tuple[Rung, ...]) -> tuple[float, float]:
        own, other = prospect, replace(settings, assume=assume)
        if other != settings:
            own = look_ahead(inputs, other, seed=seed, fit=fit, watch=watch)
        point = _Planner(own).pick
        return point.novelty, point.value

    return replace(planned, ladder=by_rung(settings.assume, pick))


def require_plannable(settings: ExploreSettings, r_max: float) -> None:
    """Refuse floors and limits that no plan can be made for."""
    for promise in settings.promises:
        ratio, absolute = promise.floor.ratio, promise.floor.absolute
        require(
            ratio is None or ratio <= 1,
            "the floor must lie in (0, 1]",
            found=short(ratio),
            cure="0.95 asks for 95% of pi0's value; an absolute floor is --floor-value",
        )
        most = r_max if promise.r_max is None else promise.r_max
        require(
            absolute is None or absolute < most,
            f"an absolute floor must lie below r_max, {most:g}",
            found=short(absolute),
            cure="it is a mean reward for each decision",
        )
    most = settings.max_novelty
    ok = is_real(most) and 0 < most < 1
    require(ok, "the most novelty must lie in (0, 1)", found=short(most), cure="0.5")


@dataclass(frozen=True, eq=False)
class _Planner:
    """The points of a plan.

    Args:
        prospect: what is known ahead of the round.
    """

    prospect: Prospect

    @cached_property
    def certain(self) -> float:
        """The novelty beside pi0 that needs no data."""
        return round(self.prospect.settings.certain, 9)

    @cached_property
    def pick(self) -> Point:
        """What is likely to be served."""
        prospect = self.prospect
        choice = prospect.likely_choice(prospect.path, prospect.n)
        if choice.what != "certified":
            return self._beside_pi0(round(choice.novelty, 9), choice.what)
        place = int(np.abs(prospect.novelties - choice.novelty).argmin())
        return self._points(prospect.path.candidate, [place])[0]

    @cached_property
    def likely_points(self) -> list[list[Point]]:
        """Every level that is likely to pass, for each candidate that has one."""
        prospect = self.prospect
        places = [(c, prospect.likely(c, prospect.n)) for c in prospect.candidates]
        return [self._points(candidate, at.tolist()) for candidate, at in places if len(at)]

    @property
    def reaches(self) -> tuple[Point, ...]:
        """The boldest point of each candidate that has one."""
        return tuple(points[-1] for points in self.likely_points)

    @property
    def top(self) -> float:
        """The boldest level that is likely to pass, or certain."""
        return max([self.certain, *(point.novelty for point in self.reaches)])

    @property
    def enough(self) -> bool:
        """Whether more than the certain level is likely."""
        return self.top > self.certain + 1e-9

    def frontier(self) -> tuple[Point, ...]:
        """For rising novelty, the point with the most value among those at that level."""
        what: Literal["certain", "pi0"] = "certain" if self.certain > 0 else "pi0"
        nus = [nu for nu in self.prospect.novelties.tolist() if nu < self.certain - 1e-9]
        points = [self._beside_pi0(nu, what) for nu in [*nus, self.certain]]
        points += [point for of_candidate in self.likely_points for point in of_candidate]
        top = max(point.novelty for point in points)
        even = [nu for nu in np.linspace(0.0, top, LEVELS) if abs(nu - self.certain) > top / 40]
        step = float(np.diff(self.prospect.novelties[:2], prepend=0.0)[-1])
        near = 0.6 * step
        best = []
        for level in sorted({*even, self.certain}):
            here = [point for point in points if abs(point.novelty - level) < near]
            best += [max(here, key=lambda point: point.value)] if here else []
        return tuple(best)

    def _points(self, candidate: Candidate, places: Sequence[int]) -> list[Point]:
        """Some levels of a candidate."""
        prospect = self.prospect
        left, values = prospect.headroom(candidate, prospect.n), prospect.values(candidate)
        unit = prospect.forecast.pi0_values[0] or 1.0
        points = []
        for place in places:
            nu, binds = float(prospect.novelties[place]), int(left[:, place].argmin())
            points.append(
                Point(
                    novelty=nu,
                    value=float(values[place]),
                    worst=(1 - nu) * candidate.sums[0].old.value / unit,
                    headroom=float(left[binds, place]),
                    binds=prospect.settings.promises[binds].name,
                    what="certified",
                    tilt=candidate.old.tilt,
                )
            )
        return points

    def _beside_pi0(self, nu: float, what: Literal["certain", "pi0"]) -> Point:
        """New items beside pi0, at a level that is certain under relative floors."""
        left, expected = self._headroom_beside_pi0(nu), self.prospect.expected
        binds = int(np.argmin(left))
        return Point(
            novelty=nu,
            value=expected.value(nu, naive=True),
            worst=(1 - nu) * expected.logging,
            headroom=left[binds],
            binds=self.prospect.settings.promises[binds].name,
            what=what,
        )

    def _headroom_beside_pi0(self, nu: float) -> list[float]:
        """Of each promise: 1 - nu - rho is certain, an absolute floor must be shown."""
        pi0 = self.prospect.candidates[0]  # its pi_old is pi0 itself
        left = self.prospect.headroom(pi0, self.prospect.n, np.array([nu]))[:, 0]
        return [
            float(room) if promise.floor.ratio is None else max(1 - nu - promise.floor.ratio, 0.0)
            for promise, room in zip(self.prospect.settings.promises, left, strict=True)
        ]

    def promises(self) -> tuple[PromiseForecast, ...]:
        """Each promise at the pick."""
        prospect, pick, rules = self.prospect, self.pick, self.prospect.rules
        if pick.what == "certified":
            at = np.array([pick.novelty])
            left = prospect.headroom(prospect.path.candidate, prospect.n, at)[:, 0].tolist()
        else:
            left = self._headroom_beside_pi0(pick.novelty)
        asked = prospect.forecast.requirements(rules, rules.left(rules.delta))
        return tuple(
            PromiseForecast(
                name=promise.name,
                floor=promise.floor,
                delta=requirement.delta,
                rows=prospect.n * requirement.share,
                pi0_value=requirement.pi0_value,
                headroom=room,
            )
            for promise, requirement, room in zip(
                prospect.settings.promises, asked, left, strict=True
            )
        )
