"""All trials, block after block: finished blocks are lines of a file and are not run again."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from depsue import rng
from depsue.data.checks import Mask
from depsue.errors import FileError, is_whole, require, short
from depsue.progress import Watch, silent
from depsue_research.audit import (
    campaigns,
    paper,
    requests,
    rollbacks,
    shopping,
    units,
    verdicts,
)
from depsue_research.audit.answers import ANSWERS, GROUPS, Answer, Key, Tally, Trial, judged

VERSIONS = {
    "appended": 2,
    "declarations": 3,
    "ended by choice": 2,
    "ended at will": 2,
    "late drift": 2,
    "pooled campaigns": 2,
    "pooled campaigns, heavy weights": 2,
    "retried": 2,
    "rollbacks": 2,
    "sorted": 2,
}
"""Of trials, 1 unless it says otherwise: where it is raised, what was counted is run again."""

Counts = Counter[tuple[Key, Answer]]
Runner = Callable[[int, int], Counts]
"""Runs the replications from the first up to, not including, the second."""


@dataclass(frozen=True, eq=False)
class AuditTask:
    """A trial, how often it is run, and in blocks of how many.

    Args:
        run: counts what comes of some replications.
        replications: how many there are to be.
        block: how many are run and kept at a time.
    """

    run: Runner
    replications: int
    block: int


def tasks(replications: int, whole_campaigns: int) -> dict[str, AuditTask]:
    """Everything that is audited.

    Args:
        replications: of one-shot verdicts.
        whole_campaigns: replications of whole campaigns; of those with files, a tenth.
    """
    for name, number in (("replications", replications), ("campaigns", whole_campaigns)):
        require(
            is_whole(number) and number >= 1,
            f"{name} must be a whole number, at least 1",
            found=short(number),
            cure="2,000 verdicts and 400 campaigns tell 5% from 8%",
        )
    every: dict[str, AuditTask] = {}
    shots = {**verdicts.TRIALS, **shopping.TRIALS, **units.TRIALS, **campaigns.VERDICTS}
    shots |= requests.TRIALS
    for name, trial in shots.items():
        every[name] = AuditTask(partial(repeated, name, trial), replications, 100)
    for name, trial in campaigns.TRIALS.items():
        every[name] = AuditTask(partial(repeated, name, trial), whole_campaigns, 20)
    for name, trial in rollbacks.TRIALS.items():
        every[name] = AuditTask(partial(repeated, name, trial), -(-whole_campaigns // 10), 4)
    for name, batch in paper.BATCHES.items():
        dose = whole_campaigns if "many" in name else replications
        every[name] = AuditTask(partial(at_once, name, batch), dose, dose)
    return every


def repeated(name: str, trial: Trial, first: int, last: int) -> Counts:
    """A trial, replication after replication; each has a stream of its own."""
    counts: Counts = Counter()
    with rng.one_thread():
        for place in range(first, last):
            counts.update(trial(rng.generator(0, name, place)).items())
    return counts


def at_once(
    name: str, batch: Callable[[int, int], Mapping[Key, Mask]], first: int, last: int
) -> Counts:
    """Replications that run at once."""
    counts: Counts = Counter()
    for key, wrong in batch(last - first, rng.derive(0, name, first)).items():
        counts.update((key, judged(bool(each))) for each in wrong)
    return counts


def sweep(
    replications: int,
    whole_campaigns: int,
    path: Path,
    *,
    only: Iterable[str] | None = None,
    watch: Watch = silent,
) -> list[Tally]:
    """Run what is not in the file yet; what came of all that is there, at the end or when stopped.

    Trials take turns, block by block, so that a run that is cut short has some of all of them.

    Args:
        replications: of one-shot verdicts.
        whole_campaigns: of whole campaigns.
        path: the file of finished blocks.
        only: names of trials; None is all.
        watch: shows progress.
    """
    todo = chosen(tasks(replications, whole_campaigns), only)
    blocks = [
        (last / task.replications, name, last)
        for name, task in todo.items()
        for last in (*range(task.block, task.replications, task.block), task.replications)
    ]
    done = finished(path)
    for place, (_, name, last) in enumerate(sorted(blocks)):
        watch("audit", place, len(blocks), f"{name}, {last:,} of {todo[name].replications:,}")
        first = done.get(name, Finished()).last
        if last > first:
            keep(path, name, first, last, todo[name].run(first, last))
            done = finished(path)
    watch("audit", len(blocks), len(blocks), "")
    return tallies(path, only)


def chosen(every: Mapping[str, AuditTask], only: Iterable[str] | None) -> dict[str, AuditTask]:
    """The trials of these names."""
    if only is None:
        return dict(every)
    names = list(only)
    require(
        set(names) <= set(every),
        f"trials must be among {', '.join(every)}",
        found=short(names),
        cure="write their names as above",
    )
    return {name: every[name] for name in names}


@dataclass(frozen=True, eq=False)
class Finished:
    """What the file has of one trial: replications 0 .. last - 1, and what came of them."""

    last: int = 0
    counts: Counts = field(default_factory=Counter)


def keep(path: Path, name: str, first: int, last: int, counts: Counts) -> None:
    """Add a block; it is on the disk when this returns."""
    line = json.dumps(_line(name, first, last, counts))
    with path.open("ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _line(name: str, first: int, last: int, counts: Counts) -> dict[str, Any]:
    keys = list(dict.fromkeys(key for key, _ in counts))
    rows = [[*key, *(counts[key, answer] for answer in ANSWERS)] for key in keys]
    return {"trial": name, "config": config(name), "first": first, "last": last, "counts": rows}


def config(name: str) -> str:
    """What a block must have to be counted with others of its trial."""
    sizes = (verdicts.ROWS, verdicts.FEWER, verdicts.MOST, campaigns.ROWS, paper.LARGE, paper.MANY)
    return hashlib.sha256(f"{VERSIONS.get(name, 1)} {name} {sizes}".encode()).hexdigest()[:12]


def finished(path: Path) -> dict[str, Finished]:
    """What is there, by trial. A last line that was cut off by an interrupt is removed."""
    if not path.exists():
        return {}
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    done: dict[str, Finished] = {}
    for number, line in enumerate(lines, start=1):
        block = _read(line, f"{path}, line {number}")
        name = block["trial"]
        before = done.get(name, Finished())
        if block["config"] != config(name) or block["first"] != before.last:
            continue
        counts = Counter(before.counts)
        for group, kind, variant, *numbers in block["counts"]:
            for answer, count in zip(ANSWERS, numbers, strict=True):
                counts[(group, kind, variant), answer] += count
        done[name] = Finished(block["last"], counts)
    return done


def _read(line: bytes, where: str) -> dict[str, Any]:
    try:
        block: dict[str, Any] = json.loads(line)
        names = {"trial": str, "config": str, "first": int, "last": int, "counts": list}
        for name, kind in names.items():
            if type(block[name]) is not kind:
                raise ValueError(f"{name} must be {kind.__name__}")
        return block
    except (ValueError, TypeError, KeyError) as problem:
        raise FileError(
            "a line of finished work is a JSON object with a trial, its block and its counts",
            found=f"{where}: {type(problem).__name__} {problem}",
            cure="delete that line, and it is run again",
        ) from problem


def gather(path: Path) -> None:
    """Write the blocks of each trial as one."""
    done = finished(path)
    lines = [json.dumps(_line(name, 0, each.last, each.counts)) for name, each in done.items()]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def tallies(path: Path, only: Iterable[str] | None = None) -> list[Tally]:
    """What came of every kind, group after group, in the order of the trials."""
    done = finished(path)
    names = [name for name in tasks(1, 1) if name in done and (only is None or name in set(only))]
    every: list[Tally] = []
    for name in names:
        counts = done[name].counts
        for key in dict.fromkeys(key for key, _ in counts):
            numbers = {answer: counts[key, answer] for answer in ANSWERS}
            every.append(
                Tally(
                    *key,
                    wrong=numbers["wrong"],
                    right=numbers["right"],
                    refused=numbers["refused"],
                    n=sum(numbers.values()),
                )
            )
    return sorted(every, key=lambda tally: GROUPS.index(tally.group))
