"""The page that plans the next round: its form, its progress, and how far the newest logs go.

Every round is planned with `depsue.exploration.plan.plan_round`, on what `depsue campaign train`
would start from and with its seed: what is forecast is the certificate of the candidate that
training would freeze. No certifying row is read, and nothing is promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from depsue import rng
from depsue.campaigns import Campaign
from depsue.diagnostics.propensities import require_propensities
from depsue.errors import ConfigError
from depsue.exploration.plan import plan_round, require_plannable
from depsue.exploration.settings import NAMED, ExploreSettings
from depsue.pages.jobs import Job, Task
from depsue.pages.plan_report import PlanResult, plan_result
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
    require_plannable(changed, math.inf)  # refused before the work
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
        watch("logs", 0, 1, "")
        state = campaign.state()
        before = state.before(campaign.decisions(state))
        watch("logs", 1, 1, f"{len(state.newest):,} rows in the newest logs")
        folds = before.folds
        tested = require_propensities(folds.learn, folds.select, logging_policy=before.base)
        plan = plan_round(
            before,
            state.settings,
            campaign=campaign.name,
            rows=len(state.newest),
            seed=rng.derive(settings.seed, "exploration", campaign.round),
            round=campaign.round,
            propensities=tested,
            watch=watch,
        )
    return plan_result(plan)
