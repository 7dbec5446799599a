"""Everything that is not finished yet, seed after seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from depsue.errors import require, short
from depsue.progress import Watch, silent
from depsue_research.hostile.campaigns import WORLDS, Result, cases, finished, keep, run_case
from depsue_research.hostile.refusals import config_of, key_of, refused

LAST = "wrong propensities"
"""The world whose logs must be refused, by the name that `worlds` uses."""
NAMES = (*WORLDS, LAST)


def work(
    replications: int, worlds: Iterable[str] = NAMES
) -> dict[str, tuple[str, Callable[[], Result]]]:
    """What there is to do: key -> (config, how), seed after seed."""
    chosen = list(worlds)
    require(
        set(chosen) <= set(NAMES),
        f"worlds must be among {', '.join(NAMES)}",
        found=short(chosen),
        cure="write their names as above",
    )
    tasks = {
        str(case): (case.seed, case.config, partial(run_case, case))
        for case in cases(replications, [name for name in chosen if name != LAST])
    }
    if LAST in chosen:
        tasks |= {
            key_of(seed): (seed, config_of(seed), partial(refused, seed))
            for seed in range(replications)
        }
    ordered = sorted(tasks.items(), key=lambda item: item[1][0])
    return {key: (config, how) for key, (_, config, how) in ordered}


def sweep(
    replications: int,
    path: Path,
    *,
    worlds: Iterable[str] = NAMES,
    watch: Watch = silent,
) -> dict[str, Result]:
    """Run what is not in the file yet; the results that are there, at the end or when stopped.

    Args:
        replications: seeds 0 .. replications - 1.
        path: the file of finished work.
        worlds: names among `NAMES`.
        watch: shows progress.
    """
    todo = work(replications, worlds)
    wanted = {key: config for key, (config, _) in todo.items()}
    done = finished(path, wanted)
    for place, (key, (_, how)) in enumerate(todo.items()):
        watch("hostile worlds", place, len(todo), key)
        if key not in done:
            keep(how(), path)
    watch("hostile worlds", len(todo), len(todo), "")
    return finished(path, wanted)
