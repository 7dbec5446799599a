from __future__ import annotations

import depsue.estimators


def test_the_front_door_is_sorted_and_true() -> None:
    names = depsue.estimators.__all__
    assert names == sorted(names)
    for name in names:
        assert getattr(depsue.estimators, name).__name__ == name
