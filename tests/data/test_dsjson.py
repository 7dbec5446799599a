"""VW's dsjson: what a line becomes, and which lines are named as unreadable."""

import json
from pathlib import Path
from typing import Any

import pytest

from depsue.data.dsjson import read_dsjson
from depsue.errors import DataError, FileError

EVENT: dict[str, Any] = {
    "_label_cost": -1.5,
    "_label_probability": 0.75,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2026-02-01T10:00:00.5Z",
    "EventId": "e1",
    "a": [2, 1],
    "p": [0.75, 0.25],
    "c": {
        "User": {"age": 30, "city": "Umeå", "vip": True, "_skip": 1},
        "_multi": [{"_tag": "one", "f": {"x": 1}}, {"_tag": "two", "f": {"x": 2}}],
    },
}


def write(folder: Path, *events: Any) -> Path:
    path = folder / "logs.dsjson"
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in EVENT.items() if name not in names}


def test_a_line_becomes_a_row(tmp_path: Path) -> None:
    table, bad = read_dsjson([write(tmp_path, EVENT)])
    assert bad == ()
    assert table.row(0, named=True) == {
        "action": "two",
        "reward": 1.5,
        "propensity": 0.75,
        "timestamp": "2026-02-01T10:00:00.5Z",
        "event_id": "e1",
        "c.User.age": 30.0,
        "c.User.city": "Umeå",
        "c.User.vip": 1.0,
    }


@pytest.mark.parametrize(
    ("event", "action"),
    [
        (EVENT | {"_labelIndex": 0}, "one"),
        (without("_labelIndex") | {"_label_Action": 1}, "one"),
        (without("_labelIndex", "_label_Action"), "two"),
        (EVENT | {"c": {"_multi": [{}, {"id": 77}]}}, "77"),
        (EVENT | {"c": {"_multi": [{}, {}]}}, "2"),
        (without("c"), "2"),
    ],
)
def test_how_the_action_is_named(tmp_path: Path, event: Any, action: str) -> None:
    assert read_dsjson([write(tmp_path, event)])[0]["action"].to_list() == [action]


def test_features_that_a_line_leaves_out(tmp_path: Path) -> None:
    other = EVENT | {"c": {"User": {"age": 5}, "_multi": [{}, {}]}}
    table, _ = read_dsjson([write(tmp_path, EVENT, other)])
    assert table["c.User.city"].to_list() == ["Umeå", ""]
    assert table["c.User.vip"].to_list() == [1.0, 0.0]


def test_bad_lines_are_named_by_number(tmp_path: Path) -> None:
    broken = [
        "{",
        "[1]",
        without("_label_cost"),
        EVENT | {"_label_probability": "x"},
        EVENT | {"_labelIndex": 2},
        without("_labelIndex", "_label_Action", "a"),
        EVENT | {"c": {"_slots": []}},
        "[" * 100_000,
    ]
    table, bad = read_dsjson([write(tmp_path, EVENT, "", *broken, EVENT)])
    assert len(table) == 2
    assert [line.line for line in bad] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert str(bad[0]).startswith("logs.dsjson, line 3: not JSON")
    assert "_label_cost must be a number" in bad[2].why
    assert "action 3 is not among the 2" in bad[4].why
    assert "not supported yet" in bad[6].why


def test_dropped_lines_and_empty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pdrop.*1 of 2 lines"):
        read_dsjson([write(tmp_path, EVENT, EVENT | {"pdrop": 0.5})])
    with pytest.raises(FileError, match="lines that can be read.*1 lines; the first is"):
        read_dsjson([write(tmp_path, "nothing")])
