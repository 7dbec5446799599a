"""How fast `certify` is over partitions of Parquet, and in how much memory; beside it in memory.

    python benchmarks/certify_stream.py [--rows 2000000] [--bound normal] [--units] [--distinct]

Writes Parquet files (a million rows each, 50 actions) into a temporary folder, piece by piece: 5
bytes a row, 4 more with `--units` and 4 with `--distinct`, so .5 to 1.3 GB for 100 million. Then
each way of certifying runs in a process of its own: by streaming over all rows, and, over the
first million, by streaming and in memory. Peak and CPU time are those of the process
(resource.getrusage). Fifteen levels of a mixture of two policies.

`--units` adds users (one for 20 rows), `--distinct` a context that is another one in every row.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from depsue.certificates import (
    LogStream,
    MixtureLadder,
    Reads,
    Rules,
    certify,
)
from depsue.data import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.mapping import LogMapping
from depsue.data.reading import read_from
from depsue.policies import OwnPolicy, Uniform
from depsue.testing.splits import split

PIECE, ACTIONS, NEW, GROUPS = 1_000_000, 50, 5, 200
BYTES_A_ROW = 16
"""At most, on disk; for the check of free space."""
LOGITS = np.random.default_rng(0).normal(size=(GROUPS, ACTIONS))
LOGITS[:, -NEW:] = -np.inf
VALUE = np.linspace(0.01, 0.11, ACTIONS)
CATALOGUE = Catalogue.of(range(ACTIONS), novel=range(ACTIONS - NEW, ACTIONS))


def softmax(logits: FloatArray) -> FloatArray:
    """Rows of probabilities."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


PI0 = softmax(LOGITS)
BETTER = softmax(LOGITS + 8 * VALUE)


def policy(contexts: FloatArray) -> FloatArray:
    """(m, A) a policy that prefers what is clicked more often; the first context is the group."""
    return np.asarray(BETTER[contexts[:, 0].astype(int)])


def piece(number: int, rows: int, units: int, distinct: bool) -> pl.DataFrame:
    """Some rows of a softmax policy over 45 actions that looks at one of 200 groups."""
    draw = np.random.default_rng(number)
    group = draw.integers(0, GROUPS, rows)
    flat = (PI0.cumsum(axis=1) + np.arange(GROUPS)[:, None]).ravel()
    action = np.searchsorted(flat, group + draw.random(rows)).astype(np.int64) - ACTIONS * group
    action = action.clip(0, ACTIONS - NEW - 1)
    columns = {
        "group": group.astype(np.int16),
        "item": action.astype(np.int16),
        "click": (draw.random(rows) < VALUE[action]).astype(np.int8),
        "propensity": PI0[group, action],
    }
    if units:
        columns["user"] = draw.integers(0, units, rows)
    if distinct:
        columns["age"] = draw.normal(size=rows).astype(np.float32)
    return pl.DataFrame(columns)


def measured(given: argparse.Namespace, way: str, rows: int) -> dict[str, float]:
    """Certify in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(given.folder), "--way", way]
    command += ["--rows", str(rows), "--bound", given.bound]
    command += ["--units"] * given.units + ["--distinct"] * given.distinct
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(found.stderr)
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


def certified(given: argparse.Namespace) -> dict[str, object]:
    """Certify the rows in the folder, here."""
    mapping = LogMapping(
        action="item",
        reward="click",
        propensity="propensity",
        unit="user" if given.units else None,
        numeric=("group", "age") if given.distinct else ("group",),
    )
    nus = np.linspace(0.0, 0.14, 15)
    levels = MixtureLadder(
        (OwnPolicy(policy, ACTIONS), Uniform(CATALOGUE.novel)), np.stack([1 - nus, nus], axis=1)
    )
    rules = Rules(clip=5.0, bound=given.bound)
    path = given.folder / "*.parquet"
    if given.rows <= PIECE:
        path = given.folder / "part-0000.parquet"
    start, before = time.perf_counter(), time.process_time()
    if given.way == "memory":
        logs = read_from(path, mapping, CATALOGUE)
        certificate = certify(levels, split(logs, "benchmark"), rules, Reads())
        ready = start
    else:
        folds = split(LogStream.open(path, mapping, CATALOGUE), "benchmark")
        ready = time.perf_counter()
        certificate = certify(levels, folds, rules, Reads())
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.perf_counter() - start,
        "cpu": used.ru_utime + used.ru_stime - before,
        "first": ready - start,
        "peak": used.ru_maxrss / 1024,
        "data": certificate.data,
        "bound": certificate.verdicts[0].bound,
        "n": certificate.verdicts[0].n,
        "nu": certificate.shares[1],
    }


def main() -> None:
    """Write, certify, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--bound", default="normal")
    parser.add_argument("--units", action="store_true")
    parser.add_argument("--distinct", action="store_true")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=("stream", "memory"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(certified(given)))
        return
    with tempfile.TemporaryDirectory() as folder:
        given.folder = Path(folder)
        free = shutil.disk_usage(folder).free
        if free < 1.2 * BYTES_A_ROW * given.rows:
            sys.exit(f"{BYTES_A_ROW * given.rows / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free")
        for number in range(-(-given.rows // PIECE)):
            rows = min(PIECE, given.rows - number * PIECE)
            units = given.rows // 20 if given.units else 0
            made = piece(number, rows, units, given.distinct)
            made.write_parquet(given.folder / f"part-{number:04d}.parquet", row_group_size=100_000)
        size = sum(file.stat().st_size for file in given.folder.iterdir())
        print(f"{given.rows:,} rows of Parquet, {size / 1e6:,.0f} MB; bound {given.bound}")
        whole = measured(given, "stream", given.rows)
        print(
            f"streaming, all rows: {whole['seconds']:.1f} s ({whole['first']:.1f} s to check and "
            f"hash; {whole['cpu']:.1f} s of CPU), {given.rows / whole['seconds']:,.0f} rows/s, "
            f"peak {whole['peak']:,.0f} MiB; {whole['n']:,} values certify novelty "
            f"{whole['nu']:.2f}"
        )
        one, other = (measured(given, way, PIECE) for way in ("stream", "memory"))
        for way, found in (("streaming", one), ("in memory", other)):
            print(
                f"{way}, the first million: {found['seconds']:.1f} s, {found['cpu']:.1f} s of CPU, "
                f"peak {found['peak']:,.0f} MiB, bound {found['bound']:.12g}"
            )
        print(
            f"streaming takes {one['seconds'] / other['seconds']:.1f} times as long, "
            f"{one['cpu'] / other['cpu']:.1f} times the CPU; same data hash: "
            f"{one['data'] == other['data']}; "
            f"bounds differ by {abs(one['bound'] - other['bound']):.1e}"
        )


if __name__ == "__main__":
    main()
