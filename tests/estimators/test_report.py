from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import Terms
from depsue.errors import NovelMassWarning
from depsue.estimators import IPS
from depsue.estimators.weights import Unseen, mean_estimate, standard_error


@pytest.mark.parametrize(("mass", "warned"), [(1e-13, False), (1e-11, True)])
def test_mass_that_is_only_rounding_is_not_warned_of(
    by_hand: Any, mass: float, warned: bool
) -> None:
    policy = by_hand.policy([[0.5 - mass, 0.5, mass], [0.5 - mass, 0.5, mass]])
    if warned:
        with pytest.warns(NovelMassWarning):
            estimate = IPS().estimate(policy, by_hand.logs)
    else:
        estimate = IPS().estimate(policy, by_hand.logs)
    assert estimate.unseen_mass == pytest.approx(mass)
    assert len(estimate.notes) == int(warned)


def test_the_note_counts_the_actions() -> None:
    terms = Terms(np.array([0.0, 1.0]), 0.0)
    with pytest.warns(NovelMassWarning) as caught:
        estimate = mean_estimate("X", terms, Unseen(np.arange(1200), 0.25), "so be it")
    assert estimate.notes == (
        "X: the policy makes 0.25 of its choices among 1,200 novel actions that the logs never "
        "show; so be it",
    )
    assert [str(warning.message) for warning in caught] == list(estimate.notes)
    assert estimate.value == 0.5 and estimate.standard_error == pytest.approx(0.5)


def test_units_are_what_the_standard_error_counts() -> None:
    one = Terms(np.array([0.0, 1.0]), 0.0)
    again = Terms(np.repeat([0.0, 1.0], 50), 0.0, unit=np.repeat([0, 1], 50))
    assert standard_error(again) == standard_error(one)
