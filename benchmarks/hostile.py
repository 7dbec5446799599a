"""Certified exploration in hostile worlds: what it spends, what it promises, what it refuses.

Usage: python benchmarks/hostile.py [--replications 20] [--worlds plain,worthless]
       [--out docs/results] [--fresh]

Finished campaigns are lines of hostile.jsonl in that folder and are not run again; after a change
of the code, --fresh starts anew. Prints the page and writes hostile.md, hostile.png, hostile.svg.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from depsue.files import writable_folder
from depsue.progress import bars
from depsue_research.hostile.figure import figure
from depsue_research.hostile.page import page
from depsue_research.hostile.sweep import NAMES, sweep


def main() -> None:
    """Run what is missing, print, write."""
    parser = argparse.ArgumentParser(description="certified exploration in hostile worlds")
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--worlds", default=",".join(NAMES), help="names, with commas between")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--fresh", action="store_true", help="forget what is finished")
    options = parser.parse_args()
    folder = writable_folder(options.out)
    path = folder / "hostile.jsonl"
    if options.fresh:
        path.unlink(missing_ok=True)
    with bars() as watch:
        worlds = options.worlds.split(",")
        results = sweep(options.replications, path, worlds=worlds, watch=watch)
    command = f"python benchmarks/hostile.py --replications {options.replications}"
    if worlds != list(NAMES):
        command += f' --worlds "{options.worlds}"'
    text = page(list(results.values()), command)
    print(text)
    (folder / "hostile.md").write_text(text, encoding="utf-8")
    drawn = figure(list(results.values()))
    drawn.savefig(folder / "hostile.png", dpi=130)
    drawn.savefig(folder / "hostile.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
