"""Tables of the run itself: what training promised, and where the time went."""

from __future__ import annotations

import numpy as np

from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.intervals import mean
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import DEPSUE, Measure, Runs
from depsue_research.paper.outputs.table import NONE, Table, number, rate
from depsue_research.paper.outputs.tables_outcome import level_headings
from depsue_research.paper.recipe import deployments_of

PHASES = ("world", "logs", "reward model", "policy", "bound", "evaluation")


def training(runs: Runs, paper: Published) -> Table | None:
    """Bound, need and margin of every deployment of DEPSUE, and how often the bound passed."""
    rows: list[tuple[str, ...]] = []
    for method in DEPSUE:
        if method not in runs.methods:
            continue
        for k in range(1, deployments_of(method) + 1):
            name = (NAMES[method], str(k))
            for figure in ("margin", "need", "bound"):
                found = [mean(runs.numbers(method, v, _over_pi0(figure, k))) for v in runs.levels]
                rows.append((*name, figure, *map(number, found)))
            passed = [runs.numbers(method, v, _passed(k)) for v in runs.levels]
            rows.append((*name, "passed", *[rate(float(p.sum()), len(p)) for p in passed]))
            found = [mean(runs.numbers(method, v, _true_value(k))) for v in runs.levels]
            rows.append((*name, "true value", *map(number, found)))
    if not rows:
        return None
    return Table(
        "training",
        f"What training promised, deployment by deployment, mean over {runs.seeds_in_words()}",
        ("method", "k", "figure", *level_headings(runs)),
        tuple(rows),
        "Over pi0's value: margin, need and bound over V_on(pi0), the mean reward of its logs; the "
        f"true value over the true V(pi0), on the training {runs.who}, whom the bound speaks of. "
        "need = "
        "floor - margin. Passed: seeds in which the bound exceeds the need; as in the paper, a "
        "policy that does not pass is deployed all the same.",
    )


def time_spent(runs: Runs, paper: Published) -> Table:
    """Seconds per phase and method, and the peak of memory."""
    rows: list[tuple[str, ...]] = []
    totals: list[dict[str, float]] = []
    seen = {name for m in runs.methods for result in runs.over(m) for name in result["seconds"]}
    phases = (*PHASES, *sorted(seen - set(PHASES)))
    for method in runs.methods:
        results = runs.over(method)
        seconds = {name: _mean_seconds(results, name) for name in phases}
        totals.append(seconds)
        rows.append((NAMES[method], *_times(seconds), f"{_peak(results):,.0f}"))
    sums = {name: sum(t[name] for t in totals) for name in phases}
    peak = max(_peak(runs.over(method)) for method in runs.methods)
    rows.append(("all, one after the other", *_times(sums), f"{peak:,.0f}"))
    return Table(
        "time",
        f"Where the time went: seconds per cell, mean over levels and {runs.seeds_in_words()}",
        ("method", *phases, "total", "peak MiB"),
        tuple(rows),
        "One thread per cell. The last line is one level and one seed with all methods. 'world' is "
        "small where a cell found the worlds of the cell before it; 'policy' leaves out the bound. "
        "The peak is that of the process, which runs many cells one after the other.",
    )


def _over_pi0(figure: str, k: int) -> Measure:
    return lambda result: float(result["deployments"][k - 1][figure]) / float(result["on_policy"])


def _passed(k: int) -> Measure:
    return lambda result: float(result["deployments"][k - 1]["passed"])


def _true_value(k: int) -> Measure:
    return lambda result: float(
        result["deployments"][k - 1]["value_train"] / result["logging"]["value_train"]
    )


def _mean_seconds(results: list[Result], name: str) -> float:
    return float(np.mean([result["seconds"].get(name, 0.0) for result in results]))


def _times(seconds: dict[str, float]) -> list[str]:
    cells = [number(s, 1) if s else NONE for s in seconds.values()]
    return [*cells, number(sum(seconds.values()), 1)]


def _peak(results: list[Result]) -> float:
    return max(float(result["peak_mib"]) for result in results)
