"""Malformed logs begin no campaign: a DepsueError each, and never a certificate.

DEPSUE_MALFORMED sets the number of examples (120 unless told; a soak run takes 10,000).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.check.test_malformed import NUMBERS, TEXTS, tables, write

from depsue.campaigns import create
from depsue.data.mapping import LogMapping
from depsue.errors import DepsueError
from depsue.ledger import open_ledger

EXAMPLES = int(os.environ.get("DEPSUE_MALFORMED", "120"))
ROWS = 400
ITEMS = pl.DataFrame({"id": [0, 1, 2, 3, 4], "novel": [False] * 4 + [True], "f": [0.0, 1, 2, 3, 4]})
DRAW = np.random.default_rng(0)
GOOD = pl.DataFrame(
    {
        "action": DRAW.integers(0, 4, ROWS),
        "reward": DRAW.integers(0, 2, ROWS).astype(float),
        "propensity": np.full(ROWS, 0.25),
        "x": DRAW.normal(size=ROWS),
    }
)
MAPPING = LogMapping("action", "reward", "propensity", numeric=("x",))
BAD: dict[str, list[Any]] = {
    "action": [None, 4, 7, -1],
    "reward": [None, -0.5, 1.5, float("nan"), float("inf")],
    "propensity": [None, 0.0, -0.25, 1.01, float("nan"), 0.9, 1e-9],
    "x": [None, float("nan"), float("inf")],
}
quick = settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))


def begun(path: Path, folder: Path, mapping: LogMapping | None) -> bool:
    """Whether a campaign was begun; anything but a DepsueError is an error of ours."""
    ITEMS.write_parquet(folder / "items.parquet")
    ledger = open_ledger(":memory:")
    try:
        create(
            "spring",
            path,
            folder / "items.parquet",
            pi0="uniform",
            mapping=mapping,
            by="ana",
            home=folder / "home",
            ledger=ledger,
        )
    except DepsueError as error:
        assert error.rule, error
        assert ledger.campaigns() == () and not (folder / "home").exists()
        return False
    return True


def test_the_good_logs_do_begin_one(tmp_path: Path) -> None:
    GOOD.write_parquet(tmp_path / "logs.parquet")
    assert begun(tmp_path / "logs.parquet", tmp_path, MAPPING)


@quick
@given(column=st.sampled_from(sorted(BAD)), row=st.integers(0, ROWS - 1), data=st.data())
def test_one_bad_cell_is_refused(column: str, row: int, data: st.DataObject) -> None:
    value = data.draw(st.sampled_from(BAD[column]))
    changed = [value if at == row else one for at, one in enumerate(GOOD[column].to_list())]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        GOOD.with_columns(pl.Series(column, changed)).write_parquet(folder / "logs.parquet")
        assert not begun(folder / "logs.parquet", folder, MAPPING), (column, value)


@quick
@given(
    table=tables(),
    kind=st.sampled_from([".parquet", ".arrow", ".csv"]),
    known=st.booleans(),
    other=st.one_of(NUMBERS, TEXTS),
)
def test_tables_of_anything_are_refused(
    table: pl.DataFrame, kind: str, known: bool, other: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write(table.with_columns(other=pl.lit(str(other))), kind, folder)
        if path is not None:
            begun(path, folder, MAPPING if known else None)
