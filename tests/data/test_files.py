"""Logs and items out of files: what is read, what is settled by rule, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.data import tables
from depsue.data.files import LogColumns, read_actions, read_items, read_logs
from depsue.errors import ConfigError, DataError, DepsueError, FileError

LOGS: dict[str, Any] = {
    "action": [1, 2, 1, 3],
    "reward": [0, 1, 0, 1],
    "propensity": [0.5, 0.25, 0.5, 0.25],
    "age": [30.0, 40.0, 30.0, 50.0],
    "country": ["se", "jp", "se", "fr"],
}
ITEMS: dict[str, Any] = {
    "id": [1, 2, 3, 9],
    "novel": [False, False, False, True],
    "price": [1.0, 2.0, 3.0, 4.0],
    "kind": ["a", "b", "a", "b"],
}


def write(folder: Path, name: str, columns: dict[str, Any]) -> Path:
    frame, path = pl.DataFrame(columns), folder / name
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


def without(columns: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if name not in names}


@pytest.mark.parametrize("kind", [".parquet", ".csv", ".tsv"])
def test_every_kind_of_file_gives_the_same_logs(tmp_path: Path, kind: str) -> None:
    found = read_items(write(tmp_path, f"items{kind}", ITEMS))
    logs, notes = read_logs(write(tmp_path, f"logs{kind}", LOGS), found.catalogue)
    assert found.catalogue.novel.tolist() == [False, False, False, True]
    assert found.described and found.catalogue.features is not None
    assert found.catalogue.features.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0], [4, 0, 1]]
    assert logs.contexts[logs.context, 0].tolist() == [30, 40, 30, 50]
    assert logs.reward.tolist() == [0, 1, 0, 1]
    assert notes == ("log columns that are not read: 'country' (--context can name them)",)


def test_named_text_columns_become_one_column_per_value(tmp_path: Path) -> None:
    catalogue = read_items(write(tmp_path, "items.csv", ITEMS)).catalogue
    columns = LogColumns(context=("cou*", "age"))
    logs, _ = read_logs(write(tmp_path, "logs.csv", LOGS), catalogue, columns)
    assert logs.contexts[logs.context].tolist()[1] == [0, 1, 0, 40]


def test_units_other_names_and_no_context(tmp_path: Path) -> None:
    given = {"item": [1, 2], "click": [0.0, 3.0], "p": [0.5, 0.5], "user": ["u", "v"]}
    catalogue = read_items(write(tmp_path, "items.csv", ITEMS)).catalogue
    columns = LogColumns("item", "click", "p", unit="user")
    logs, notes = read_logs(write(tmp_path, "logs.csv", given), catalogue, columns, r_max=5.0)
    assert logs.units is not None and logs.units.tolist() == ["u", "v"]
    assert logs.r_max == 5.0 and len(logs.contexts) == 1
    assert "no context columns: all decisions count as alike" in notes


def test_without_a_column_items_that_were_never_shown_are_novel(tmp_path: Path) -> None:
    logs = write(tmp_path, "logs.csv", LOGS)
    items = write(tmp_path, "items.csv", without(ITEMS, "novel"))
    found = read_items(items, logged=read_actions(logs))
    assert found.catalogue.novel.tolist() == [False, False, False, True]
    assert "1 items never occur in the logs: they are taken as novel" in found.notes
    assert read_items(items, novel=["2", "9"]).catalogue.novel.tolist() == [
        False,
        True,
        False,
        True,
    ]


def test_items_without_features_stand_for_themselves(tmp_path: Path) -> None:
    found = read_items(write(tmp_path, "items.csv", without(ITEMS, "price", "kind")))
    assert not found.described
    assert np.array_equal(np.asarray(found.catalogue.features), np.eye(4))


def test_row_numbers_and_names_of_items_are_no_features(tmp_path: Path) -> None:
    given = {"": [0, 1, 2, 3], **ITEMS, "title": ["w", "x", "y", "z"]}
    found = read_items(write(tmp_path, "items.csv", given))
    assert np.asarray(found.catalogue.features).shape == (4, 3)
    assert "item columns that are not features: 'title'" in found.notes


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"propensity": [0.5, 1.5, 0.5, 0.25]}, "propensit"),
        ({"propensity": [0.5, 0.0, 0.5, 0.25]}, "propensit"),
        ({"propensity": ["a", "b", "c", "d"]}, "numbers"),
        ({"reward": [0, 2, 0, 1]}, "reward"),
        ({"reward": [0, None, 0, 1]}, "missing"),
        ({"action": [1, 2, 1, 77]}, "in the catalogue"),
        ({"action": [1, 2, 1, 9]}, "novel"),
        ({"action": ["a", "b", "c", "d"]}, "integers"),
        ({"age": [1.0, None, 2.0, 3.0]}, "missing"),
    ],
)
def test_bad_values_are_named(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    catalogue = read_items(write(tmp_path, "items.csv", ITEMS)).catalogue
    path = write(tmp_path, "logs.parquet", LOGS | change)
    with pytest.raises(DataError, match=rule) as caught:
        read_logs(path, catalogue)
    assert caught.value.column == next(iter(change))


def test_missing_columns_name_the_file_and_the_option(tmp_path: Path) -> None:
    catalogue = read_items(write(tmp_path, "items.csv", ITEMS)).catalogue
    path = write(tmp_path, "logs.csv", without(LOGS, "reward"))
    with pytest.raises(DataError, match=r"'reward'.*logs.csv has 'action'.*--reward"):
        read_logs(path, catalogue)
    with pytest.raises(DataError, match=r"'sku'.*--id"):
        read_items(tmp_path / "items.csv", id="sku")
    with pytest.raises(DataError, match=r"'zip\*'.*--context"):
        read_logs(write(tmp_path, "l.csv", LOGS), catalogue, LogColumns(context=("zip*",)))
    with pytest.raises(DataError, match=r"'who'.*--unit"):
        read_logs(write(tmp_path, "l.csv", LOGS), catalogue, LogColumns(unit="who"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def refused(path: Path, rule: str) -> None:
        with pytest.raises(FileError, match=rule):
            read_items(path)

    refused(tmp_path / "no.csv", "must exist")
    refused(tmp_path, "must be a file")
    (tmp_path / "empty.csv").touch()
    refused(tmp_path / "empty.csv", "must not be empty")
    (tmp_path / "head.csv").write_text("id,novel\n")
    refused(tmp_path / "head.csv", "must have rows")
    (tmp_path / "x.xlsx").write_text("id")
    refused(tmp_path / "x.xlsx", "must be one of")
    (tmp_path / "x.parquet").write_text("this is no Parquet file, whatever its name says")
    refused(tmp_path / "x.parquet", "readable as what its name says")
    (tmp_path / "bytes.csv").write_bytes(b"id,novel\n\xff\xfe,1\n")
    with pytest.raises(DepsueError):
        read_items(tmp_path / "bytes.csv")


def test_a_damaged_parquet_file_is_an_error_with_a_cure(tmp_path: Path) -> None:
    path = write(tmp_path, "items.parquet", ITEMS)
    whole = path.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileError, match="Cure"):
            read_items(path)


def test_too_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "items.csv", ITEMS)
    monkeypatch.setattr(tables, "MOST_NUMBERS", 15)
    with pytest.raises(FileError, match=r"4 rows of 4 columns"):
        read_items(path)


def test_text_with_many_values_is_no_feature(tmp_path: Path) -> None:
    catalogue = read_items(write(tmp_path, "items.csv", ITEMS)).catalogue
    n = tables.MOST_VALUES + 1
    given = {"action": [1] * n, "reward": [0] * n, "propensity": [0.5] * n}
    given["name"] = [f"n{k}" for k in range(n)]
    path = write(tmp_path, "logs.csv", given)
    with pytest.raises(DataError, match=f"at most {n - 1} values"):
        read_logs(path, catalogue, LogColumns(context=("name",)))


def test_which_items_are_novel_must_be_settled_once(tmp_path: Path) -> None:
    items = write(tmp_path, "items.csv", ITEMS)
    with pytest.raises(ConfigError, match="not from both"):
        read_items(items, novel=["9"])
    plain = write(tmp_path, "plain.csv", without(ITEMS, "novel"))
    with pytest.raises(DataError, match="must be in the catalogue"):
        read_items(plain, novel=["12"])
    with pytest.raises(ConfigError, match="must be a novel item"):
        read_items(write(tmp_path, "old.csv", ITEMS | {"novel": [False] * 4}))
    with pytest.raises(DataError, match="True and False"):
        read_items(write(tmp_path, "odd.csv", ITEMS | {"novel": [0, 1, 2, 0]}))
