"""How often the safety monitor stops without cause, and how soon with one.

    python benchmarks/monitor.py [--replications 400] [--decisions 60000] [--out FILE]

It prints the page that `docs/results/monitor.md` is made of: false alarms where promises are just
kept (with busy and slow hours, and with heavy users, too), and decisions to detection of faults
that begin at the start, after 10,000 and 100,000 decisions and after twice the declared length, as
ratios to the first. It
returns 1 if a late fault takes more than 2.5 times as long as the same fault from the start. The
worlds are those of `depsue_research.monitor`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from depsue_research.monitor import MISSED, monitor_page


def main() -> int:
    """Measure, print, and return 1 if a late fault was found too late."""
    parser = argparse.ArgumentParser(description="the monitor: false alarms and delays")
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--decisions", type=int, default=60_000)
    parser.add_argument("--out", type=Path, help="file for the page; its figure goes beside it")
    settings = parser.parse_args()
    command = f"python benchmarks/monitor.py --replications {settings.replications}"
    command += f" --decisions {settings.decisions}"
    figure = None
    if settings.out is not None:
        command += f" --out {settings.out}"
        figure = settings.out.with_suffix(".png")
    lines = []
    for line in monitor_page(settings.replications, settings.decisions, command, figure=figure):
        print(line, flush=True)
        lines.append(line)
    if settings.out is not None:
        settings.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(any(MISSED in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
