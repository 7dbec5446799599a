"""The one codec: dataclasses come back to the bit, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from depsue import codec
from depsue.errors import ConfigError, FileError, require


@dataclass(frozen=True)
class Point:
    x: float
    name: str = "here"

    def __post_init__(self) -> None:
        require(self.x >= 0, "x must be >= 0", found=str(self.x))


@dataclass(frozen=True)
class Path:
    points: tuple[Point, ...]
    colour: Literal["red", "blue"] = "red"
    weights: dict[str, float] = field(default_factory=dict)
    ends: tuple[str, Any] | None = None


PATH = Path((Point(0.1), Point(2.0, "there")), "blue", {"a": 1 / 3}, ("first", 3))


def test_nested_values_come_back_equal() -> None:
    assert codec.decode(codec.encode(PATH, indent=1), Path, what="a path") == PATH
    assert codec.typed(codec.plain(PATH), Path, what="a path") == PATH


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_numbers_come_back_to_the_bit(x: float) -> None:
    assert codec.decode(codec.encode(Point(x)), Point, what="a point").x.hex() == x.hex()


def test_numbers_of_numpy_are_numbers() -> None:
    point = Point(np.float64(0.1))
    assert codec.plain(point) == {"x": 0.1, "name": "here"}
    assert codec.plain(Path((), ends=("a", np.arange(2))))["ends"] == ("a", [0, 1])


def test_sorted_keys_make_one_text_of_one_value() -> None:
    one, other = (
        Path((), weights=dict(pairs)) for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    )
    assert codec.encode(one) != codec.encode(other)
    assert codec.encode(one, sort_keys=True) == codec.encode(other, sort_keys=True)


@pytest.mark.parametrize("x", [float("nan"), float("inf")])
def test_nan_and_infinity_are_not_written(x: float) -> None:
    with pytest.raises(ConfigError, match=r"must hold finite numbers.*leave the value out"):
        codec.encode(Path((), weights={"a": x}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "JSONDecodeError"),
        ("[" * 100_000, "RecursionError"),
        ('{"x": NaN}', "NaN is no JSON number"),
        ('{"x": Infinity}', "Infinity is no JSON number"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `x`"),
        ('{"x": "1"}', "Expected `float`, got `str` - at `\\$.x`"),
        ('{"x": true}', "Expected `float`, got `bool`"),
        ('{"x": 1, "y": 2}', "unknown key y"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, words: str) -> None:
    with pytest.raises(FileError, match=f"must be a point as depsue writes it.*{words}.*Cure"):
        codec.decode(text, Point, what="a point")


def test_an_unknown_key_is_named_by_its_place() -> None:
    values = {"points": [{"x": 1.0}, {"x": 1.0, "nmae": "there"}]}
    with pytest.raises(FileError, match=r"unknown key points\.nmae"):
        codec.typed(values, Path, what="a path")


def test_the_rules_of_a_class_speak_for_themselves() -> None:
    with pytest.raises(ConfigError, match="x must be >= 0"):
        codec.decode('{"x": -1}', Point, what="a point")


def test_an_older_layout_is_upgraded_first() -> None:
    def upgrade(values: Any) -> Any:
        return values if "x" in values else {"x": values["position"]}

    for text in ('{"position": 1.5}', '{"x": 1.5}'):
        assert codec.decode(text, Point, what="a point", upgrade=upgrade) == Point(1.5)
    with pytest.raises(FileError, match="position"):
        codec.decode("{}", Point, what="a point", upgrade=upgrade)
