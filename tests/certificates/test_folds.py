"""Three folds by a hash of unit, or row, and campaign."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.certificates import FRACTIONS, three_folds
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError


def logs(n: int = 4000, **more: Any) -> LoggedData:
    return LoggedData.from_arrays(
        contexts=np.arange(n, dtype=float).reshape(n, 1),
        actions=np.arange(n) % 2,
        rewards=np.arange(n) % 3 == 0,
        propensities=np.full(n, 0.5),
        catalogue=Catalogue.of(range(3), novel=[2]),
        r_max=1.0,
        **more,
    )


def test_the_folds_share_no_row_and_miss_none() -> None:
    rows = logs()
    folds = three_folds(rows, "spring")
    parts = [folds.learn, folds.select, folds.certify]
    seen = np.concatenate([part.contexts[part.context, 0] for part in parts])
    assert sorted(seen.tolist()) == list(range(4000))
    shares = [len(part) / 4000 for part in parts]
    assert shares == pytest.approx(list(FRACTIONS), abs=0.03)
    assert (folds.data, folds.campaign, folds.fractions) == (rows.hash, "spring", FRACTIONS)


def test_the_same_campaign_always_splits_alike_and_another_does_not() -> None:
    first, again = three_folds(logs(), "spring"), three_folds(logs(), "spring")
    other = three_folds(logs(), "summer")
    assert first.certify.hash == again.certify.hash != other.certify.hash
    assert first.data == other.data  # so a second name is not a second data set


def test_rows_of_one_unit_stay_together() -> None:
    folds = three_folds(logs(units=np.arange(4000) // 8), "spring")
    ids = [set(np.asarray(p.units).tolist()) for p in (folds.learn, folds.select, folds.certify)]
    assert sum(len(some) for some in ids) == len(set.union(*ids)) == 500


def test_the_round_is_that_of_the_rows() -> None:
    assert three_folds(logs(), "spring").round == 0
    assert three_folds(logs(rounds=np.full(4000, 3)), "spring").round == 3
    with pytest.raises(ConfigError, match=r"one round.*rounds \[0, 1\].*newest round"):
        three_folds(logs(rounds=np.arange(4000) % 2), "spring")


def test_the_certifying_rows_are_not_shown() -> None:
    assert "certify" not in repr(three_folds(logs(), "spring"))


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_campaign_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"a campaign needs a name.*second look"):
        three_folds(logs(), name)


def test_there_are_three_folds() -> None:
    with pytest.raises(ConfigError, match=r"three folds.*\(0.5, 0.5\).*default"):
        three_folds(logs(), "spring", (0.5, 0.5))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"sum to 1"):
        three_folds(logs(), "spring", (0.5, 0.5, 0.5))
