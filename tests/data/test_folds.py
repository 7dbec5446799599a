from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from depsue.data import Catalogue, LoggedData
from depsue.data.folds import fold_of
from depsue.errors import ConfigError, DataError


def logs_of(n: int, units: Any = None) -> LoggedData:
    return LoggedData.from_arrays(
        contexts=np.zeros((n, 1)),
        actions=np.zeros(n, dtype=int),
        rewards=np.arange(n) / n,
        propensities=np.ones(n),
        catalogue=Catalogue.of([0]),
        r_max=1.0,
        units=units,
    )


def folds_by_unit(units: Any, salt: str, fractions: Any = (0.4, 0.1, 0.5)) -> dict[Any, int]:
    """The fold of each unit, checked to be one fold."""
    which = fold_of(logs_of(len(units), units), fractions, salt=salt).tolist()
    folds: dict[Any, int] = {}
    for unit, fold in zip(units, which, strict=True):
        assert folds.setdefault(unit, fold) == fold
    return folds


@pytest.mark.parametrize("text", [False, True])
def test_a_unit_is_never_split_and_other_rows_do_not_move_it(text: bool) -> None:
    units: Any = np.random.default_rng(0).integers(0, 80, 400)
    units = [f"user-{unit}" for unit in units] if text else units.tolist()
    first = folds_by_unit(units[:200], "campaign 1")
    many = folds_by_unit(
        units[::-1] + ["new", "er"] if text else [9999, *units[::-1]], "campaign 1"
    )
    assert first.items() <= many.items()


def test_units_of_one_fold_stay_together_in_split() -> None:
    units = np.random.default_rng(1).integers(0, 60, 300)
    parts = logs_of(300, units).split([0.5, 0.5], salt="s")
    first, second = (set(part.units.tolist()) for part in parts if part.units is not None)
    assert not first & second and first | second == set(units.tolist())


def test_rows_without_units_fall_by_their_position() -> None:
    short, long = (fold_of(logs_of(n), [0.3, 0.7], salt="s") for n in (500, 900))
    np.testing.assert_array_equal(short, long[:500])


def test_the_folds_are_pinned() -> None:
    # a certificate names its salt: later versions must cut the same folds
    by_position = fold_of(logs_of(16), [0.5, 0.5], salt="pinned")
    by_number = fold_of(logs_of(16, np.arange(16)), [0.5, 0.5], salt="pinned")
    by_name = fold_of(logs_of(16, [f"u{k}" for k in range(16)]), [0.5, 0.5], salt="pinned")
    assert "".join(map(str, by_position)) == "1000011010101001"
    assert "".join(map(str, by_number)) == "1000011010101001"
    assert "".join(map(str, by_name)) == "0110110010101010"


@pytest.mark.parametrize("kind", ["rows", "numbers", "strings"])
@pytest.mark.parametrize("salt", ["a", "b", "campaign 7"])
def test_folds_have_the_sizes_asked_for(kind: str, salt: str) -> None:
    n, fractions = 4000, [0.4, 0.1, 0.5]
    units: Any = {"rows": None, "numbers": np.arange(n) * 7, "strings": [f"u{k}" for k in range(n)]}
    sizes = np.bincount(fold_of(logs_of(n, units[kind]), fractions, salt=salt))
    for size, fraction in zip(sizes, fractions, strict=True):
        assert stats.binomtest(int(size), n, fraction).pvalue > 1e-4


def test_different_salts_are_independent() -> None:
    logs = logs_of(4000)
    tables = []
    for first, second in (("a", "b"), ("a", "a "), ("campaign 1", "campaign 2")):
        x, y = (fold_of(logs, [0.5, 0.5], salt=salt) for salt in (first, second))
        tables.append(np.histogram2d(x, y, bins=2)[0])
    for table in tables:
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_nested_folds_need_another_salt() -> None:
    units = np.arange(2000)
    half, _ = logs_of(2000, units).split([0.5, 0.5], salt="outer")
    inner = fold_of(half, [0.5, 0.5], salt="inner")
    assert stats.binomtest(int(inner.sum()), len(half), 0.5).pvalue > 1e-3
    with pytest.raises(DataError, match="fold 1 of 2 is empty"):
        half.split([0.5, 0.5], salt="outer")


def test_more_folds_than_a_byte_can_number() -> None:
    which = fold_of(logs_of(20_000), [1 / 200] * 200, salt="s")
    assert set(which.tolist()) == set(range(200))


@pytest.mark.parametrize(
    "fractions",
    [
        [1.0],
        [],
        [0.5, 0.6],
        [0.5, 0.4],
        [1.5, -0.5],
        [1.0, 0.0],
        [float("nan"), 0.5],
        0.5,
        "ab",
        None,
        [[0.5, 0.5]],
        ["a", "b"],
    ],
)
def test_bad_fractions(fractions: Any) -> None:
    with pytest.raises(ConfigError, match="positive numbers that sum to 1") as caught:
        logs_of(10).split(fractions, salt="s")
    assert caught.value.found == repr(fractions) and caught.value.cure


@pytest.mark.parametrize("salt", [1, None, b"s"])
def test_a_salt_is_a_string(salt: Any) -> None:
    with pytest.raises(ConfigError, match="salt must be a string"):
        logs_of(10).split([0.5, 0.5], salt=salt)


@pytest.mark.parametrize(("units", "kind"), [(None, "1 rows"), ([5], "1 units")])
def test_an_empty_fold_is_an_error(units: Any, kind: str) -> None:
    with pytest.raises(DataError, match=f"of 2 is empty with {kind}"):
        logs_of(1, units).split([0.5, 0.5], salt="s")
