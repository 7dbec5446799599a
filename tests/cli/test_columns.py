"""Which column is what for a plan: by a mapping, by options, by a guess; and what is refused."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from depsue.cli.columns import ColumnOptions, Mapped, mapped_by, require_first_round
from depsue.data import Catalogue, LoggedData
from depsue.data.mapping import LogMapping, write_mapping
from depsue.data.reading import Source, open_source, read_mapped
from depsue.data.tables import MOST_FEATURES, MOST_VALUES
from depsue.errors import ConfigError, DataError, DepsueError
from depsue.promises import Floor, Promise

LOGS: dict[str, Any] = {
    "action": [1, 2, 1, 3],
    "reward": [0, 1, 0, 1],
    "propensity": [0.5, 0.25, 0.5, 0.25],
    "age": [30.0, 40.0, 30.0, 50.0],
    "country": ["se", "jp", None, "fr"],
}
OTHER: dict[str, Any] = {
    "item_id": [1, 2, 1, 3],
    "click": [0, 1, 0, 1],
    "pscore": [0.5, 0.25, 0.5, 0.25],
    "user_id": ["u", "v", "u", "w"],
    "age": [30.0, 40.0, 30.0, 50.0],
    "margin": [0.0, 2.0, 0.0, 3.0],
}
CATALOGUE = Catalogue.of([1, 2, 3, 9], novel=[9])
MONEY = Promise(Floor(0.9), "money", "margin", 3.0)


def found(columns: dict[str, Any], *promises: Promise, **options: Any) -> Mapped:
    return mapped_by(Source.of(columns), ColumnOptions(**options), promises)


def rows_of(columns: dict[str, Any], *promises: Promise, **options: Any) -> LoggedData:
    source, mapping, _ = found(columns, *promises, **options)
    return read_mapped(source, mapping, CATALOGUE)


def contexts(logs: LoggedData) -> list[list[float]]:
    values: list[list[float]] = logs.contexts[logs.context].tolist()
    return values


def without(columns: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if name not in names}


@pytest.mark.parametrize("kind", [".parquet", ".csv", ".tsv", ".arrow"])
def test_every_kind_of_file_gives_the_same_logs(tmp_path: Path, kind: str) -> None:
    frame, path = pl.DataFrame(LOGS), tmp_path / f"logs{kind}"
    if kind == ".parquet":
        frame.write_parquet(path)
    elif kind == ".arrow":
        frame.write_ipc(path)
    else:
        frame.write_csv(path, separator="\t" if kind == ".tsv" else ",")
    source, mapping, notes = mapped_by(open_source(path), ColumnOptions())
    logs = read_mapped(source, mapping, CATALOGUE)
    assert contexts(logs) == [[30], [40], [30], [50]]
    assert logs.reward.tolist() == [0, 1, 0, 1]
    assert notes == ("log columns that are not read: 'country' (--context can name them)",)
    assert logs.hash == rows_of(LOGS).hash


def test_named_text_columns_become_one_column_per_value() -> None:
    logs = rows_of(LOGS, context=("age", "cou*"))
    assert contexts(logs) == [[30, 0, 0, 1], [40, 0, 1, 0], [30, 0, 0, 0], [50, 1, 0, 0]]
    _, mapping, notes = found(LOGS, context=("cou*", "age"))
    assert mapping.categorical == {"country": ("fr", "jp", "se")}
    assert "contexts are numbers, then text: 'age', 'country'" in notes


def test_lists_of_numbers_become_one_column_each() -> None:
    lists = LOGS | {"vector": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]}
    assert contexts(rows_of(lists))[1] == [40, 3, 4]
    fixed = pl.DataFrame(lists).with_columns(pl.col("vector").cast(pl.Array(pl.Float64, 2)))
    source, mapping, _ = mapped_by(Source.of(fixed), ColumnOptions(context=("vector",)))
    assert contexts(read_mapped(source, mapping, CATALOGUE))[3] == [7, 8]
    for bad in ([[1.0, 2.0], [3.0], [5.0, 6.0], [7.0, 8.0]], [[0.0] * (MOST_FEATURES + 1)] * 4):
        with pytest.raises(DataError, match="must have one length.*'vector'"):
            found(LOGS | {"vector": bad})
    with pytest.raises(DataError, match=r"missing.*vector\[0\]"):
        rows_of(LOGS | {"vector": [[1.0], [2.0], None, [3.0]]})


def test_units_other_names_and_no_context() -> None:
    given = {"item": [1, 2], "hit": [0.0, 3.0], "chance": [0.5, 0.5], "who": ["u", "v"]}
    names = {"action": "item", "reward": "hit", "propensity": "chance", "unit": "who"}
    logs = rows_of(given, **names, r_max=5.0)
    assert logs.units is not None and logs.units.tolist() == ["u", "v"]
    assert logs.r_max == 5.0 and len(logs.contexts) == 1
    assert "no context columns: all decisions count as alike" in found(given, **names).notes


def test_a_column_with_a_role_is_no_context() -> None:
    _, mapping, notes = found(LOGS, context=("*",))
    assert mapping.numeric == ("age",) and notes == ()
    _, mapping, notes = found(LOGS, context=("reward", "age"))
    assert mapping.numeric == ("age",)
    assert notes == ("not among the contexts, as they have another role: 'reward'",)


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
def test_bad_values_are_named(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(DataError, match=rule) as caught:
        rows_of(LOGS | change)
    assert caught.value.column == next(iter(change))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reward": "click"}, r"'click'.*frame has 'action'.*--reward"),
        ({"action": "item"}, r"'item'.*--action"),
        ({"propensity": "p"}, r"'p'.*--propensity"),
        ({"context": ("zip*",)}, r"'zip\*'.*--context"),
        ({"unit": "who"}, r"'who'.*--unit"),
        ({"unit": "action"}, "a column has one role"),
    ],
)
def test_wrong_names_name_the_option(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DepsueError, match=words):
        found(LOGS, **options)


def test_a_name_that_is_given_leaves_nothing_to_guess() -> None:
    with pytest.raises(DataError, match=r"'action'.*has 'item_id'.*--action, or in.*--mapping"):
        found(OTHER, reward="click")


def test_features_are_bounded() -> None:
    n = MOST_VALUES + 1
    many: dict[str, Any] = {"action": [1] * n, "reward": [0] * n, "propensity": [0.5] * n}
    many["name"] = [f"n{k}" for k in range(n)]
    with pytest.raises(DataError, match=f"at most {n - 1} values.*'name': {n} distinct"):
        found(many, context=("name",))
    assert found(many).mapping.categorical == {}
    with pytest.raises(ConfigError, match=r"1,000 features at most.*1,002.*--context"):
        found(LOGS | {f"x{k}": [0.0] * 4 for k in range(MOST_FEATURES + 1)})


def test_other_names_are_guessed_and_it_is_said() -> None:
    _, mapping, notes = found(OTHER)
    assert (mapping.action, mapping.reward, mapping.propensity) == ("item_id", "click", "pscore")
    assert mapping.unit == "user_id" and mapping.numeric == ("age", "margin")
    assert "guessed from its name: propensity is the column 'pscore'" in notes
    assert any(note.startswith("r_max = 1 is a guess") for note in notes)
    _, mapping, notes = found(OTHER, r_max=2.0)
    assert mapping.r_max == 2.0 and not any("r_max" in note for note in notes)
    with pytest.raises(ConfigError, match=r"column of the reward must be known.*--mapping"):
        found(without(OTHER, "click"))
    with pytest.raises(ConfigError, match=r"need propensities.*--estimate-propensities"):
        rows_of(without(OTHER, "pscore"))


def test_a_mapping_says_it_all(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    write_mapping(
        LogMapping("item_id", "margin", "pscore", r_max=2.5, cap=2.5, numeric=("age",)), path
    )
    logs = rows_of(OTHER, mapping=path)
    assert logs.reward.tolist() == [0, 2, 0, 2.5] and logs.units is None
    assert found(OTHER, mapping=path, r_max=9.0).mapping.r_max == 9.0
    with pytest.raises(ConfigError, match=r"not from both.*--mapping and --unit, --context"):
        found(OTHER, mapping=path, unit="user_id", context=("age",))


def test_columns_of_promises_are_carried_along(tmp_path: Path) -> None:
    young = Promise(Floor(0.8), "young", segment=("age", 30))
    for options in ({}, {"action": "item_id", "reward": "click", "propensity": "pscore"}):
        _, mapping, notes = found(OTHER, MONEY, young, **options)
        assert mapping.other_rewards == {"margin": 3.0} and mapping.segments == ("age",)
        assert mapping.numeric == ("age",)
        assert not any("'margin'" in note for note in notes)
        logs = rows_of(OTHER, MONEY, young, **options)
        assert logs.columns["margin"].tolist() == OTHER["margin"]
        assert young.rows(logs)[1].tolist() == [True, False, True, False]
    with pytest.raises(DataError, match=r"'fame'.*--promises"):
        found(OTHER, Promise(Floor(0.9), "fame", "fame", 1.0))
    write_mapping(LogMapping("item_id", "click", "pscore", numeric=("margin",)), tmp_path / "m")
    with pytest.raises(ConfigError, match=r"no context.*'margin'.*\[contexts\]"):
        found(OTHER, MONEY, mapping=tmp_path / "m")


def test_a_promise_may_name_the_logs_own_reward() -> None:
    own = Promise(Floor(0.9), "clicks", "click", 1.0)
    assert own.rows(rows_of(OTHER, own))[0].reward.tolist() == OTHER["click"]


def test_rows_of_later_rounds_are_refused() -> None:
    source, mapping, _ = found(OTHER | {"round": [0, 0, 1, 2]})
    with pytest.raises(DataError, match=r"rows of round 0.*'round': rounds up to 2.*--mapping"):
        require_first_round(source, mapping)
    for rounds in ({"round": [0, 0, 0, 0]}, {}):
        source, mapping, _ = found(OTHER | rounds)
        require_first_round(source, mapping)


def test_lines_that_cannot_be_read_are_said_or_refused(tmp_path: Path) -> None:
    line = {"_label_cost": -1, "_label_probability": 0.5, "_labelIndex": 0, "c": {"age": 3}}
    path = tmp_path / "logs.dsjson"
    for good, words in ((200, ""), (20, "at most 1% of the lines")):
        path.write_text("\n".join([json.dumps(line)] * good + ["no JSON"]))
        if words:
            with pytest.raises(ConfigError, match=words):
                mapped_by(open_source(path), ColumnOptions())
        else:
            notes = mapped_by(open_source(path), ColumnOptions()).notes
            assert notes[-1].startswith("1 of 201 lines cannot be read")
