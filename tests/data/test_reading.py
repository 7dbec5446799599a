"""Logs out of files: sources are opened lazily, and a mapping says which column is what."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pyarrow import feather

from depsue.data.catalogue import Catalogue
from depsue.data.logs import joined
from depsue.data.mapping import EstimatedPropensities, LogMapping, seconds_of
from depsue.data.reading import (
    Source,
    open_source,
    read_from,
    read_mapped,
    words_on_younger,
)
from depsue.errors import ConfigError, DataError, FileError

PLAIN = pl.DataFrame({"action": [1, 2, 3], "reward": [0.0, 1.0, 0.5]})


def write(path: Path, table: pl.DataFrame = PLAIN) -> Path:
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
    assert rows(source).equals(PLAIN)
    assert source.names == ("action", "reward") and source.files == 1


def test_a_folder_is_read_in_the_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "day=2" / "b.parquet", PLAIN.with_columns(action=pl.lit(9)))
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
    table = PLAIN.to_arrow()
    feather.write_feather(table.append_column("action", table.column(0)), tmp_path / "a.arrow")
    with pytest.raises(FileError, match=r"distinct column names.*\['action'\] twice"):
        open_source(tmp_path / "a.arrow")
    (tmp_path / "b.arrow").write_bytes(b"ARROW1 and more that is not")
    with pytest.raises(FileError, match="must be an Arrow IPC file"):
        open_source(tmp_path / "b.arrow")


def test_frames_and_dicts() -> None:
    assert rows(Source.of(PLAIN)).equals(PLAIN)
    assert rows(Source.of(PLAIN.lazy())).equals(PLAIN)
    assert rows(Source.of(PLAIN.to_dict(as_series=False))).equals(PLAIN)
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


TABLE = pl.DataFrame(
    {
        "item": ["a", "b", "a", "a"],
        "money": [-2.0, 3.0, 50.0, 0.0],
        "prob": [0.5, 0.25, 0.5, 0.5],
        "when": ["2026-01-02T00:00:00.5Z", *["2026-01-01T12:00:00+02:00"] * 3],
        "slot": [1, 1, 2, 1],
        "who": ["u", "v", "u", "w"],
        "age": [1, 2, 1, 3],
        "device": ["app", "web", None, "tv"],
        "click": [0, 1, 1, 0],
    }
)
MAPPING = LogMapping(
    "item",
    "money",
    "prob",
    unit="who",
    time="when",
    position="slot",
    r_max=10.0,
    keep_position=1,
    numeric=("age",),
    categorical={"device": ("web", "app")},
    other_rewards={"click": 1.0},
    shift=2.0,
    cap=10.0,
)
CATALOGUE = Catalogue.of(["a", "b", "c"], novel=["c"])


def test_logs_are_read_as_declared() -> None:
    logs = read_mapped(Source.of(TABLE), MAPPING, CATALOGUE)
    assert logs.reward.tolist() == [0.0, 5.0, 2.0]  # the row of slot 2 is left out
    assert logs.contexts[logs.context].tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 0]]
    assert logs.catalogue.ids[logs.action].tolist() == ["a", "b", "a"]
    assert logs.units is not None and logs.units.tolist() == ["u", "v", "w"]
    assert logs.columns["click"].tolist() == [0, 1, 0]
    assert logs.time is not None
    assert (
        logs.time.tolist()
        == np.array(["2026-01-02T00:00:00.5", *["2026-01-01T10:00"] * 2], dtype="M8[us]").tolist()
    )


def test_a_reward_is_capped_after_the_shift() -> None:
    logs = read_mapped(Source.of(TABLE), replace(MAPPING, keep_position=2), CATALOGUE)
    assert logs.reward.tolist() == [10.0]


def test_what_a_cap_does_not_mend_is_refused() -> None:
    with pytest.raises(DataError, match=r"rewards must lie.*'money', row 0"):
        read_mapped(Source.of(TABLE), replace(MAPPING, shift=0.0), CATALOGUE)


def test_slates_are_not_supported_yet() -> None:
    with pytest.raises(DataError, match=r"slates are not supported yet.*positions 1, 2.*position"):
        read_mapped(Source.of(TABLE), replace(MAPPING, keep_position=None), CATALOGUE)
    with pytest.raises(DataError, match="must occur in the logs"):
        read_mapped(Source.of(TABLE), replace(MAPPING, keep_position=3), CATALOGUE)
    with pytest.raises(ConfigError, match="needs a column of positions"):
        read_mapped(Source.of(TABLE), replace(MAPPING, position=None), CATALOGUE)


def test_estimated_propensities() -> None:
    """Frequencies on a fixed share of the rows, which are marked: they will certify nothing."""
    n = 2000
    draw = np.random.default_rng(0)
    shown, slot = draw.choice(["a", "b"], size=n, p=[0.7, 0.3]), draw.integers(2, size=n)
    table = pl.DataFrame({"item": shown, "slot": slot, "click": np.zeros(n)})
    source, base = Source.of(table), LogMapping("item", "click")
    whole = replace(base, estimated=EstimatedPropensities(smoothing=1.0))
    logs = read_mapped(source, whole, Catalogue.of(["a", "b"]))
    mine = logs.estimating
    assert mine is not None and abs(mine.mean() - 0.3) < 0.01
    a = int((shown[mine] == "a").sum())
    expected = np.where(shown == "a", a + 1, mine.sum() - a + 1) / (mine.sum() + 2)
    assert np.allclose(logs.propensity, expected)
    grouped = replace(base, estimated=EstimatedPropensities(("slot",), 0.5))
    logs = read_mapped(source, grouped, Catalogue.of(["a", "b"]))
    first = mine & (slot == 0)
    a = int((shown[first] == "a").sum())
    in_group = np.where(shown == "a", a + 0.5, first.sum() - a + 0.5) / (first.sum() + 1)
    assert np.allclose(logs.propensity[slot == 0], in_group[slot == 0])
    assert logs.take([0, 5]).estimating is not None
    assert joined([logs, replace(logs, estimating=None)]).estimating is not None
    with pytest.raises(ConfigError, match="logs need propensities"):
        read_mapped(source, base, Catalogue.of(["a", "b"]))


def test_propensities_are_estimated_on_whole_units() -> None:
    n = 3000
    draw = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "item": draw.choice(["a", "b"], size=n),
            "click": np.zeros(n),
            "who": [f"user {k}" for k in draw.integers(500, size=n)],
        }
    )
    mapping = LogMapping("item", "click", unit="who", estimated=EstimatedPropensities())
    logs = read_mapped(Source.of(table), mapping, Catalogue.of(["a", "b"]))
    assert logs.estimating is not None and logs.unit is not None and logs.units is not None
    shares = np.bincount(logs.unit, logs.estimating) / np.bincount(logs.unit)
    assert set(shares.tolist()) == {0.0, 1.0} and abs(shares.mean() - 0.3) < 0.07


NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "old"),
    [
        ([NOON - timedelta(days=d) for d in (9, 8, 7, 6)], 3),
        ([(NOON - timedelta(days=d)).replace(tzinfo=None) for d in (9, 8, 7, 6)], 3),
        ([(NOON - timedelta(days=d)).timestamp() for d in (9, 8, 7, 6)], 3),
        ([(NOON - timedelta(days=d)).date() for d in (9, 8, 7, 6)], 2),  # a date ends at midnight
        ([(NOON - timedelta(days=d)).isoformat() for d in (9, 8, 7, 6)], 3),
    ],
)
def test_rows_younger_than_the_reward_window_are_left_out(times: list[Any], old: int) -> None:
    table = pl.DataFrame(
        {"item": ["a", "b", "a", "b"], "click": [0, 1, 0, 1], "p": [0.5] * 4, "at": times}
    )
    mapping = LogMapping("item", "click", "p", time="at", window=seconds_of("7d"))
    now, source, items = mapping.taken_in(NOON), Source.of(table), Catalogue.of(["a", "b"])
    assert len(read_mapped(source, now, items)) == old
    (words,) = words_on_younger(source, now)
    left = "1 row" if old == 3 else "2 rows"
    assert words.startswith(
        f"{left} younger than the reward window of 7 d left out: later than 2026"
    )
    assert len(read_mapped(source, mapping, items)) == 4  # nothing was taken in yet
    assert words_on_younger(source, mapping.taken_in(NOON + timedelta(days=30))) == ()
    with pytest.raises(ConfigError, match="some rows must be older.*seconds since 1970"):
        read_mapped(source, mapping.taken_in(NOON - timedelta(days=30)), items)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": "device", "categorical": {}}, "the column must hold numbers"),
        ({"numeric": ("device",), "categorical": {}}, "the column must hold numbers"),
        ({"propensity": "who", "unit": None}, "the column must hold numbers"),
        ({"reward": "none"}, "the column must be in the file"),
    ],
)
def test_columns_of_the_wrong_kind(change: dict[str, Any], words: str) -> None:
    source = Source.of(TABLE)
    with pytest.raises(DataError, match=words):
        read_mapped(source, replace(MAPPING, **change), CATALOGUE)


def test_times_of_the_wrong_kind() -> None:
    for wrong in (pl.lit(None), pl.lit(True)):
        source = Source.of(TABLE.with_columns(when=wrong))
        with pytest.raises(DataError, match="times must be times, numbers or text.*'when'"):
            read_mapped(source, MAPPING, CATALOGUE)


def test_names_that_look_like_patterns_are_names() -> None:
    odd = TABLE.rename({"money": "^m.*$", "age": "*", "who": "^.*$"})
    mapping = replace(MAPPING, reward="^m.*$", numeric=("*",), unit="^.*$")
    logs = read_mapped(Source.of(odd), mapping, CATALOGUE)
    assert logs.hash == read_mapped(Source.of(TABLE), MAPPING, CATALOGUE).hash


def test_a_file_through_a_mapping(tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "logs.csv")
    logs = read_from(tmp_path / "logs.csv", MAPPING, CATALOGUE)
    assert logs.hash == read_mapped(Source.of(TABLE), MAPPING, CATALOGUE).hash


def test_propensities_of_logs_that_lost_the_rows_of_some_items() -> None:
    logs = read_mapped(Source.of(TABLE), replace(MAPPING, kept=0.8), CATALOGUE)
    np.testing.assert_allclose(logs.propensity, [0.625, 0.3125, 0.625])
    with pytest.raises(DataError, match="prob"):  # more than 1
        read_mapped(Source.of(TABLE), replace(MAPPING, kept=0.4), CATALOGUE)
