"""Malformed logs, generated: a verdict or a DepsueError, never anything else.

DEPSUE_MALFORMED sets the number of examples (500 unless told; a soak run takes 10,000).
"""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from depsue.check import check_logs
from depsue.check.report import READY, UNUSABLE, WARNED
from depsue.data import Catalogue
from depsue.data.mapping import LogMapping, mapping_of
from depsue.data.reading import Source, open_source, read_mapped
from depsue.errors import DepsueError

EXAMPLES = int(os.environ.get("DEPSUE_MALFORMED", "500"))
NAMES = ["action", "reward", "propensity", "user_id", "timestamp", "round", "position", "age"]
NAMES += ["candidates", "probabilities", "by_pi0", "pi0_version"]
ODD_NAMES = ["", "*", "^a.*$", "x:age", "row", "count", "country", "Unnamed: 0", "é\n"]
NUMBERS = st.one_of(
    st.floats(),
    st.floats(0, 1),
    st.integers(-3, 3),
    st.sampled_from([2**62, -1.0, 1.5, 1e300, 5e-324]),
)
TEXTS = st.one_of(st.text(max_size=4), st.sampled_from(["nan", "1", "2026-01-01T00:00:00Z", ","]))
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, TEXTS, st.dates(), st.datetimes(), st.binary(max_size=3)
)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> list[Any]:
    """A column of one kind, or of any."""
    kind = draw(
        st.sampled_from(
            [
                st.integers(0, 3),
                st.floats(0.01, 1),
                st.sampled_from([0.0, 1.0]),
                NUMBERS,
                TEXTS,
                st.none(),
                st.datetimes(),
                st.lists(st.floats(0, 1), max_size=2),
                st.lists(st.integers(0, 3), max_size=4),
                st.lists(TEXTS, max_size=2),
                st.lists(st.lists(st.integers(0, 1), max_size=1), max_size=2),
                st.sampled_from(["[0, 1]", "[0.5,0.5]", '["a"]', "[]", "[1", "[[1]]", "{}"]),
                st.one_of(st.none(), st.floats(0, 1)),
                SCALARS,
            ]
        )
    )
    return draw(st.lists(kind, min_size=rows, max_size=rows))


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Columns under names that mean something, and some that should not."""
    rows = draw(st.sampled_from([0, 1, 2, 5, 90]))
    likely = st.lists(st.sampled_from(NAMES), unique=True, max_size=12)
    names = draw(st.one_of(likely, st.just(NAMES[:3]), st.just(NAMES)))
    names = [*names, *draw(st.lists(st.sampled_from(ODD_NAMES), unique=True, max_size=2))]
    series = []
    for name in names:
        values = draw(columns(rows))
        try:
            column = pl.Series("x", values, strict=False)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            column = pl.Series("x", [str(value) for value in values])
        series.append(column.alias(name))
    return pl.DataFrame(series)


def write(table: pl.DataFrame, kind: str, folder: Path) -> Path | None:
    """The table in a file; None where it cannot be written."""
    path = folder / f"logs{kind}"
    try:
        if kind == ".parquet":
            table.write_parquet(path)
        elif kind == ".arrow":
            table.write_ipc(path)
        else:
            table.write_csv(path)
    except (pl.exceptions.PolarsError, OSError):
        return None
    return path


def doubled(table: pl.DataFrame, kind: str, folder: Path) -> Path | None:
    """The table with its first column once more at the end, under the same name."""
    if not table.width:
        return None
    try:
        whole = table.to_arrow()
        whole = whole.append_column(whole.schema.names[0], whole.column(0))
        path = folder / f"logs{kind}"
        if kind == ".parquet":
            parquet.write_table(whole, path)
        elif kind == ".arrow":
            feather.write_feather(whole, path)
        else:
            csv.write_csv(whole, path)
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, ValueError):
        return None
    return path


def verdict(path: Any, mapping: LogMapping | None = None, *, estimate: bool = False) -> None:
    try:
        report = check_logs(path, mapping=mapping, estimate=estimate)
    except DepsueError as error:
        assert error.rule and error.cure, error
        return
    assert report.verdict in (READY, WARNED, UNUSABLE)
    assert str(report) and json.dumps(report.as_json(), allow_nan=False)


quick = settings(max_examples=EXAMPLES // 4, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(
    table=tables(),
    kind=st.sampled_from([".parquet", ".arrow", ".csv"]),
    flag=st.booleans(),
    twice=st.integers(0, 5),
)
def test_tables_of_anything(table: pl.DataFrame, kind: str, flag: bool, twice: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = (doubled if twice == 0 else write)(table, kind, Path(folder))
        if path is not None:
            verdict(path, estimate=flag)


GOOD = pl.DataFrame(
    {
        "action": [1, 2, 3, 1] * 30,
        "reward": [0.0, 1.0, 0.0, 0.5] * 30,
        "propensity": [0.5, 0.25, 0.25, 0.5] * 30,
        "country": ["SE", "NO", "SE", "JP"] * 30,
    }
)


@quick
@given(
    kind=st.sampled_from([".parquet", ".arrow", ".csv"]),
    cut=st.floats(0, 1),
    spoiled=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=6),
)
def test_files_cut_short_or_with_other_bytes(
    kind: str, cut: float, spoiled: list[tuple[float, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(GOOD, kind, Path(folder))
        assert path is not None
        content = bytearray(path.read_bytes())
        for place, value in spoiled:
            content[int(place * len(content))] = value
        path.write_bytes(bytes(content[: int(cut * len(content)) + 1]))
        verdict(path)


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".csv"])
def test_a_column_twice(tmp_path: Path, kind: str) -> None:
    path = doubled(GOOD, kind, tmp_path)
    assert path is not None
    verdict(path)


ITEMS = Catalogue.of([0, 1, 2, 3])
VALUES: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)
KEYS = ["_label_cost", "_label_probability", "_labelIndex", "_label_Action", "a", "p", "c", "pdrop"]
KEYS += ["VWState", "_skipLearn"]
EVENT = {
    "_label_cost": -1.0,
    "_label_probability": 0.5,
    "_labelIndex": 1,
    "a": [2, 1],
    "p": [0.5, 0.5],
    "c": {"User": {"age": 3, "city": "x"}, "_multi": [{"_tag": "one"}, {"_tag": "two"}]},
}


@st.composite
def lines(draw: st.DrawFn) -> str:
    """A line of dsjson: right, wrong in a field, cut short, or something else."""
    change = draw(st.dictionaries(st.sampled_from([*KEYS, "Timestamp", "EventId"]), VALUES))
    text = json.dumps(EVENT | change) if draw(st.booleans()) else json.dumps(EVENT)
    if draw(st.integers(0, 4)) == 0:
        text = text[: draw(st.integers(0, len(text)))]
    junk = st.one_of(st.text(max_size=5), st.just("[" * 5000), st.just("9" * 5000))
    return draw(st.one_of(st.just(text), st.just(text), junk))


@quick
@given(found=st.lists(lines(), max_size=8), times=st.sampled_from([1, 30]), tail=st.binary())
def test_lines_of_broken_json(found: list[str], times: int, tail: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logs.dsjson"
        whole = "\n".join(found * times).encode("utf-8", "surrogatepass")
        path.write_bytes(whole + b"\n" + tail)
        verdict(path)


@quick
@given(
    table=tables(),
    roles=st.dictionaries(
        st.sampled_from([*NAMES[:7], *NAMES[8:], "segments", "x"]), st.sampled_from(NAMES)
    ),
    others=st.dictionaries(
        st.sampled_from(
            ["r_max", "position", "contexts", "reward", "other_rewards", "candidates", "y"]
        ),
        st.one_of(
            VALUES,
            st.just({"numeric": ["age"]}),
            st.just({"categorical": {"user_id": ["1"]}}),
            st.just({"shift": 1.0, "cap": 0.5}),
            st.just({"age": 1.0}),
            st.just({"given_as": "index"}),
        ),
    ),
)
def test_mappings_of_anything(
    table: pl.DataFrame, roles: dict[str, Any], others: dict[str, Any]
) -> None:
    columns = {"action": "action", "reward": "reward"} | {
        {"user_id": "unit", "timestamp": "time", "pi0_version": "version"}.get(role, role): name
        for role, name in roles.items()
    }
    try:
        mapping = mapping_of({"r_max": 1.0, "columns": columns} | others)
    except DepsueError as error:
        assert error.rule
        return
    verdict(table, mapping)


@quick
@given(data=st.data(), kind=st.sampled_from(["frame", "file"]), index=st.booleans())
def test_lists_of_anything(data: st.DataObject, kind: str, index: bool) -> None:
    table = GOOD.head(8)
    for name in ("shortlist", "of_all", "alone", "ranker"):
        values = data.draw(columns(len(table)))
        try:
            column = pl.Series(name, values, strict=False)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            column = pl.Series(name, [str(value) for value in values])
        table = table.with_columns(column)
    mapping = LogMapping(
        "action",
        "reward",
        "propensity",
        candidates="shortlist",
        probabilities="of_all",
        by_pi0="alone",
        version="ranker",
        given_as="index" if index else "id",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = write(table, ".parquet", Path(folder)) if kind == "file" else table
        if path is None:
            return
        for lists in (mapping, replace(mapping, by_pi0=None, version=None)):
            verdict(path, lists)
            try:
                source = open_source(path) if isinstance(path, Path) else Source.of(path)
                read_mapped(source, lists, ITEMS)
            except DepsueError as error:
                assert error.rule and error.cure, error
