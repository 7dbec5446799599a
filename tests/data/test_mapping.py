"""The mapping: what may be declared, what it says of itself, and its file."""

import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from depsue.data.mapping import (
    EstimatedPropensities,
    LogMapping,
    mapping_of,
    read_mapping,
    seconds_of,
    to_toml,
    write_mapping,
)
from depsue.errors import ConfigError, DepsueError, FileError

FULL = LogMapping(
    "item",
    "money",
    unit="user",
    time="t",
    round="k",
    position="slot",
    r_max=100.0,
    keep_position=1,
    numeric=("age",),
    categorical={"device": ("app", "web")},
    other_rewards={"click": 1.0},
    segments=("country",),
    shift=5.0,
    cap=100.0,
    estimated=EstimatedPropensities(("device",), 0.5),
)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@pytest.mark.parametrize(
    "mapping", [FULL, LogMapping("a", "b"), LogMapping("a", "b", "p", kept=0.9)]
)
def test_a_mapping_comes_back_from_its_file(tmp_path: Path, mapping: LogMapping) -> None:
    write_mapping(mapping, tmp_path / "m.toml")
    assert read_mapping(tmp_path / "m.toml") == mapping
    assert [path.name for path in tmp_path.iterdir()] == ["m.toml"]


@given(names=st.lists(NAME, min_size=4, max_size=4, unique=True), r_max=st.floats(1e-9, 1e9))
def test_any_name_comes_back(names: list[str], r_max: float) -> None:
    import tomllib

    action, reward, age, kind = names
    mapping = LogMapping(action, reward, r_max=r_max, numeric=(age,), categorical={kind: (age,)})
    assert mapping_of(tomllib.loads(to_toml(mapping))) == mapping


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text("mine")
    with pytest.raises(FileError, match="not overwritten.*--force"):
        write_mapping(FULL, path)
    assert path.read_text() == "mine"
    write_mapping(FULL, path, force=True)
    assert read_mapping(path) == FULL
    with pytest.raises(FileError, match="must be writable"):
        write_mapping(FULL, tmp_path / "none" / "m.toml")


def test_what_a_certificate_must_say() -> None:
    words = FULL.assumptions
    assert words[0].startswith(
        "rewards are min(money + 5, 100), of which an item never shown earns"
    )
    assert words[1].startswith("propensities were estimated, on rows that certify nothing: the")
    assert words[2] == "only rows with slot = 1 are used"
    assert LogMapping("a", "b", "p").assumptions == ()
    (dropped,) = LogMapping("a", "b", "p", kept=0.75).assumptions
    assert dropped.endswith("without these items, and propensities are p / 0.75")


BASE: dict[str, Any] = {"r_max": 1.0, "columns": {"action": "a", "reward": "r"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": {"action": "a"}}, "must name the column of the reward"),
        ({"columns": {"action": "a", "reward": 3}}, "named by text"),
        ({"columns": {"action": "a", "reward": "a"}}, "a column has one role"),
        ({"columns": {"action": "a", "reward": "r", "p": "p"}}, r"\[columns\] may hold"),
        ({"columns": 3}, "must be a table"),
        ({"r_max": None}, "r_max must be declared"),
        ({"r_max": -1}, "r_max must be declared"),
        ({"reward": {"cap": 2.0}}, r"cap must lie in \(0, r_max\]"),
        ({"reward": {"shift": "x"}}, "shift and cap must be numbers"),
        ({"position": [1]}, "position must be a number or text"),
        ({"contexts": {"numeric": "age"}}, "list of distinct texts"),
        ({"contexts": {"categorical": ["x"]}}, "categorical must be a table"),
        ({"other_rewards": {"x": "y"}}, "r_max must be declared"),
        ({"propensities": {"estimated": 1}}, "true or false"),
        ({"propensities": {"estimated": True, "smoothing": 0}}, "smoothing must be"),
        ({"propensities": {"kept": 0}}, r"kept must lie in \(0, 1\]"),
        ({"propensities": {"kept": "most"}}, r"kept must lie in \(0, 1\]"),
        ({"propensities": {"estimated": True, "kept": 0.5}}, "goes with propensities that were"),
        ({"propensities": {"kept": 0.5}}, "goes with propensities that were logged"),
        ({"prices": {}}, "the mapping may hold"),
    ],
)
def test_what_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DepsueError, match=words):
        mapping_of(BASE | change)


def test_propensities_are_logged_or_estimated() -> None:
    with pytest.raises(ConfigError, match="a column or estimated, not both"):
        LogMapping("a", "r", "p", estimated=EstimatedPropensities())


def test_the_reward_window_is_declared_and_its_end_is_recorded() -> None:
    mapping = mapping_of(BASE | {"window": "36h", "columns": {**BASE["columns"], "time": "t"}})
    assert mapping.window == 36 * 3600 and mapping.until is None
    assert "a reward is complete 36 h after its decision" in mapping.assumptions[-1]
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    taken = mapping.taken_in(now)
    assert taken.until == now - timedelta(hours=36)
    assert mapping_of(tomllib.loads(to_toml(taken))) == taken
    assert taken.taken_in(now + timedelta(hours=1)).until == now - timedelta(hours=35)
    assert replace(taken, window=None).taken_in(now).until is None


@pytest.mark.parametrize(
    ("window", "seconds"), [("90s", 90), ("30m", 1800), ("7d", 604800), (5, 5), ("2.5", 2.5)]
)
def test_lengths_of_time(window: object, seconds: float) -> None:
    assert seconds_of(window) == seconds


@pytest.mark.parametrize("window", ["week", "", None, "7w", True])
def test_what_is_no_length_of_time(window: object) -> None:
    with pytest.raises(ConfigError, match="number of seconds, or a number with s, m, h or d"):
        seconds_of(window)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("a = [")
    for name in ("m.toml", "none.toml"):
        with pytest.raises(FileError, match="must be a TOML file"):
            read_mapping(tmp_path / name)


class Compared(str):
    """Text that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_many_columns_are_checked_in_linear_time() -> None:
    names = tuple(Compared(f"x{k}") for k in range(2000))
    LogMapping("action", "reward", "propensity", numeric=names, segments=names[:1000])
    assert Compared.times < 20 * len(names)


def test_absurdly_many_columns_are_refused(tmp_path: Path) -> None:
    names = [f"x{k}" for k in range(300_000)]
    with pytest.raises(ConfigError, match=r"10,000 columns at most.*300,003"):
        LogMapping("action", "reward", "propensity", numeric=tuple(names))
    (tmp_path / "m.toml").write_bytes(b"#" * (1 << 24) + b"#\n")
    with pytest.raises(FileError, match=r"16,777,216 bytes at most"):
        read_mapping(tmp_path / "m.toml")
