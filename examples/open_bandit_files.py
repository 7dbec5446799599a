"""The Open Bandit Dataset as its authors publish it, made into files that every command reads.

A few items are declared new: their rows are dropped. That is allowed because `random` draws
uniformly whatever the user: given that the item is one of the others, it is uniform over the
others, with probability p / (1 - mass of the dropped items). Of 80 items without 5: 1/75.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from depsue.data.checks import FloatArray
from depsue.errors import DataError, FileError, require

NEW = 5
"""How many items are declared new: the last ids, a rule that looks at no click."""
FEATURES = "user_feature_"
KEPT = ("timestamp", "item_id", "position", "click", "propensity_score")


@dataclass(frozen=True, eq=False)
class Sample:
    """What was downloaded.

    Args:
        random, bts: the rows of each policy.
        items: one row per item, by rising id.
        new: ids of the items that are declared new.
    """

    random: pl.DataFrame
    bts: pl.DataFrame
    items: pl.DataFrame
    new: tuple[int, ...]


def read_sample(folder: str | Path) -> Sample:
    """FOLDER/random/all and FOLDER/bts/all, each with all.csv and item_context.csv."""
    place = Path(folder)
    items = _read(place / "random" / "all" / "item_context.csv").sort("item_id")
    items = items.select(name for name in items.columns if name)
    require(
        len(items) > NEW,
        f"there must be more than {NEW} items",
        found=len(items),
        cure="give the folder that holds random/all and bts/all",
        error=FileError,
    )
    logs = [_read(place / policy / "all" / "all.csv") for policy in ("random", "bts")]
    logs = [
        table.select(name for name in table.columns if name in KEPT or name.startswith(FEATURES))
        for table in logs
    ]
    _require_uniform(logs[0], len(items))
    return Sample(logs[0], logs[1], items, tuple(items["item_id"][-NEW:]))


def without_new(sample: Sample) -> pl.DataFrame:
    """The rows of `random` without those of the new items, with the propensities of the rest."""
    mass = len(sample.new) / len(sample.items)
    rows = sample.random.filter(~pl.col("item_id").is_in(sample.new))
    return rows.with_columns(pl.col("propensity_score") / (1 - mass))


def marked_items(sample: Sample) -> pl.DataFrame:
    """The items with a column `novel`."""
    return sample.items.with_columns(novel=pl.col("item_id").is_in(sample.new))


def write_files(sample: Sample, folder: Path, position: int) -> None:
    """items.csv, logs.csv of one position, and logs-all.csv of all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = without_new(sample)
    marked_items(sample).write_csv(folder / "items.csv")
    logs.write_csv(folder / "logs-all.csv")
    at = logs.filter(pl.col("position") == position)
    require(len(at) > 0, "the position must have rows", found=position, cure="--position 1")
    at.write_csv(folder / "logs.csv")


def bts_shares(sample: Sample, position: int) -> FloatArray:
    """(A,) the table that stands for `bts` at one position: mean p by item, summing to 1.

    An approximation. The real `bts` changed through the week, and an item is logged more often
    while its p is high, so these means sum to more than 1 and lean towards its favourites.
    """
    rows = sample.bts.filter(pl.col("position") == position)
    means = rows.group_by("item_id").agg(p=pl.col("propensity_score").mean())
    joined = sample.items.select("item_id").join(means, on="item_id", how="left").sort("item_id")
    shares = joined["p"].fill_null(0.0).to_numpy()
    return np.asarray(shares / shares.sum())


def bts_counts(sample: Sample, position: int) -> FloatArray:
    """(A,) how often `bts` showed each item at one position, as shares of its rows."""
    rows = sample.bts.filter(pl.col("position") == position)
    place = {id: a for a, id in enumerate(sample.items["item_id"])}
    shown = np.bincount([place[id] for id in rows["item_id"]], minlength=len(place))
    return np.asarray(shown / shown.sum())


def _read(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_csv(path)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise FileError(
            "the folder must hold random/all and bts/all, with all.csv and item_context.csv",
            found=f"{path}: {problem}",
            cure="unpack the Open Bandit Dataset, or its small sample, and name that folder",
        ) from problem
    needed = ("item_id",) if path.name == "item_context.csv" else KEPT
    missing = [name for name in needed if name not in table.columns]
    require(not missing, f"{path} needs the columns {needed}", found=missing, error=FileError)
    return table


def _require_uniform(logs: pl.DataFrame, size: int) -> None:
    """Dropping rows by item is right for a uniform policy only."""
    wrong = (logs["propensity_score"] * size - 1).abs() > 1e-6
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(
            f"`random` must have drawn each of the {size} items with probability 1/{size}",
            column="propensity_score",
            row=row,
            value=logs["propensity_score"][row],
            count=int(wrong.sum()),
            cure="give the logs of the policy `random` for all items",
        )
