"""Rows that a wished novelty needs, from assumptions alone."""

import numpy as np
import pytest

from depsue.errors import ConfigError
from depsue.exploration import ExploreSettings
from depsue.exploration.headroom import MixtureSums, Requirement, Sums
from depsue.exploration.rows_needed import (
    Assumed,
    boldest,
    novelty_before_logs,
    rows_before_logs,
    rows_for,
)
from depsue.promises import Floor, Promise

NU = np.arange(0.0, 0.5, 0.001)


def floor(floor: Floor) -> ExploreSettings:
    return ExploreSettings(promises=(Promise(floor),))


def test_pi0_goes_to_the_certain_level_and_no_further() -> None:
    of_pi0 = Sums(value=0.1, seen=0.1, observed=0.1, square=0.09, cross=0.09)
    nothing = Sums(0.0, 0.0, 0.0, 0.0, 0.0)
    pi0 = [[MixtureSums(of_pi0, nothing, of_pi0)]]
    asked = [Requirement("reward", 0.0, 0.95, 0.05, 1.0, 0.1, 1.0)]
    assert boldest(pi0, NU, asked, 1e9, 0.05) == pytest.approx(0.05, abs=1e-3)
    assert rows_for(pi0, 0.06, asked, 0.05) is None
    assert rows_for(pi0, 0.05, asked, 0.05) == 0


def test_the_unit_of_rewards_does_not_matter() -> None:
    rows = [
        rows_before_logs(0.08, Assumed(0.05), floor(Floor(None, 4.5)), 100.0),
        rows_before_logs(0.08, Assumed(0.05), floor(Floor(None, 0.045))),
    ]
    assert rows[0] == pytest.approx(rows[1]) and rows[0] is not None and rows[0] > 0


def test_rarer_rewards_and_bolder_wishes_need_more() -> None:
    usual = ExploreSettings()
    need = {
        (rate, wish): rows_before_logs(wish, Assumed(rate), usual)
        for rate in (0.2, 0.02)
        for wish in (0.05, 0.08, 0.12)
    }
    assert need[0.2, 0.05] == 0
    a, b, c = need[0.2, 0.08], need[0.2, 0.12], need[0.02, 0.08]
    assert a is not None and b is not None and c is not None
    assert a < b and 5 * a < c < 20 * a
    assert novelty_before_logs(b, Assumed(0.2), usual) == pytest.approx(0.12, abs=0.005)
    assert rows_before_logs(0.5, Assumed(0.2, 0.05), usual) is None


def test_two_promises_need_more_rows_than_one() -> None:
    both = ExploreSettings(promises=(Promise(name="a"), Promise(name="b")))
    alone, together = (rows_before_logs(0.08, Assumed(0.2), x) for x in (ExploreSettings(), both))
    assert alone is not None and together is not None and together > alone


def test_assumptions_out_of_range() -> None:
    for call in (
        lambda: Assumed(0.0),
        lambda: Assumed(0.1, 3.0),
        lambda: rows_before_logs(0.0, Assumed(0.1), ExploreSettings()),
        lambda: rows_before_logs(0.9, Assumed(0.1), ExploreSettings()),
    ):
        with pytest.raises(ConfigError, match="must"):
            call()
