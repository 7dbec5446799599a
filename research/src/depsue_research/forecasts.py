"""What `plan` says of certificates to come, against the certificates.

In three simulated worlds, for every seed a new world with new logs: `plan` reads the learn and
select folds and says which novelty its pick is likely to be certified at, with the rows at hand
and with four times as many. Then the certifying folds are read, of the rows at hand and of four
times as many, by `certify` on the plan's own levels. A forecast is reached if the certificate
allows at least as much. The reward model is linear, which takes a minute or two in all; with
networks it is a blend with small networks, and `explore` is asked too where pi0 can be called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from depsue import rng
from depsue.certificates import Reads, certify
from depsue.data.logs import LoggedData
from depsue.exploration import ExploreSettings, explore
from depsue.exploration.plan import Plan, plan
from depsue.protocols import Policy, RewardModel
from depsue.rewards import Blend, RewardSettings, fit_linear, fit_rewards
from depsue.testing.splits import split
from depsue.world import SyntheticSettings, synthetic_world

BASE = SyntheticSettings(users=400, supported=60, novel=15, d=6)
WORLDS = {
    "items differ": replace(BASE, spread=1.0),
    "poor pi0": replace(BASE, beta=-1.5, spread=0.6),
    "rare rewards": replace(BASE, reward_rate=0.03, spread=1.2),
}
ABOUT = {
    "items differ": "a uniform policy earns a reward in 20% of decisions; pi0 is better (beta 1)",
    "poor pi0": "the same 20%; pi0 prefers poor items (beta -1.5)",
    "rare rewards": "3%; pi0 is better (beta 1)",
}
MODES = {True: "pi0 can be called", False: "only propensities"}
TIMES = 4
CAMPAIGN = "plan benchmark"
SETTINGS = ExploreSettings(objective="most novelty", deployments=1)
REWARDS = RewardSettings(members=2, hidden=(16,), max_epochs=3)
"""Of the networks, where they are asked for."""
SLACK = 5e-4
"""Half a step between levels."""


@dataclass(frozen=True)
class Run:
    """One world, seed and mode.

    Args:
        certain: the level that needs no data.
        forecast, later: novelty at the plan's pick, with the rows at hand and with four times.
        certified, certified_later: what `certify` gave the plan's own levels (later: of the plan
            that is made then).
        explored: what `explore` gave with the rows at hand; None where it was not asked.
    """

    world: str
    seed: int
    mode: str
    rows: int
    networks: bool
    certain: float
    forecast: float
    later: float
    certified: float
    certified_later: float
    explored: float | None


def certified_novelty(planned: Plan, logs: LoggedData) -> float:
    """The novelty that the certificate allows the plan's levels; at least what is certain."""
    levels, rules = planned.candidate.levels, planned.candidate.rules
    verdict = certify(levels, split(logs, CAMPAIGN), rules, Reads())
    return max(planned.certain, verdict.shares[-1] if verdict.passed else 0.0)


def explored_novelty(logs: LoggedData, pi0: Policy | None, seed: int) -> float | None:
    """What certified exploration gets out of the same logs."""
    if pi0 is None:
        return None
    folds, settings = split(logs, CAMPAIGN), replace(SETTINGS, rewards=REWARDS)
    return float(explore(folds, pi0, settings, seed=seed, reads=Reads()).novelty)


def fitting(seed: int, networks: bool) -> Callable[[LoggedData], RewardModel]:
    """Fits q-hat, with networks once for the same rows: both modes use it."""
    if not networks:
        return fit_linear
    known: dict[str, RewardModel] = {}

    def fit(rows: LoggedData) -> RewardModel:
        if rows.hash not in known:
            known[rows.hash] = Blend([fit_rewards(rows, REWARDS, seed=seed), fit_linear(rows)])
        return known[rows.hash]

    return fit


Task = tuple[str, int, int, bool]
"""World, seed, rows, networks."""


def runs_of(task: Task) -> list[Run]:
    """One world and seed, in both modes."""
    name, seed, rows, networks = task
    with rng.one_thread():
        world = synthetic_world(WORLDS[name], seed=seed)
        later = world.deploy(world.logging_policy, TIMES * rows, round=0)
        now, fit, found = later.take(slice(0, rows)), fitting(seed, networks), []
        for callable_pi0, mode in MODES.items():
            pi0 = world.logging_policy if callable_pi0 else None
            first, second = (
                plan(x, SETTINGS, campaign=CAMPAIGN, logging_policy=pi0, fit=fit)
                for x in (now, later)
            )
            found.append(
                Run(
                    world=name,
                    seed=seed,
                    mode=mode,
                    rows=rows,
                    networks=networks,
                    certain=first.certain,
                    forecast=first.pick.novelty,
                    later=next(one.novelty for one in first.times if one.times == TIMES),
                    certified=certified_novelty(first, now),
                    certified_later=certified_novelty(second, later),
                    explored=explored_novelty(now, pi0, seed) if networks else None,
                )
            )
    return found


def task_of(run: Run) -> Task:
    """What the run was made from."""
    return run.world, run.seed, run.rows, run.networks


def errors(runs: Sequence[Run], said: str, outcome: str) -> np.ndarray:
    """(n,) the outcome less what was said."""
    pairs = [(getattr(run, outcome), getattr(run, said)) for run in runs]
    return np.array([a - b for a, b in pairs if a is not None], dtype=np.float64)


