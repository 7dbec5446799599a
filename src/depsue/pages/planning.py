"""The page that plans the next round: its form, its progress, and how far the newest logs go.

What pi0 logged is planned with `depsue.exploration.plan.plan`. It knows no other logs; so from the
second round on, what the round would put to the test is prepared as `depsue campaign train` would,
and rehearsed on the rows that chose it. Neither reads a certifying row, and neither promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.campaigns import Campaign
from depsue.certificates.promise_test import PromiseTest
from depsue.data.catalogue import ActionCatalogue
from depsue.errors import ConfigError
from depsue.exploration.headroom import Aim
from depsue.exploration.plan import PlanSettings, plan
from depsue.exploration.round import FrozenCandidate, RoundInputs, prepare
from depsue.exploration.settings import NAMED, ExploreSettings
from depsue.pages.jobs import Job, Task
from depsue.pages.plan_report import FrontierPoint, PlanResult, plan_result
from depsue.pages.rendering import path_of
from depsue.pages.words import utc
from depsue.progress import Watch
from depsue.promises import Floor

FIELDS = ("floor", "delta", "objective", "max_novelty")
LABELS = {"floor": "the floor", "delta": "delta", "max_novelty": "the limit of novelty"}


@dataclass(frozen=True)
class PlanPage:
    """The page that plans.

    Args:
        campaign, path: which.
        logs: which logs a plan would go by, in sentences.
        possible: whether there is something to plan.
        fixed_floor: the campaign's floors in words, where they are not one share; "" else.
        form: what the form says, by field.
        problem: what is wrong with it; "" if nothing is.
        under_way: whether a plan of this campaign is.
        busy: another piece of work that is under way, in words.
        since: when the newest plan began; "" before the first.
        tasks: its progress.
        failed: why it came to nothing; "" if it did not.
        result: what it found; None before.
    """

    campaign: str
    path: str
    logs: tuple[str, ...]
    possible: bool
    fixed_floor: str
    form: dict[str, str]
    problem: str
    under_way: bool
    busy: str
    since: str
    tasks: tuple[Task, ...]
    failed: str
    result: PlanResult | None


def plan_page(
    campaign: Campaign,
    job: Job | None,
    *,
    running: Job | None,
    form: Mapping[str, str] | None = None,
    problem: str = "",
) -> PlanPage:
    """The page.

    Args:
        campaign: whose.
        job: its newest plan.
        running: the plan that is under way, of any campaign.
        form: what a form that was sent says; None is the newest plan's, or the campaign's own.
        problem: what is wrong with that.
    """
    explore = campaign.settings.explore
    sentences, possible = _about_logs(campaign)
    if form is None:
        form = defaults(explore) if job is None else job.form
    other = running if running is not job else None
    return PlanPage(
        campaign=campaign.name,
        path=f"{path_of(campaign.name)}/plan",
        logs=sentences,
        possible=possible,
        fixed_floor="" if _one_ratio(explore) is not None else _floors(explore),
        form={name: form.get(name, "") for name in FIELDS},
        problem=problem,
        under_way=job is not None and job.running,
        busy="" if other is None else other.what,
        since="" if job is None else utc(job.began),
        tasks=() if job is None else job.tasks,
        failed="" if job is None else job.problem,
        result=None if job is None else job.result,
    )


def defaults(explore: ExploreSettings) -> dict[str, str]:
    """The form as the campaign's own settings fill it."""
    ratio = _one_ratio(explore)
    objective = explore.objective
    return {
        "floor": "" if ratio is None else f"{ratio:g}",
        "delta": f"{explore.delta_of_deployment:g}",
        "objective": objective if isinstance(objective, str) else f"{objective:g}",
        "max_novelty": f"{explore.max_novelty:g}",
    }


def filled(explore: ExploreSettings, form: Mapping[str, str]) -> dict[str, str]:
    """What a form says, and the campaign's own where it says nothing."""
    own = defaults(explore)
    return {name: form.get(name, "").strip() or own[name] for name in FIELDS}


def settings_of(explore: ExploreSettings, form: Mapping[str, str]) -> ExploreSettings:
    """What is planned for: the campaign's settings, changed by what a form says.

    Args:
        explore: the campaign's.
        form: the form's fields.
    """
    text = filled(explore, form)
    promises = explore.promises
    if _one_ratio(explore) is not None:
        floor = Floor(_number(text["floor"], LABELS["floor"]))
        promises = (replace(promises[0], floor=floor),)
    objective: str | float = text["objective"]
    if objective not in NAMED:
        objective = _number(text["objective"], "the objective, where it is a weight,")
    changed = replace(
        explore,
        promises=promises,
        delta=_number(text["delta"], LABELS["delta"]),
        per="deployment",
        objective=objective,
        max_novelty=_number(text["max_novelty"], LABELS["max_novelty"]),
    )
    Aim(changed.promises, changed.delta, changed.max_novelty)  # refused before the work
    return changed


def _about_logs(campaign: Campaign) -> tuple[tuple[str, ...], bool]:
    """Which logs a plan would go by, in sentences; and whether there is something to plan."""
    k, name = campaign.round, campaign.name
    if k == 0:
        return ("No logs are taken in yet.",), False
    if k > campaign.rounds:
        return ("The campaign is over: every round was served and observed.",), False
    rows = campaign.ledger.observations(name)[k - 1].rows
    sentences = [f"Planned for round {k} on the {rows:,} rows of round {k - 1}."]
    if campaign.deployed(k):
        sentences.append(
            f"Round {k} is deployed already, on these same rows: to plan round {k + 1}, observe "
            f"first what is served now (depsue campaign observe {name})."
            if k < campaign.rounds
            else f"Round {k}, the last, is deployed already: this shows what its rows allowed."
        )
    if k > 1:
        sentences.append(
            "These rows were not drawn by pi0 alone, so there is no frontier over many candidates: "
            "the page shows the list of levels that training would test, and how far "
            "it goes on the rows that chose it."
        )
    return tuple(sentences), True


def _one_ratio(explore: ExploreSettings) -> float | None:
    """The floor where it is one share of pi0's value; None else."""
    return explore.promises[0].floor.ratio if len(explore.promises) == 1 else None


def _floors(explore: ExploreSettings) -> str:
    return "; ".join(f"{promise.name} {promise.floor}" for promise in explore.promises)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number", found=repr(text[:40])) from None


def planned(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> PlanResult:
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


def _from_pi0(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> PlanResult:
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
    made = plan(logs, settings, logging_policy=campaign.pi0, seed=seed, watch=watch)
    return plan_result(made, aim)


def _rehearsed(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> PlanResult:
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
    places = sorted({*range(0, len(nus), max(len(nus) // 8, 1)), reach, len(nus) - 1})
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
    return PlanResult(
        pick=pick,
        enough=enough,
        rows=rows,
        frontier=tuple(
            FrontierPoint(nus[k], values[k], picked=passed > 0 and k == reach)
            for k in sorted(places, key=lambda k: nus[k])
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
            for k in places
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
    evidence = trial.evidence(prepared.levels.parts)
    for place, shares in enumerate(prepared.levels.shares):
        if not all(verdict.passed for verdict in trial(evidence.mixed(shares))):
            return place
    return len(prepared.levels.shares)


def _described(catalogue: ActionCatalogue) -> bool:
    """Whether features describe the items; a column for each item says nothing of new ones."""
    features = catalogue.features
    if features is None:
        return False
    n = len(catalogue)
    return not (features.shape == (n, n) and np.array_equal(features, np.eye(n)))
