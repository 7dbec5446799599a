from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from depsue.data import keys
from depsue.data.keys import compacted, distinct_ids, distinct_rows, mix64, row_keys


def test_distinct_rows_stay_in_order_of_first_appearance() -> None:
    matrix = np.array([[3, 1], [1, 2], [3, 1], [0, 0], [1, 2]], dtype=np.float32)
    distinct, which = distinct_rows(matrix)
    assert distinct.tolist() == [[3, 1], [1, 2], [0, 0]]
    assert which.tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("bits", [0, 1, 2])
def test_rows_that_share_a_hash_stay_apart(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    matrix = np.random.default_rng(0).integers(0, 3, (50, 2)).astype(np.float32)
    expected, expected_which = distinct_rows(matrix)
    few = np.uint64(2**bits - 1)
    monkeypatch.setattr(keys, "row_keys", lambda rows: row_keys(rows) & few)
    assert len(np.unique(keys.row_keys(matrix))) < len(expected)
    distinct, which = distinct_rows(matrix)
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_array_equal(which, expected_which)


def test_row_keys_differ_in_every_cell_and_order() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(200, 5)).astype(np.float32)
    for place in range(5):
        changed = matrix.copy()
        changed[:, place] = np.nextafter(changed[:, place], np.float32(9))
        assert not (row_keys(changed) == row_keys(matrix)).any()
    assert not (row_keys(matrix[:, ::-1]) == row_keys(matrix)).any()


def test_mix64_is_splitmix64() -> None:
    # the first outputs of splitmix64 from the state 0, as published with its reference code
    states = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(x) for x in mix64(states).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


@given(st.lists(st.integers(0, 9), min_size=1))
def test_compacted_keeps_what_is_used(index: list[int]) -> None:
    renumbered, used = compacted(np.array(index), 10)
    assert used[renumbered].tolist() == index
    assert used.tolist() == list(dict.fromkeys(index))


@given(st.one_of(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.text(max_size=3))))
def test_distinct_ids(ids: list[int] | list[str]) -> None:
    text = all(isinstance(id, str) for id in ids)
    distinct, which = distinct_ids(np.array(ids, dtype=object if text else np.int64))
    assert distinct.tolist() == list(dict.fromkeys(ids))
    assert distinct[which].tolist() == ids
