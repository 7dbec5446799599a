"""The hash covers every cell, and nothing of how the rows were stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData

Build = Callable[..., LoggedData]
FEATURES = np.arange(10.0).reshape(5, 2)
OPTIONAL: dict[str, Any] = {"units": [7, 8, 7, 9], "times": [1, 2, 3, 4], "rounds": [0, 0, 1, 1]}


def test_the_hash_is_pinned(build: Build) -> None:
    # a certificate holds this hash: changing what it covers needs a new version of it
    pinned = "1ee1286132c772368f7c921e630541189bd7e07790b4077be8e679ac334e555b"
    assert build(**OPTIONAL).hash == pinned


def test_contexts_may_be_stored_in_any_way(build: Build) -> None:
    expected = build(**OPTIONAL).hash
    distinct = np.array([[9, 9], [2.5, 3], [1.5, 2], [0.5, 1], [0.5, 1]])
    for rows in ([3, 2, 3, 1], [4, 2, 3, 1]):
        assert build(contexts=distinct, context_rows=rows, **OPTIONAL).hash == expected
    narrow = distinct.astype(np.float32)
    assert build(contexts=narrow, context_rows=[3, 2, 3, 1], **OPTIONAL).hash == expected
    assert build(contexts=np.asfortranarray(narrow[[3, 2, 3, 1]]), **OPTIONAL).hash == expected


def test_contexts_and_units_may_be_numbered_in_any_way(build: Build) -> None:
    logs = build(**OPTIONAL)
    assert logs.unit is not None and logs.units is not None
    turned = replace(
        logs,
        contexts=logs.contexts[::-1],
        context=len(logs.contexts) - 1 - logs.context,
        units=logs.units[::-1],
        unit=len(logs.units) - 1 - logs.unit,
    )
    assert turned.context.tolist() != logs.context.tolist()
    assert turned.hash == logs.hash


def test_negative_zeros_are_zeros(build: Build) -> None:
    zero, negative = np.zeros((4, 2)), np.full((4, 2), -0.0)
    assert build(contexts=zero, rewards=[0.0] * 4).hash == (
        build(contexts=negative, rewards=[-0.0] * 4).hash
    )
    actions = Catalogue.of([1, 2], features=zero[:2])
    assert actions.hash == Catalogue.of([1, 2], features=negative[:2]).hash


@pytest.mark.parametrize("row", [0, 3])
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("actions", 40),
        ("rewards", 0.75),
        ("propensities", 0.75),
        ("units", 5),
        ("times", 9),
        ("rounds", 2),
    ],
)
def test_one_cell_changes_the_hash(build: Build, argument: str, value: Any, row: int) -> None:
    given = {
        "actions": [10, 20, 30, 10],
        "rewards": [0.0, 1.0, 0.5, 1.0],
        "propensities": [0.5, 0.25, 1.0, 0.125],
        **OPTIONAL,
    }
    changed = {**given, argument: [value if i == row else v for i, v in enumerate(given[argument])]}
    assert build(**given).hash != build(**changed).hash


@pytest.mark.parametrize("place", [(0, 0), (3, 1)])
def test_one_feature_changes_the_hash(build: Build, place: tuple[int, int]) -> None:
    contexts = np.ones((4, 2))
    changed = contexts.copy()
    changed[place] = np.nextafter(np.float32(1), np.float32(2))
    assert build(contexts=contexts).hash != build(contexts=changed).hash


def test_order_and_number_of_rows_change_the_hash(build: Build) -> None:
    logs = build(**OPTIONAL)
    parts = [[0, 1, 2, 3], [0, 1, 3, 2], [1, 0, 2, 3], [0, 1, 2], [0, 1, 2, 3, 3], [0, 0, 1, 2, 3]]
    assert len({logs.take(rows).hash for rows in parts}) == len(parts)
    assert logs.take([0, 1, 2, 3]).hash == logs.hash


def test_which_columns_there_are_changes_the_hash(build: Build) -> None:
    given: list[dict[str, Any]] = [{}, *({name: OPTIONAL[name]} for name in OPTIONAL), OPTIONAL]
    assert len({build(**columns).hash for columns in given}) == len(given)
    assert build().hash == build(rounds=[0] * 4).hash  # logs without rounds are of round 0
    text = [str(unit) for unit in OPTIONAL["units"]]
    assert build(units=text).hash != build(units=OPTIONAL["units"]).hash
    dates = np.array(OPTIONAL["times"], dtype="M8[us]")
    assert build(times=dates).hash != build(times=OPTIONAL["times"]).hash


def test_the_catalogue_and_r_max_change_the_hash(build: Build) -> None:
    ids = [10, 20, 30, 40, 50]
    catalogues = [
        Catalogue.of(ids, novel=[50], features=FEATURES),
        Catalogue.of(ids, novel=[50]),
        Catalogue.of(ids, novel=[40, 50], features=FEATURES),
        Catalogue.of(ids, features=FEATURES),
        Catalogue.of([10, 20, 30, 40, 51], novel=[51], features=FEATURES),
        Catalogue.of([20, 10, 30, 40, 50], novel=[50], features=FEATURES),
        Catalogue.of([*ids, 60], novel=[50]),
        Catalogue.of(ids, novel=[50], features=FEATURES + 1),
        Catalogue.of(ids, novel=[50], features=FEATURES[:, :1]),
    ]
    assert len({catalogue.hash for catalogue in catalogues}) == len(catalogues)
    assert len({build(catalogue=catalogue).hash for catalogue in catalogues}) == len(catalogues)
    assert build().hash != build(r_max=2.0).hash
    assert build(r_max=1).hash == build(r_max=1.0).hash


def test_neighbouring_strings_do_not_run_together(build: Build) -> None:
    assert Catalogue.of(["ab", "c"]).hash != Catalogue.of(["a", "bc"]).hash
    assert build(units=["ab", "c", "d", "d"]).hash != build(units=["a", "bc", "d", "d"]).hash


def test_odd_strings_have_a_hash(build: Build) -> None:
    odd = ["", " ", "\ud800", "é" * 1000]
    logs = build(units=odd)
    assert logs.units is not None and logs.units.tolist() == odd
    assert len(logs.hash) == 64
