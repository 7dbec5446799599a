"""A worked example on the Open Bandit Dataset, or on its small sample of 10,000 rows.

    python examples/open_bandit.py --data FOLDER [--out open-bandit] [--part all] [--workers 1]

FOLDER holds random/all and bts/all as they are downloaded. Part `prepare` writes files that the
commands read; `real` takes them through check, plan, create, train and certify; `known` draws
clicks of known truth for the same contexts, holds bounds from logs of `random` against the true
value of `bts`, and certifies one round of a campaign whose truth is then shown. Files, summary.md
and bounds.svg go to the folder --out. See docs/open-bandit.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from open_bandit_files import bts_counts, bts_shares, read_sample, write_files
from open_bandit_known import Cell, Truth, figure_bounds, known_world, study, truths
from open_bandit_text import cells_table, reading, round_table
from open_bandit_walk import Walk, walk

from depsue.check import guess_mapping
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping, write_mapping
from depsue.data.reading import Source, contexts_of, mapped, open_source
from depsue.data.writing import write_items, write_logs
from depsue.errors import DepsueError
from depsue.files import writable_folder
from depsue.pages.drawing import as_svg
from depsue.policies import ByItem, Uniform, save
from depsue.world import World


def mapping_of(logs: Path) -> LogMapping:
    """The guess, which is right for this dataset: clicks are 0 or 1, so r_max is 1."""
    return guess_mapping(open_source(logs))[0]


def of_all_positions(mapping: LogMapping, positions: Sequence[int]) -> LogMapping:
    """The position as a part of the context: every row is a decision of its own."""
    seen = {**mapping.categorical, "position": tuple(map(str, positions))}
    return replace(mapping, position=None, categorical=seen)


def prepare(data: Path, out: Path, position: int) -> dict[str, LogMapping]:
    """Write items.csv, logs.csv, logs-all.csv, both mappings and pi0/; the mappings by name."""
    sample = read_sample(data)
    write_files(sample, out, position)
    single = mapping_of(out / "logs.csv")
    every = of_all_positions(single, sample.random["position"].unique().sort().to_list())
    write_mapping(single, out / "mapping.toml", force=True)
    write_mapping(every, out / "mapping-all.toml", force=True)
    catalogue = read_items(out / "items.csv").catalogue
    save(Uniform(~catalogue.novel), out / "pi0", catalogue=catalogue)
    return {"logs": single, "logs-all": every}


@dataclass(frozen=True, eq=False)
class Setting:
    """What the part of known truth starts from.

    Args:
        contexts: (u, d) the contexts of `random` at the position, one for each row.
        catalogue: the items, five of them novel.
        bts: (A,) the table that stands for `bts`.
        apart: how far that table is from how often `bts` showed the items (total variation).
        rate: the click rate of `random` in the sample, over all positions.
    """

    contexts: FloatArray
    catalogue: Catalogue
    bts: FloatArray
    apart: float
    rate: float

    def world(self, rate: float, novel: bool, seed: int) -> World:
        """All items logged, or the new ones not."""
        none = np.zeros(len(self.catalogue), dtype=bool)
        catalogue = self.catalogue if novel else replace(self.catalogue, novel=none)
        return known_world(self.contexts, catalogue, rate, seed=seed)


def setting_of(data: Path, out: Path, position: int) -> Setting:
    """From the files that `prepare` wrote, and from the logs of `bts`."""
    sample = read_sample(data)
    source = Source.of(sample.random.filter(sample.random["position"] == position))
    mapping = mapping_of(out / "logs.csv")
    contexts = contexts_of(source.collect(mapped(source, mapping)), mapping)
    shares, counts = bts_shares(sample, position), bts_counts(sample, position)
    catalogue = read_items(out / "items.csv").catalogue
    apart = float(np.abs(shares - counts).sum() / 2)
    return Setting(
        contexts, catalogue, shares, apart, float(sample.random["click"].to_numpy().mean())
    )


Task = tuple[str, Setting, float, bool, int, int, int]


def cells_of(task: Task) -> list[Cell]:
    """One world at one number of rows."""
    name, setting, rate, novel, n, replications, seed = task
    world = setting.world(rate, novel, seed)
    return study(name, world, ByItem(setting.bts), [n], replications, seed=seed)


def bounds_study(setting: Setting, options: argparse.Namespace) -> list[Cell]:
    """Every world at every number of rows."""
    common, rare = options.click_rate, setting.rate
    size, new = len(setting.catalogue), int(setting.catalogue.novel.sum())
    worlds = [
        (f"all {size} items logged, {common:.1%} clicks", common, False),
        (f"{new} items new, {common:.1%} clicks", common, True),
        (f"all {size} items logged, {rare:.2%} clicks", rare, False),
    ]
    tasks: list[Task] = [
        (name, setting, rate, novel, n, options.replications, options.seed)
        for name, rate, novel in worlds
        for n in options.rows
    ]
    if options.workers == 1:
        return [cell for task in tasks for cell in cells_of(task)]
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        return [cell for cells in pool.map(cells_of, tasks) for cell in cells]


def known_round(
    setting: Setting, out: Path, rate: float, rows: int, seed: int
) -> tuple[Walk, list[Truth]]:
    """One round of a campaign on logs of known truth."""
    world = setting.world(rate, True, seed)
    logs, items = out / f"known-{rows}-{seed}.parquet", out / "known-items.parquet"
    write_items(setting.catalogue, items)
    write_logs(world.deploy(world.logging_policy, rows, round=0), logs)
    steps = walk(logs.stem, logs, items, mapping_of(logs), out / "campaigns")
    return steps, truths(steps.campaign, world)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that were asked for, print and write the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds random/all and bts/all")
    parser.add_argument("--out", type=Path, default=Path("open-bandit"), help="folder to write")
    parser.add_argument("--part", choices=("all", "prepare", "real", "known"), default="all")
    parser.add_argument("--position", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 40_000, 160_000])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--click-rate", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(arguments)
    out = writable_folder(options.out)
    mappings = prepare(options.data, out, options.position)
    lines: list[str] = []
    if options.part in ("all", "real"):
        walks = {
            name: walk(
                f"open-bandit-{name}", out / f"{name}.csv", out / "items.csv", mapping,
                # one position is a part of all: two readings of the same rows, apart on purpose
                out / "campaigns" / name,
            )
            for name, mapping in mappings.items()
        }  # fmt: skip
        lines += reading(walks)
    if options.part in ("all", "known"):
        setting = setting_of(options.data, out, options.position)
        cells = bounds_study(setting, options)
        steps, truth = known_round(
            setting, out, options.click_rate, max(options.rows), options.seed
        )
        lines += cells_table(cells, setting.apart) + round_table(steps, truth)
        figure = figure_bounds(cells)
        with rc_context({"svg.hashsalt": "depsue"}):
            (out / "bounds.svg").write_text(str(as_svg(figure)), encoding="utf-8")
        figure.savefig(out / "bounds.png", dpi=130)
    if lines:
        (out / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join([*lines, f"files are in {out}"]))


if __name__ == "__main__":
    try:
        main()
    except DepsueError as problem:
        sys.exit(f"open_bandit: {problem}")
