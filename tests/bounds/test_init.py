"""The front door of the bounds."""

from __future__ import annotations

import pytest

import depsue.bounds
from depsue.bounds import Betting, Hcope, Smoothing, bound_named
from depsue.errors import ConfigError


def test_all_is_sorted_and_true() -> None:
    assert depsue.bounds.__all__ == sorted(depsue.bounds.__all__)
    assert all(hasattr(depsue.bounds, name) for name in depsue.bounds.__all__)


def test_bounds_by_name() -> None:
    assert bound_named("hcope") == Hcope()
    assert bound_named("smoothing") == Smoothing()
    assert bound_named("betting") == Betting()


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="one of betting, hcope, smoothing. Found: 'hoeffding'"):
        bound_named("hoeffding")