def line(name: str, runs: Sequence[Run], said: str, outcome: str) -> str:
    """One line of a table."""
    apart = errors(runs, said, outcome)
    bold = [run for run in runs if getattr(run, said) > run.certain + SLACK]
    more = errors(bold, said, outcome)
    mean = np.mean([getattr(run, said) for run in runs])
    got = np.mean([getattr(run, outcome) for run in runs])
    reached = int((apart >= -SLACK).sum())
    of_bold = f"{int((more >= -SLACK).sum())} of {len(bold)}" if bold else "none was"
    return (
        f"| {name} | {mean:.3f} | {got:.3f} | {reached} of {len(apart)} | {of_bold} "
        f"| {apart.mean():+.3f} | {apart.min():+.3f} | {apart.max():+.3f} |"
    )


HEADINGS = (
    "| world, mode | forecast | certificate | reached | of those above the certain level "
    "| mean error | most optimistic | most timid |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)
TABLES = {
    "With the rows at hand: `certify` on the plan's own levels": ("forecast", "certified"),
    f"With {TIMES} times the rows: `certify` on the plan that is made then": (
        "later",
        "certified_later",
    ),
    "With the rows at hand: `explore`, which makes its own choice": ("forecast", "explored"),
}


def page(runs: Sequence[Run], command: str) -> str:
    """The results as Markdown."""
    seeds = sorted({run.seed for run in runs})
    out = [
        "# What a plan says, and what the certificate then gives",
        "",
        f"`{command}`",
        "",
        f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]}), a new world and new logs of "
        f"{runs[0].rows:,} rows each; floor 0.95 of pi0's value, delta 0.05. Error is certificate "
        "less forecast: negative is optimistic, positive timid. A forecast of the certain level is "
        "always reached, so those above it are counted apart. The reward model is linear"
        + (
            f", blended with {REWARDS.members} networks of {REWARDS.hidden[0]} hidden units."
            if runs[0].networks
            else "."
        ),
        "",
        *(f"- **{name}**: {words}." for name, words in ABOUT.items()),
        "",
        "![forecast against certificate](plan.png)",
    ]
    for title, (said, outcome) in TABLES.items():
        rows = [
            line(f"{world}, {mode}", own, said, outcome)
            for world in WORLDS
            for mode in MODES.values()
            if (own := [r for r in runs if r.world == world and r.mode == mode])
            and getattr(own[0], outcome) is not None
        ]
        every = [run for run in runs if getattr(run, outcome) is not None]
        if not every:
            continue
        out += ["", f"## {title}", "", HEADINGS, *rows, line("**all**", every, said, outcome)]
    return "\n".join(out) + "\n"


def figure(runs: Sequence[Run]) -> Figure:
    """Certificate against forecast, a panel for now and one for four times the rows."""
    colours = dict(zip(WORLDS, ("#1f5a96", "#b3312c", "#2e7d4f"), strict=True))
    markers = dict(zip(MODES.values(), ("o", "^"), strict=True))
    made = Figure(figsize=(9.2, 4.9), layout="constrained")
    panels = made.subplots(1, 2)
    most = 1.06 * max(max(r.certified, r.certified_later, r.forecast, r.later) for r in runs)
    for axis, (title, (said, outcome)) in zip(panels, list(TABLES.items())[:2], strict=True):
        axis.plot([0, most], [0, most], color="#6b7280", lw=1)
        axis.fill_between([0, most], [0, most], 0, color="#b3312c", alpha=0.05, lw=0)
        for world, colour in colours.items():
            for mode, marker in markers.items():
                own = [r for r in runs if r.world == world and r.mode == mode]
                x, y = [getattr(r, said) for r in own], [getattr(r, outcome) for r in own]
                filled = colour if mode == MODES[True] else "none"
                axis.scatter(
                    x, y, s=24, marker=marker, edgecolors=colour, facecolors=filled, lw=0.9,
                    alpha=0.8, label=f"{world}, {mode}",
                )  # fmt: skip
        axis.set(xlim=(0, most), ylim=(0, most), xlabel="novelty that the plan forecast")
        axis.set_title(title.split(":")[0], fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("novelty that the certificate allowed")
    panels[0].text(0.97 * most, 0.03 * most, "optimistic", ha="right", color="#b3312c", fontsize=9)
    panels[0].text(0.03 * most, 0.95 * most, "timid", color="#6b7280", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return made


def write(runs: Sequence[Run], folder: Path, command: str) -> None:
    """plan.md and plan.png."""
    figure(runs).savefig(folder / "plan.png", dpi=130)
    (folder / "plan.md").write_text(page(runs, command), encoding="utf-8")


def finished_runs(path: Path) -> list[Run]:
    """Runs that an earlier call finished."""
    if not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def all_runs(
    tasks: Sequence[Task], path: Path, workers: int, show: Callable[[str], None]
) -> list[Run]:
    """The runs of all tasks; those that are finished are read, the others are run and kept.

    Args:
        tasks: what is wanted.
        path: a file of JSON lines with finished runs.
        workers: processes.
        show: called with a line for every task that ends.
    """
    runs = [run for run in finished_runs(path) if task_of(run) in tasks]
    done = {task_of(run) for run in runs}
    todo = [task for task in tasks if task not in done]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for results in pool.map(runs_of, todo):
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(run)) + "\n" for run in results)
            runs += results
            show(f"{len(runs)} of {2 * len(tasks)}: {results[0].world}, {results[0].seed}")
    return runs
