"""A soak of the decision service: it is killed and cut off again and again, and must keep its word.

Clients ask for decisions with keys, repeat them at once, together, after a kill and much later, and
send rewards early, late and twice. Each writes down what was acknowledged. Meanwhile services and
PostgreSQL are killed (kill -9), disks are full, commits are cut before or after they succeed,
connections go silent, and an admin stops and resumes the policy. In the end everything is up again,
and the clients' books are held against the store and the export (`closing.RULES`).

The harness is a black box around the service: it speaks HTTP, runs the command line, and reads the
tables of the store. It runs on Linux.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from depsue.errors import require
from depsue.progress import Watch, silent
from depsue_research.soak.parts import (
    MEMORY,
    PartResult,
    PartSettings,
    StoreKind,
    make_campaign,
    run_part,
    watch_memory,
)
from depsue_research.soak.servers import postgres_server

__all__ = [
    "PART",
    "PartSettings",
    "make_campaign",
    "memory",
    "memory_report",
    "report",
    "run_part",
    "soak",
]

PART = 50
"""Kills of a part."""


def soak(
    store: StoreKind,
    kills: int,
    seed: int,
    out: Path,
    *,
    watch: Watch = silent,
) -> list[PartResult]:
    """Run the parts of a soak that are not finished yet; the results of all.

    Args:
        store: what decisions are stored in.
        kills: in all.
        seed: of the first part; the next has the next.
        out: the folder of `soak.jsonl`, with the finished parts; parts that broke leave a folder.
        watch: is told of the progress.
    """
    require(kills >= 1, "kills: at least 1", found=str(kills))
    finished = {result.settings: result for result in _read(out / "soak.jsonl")}
    parts = [
        PartSettings(store, min(PART, kills - start), seed + place)
        for place, start in enumerate(range(0, kills, PART))
    ]
    results = []
    with ExitStack() as ending:
        work = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="depsue-soak-")))
        home: Path | None = None
        server = None
        for place, part in enumerate(parts):
            watch(f"{store} in all", place, len(parts), "parts")
            if part not in finished:
                home = home or make_campaign(work / "team", seed=1)
                if store == "postgresql" and server is None:
                    server = ending.enter_context(postgres_server())
                folder = work / f"{store}-{part.seed}"
                result = run_part(part, home, folder, postgres=server, watch=watch)
                if result.breaks:
                    shutil.copytree(folder, out / folder.name, dirs_exist_ok=True)
                shutil.rmtree(folder)
                with (out / "soak.jsonl").open("ab") as file:
                    file.write(msgspec.json.encode(result) + b"\n")
                finished[part] = result
            results.append(finished[part])
        watch(f"{store} in all", len(parts), len(parts), "parts")
    return results


def memory(decisions: int, seed: int, out: Path, *, watch: Watch = silent) -> PartResult:
    """Whether the memory of a service stays what it is; not kept as a part.

    Args:
        decisions: how many it makes.
        seed: of what is asked.
        out: a folder that takes the service's log where its memory grew.
        watch: is told of the progress.
    """
    with tempfile.TemporaryDirectory(prefix="depsue-soak-") as work:
        home = make_campaign(Path(work) / "team", seed=1)
        folder = Path(work) / f"memory-{seed}"
        result = watch_memory(decisions, seed, home, folder, watch=watch)
        if result.breaks:
            shutil.copytree(folder, out / folder.name, dirs_exist_ok=True)
        return result


def report(results: Sequence[PartResult]) -> Iterator[str]:
    """What came of the parts of a soak, in plain English."""
    store = results[0].settings.store
    seeds = [result.settings.seed for result in results]
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    counts[MEMORY] = max(result.counts[MEMORY] for result in results)
    title = "SQLite, one service" if store == "sqlite" else "PostgreSQL, two services"
    yield f"{title}: {len(results)} parts, seeds {min(seeds)} to {max(seeds)}"
    yield from (f"  {count:>10,}  {what}" for what, count in counts.items())
    yield from _verdict(results)


def memory_report(result: PartResult) -> Iterator[str]:
    """What came of the service whose memory was watched."""
    decisions, most = (result.counts[name] for name in ("acknowledged decisions", MEMORY))
    yield f"Memory over {decisions:,} decisions: at most {most:,} MB"
    yield from _verdict([result])


def _verdict(results: Sequence[PartResult]) -> Iterator[str]:
    broken = [result for result in results if result.breaks]
    if not broken:
        yield "Every book closes."
    for result in broken:
        yield f"Seed {result.settings.seed} ({result.settings.kills} kills): a book does not close."
        for each in result.breaks:
            yield f"  {each}"


def _read(path: Path) -> list[PartResult]:
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=PartResult) for line in path.read_bytes().splitlines()]
