from __future__ import annotations

import math

import numpy as np
import pytest

from depsue.data import ConservativeTerms
from depsue.errors import ConfigError
from depsue.estimators import UnboundedTerms


def test_any_finite_value_is_allowed_and_nothing_is_promised() -> None:
    terms = UnboundedTerms(np.array([-1e9, 1.0]))
    assert terms.lower == -math.inf
    assert terms.mean() == (1 - 1e9) / 2
    assert not isinstance(terms, ConservativeTerms)


def test_units() -> None:
    terms = UnboundedTerms(np.array([1.0, 3.0, 10.0]), unit=np.array([0, 0, 1]))
    assert terms.mean() == 6


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf], [[1.0]]])
def test_what_is_not_a_column_of_finite_numbers_is_refused(values: list[float]) -> None:
    with pytest.raises(ConfigError, match="terms must be"):
        UnboundedTerms(np.array(values))
