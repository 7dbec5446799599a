"""Lists of candidates in columns: from every library, as ids or places, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from depsue.check import guess_mapping
from depsue.data import Catalogue, LoggedData
from depsue.data.lists import candidates_in, candidates_of
from depsue.data.mapping import LogMapping, mapping_of, read_mapping, write_mapping
from depsue.data.partitions import LogStream
from depsue.data.reading import Source, open_source, read_mapped
from depsue.data.writing import write_logs
from depsue.errors import DataError, DepsueError

TEXT = Catalogue.of(["tea", "milk", "mate", "cola"], novel=["cola"])
WHOLE = Catalogue.of([7, 5, 3, 1], novel=[1])
LISTS = [["tea", "milk", "cola"], ["mate", "tea"], ["milk"]]
SHARES = [[0.5, 0.5, 0.0], [0.25, 0.75], [1.0]]
ROWS: dict[str, Any] = {
    "age": [0.2, 0.7, 0.2],
    "shown": ["tea", "mate", "milk"],
    "click": [1, 0, 1],
    "p": [0.5, 0.25, 1.0],
    "shortlist": LISTS,
    "of_all": SHARES,
    "alone": [0.5, 0.0, 1.0],
    "ranker": ["v1", "v2", "v2"],
    "at": [1.0, 2.0, 3.0],
}
NAMES = {
    "action": "shown",
    "reward": "click",
    "propensity": "p",
    "candidates": "shortlist",
    "probabilities": "of_all",
    "by_pi0": "alone",
    "version": "ranker",
    "time": "at",
}
MAPPING = LogMapping(**NAMES, numeric=("age",))  # type: ignore[arg-type]


def of_frame(frame: Any) -> LoggedData:
    return LoggedData.from_frame(frame, TEXT, r_max=1.0, context=["age"], **NAMES)


def as_json(columns: dict[str, Any]) -> dict[str, Any]:
    text = {name: [str(v).replace("'", '"') for v in columns[name]] for name in ("shortlist",)}
    return columns | text | {"of_all": [str(v) for v in columns["of_all"]]}


FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": lambda columns: columns,
    "arrays": lambda columns: columns | {"shortlist": [np.array(v) for v in LISTS]},
    "polars": pl.DataFrame,
    "polars lazy": lambda columns: pl.DataFrame(columns).lazy(),
    "categories": lambda columns: pl.DataFrame(columns).with_columns(
        pl.col("shortlist").cast(pl.List(pl.Categorical))
    ),
    "pandas": pd.DataFrame,
    "arrow": pa.table,
    "json": lambda columns: pl.DataFrame(as_json(columns)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_gives_the_same_logs(name: str) -> None:
    frame = FRAMES[name](ROWS)
    logs = of_frame(frame)
    assert logs.hash == of_frame(ROWS).hash
    assert read_mapped(Source.of(frame), MAPPING, TEXT).hash == logs.hash
    assert logs.candidates is not None
    assert logs.candidates.items.tolist() == [0, 1, 3, 0, 2, 1]
    assert logs.candidates.pi0 is not None
    assert logs.candidates.pi0.tolist() == [0.5, 0.5, 0, 0.75, 0.25, 1]
    assert logs.by_pi0 is not None and logs.by_pi0.tolist() == [0.5, 0.0, 1.0]


@pytest.mark.parametrize("kind", ["parquet", "ipc", "csv"])
def test_every_file_gives_the_same_logs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("logs." + {"ipc": "arrow"}.get(kind, kind))
    table = pl.DataFrame(as_json(ROWS) if kind == "csv" else ROWS)
    getattr(table, f"write_{kind}")(path)
    write_mapping(MAPPING, tmp_path / "m.toml")
    logs = read_mapped(open_source(path), read_mapping(tmp_path / "m.toml"), TEXT)
    assert logs.hash == of_frame(ROWS).hash


def test_versions_are_told_with_their_rows_and_times() -> None:
    logs = of_frame(ROWS)
    told = [(v.version, v.rows, v.first, v.last) for v in logs.versions]
    assert told == [("v1", 1, "1.0", "1.0"), ("v2", 2, "2.0", "3.0")]
    assert [v.version for v in logs.take([2]).versions] == ["v2"]
    untimed = LoggedData.from_frame(
        ROWS | {"ranker": [3, 1, 3]},
        *(TEXT,),
        r_max=1.0,
        context="age",
        **{k: v for k, v in NAMES.items() if k != "time"},  # type: ignore[arg-type]
    )
    assert [(v.version, v.rows, v.first) for v in untimed.versions] == [
        ("3", 2, None),
        ("1", 1, None),
    ]
    assert untimed.hash != logs.hash
    without = LoggedData.from_frame(ROWS, TEXT, r_max=1, context="age", action="shown",
                                    reward="click", propensity="p")  # fmt: skip
    assert without.versions == ()


def test_rows_with_and_without_versions_are_joined() -> None:
    from depsue.data.logs import joined

    plain = [k for k in NAMES if k not in ("version", "by_pi0")]
    other = LoggedData.from_frame(
        ROWS,
        TEXT,
        r_max=1.0,
        context="age",
        **{k: NAMES[k] for k in plain},
    )
    both = joined([of_frame(ROWS), other])
    assert [v.version for v in both.versions] == ["", "v1", "v2"]
    assert both.by_pi0 is not None and both.by_pi0.tolist()[3:] == [0.5, 0.25, 1.0]


def test_written_logs_come_back_with_their_candidates(tmp_path: Path) -> None:
    logs = of_frame(ROWS)
    write_logs(logs, tmp_path / "logs.parquet")
    source = open_source(tmp_path / "logs.parquet")
    mapping, _ = guess_mapping(source, 1.0)
    assert read_mapped(source, mapping, TEXT).hash == logs.hash


def test_candidates_may_be_places_in_the_items_file() -> None:
    lists = [[0, 1, 3], [2, 0], [1]]
    sets = candidates_of(lists, SHARES, WHOLE, "index")
    assert sets.items.tolist() == [0, 1, 3, 0, 2, 1]
    assert candidates_of([[7, 5, 1], [3, 7], [5]], SHARES, WHOLE).items.tolist() == [
        *[0, 1, 3, 0, 2, 1]
    ]
    with pytest.raises(DepsueError, match=r"lie between 0 and 3.*row 1: 4"):
        candidates_of([[0], [4]], None, WHOLE, "index")
    mapping = mapping_of(
        {
            "r_max": 1.0,
            "columns": {"action": "a", "reward": "r", "candidates": "c"},
            "candidates": {"given_as": "index"},
        }
    )
    assert mapping.given_as == "index"


def test_batches_come_to_the_same_sets_and_errors_name_the_row() -> None:
    whole = pl.Series(LISTS)
    shares = pl.Series(SHARES)
    batches = [(whole[:1], shares[:1]), (whole[1:], shares[1:])]
    sets, together = candidates_in(batches, TEXT), candidates_of(LISTS, SHARES, TEXT)
    assert np.array_equal(sets.starts, together.starts)
    assert np.array_equal(sets.items, together.items)
    broken = pl.Series([["tea"], ["milk", "milk"]])
    with pytest.raises(DataError, match=r"distinct.*row 2: 'milk'"):
        candidates_in([(whole[:1], None), (broken, None)], TEXT)


@pytest.mark.parametrize(
    ("lists", "shares", "rule"),
    [
        (
            [["tea", "wine"]],
            None,
            r"every candidate must be in the catalogue.*row 0: 'wine'.*entry",
        ),
        ([["tea"], [1]], None, r"must be in the catalogue.*row 1: '1'"),
        ([["tea"], []], None, "every request needs a candidate.*row 1"),
        ([["tea"], None], None, "every row needs its list.*row 1"),
        ([["tea", None]], None, "no missing values.*row 0"),
        ([[1, 2]], None, "must be strings, as the catalogue's ids are.*given_as"),
        ([[1.5]], None, "must be strings"),
        ([[["tea"]]], None, "one list in each row"),
        (["tea"], None, r"lists that are text must be JSON.*row 0: 'tea'"),
        (['["tea"]', "['tea']"], None, r"must be JSON.*row 1"),
        (["{}"], None, "must be JSON"),
        ([3], None, "one list in each row"),
        (5, None, "one list in each row"),
        ([["tea"]], [[0.5, 0.5]], r"as many as the candidates.*2 for 1 candidates"),
        ([["tea"]], [["x"]], "lists of numbers"),
        ([["tea"]], ['["x"]'], "must be JSON"),
        ([["tea", "milk"]], [[0.5, 0.4]], r"sum to 1.*'probabilities', row 0: 0.9"),
        ([["tea"]], [[float("nan")]], r"lie in \[0, 1\]"),
    ],
)
def test_lists_that_break_a_rule_are_refused(lists: Any, shares: Any, rule: str) -> None:
    with pytest.raises(DataError, match=rule) as error:
        candidates_of(lists, shares, TEXT)
    assert error.value.cure


@pytest.mark.parametrize(
    ("lists", "rule"),
    [
        ([[7, 4]], "every candidate must be in the catalogue"),
        ([["7"]], "must be integers, as the catalogue's ids are"),
        ([[7.5]], "all of one kind"),
        ([[7.0, float("nan")]], "all of one kind"),
        (pl.Series([[2**63]], dtype=pl.List(pl.UInt64)), "all of one kind"),
    ],
)
def test_whole_ids_that_break_a_rule_are_refused(lists: Any, rule: str) -> None:
    assert candidates_of([[7.0, 5.0], [3]], None, WHOLE).items.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=rule):
        candidates_of(lists, None, WHOLE)


def test_a_mapping_of_probabilities_needs_candidates() -> None:
    with pytest.raises(DepsueError, match="go with the candidates"):
        LogMapping(action="a", reward="r", probabilities="p")
    with pytest.raises(DepsueError, match="as ids or as indices"):
        LogMapping(action="a", reward="r", candidates="c", given_as="name")  # type: ignore[arg-type]
    with pytest.raises(DepsueError, match="one list in each row"):
        read_mapped(Source.of(ROWS | {"shortlist": [1, 2, 3]}), MAPPING, TEXT)


def test_a_stream_refuses_lists_with_a_cure() -> None:
    with pytest.raises(DepsueError, match=r"fit into memory.*read_mapped"):
        LogStream(Source.of(ROWS), MAPPING, TEXT)


def test_a_stream_has_the_hash_of_rows_with_versions() -> None:
    from dataclasses import replace

    plain = replace(MAPPING, candidates=None, probabilities=None)
    source = Source.of(ROWS)
    assert LogStream(source, plain, TEXT, 2).hash == read_mapped(source, plain, TEXT).hash
