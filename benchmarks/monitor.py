"""How often the safety monitor stops a policy without cause, and how soon with one.

python benchmarks/monitor.py --out docs/results/monitor.md
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from depsue_research.monitor.simulate import Life, stops_at

RATE, RATIO, DELTA, ROUNDS, HOLDOUT = 0.1, 0.95, 0.05, 3, 0.05
LIVES = (
    Life("exactly at the need, V(pi) = .95 V(pi0)", 0.95),
    Life("just above it, .97", 0.97),
    Life("as good as pi0", 1.0),
    Life("items are worth less: .90", 0.90),
    Life("items are worth less: .85", 0.85),
    Life("the policy's decisions earn half, whatever they show", 1.0, drop=0.5),
    Life("5% of decisions show another item than was drawn", 1.0, skew=0.05),
)


def main() -> None:
    """Run the lives, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    lines = [
        "# The monitor: false alarms, and delay to detection",
        "",
        f"Made by `python benchmarks/monitor.py --replications {given.replications} --decisions "
        f"{given.decisions} --out docs/results/monitor.md`. Five items, V(pi0) = {RATE}, floor "
        f"{RATIO} V(pi0), holdout {HOLDOUT:g}, delta {DELTA:g} for the life of a campaign of "
        f"{ROUNDS} rounds; one epoch of one round, so that its false alarms must stay below "
        f"{DELTA / ROUNDS / 2:.4f}. Looked at after every 250 decisions.",
        "",
        "| what happens | lives | stopped | decisions until then: median | nine in ten within |",
        "|---|---:|---:|---:|---:|",
    ]
    for life in LIVES:
        calm = life.value >= RATIO and life.drop == 1 and life.skew == 0
        lives = given.replications if calm else max(given.replications // 10, 1)
        at = np.array([
            stops_at(life, decisions=given.decisions, rate=RATE, holdout=HOLDOUT, delta=DELTA,
                     rounds=ROUNDS, ratio=RATIO, seed=seed)
            for seed in range(lives)
        ])  # fmt: skip
        shares = np.quantile(at, (0.5, 0.9), method="higher")
        told = ["not yet" if math.isinf(x) else f"{x:,.0f}" for x in shares.tolist()]
        lines.append(
            f"| {life.name} | {lives:,} | {np.isfinite(at).mean():.4f} | "
            + ("– | – |" if calm else " | ".join(told) + " |")
        )
        print(lines[-1], flush=True)
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
