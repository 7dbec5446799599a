"""The report: its verdict, its text and its JSON."""

import json
import math

import pytest

from depsue.check import CheckFinding, CheckReport, LogFacts, Outlook
from depsue.check.report import Severity
from depsue.data.mapping import LogMapping

OUTLOOK = Outlook(True, "chosen", "A campaign can be created.")
MAPPING = LogMapping("item", "click", "p", keep_position=1, position="slot")


def report(*severities: Severity, **facts: float) -> CheckReport:
    findings = tuple(
        CheckFinding(f"name-{k}", severity, "a rule", "a value", "a cure")
        for k, severity in enumerate(severities)
    )
    return CheckReport("logs.csv", LogFacts(**facts), findings, ("a note",), MAPPING, OUTLOOK)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ((), "ready"),
        (("warning",), "ready, with warnings"),
        (("warning", "error"), "not usable"),
    ],
)
def test_the_verdict_follows_from_the_findings(
    severities: tuple[Severity, ...], verdict: str
) -> None:
    assert report(*severities).verdict == verdict
    assert report(*severities).usable == (verdict != "not usable")


def test_facts_that_do_not_apply_are_left_out_and_unknown_ones_are_said() -> None:
    assert list(LogFacts().labelled()) == []
    assert list(LogFacts(rows=3).labelled()) == [("rows", 3), ("repeated rows", None)]
    text = str(report(rows=3000, mean_reward=0.12345))
    assert "  rows           3,000" in text
    assert "  mean reward    0.1235" in text
    assert "  repeated rows  not known" in text


def test_text_and_json_say_the_same() -> None:
    broken = report("error", rows=3, mean_reward=math.nan)
    twin = json.loads(json.dumps(broken.as_json()))
    assert twin["facts"] == {"rows": 3, "mean reward": None, "repeated rows": None}
    assert twin["findings"][0] == {
        "name": "name-0",
        "severity": "error",
        "rule": "a rule",
        "value": "a value",
        "cure": "a cure",
    }
    assert twin["assumptions"] == ["only rows with slot = 1 are used"]
    for words in ("logs.csv: not usable", "error (name-0): a rule.", "found: a value", "a note"):
        assert words in str(broken)
