"""Planning the next round: how far the newest logs are likely to let it go.

What pi0 logged is planned with `depsue.exploration.plan.plan`. It knows no other logs; so from the
second round on, what the round would put to the test is prepared as `depsue campaign train` would,
and rehearsed on the rows that chose it. Neither reads a certifying row, and neither promises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.campaigns import Campaign
from depsue.certificates.trial import PromiseTest
from depsue.data.catalogue import ActionCatalogue
from depsue.exploration.headroom import Aim
from depsue.exploration.plan import PlanSettings, plan
from depsue.exploration.round import FrozenCandidate, RoundInputs, prepare
from depsue.exploration.settings import ExploreSettings
from depsue.pages.plan_report import drawn_floor, headings, point_cells, sections, shown_points
from depsue.progress import Watch


@dataclass(frozen=True)
class Dot:
    """A point of the frontier; values are relative to pi0's."""

    novelty: float
    value: float
    worst: float | None = None
    picked: bool = False


@dataclass(frozen=True)
class Planned:
    """What a plan found.

    Args:
        pick: in a sentence, and why.
        enough: whether more than the certain level is likely.
        rows: of the logs.
        frontier: for rising novelty.
        reaches: how far each other candidate goes.
        certain: the novelty that needs no data.
        floor: relative to pi0's value; None where it cannot be drawn.
        headings, cells: the table.
        times: what more rows would buy: (rows, novelty).
        sections: further sentences, under headings.
        note: what the figure and the table show.
    """

    pick: str
    enough: bool
    rows: int
    frontier: tuple[Dot, ...]
    reaches: tuple[Dot, ...]
    certain: float
    floor: float | None
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    times: tuple[tuple[str, str], ...]
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    note: str


def planned(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> Planned:
    """Plan on the newest logs.

    Args:
        campaign: whose.
        explore: what for.
        watch: shows progress.
    """
    settings = replace(campaign.settings, explore=explore)
    campaign.terms = replace(campaign.terms, campaign=settings)
    with rng.one_thread():
        if campaign.round == 1:
            return _from_pi0(campaign, explore, watch)
        return _rehearsed(campaign, explore, watch)


def _from_pi0(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> Planned:
    """The frontier of what pi0 logged."""
    watch("logs", 0, 1, "")
    logs = campaign.logs(0)
    watch("logs", 1, 1, f"{len(logs):,} rows")
    aim = Aim(explore.promises, explore.delta, explore.max_novelty, logs.r_max)
    settings = PlanSettings(
        aim,
        explore.objective,
        campaign=campaign.name,
        fractions=explore.fractions,
        described=_described(logs.catalogue),
        rewards=explore.rewards,
    )
    seed = rng.derive(campaign.settings.seed, "plan")
    found = plan(logs, settings, logging_policy=campaign.pi0, seed=seed, watch=watch)
    pick, points = found.pick, shown_points(found)
    return Planned(
        pick=f"Novelty {pick.novelty:.1%} with {pick.policy}, anticipated value {pick.value:.3f} "
        f"of pi0's: {found.why}.",
        enough=found.enough,
        rows=found.rows,
        frontier=tuple(Dot(one.novelty, one.value, one.worst, one == pick) for one in points),
        reaches=tuple(Dot(one.novelty, one.value) for one in found.reaches),
        certain=found.certain,
        floor=drawn_floor(found, aim),
        headings=headings(aim),
        cells=tuple(tuple(point_cells(one, pick, aim)) for one in points),
        times=tuple((f"{found.rows * k:,} ({k}x)", f"{new:.1%}") for k, new in found.times),
        sections=tuple((name, tuple(said)) for name, said in sections(found, ()) if said),
        note="Each row is a mixture of a supported part and new items; < marks the pick. Values "
        "are relative to pi0's, as rehearsed on rows that the reward model had not seen, and by "
        "that model for new items; the bound counts new items as worth nothing.",
    )


def _rehearsed(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> Planned:
    """What a later round would put to the test, and how far that goes on the rows that chose it."""
    watch("logs", 0, 1, "")
    course = campaign.state()
    before = course.before(campaign.decisions(course))
    rows = len(course.newest)
    watch("logs", 1, 1, f"{rows:,} rows in the newest round")
    seed = rng.derive(campaign.settings.seed, "exploration", campaign.round)
    prepared = prepare(before, course.settings, seed=seed, watch=watch)
    watch("rehearsal", 0, 1, "")
    passed = _passing(prepared, before)
    watch("rehearsal", 1, 1, "")
    nus = prepared.levels.novelties.tolist()
    values = [prepared.expected.value(nu) for nu in nus]
    reach = max(passed - 1, 0)
    some = sorted({*range(0, len(nus), max(len(nus) // 8, 1)), reach, len(nus) - 1})
    certain = explore.certain
    enough = passed > 0 and nus[reach] > certain
    pick = (
        f"Novelty {nus[reach]:.1%}, anticipated value {values[reach]:.3f} of pi0's: as far as the "
        f"list of {len(nus)} levels goes on the rows that chose it."
        if passed
        else "Not even the first level passes on the rows that chose it: the certificate will "
        "hardly pass either."
    )
    ratio, unit = explore.promises[0].floor.ratio, course.logging_value
    absolute = explore.promises[0].floor.of(unit) / unit if unit > 0 else None
    return Planned(
        pick=pick,
        enough=enough,
        rows=rows,
        frontier=tuple(
            Dot(nus[k], values[k], picked=passed > 0 and k == reach)
            for k in sorted(some, key=lambda k: nus[k])
        ),
        reaches=(),
        certain=certain,
        floor=absolute if ratio is None else ratio,
        headings=("novelty", "value", "in the rehearsal"),
        cells=tuple(
            (
                f"{nus[k]:.1%}" + (" <" if passed and k == reach else ""),
                f"{values[k]:.3f}",
                "passes" if k < passed else "fails" if k == passed else "not tested",
            )
            for k in some
        ),
        times=(),
        sections=(
            (
                "What this rests on",
                (
                    f"the rows of round {campaign.round - 1} that do not certify, and all rows of "
                    "earlier rounds",
                    "the rehearsal repeats the selecting rows up to the certifying number; the "
                    "same rows chose the list, so it flatters",
                    "anticipated values come from a reward model, and are not promised",
                ),
            ),
        ),
        note="Each row is a level of the list that would be tested, in that order, until one "
        "fails; < marks how far it goes in the rehearsal.",
    )


def _passing(prepared: FrozenCandidate, before: RoundInputs) -> int:
    """How many levels pass, one after the other, on the selecting rows."""
    rows = before.folds.select
    if rows.unit is None:  # as many as will certify
        times = max(1, round(len(before.folds.certify) / len(rows)))
        rows = rows.take(np.tile(np.arange(len(rows)), times))
    pi0 = before.logging_policy
    pairing = None if before.base is None or before.base is pi0 else pi0
    trial = PromiseTest(rows, prepared.rules, prepared.rules.delta, pairing)
    found = trial.evidence(prepared.levels.parts)
    for place, shares in enumerate(prepared.levels.shares):
        if not all(verdict.passed for verdict in trial(found.mixed(shares))):
            return place
    return len(prepared.levels.shares)


def _described(catalogue: ActionCatalogue) -> bool:
    """Whether features describe the items; a column for each item says nothing of new ones."""
    features = catalogue.features
    if features is None:
        return False
    n = len(catalogue)
    return not (features.shape == (n, n) and np.array_equal(features, np.eye(n)))
