"""Floors and promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from depsue import codec
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError, DataError
from depsue.promises import Floor, Promise, checked_promises


def logs() -> LoggedData:
    return LoggedData.from_arrays(
        contexts=np.arange(4.0).reshape(4, 1),
        actions=[0, 1, 0, 1],
        rewards=[0.0, 1.0, 1.0, 0.0],
        propensities=[0.5] * 4,
        catalogue=Catalogue.of(range(3), novel=[2]),
        r_max=1.0,
        columns={"minutes": [3.0, 8.0, 0.0, 1.0], "country": ["SE", "NO", "SE", "NO"]},
    )


def test_a_floor_is_a_share_or_a_number() -> None:
    assert Floor().of(0.4) == pytest.approx(0.38)
    assert Floor(ratio=None, absolute=0.2).of(0.4) == 0.2
    assert str(Floor(0.9)) == "0.9 of pi0's value" and str(Floor(None, 0.2)) == "0.2"


def test_a_promise_picks_its_rows_and_its_reward() -> None:
    rows, mask = Promise().rows(logs())
    assert rows.reward.tolist() == [0.0, 1.0, 1.0, 0.0] and mask.all()
    rows, mask = Promise(reward="minutes", r_max=10.0, segment=("country", "NO")).rows(logs())
    assert rows.reward.tolist() == [8.0, 1.0] and rows.r_max == 10.0
    assert mask.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    "promise",
    [
        Promise(),
        Promise(Floor(None, 0.3), "minutes", "minutes", 10.0, ("country", "SE")),
        Promise(segment=("cohort", np.int64(3))),
        Promise(segment=("new", True)),
    ],
)
def test_a_promise_survives_json(promise: Promise) -> None:
    assert codec.decode(codec.encode(promise), Promise, what="a promise") == promise


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Floor(0.95, 0.2), r"either a ratio or an absolute.*0.95, absolute 0.2.*Floor\("),
    (lambda: Floor(None), r"either a ratio or an absolute.*None"),
    (lambda: Floor(95), r"at most 2.*95.*not a percentage"),
    (lambda: Floor(-1), r"a floor must be a positive number.*-1.*95%"),
    (lambda: Floor(float("nan")), r"a floor must be a positive number.*nan"),
    (lambda: Promise(reward="minutes"), r"declares its largest value.*'minutes'.*r_max="),
    (lambda: Promise(r_max=2.0), r"declares its largest value.*None, r_max 2.0"),
    (lambda: Promise(segment=("a",)), r"a column and a value.*\('a',\).*SE"),  # type: ignore[arg-type]
    (lambda: Promise(segment=("a", [1])), r"a string or a number.*\[1\].*SE"),
    (lambda: checked_promises([]), r"at least one promise.*\[\].*promises="),
    (lambda: checked_promises([Promise(), Promise()]), r"names of their own.*name="),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_breaks_a_rule_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        call()


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (Promise(segment=("country", "DK")), r"needs rows.*'country'.*'DK'.*more data"),
        (Promise(segment=("city", "Umea")), r"further columns.*'city'.*country.*columns="),
        (Promise(reward="minutes", r_max=5.0), r"'minutes', row 1: 8.0"),
        (Promise(reward="country", r_max=5.0), r"must hold numbers.*'country'"),
    ],
)
def test_logs_that_cannot_carry_a_promise_are_refused(promise: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        promise.rows(logs())
