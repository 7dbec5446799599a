"""Files, folders, patterns and frames: opened lazily, and refused in words."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pyarrow import feather

from depsue.data.reading import Source, open_source
from depsue.errors import DataError, FileError

TABLE = pl.DataFrame({"action": [1, 2, 3], "reward": [0.0, 1.0, 0.5]})


def write(path: Path, table: pl.DataFrame = TABLE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix
    if kind in (".parquet", ".pq"):
        table.write_parquet(path)
    elif kind in (".arrow", ".feather", ".ipc"):
        table.write_ipc(path)
    else:
        table.write_csv(path, separator="\t" if kind == ".tsv" else ",")
    return path


def rows(source: Source) -> pl.DataFrame:
    return source.collect(source.frame)


@pytest.mark.parametrize("kind", [".parquet", ".pq", ".csv", ".tsv", ".arrow", ".feather", ".ipc"])
def test_every_kind_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    source = open_source(write(tmp_path / f"logs{kind}"))
    assert rows(source).equals(TABLE)
    assert source.names == ("action", "reward") and source.files == 1


def test_a_folder_is_read_in_the_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "day=2" / "b.parquet", TABLE.with_columns(action=pl.lit(9)))
    write(tmp_path / "logs" / "day=1" / "a.parquet")
    write(tmp_path / "logs" / ".tmp" / "c.parquet")
    (tmp_path / "logs" / "_SUCCESS").touch()
    source = open_source(tmp_path / "logs")
    assert source.files == 2
    assert rows(source)["action"].to_list() == [1, 2, 3, 9, 9, 9]


def test_a_pattern_takes_what_it_matches(tmp_path: Path) -> None:
    for name in ("a1.csv", "a2.csv", "b1.csv"):
        write(tmp_path / name)
    assert open_source(str(tmp_path / "a*.csv")).files == 2


def test_a_file_whose_name_has_brackets_is_that_file(tmp_path: Path) -> None:
    assert open_source(write(tmp_path / "a[1].parquet")).files == 1


def test_the_type_of_a_csv_column_is_that_of_all_its_rows(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_text("reward\n" + "0\n" * 20_000 + "0.5\n")
    assert rows(open_source(tmp_path / "logs.csv"))["reward"][-1] == 0.5


def test_only_asked_columns_are_read(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "logs.parquet"))
    assert "PROJECT 1/2" in source.frame.select("reward").explain()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "none.parquet", "there must be a file to read"),
        (lambda p: p / "*.parquet", "there must be a file to read"),
        (lambda p: p / "logs.xlsx", "the file must be one of"),
        (lambda p: p / "empty.csv", "the file must not be empty"),
        (lambda p: p / "mixed", "the files must be of one kind"),
        (lambda p: p / "cut.parquet", "readable as what its name says"),
        (lambda p: p / "hollow", "there must be a file to read"),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, make: Any, words: str) -> None:
    (tmp_path / "logs.xlsx").write_text("x")
    (tmp_path / "empty.csv").touch()
    write(tmp_path / "mixed" / "a.csv")
    write(tmp_path / "mixed" / "b.arrow")
    (tmp_path / "hollow").mkdir()
    (tmp_path / "cut").mkdir()
    whole = write(tmp_path / "cut" / "w.parquet").read_bytes()
    place = make(tmp_path)
    if place.name == "cut.parquet":
        place.write_bytes(whole[:-9])
    if "*" in place.name:
        place = tmp_path / "nowhere" / place.name
    with pytest.raises(FileError, match=words) as caught:
        open_source(place)
    assert caught.value.cure


def test_arrow_files_that_would_panic(tmp_path: Path) -> None:
    table = TABLE.to_arrow()
    feather.write_feather(table.append_column("action", table.column(0)), tmp_path / "a.arrow")
    with pytest.raises(FileError, match=r"distinct column names.*\['action'\] twice"):
        open_source(tmp_path / "a.arrow")
    (tmp_path / "b.arrow").write_bytes(b"ARROW1 and more that is not")
    with pytest.raises(FileError, match="must be an Arrow IPC file"):
        open_source(tmp_path / "b.arrow")


def test_frames_and_dicts() -> None:
    assert rows(Source.of(TABLE)).equals(TABLE)
    assert rows(Source.of(TABLE.lazy())).equals(TABLE)
    assert rows(Source.of(TABLE.to_dict(as_series=False))).equals(TABLE)
    with pytest.raises(DataError, match="something that polars can read"):
        Source.of({"a": [1, 2], "b": [1]})


def test_bandit_feedback() -> None:
    feedback = {
        "n_actions": 3,
        "context": np.array([[0.5, 1.0], [2.0, 3.0]]),
        "action": np.array([0, 2]),
        "reward": np.array([0, 1]),
        "pscore": np.array([0.5, 0.5]),
        "position": np.array([0, 0]),
    }
    table = rows(Source.of_obp(feedback))
    assert table.columns == ["action", "reward", "pscore", "position", "x0", "x1"]
    assert table["x1"].to_list() == [1.0, 3.0]
    with pytest.raises(DataError, match="bandit feedback needs"):
        Source.of_obp({"action": [1]})
