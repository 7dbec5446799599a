"""VW's dsjson: what a line becomes, and which lines are named as unreadable."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.check import check_logs, guess_mapping
from depsue.data import Catalogue
from depsue.data.dsjson import read_dsjson
from depsue.data.reading import open_source, read_mapped
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
    lines = read_dsjson([write(tmp_path, EVENT)])
    assert lines.bad == () and lines.notes == ()
    assert lines.items.to_dict(as_series=False) == {"id": ["two", "one"], "f.x": [2.0, 1.0]}
    assert lines.table.row(0, named=True) == {
        "action": "two",
        "reward": 1.5,
        "propensity": 0.75,
        "timestamp": "2026-02-01T10:00:00.5Z",
        "event_id": "e1",
        "c.User.age": 30.0,
        "c.User.city": "Umeå",
        "c.User.vip": 1.0,
        "candidates": ["two", "one"],
        "probabilities": [0.75, 0.25],
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
    assert read_dsjson([write(tmp_path, event)]).table["action"].to_list() == [action]


def test_features_that_a_line_leaves_out(tmp_path: Path) -> None:
    other = EVENT | {"c": {"User": {"age": 5}, "_multi": [{}, {}]}}
    table = read_dsjson([write(tmp_path, EVENT, other)]).table
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
    lines = read_dsjson([write(tmp_path, EVENT, "", *broken, EVENT)])
    bad = lines.bad
    assert len(lines.table) == 2
    assert [line.line for line in bad] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert str(bad[0]).startswith("logs.dsjson, line 3: not JSON")
    assert "_label_cost must be a number" in bad[2].why
    assert "action 3 is not among the 2" in bad[4].why
    assert "drawn as a whole, which is not supported" in bad[6].why


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="lines that can be read.*1 lines; the first is"):
        read_dsjson([write(tmp_path, "nothing")])


TWICE = EVENT | {
    "_label_probability": 0.5,
    "_label_Action": 1,
    "_labelIndex": 0,
    "a": [1, 2, 3],
    "p": [0.5, 0.3, 0.2],
    "c": {"_multi": [{"_tag": "one"}, {"i": {"constant": 1, "id": "two"}}, {"_tag": "one"}]},
    "VWState": {"m": "model/7"},
}


def test_an_item_that_is_there_twice_is_one_candidate(tmp_path: Path) -> None:
    row = read_dsjson([write(tmp_path, TWICE)]).table.row(0, named=True)
    assert row["candidates"] == ["one", "two"]
    assert row["probabilities"] == pytest.approx([0.7, 0.3])
    assert row["propensity"] == pytest.approx(0.7)
    assert row["pi0_version"] == "model/7"


def test_candidates_without_probabilities_or_without_any(tmp_path: Path) -> None:
    bare = {name: value for name, value in EVENT.items() if name != "p"}
    lines = read_dsjson([write(tmp_path, EVENT, bare)])
    assert "probabilities" not in lines.table.columns
    assert lines.notes == ("1 line without p: probabilities are not read",)
    none = without("a", "c", "p")
    lines = read_dsjson([write(tmp_path, EVENT, none)])
    assert "candidates" not in lines.table.columns and "every item counts" in lines.notes[0]
    assert read_dsjson([write(tmp_path, none)]).notes == ()
    alone = read_dsjson([write(tmp_path, without("a", "p"))]).table
    assert alone["candidates"].to_list() == [["one", "two"]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"a": [2, 3]}, "a names an action that is not among the 2"),
        ({"a": "2"}, "a must be a list of numbers"),
        ({"a": [2, 0]}, "not among the 2"),
        ({"p": [1.0]}, "p must have a probability for each"),
        ({"p": [1.0, None]}, "p must hold numbers"),
        ({"a": [1], "p": [1.0]}, "the action 'two' is not among those of a"),
        ({"pdrop": 1}, r"pdrop must lie in [0, 1), found 1"),
        ({"pdrop": "x"}, "pdrop must be a number"),
    ],
)
def test_broken_candidates_are_named(tmp_path: Path, change: Any, why: str) -> None:
    lines = read_dsjson([write(tmp_path, EVENT, EVENT | change)])
    assert len(lines.table) == 1 and why in lines.bad[0].why


def test_features_in_lists_are_those_of_their_namespace(tmp_path: Path) -> None:
    given = {"FromUrl": [{"time": "noon", "n": 1}, {"name": "Cathy"}], "v": [0.5, 2]}
    listed = {"_tag": "x", "i": {"constant": 1, "id": "x"}, "j": [{"kind": "hot"}, {"e": [1, 2]}]}
    event = EVENT | {"c": given | {"_multi": [{"_tag": "y"}, listed]}}
    lines = read_dsjson([write(tmp_path, event)])
    row = lines.table.row(0, named=True)
    assert {name: row[name] for name in row if name.startswith("c.")} == {
        "c.FromUrl.time": "noon",
        "c.FromUrl.n": 1.0,
        "c.FromUrl.name": "Cathy",
        "c.v[0]": 0.5,
        "c.v[1]": 2.0,
    }
    assert lines.items.row(0, named=True) == {
        **{"id": "x", "i.constant": 1.0, "j.kind": "hot", "j.e[0]": 1.0, "j.e[1]": 2.0}
    }


def dropped(kept_with: float, kept_without: float, rows: int = 4000) -> list[dict[str, Any]]:
    """Lines that were dropped by whether they have a reward; 1 in 4 had one before."""
    draw = np.random.default_rng(0)
    events = []
    for number in range(rows):
        reward = draw.random() < 0.25
        kept = kept_with if reward else kept_without
        if draw.random() < kept:
            change = {"_label_cost": -float(reward), "EventId": f"e{number}"}
            change |= {"pdrop": 1 - kept} if kept < 1 else {}
            events.append(EVENT | change)
    return events


@pytest.mark.parametrize(("kept_with", "kept_without"), [(1.0, 0.5), (0.25, 0.75), (0.5, 0.5)])
def test_lines_dropped_by_their_reward_are_made_even(
    tmp_path: Path, kept_with: float, kept_without: float
) -> None:
    events = dropped(kept_with, kept_without)
    lines = read_dsjson([write(tmp_path, *events)])
    share = float((lines.table["reward"] > 0).mean())  # type: ignore[arg-type]
    assert share == pytest.approx(0.25, abs=0.03)
    assert "pdrop is" in lines.notes[0]
    again = read_dsjson([write(tmp_path, *events[::-1])])
    assert set(again.table["event_id"]) == set(lines.table["event_id"])


def test_lines_dropped_in_no_known_way_are_refused(tmp_path: Path) -> None:
    events = [EVENT | {"pdrop": share, "EventId": f"e{share}"} for share in (0.1, 0.5)]
    with pytest.raises(DataError, match=r"from 0.1 to 0.5 on lines with a reward"):
        read_dsjson([write(tmp_path, *events)])
    zero = [event | {"_label_cost": 0} for event in events]
    with pytest.raises(DataError, match="on lines without a reward"):
        read_dsjson([write(tmp_path, EVENT, *zero)])


def test_lines_of_which_nothing_was_shown_are_left_out(tmp_path: Path) -> None:
    lines = read_dsjson([write(tmp_path, EVENT, EVENT | {"_skipLearn": True})])
    assert len(lines.table) == 1 and lines.bad == () and "1 line left out" in lines.notes[0]


def test_a_decision_service_log_is_read_as_logs(tmp_path: Path) -> None:
    draw, events = np.random.default_rng(1), []
    tags = ["Latte", "Mocha", "Tea"]
    for number in range(300):
        best = int(draw.integers(3))
        order = [best, *(k for k in range(3) if k != best)]
        shown = order[int(draw.choice(3, p=[0.8, 0.1, 0.1]))]
        event = {
            "_label_cost": -float(draw.random() < 0.3),
            "_label_probability": 0.8 if shown == best else 0.1,
            "_label_Action": shown + 1,
            "_labelIndex": shown,
            "Timestamp": f"2021-02-04T16:{number // 60:02}:{number % 60:02}.2460000Z",
            "Version": "1",
            "EventId": f"{number:032x}",
            "a": [shown + 1, *(k + 1 for k in order if k != shown)],
            "c": {
                "FromUrl": [{"weather": ["Sunny", "Rainy"][number % 2]}],
                "_multi": [{"_tag": t, "i": {"id": t}, "j": [{"hot": t != "Tea"}]} for t in tags],
            },
            "p": [0.8 if k == best else 0.1 for k in [shown, *(k for k in order if k != shown)]],
            "VWState": {"m": "m1"},
        }
        events.append(event)
    source = open_source(write(tmp_path, *events))
    mapping, _ = guess_mapping(source)
    assert (mapping.candidates, mapping.probabilities) == ("candidates", "probabilities")
    assert (mapping.version, mapping.decision) == ("pi0_version", "event_id")
    assert source.items is not None
    logs = read_mapped(source, mapping, Catalogue.of(source.items["id"].to_list()))
    assert len(logs) == 300 and logs.candidates is not None and logs.candidates.pi0 is not None
    assert check_logs(source).outlook.pi0 == "logged"
