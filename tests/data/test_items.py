"""Items out of files: what is read, what is settled by rule, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.data import tables
from depsue.data.items import read_ids, read_items
from depsue.errors import ConfigError, DataError, DepsueError, FileError

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
def test_every_kind_of_file_gives_the_same_items(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, f"items{kind}", ITEMS)
    items = read_items(path)
    assert items.catalogue.novel.tolist() == [False, False, False, True]
    assert items.described and items.catalogue.features is not None
    assert items.catalogue.features.tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0], [4, 0, 1]]
    ids, novel = read_ids(path)
    assert ids.to_list() == ITEMS["id"] and novel.tolist() == ITEMS["novel"]


def test_items_that_were_withdrawn_are_marked_and_it_is_no_feature(tmp_path: Path) -> None:
    columns = ITEMS | {"withdrawn": [False, True, False, False]}
    items = read_items(write(tmp_path, "items.csv", columns))
    assert items.withdrawn.tolist() == [False, True, False, False]
    assert np.asarray(items.catalogue.features).shape == (4, 3)
    assert not read_items(write(tmp_path, "plain.csv", ITEMS)).withdrawn.any()


def test_without_a_column_items_that_were_never_shown_are_novel(tmp_path: Path) -> None:
    items = write(tmp_path, "items.csv", without(ITEMS, "novel"))
    read = read_items(items, logged=pl.Series([1, 2, 1, 3]))
    assert read.catalogue.novel.tolist() == [False, False, False, True]
    assert "1 of the items never occur in the logs: taken as novel" in read.notes
    assert read_items(items, novel=["2", "9"]).catalogue.novel.tolist() == [
        False,
        True,
        False,
        True,
    ]


def test_items_without_features_stand_for_themselves(tmp_path: Path) -> None:
    items = read_items(write(tmp_path, "items.csv", without(ITEMS, "price", "kind")))
    assert not items.described
    assert np.array_equal(np.asarray(items.catalogue.features), np.eye(4))


def test_row_numbers_and_names_of_items_are_no_features(tmp_path: Path) -> None:
    columns = {"": [0, 1, 2, 3], **ITEMS, "title": ["w", "x", "y", "z"]}
    items = read_items(write(tmp_path, "items.csv", columns))
    assert np.asarray(items.catalogue.features).shape == (4, 3)
    assert "item columns that are not features: 'title'" in items.notes


def test_a_missing_column_of_ids_names_the_file_and_the_option(tmp_path: Path) -> None:
    path = write(tmp_path, "items.csv", ITEMS)
    with pytest.raises(DataError, match=r"'sku'.*items.csv has 'id'.*--id"):
        read_items(path, id="sku")


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


def test_whole_ids_may_be_written_as_floats(tmp_path: Path) -> None:
    path = write(tmp_path, "items.parquet", {"id": [1.0, 3.0], "novel": [False, True]})
    assert read_items(path).catalogue.ids.tolist() == [1, 3]
    assert read_ids(path)[0].to_list() == [1, 3]
