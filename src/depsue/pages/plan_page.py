"""The page that plans the next round: its form, its progress, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from depsue.campaigns import Campaign
from depsue.errors import ConfigError
from depsue.exploration.headroom import Aim
from depsue.exploration.settings import NAMED, ExploreSettings
from depsue.pages.jobs import Job
from depsue.pages.live import utc
from depsue.pages.planning import Planned
from depsue.pages.told import path_of
from depsue.promises import Floor

FIELDS = ("floor", "delta", "objective", "max_novelty")
LABELS = {"floor": "the floor", "delta": "delta", "max_novelty": "the limit of novelty"}


@dataclass(frozen=True)
class Task:
    """A part of the work: what, how much of it is done, how it goes."""

    what: str
    share: float
    words: str


@dataclass(frozen=True)
class PlanPage:
    """The page that plans.

    Args:
        campaign, path: which.
        logs: which logs a plan would go by, in sentences.
        possible: whether there is something to plan.
        fixed_floor: the campaign's floors in words, where they are not one share; "" else.
        asked: what the form says, by field.
        problem: what is wrong with it; "" if nothing is.
        under_way: whether a plan of this campaign is.
        busy: another piece of work that is under way, in words.
        since: when the newest plan began; "" before the first.
        tasks: its progress.
        failed: why it came to nothing; "" if it did not.
        planned: what it found; None before.
    """

    campaign: str
    path: str
    logs: tuple[str, ...]
    possible: bool
    fixed_floor: str
    asked: dict[str, str]
    problem: str
    under_way: bool
    busy: str
    since: str
    tasks: tuple[Task, ...]
    failed: str
    planned: Planned | None


def plan_page(
    campaign: Campaign,
    job: Job | None,
    *,
    running: Job | None,
    asked: Mapping[str, str] | None = None,
    problem: str = "",
) -> PlanPage:
    """The page.

    Args:
        campaign: whose.
        job: its newest plan.
        running: the plan that is under way, of any campaign.
        asked: what a form that was sent says; None is the newest plan's, or the campaign's own.
        problem: what is wrong with that.
    """
    explore = campaign.settings.explore
    said, possible = _about_logs(campaign)
    form = dict(asked if asked is not None else defaults(explore) if job is None else job.asked)
    other = running if running is not job else None
    return PlanPage(
        campaign=campaign.name,
        path=f"{path_of(campaign.name)}/plan",
        logs=said,
        possible=possible,
        fixed_floor="" if _one_ratio(explore) is not None else _floors(explore),
        asked={name: form.get(name, "") for name in FIELDS},
        problem=problem,
        under_way=job is not None and job.running,
        busy="" if other is None else other.what,
        since="" if job is None else utc(job.began),
        tasks=() if job is None else tuple(Task(*one) for one in job.progress),
        failed="" if job is None else job.problem,
        planned=None if job is None else job.result,
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


def filled(explore: ExploreSettings, asked: Mapping[str, str]) -> dict[str, str]:
    """What a form says, and the campaign's own where it says nothing."""
    own = defaults(explore)
    return {name: asked.get(name, "").strip() or own[name] for name in FIELDS}


def settings_of(explore: ExploreSettings, asked: Mapping[str, str]) -> ExploreSettings:
    """What is planned for: the campaign's settings, changed by what a form says.

    Args:
        explore: the campaign's.
        asked: the form's fields.
    """
    text = filled(explore, asked)
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
    said = [f"Planned for round {k} on the {rows:,} rows of round {k - 1}."]
    if campaign.deployed(k):
        said.append(
            f"Round {k} is deployed already, on these same rows: to plan round {k + 1}, observe "
            f"first what is served now (depsue campaign observe {name})."
            if k < campaign.rounds
            else f"Round {k}, the last, is deployed already: this shows what its rows allowed."
        )
    if k > 1:
        said.append(
            "These rows were not drawn by pi0 alone, so a frontier over many candidates cannot be "
            "told: shown is the list of levels that training would put to the test, and how far "
            "it goes on the rows that chose it."
        )
    return tuple(said), True


def _one_ratio(explore: ExploreSettings) -> float | None:
    """The floor where it is one share of pi0's value; None else."""
    return explore.promises[0].floor.ratio if len(explore.promises) == 1 else None


def _floors(explore: ExploreSettings) -> str:
    return "; ".join(f"{one.name} {one.floor}" for one in explore.promises)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number", found=repr(text[:40])) from None
