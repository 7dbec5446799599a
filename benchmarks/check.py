"""How fast `depsue check` reads, and in how much memory.

    python benchmarks/check.py [--rows 20000000] [--folder check-logs]

Writes a folder of Parquet files (one for each million rows; 40 actions, two numeric contexts and a
text, 2 million units, times), checks it in a process of its own, and prints rows per second and the
peak of that process's memory. The files are kept, and used again if they are there.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

PIECE = 1_000_000
COUNTRIES = np.array(["DE", "FR", "JP", "SE"])


def piece(rows: int, number: int) -> pl.DataFrame:
    """Some rows of logs of a softmax policy over 40 actions that looks at the country."""
    draw = np.random.default_rng(number)
    logits = np.random.default_rng(0).normal(size=(4, 40))
    pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    country = draw.integers(0, 4, rows)
    action = (draw.random(rows)[:, None] > pi.cumsum(axis=1)[country]).sum(axis=1).clip(max=39)
    start = np.datetime64("2026-01-01", "us") + np.timedelta64(number, "h")
    return pl.DataFrame(
        {
            "timestamp": start + draw.integers(0, 3_600_000_000, rows).astype("m8[us]"),
            "user_id": draw.integers(0, 2_000_000, rows),
            "item_id": action,
            "click": (draw.random(rows) < 0.02 + 0.001 * action).astype(np.int8),
            "propensity": pi[country, action],
            "age": draw.normal(size=rows).astype(np.float32),
            "visits": draw.poisson(3, rows),
            "country": COUNTRIES[country],
        }
    )


def main() -> None:
    """Write, check, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, default=Path("check-logs"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number in range(-(-options.rows // PIECE)):
        path = options.folder / f"part-{number:04d}.parquet"
        if not path.exists():
            piece(min(PIECE, options.rows - number * PIECE), number).write_parquet(path)
    command = [sys.executable, "-m", "depsue", "check", str(options.folder), "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    report = json.loads(done.stdout)
    rows = report["facts"]["rows"]
    print(f"{report['verdict']}: {rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s")
    print(f"peak memory {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
