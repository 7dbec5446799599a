"""Three folds by a keyed hash of what names a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue import rng
from depsue.certificates import FRACTIONS, Reads, three_folds
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError, DataError
from depsue.testing.splits import split


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
    folds = split(rows, "spring")
    parts = [folds.learn, folds.select, folds.certify]
    seen = np.concatenate([part.contexts[part.context, 0] for part in parts])
    assert sorted(seen.tolist()) == list(range(4000))
    shares = [len(part) / 4000 for part in parts]
    assert shares == pytest.approx(list(FRACTIONS), abs=0.03)
    assert (folds.data, folds.campaign) == (rows.hash, "spring")
    assert folds.registration.fractions == FRACTIONS


def test_the_secret_decides_and_the_name_of_a_campaign_does_not() -> None:
    reads = Reads(secret=rng.secret(0, "folds"))
    first = reads.folds(logs(), campaign="spring")
    again = reads.folds(logs(), campaign="summer")
    other = Reads(secret=rng.secret(1, "folds")).folds(logs())
    assert first.certify.hash == again.certify.hash != other.certify.hash
    assert first.data == other.data


def test_a_secret_is_drawn_unless_it_is_given() -> None:
    drawn = [Reads().register(logs()) for _ in range(2)]
    assert drawn[0].secret != drawn[1].secret and all(each.drawn for each in drawn)
    assert not Reads(secret=rng.secret(0)).register(logs()).drawn
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        Reads(secret="spring").register(logs())


def test_rows_keep_their_folds_in_a_larger_and_in_a_sorted_file() -> None:
    times = np.random.default_rng(0).permutation(4000).astype(float)
    rows, registration = logs(times=times), None
    reads = Reads(secret=rng.secret(0, "folds"))
    registration = reads.register(rows)
    assert registration.kind == "time"
    certified = set(reads.folds(rows).certify.contexts[:, 0].tolist())
    by_time = rows.take(np.argsort(times))
    assert set(reads.folds(by_time).certify.contexts[:, 0].tolist()) == certified
    fewer = reads.folds(rows.take(slice(0, 3000)))
    assert set(fewer.certify.contexts[:, 0].tolist()) == {x for x in certified if x < 3000}


def test_rows_of_one_unit_stay_together() -> None:
    folds = split(logs(units=np.arange(4000) // 8), "spring")
    ids = [set(np.asarray(p.units).tolist()) for p in (folds.learn, folds.select, folds.certify)]
    assert sum(len(some) for some in ids) == len(set.union(*ids)) == 500


def test_the_round_is_that_of_the_rows() -> None:
    assert split(logs(), "spring").round == 0
    assert split(logs(rounds=np.full(4000, 3)), "spring").round == 3
    with pytest.raises(ConfigError, match=r"one round.*rounds \[0, 1\].*newest round"):
        split(logs(rounds=np.arange(4000) % 2), "spring")


def test_the_certifying_rows_are_not_shown() -> None:
    assert "certify" not in repr(split(logs(), "spring"))


def test_logs_are_registered_before_they_are_split() -> None:
    with pytest.raises(ConfigError, match=r"registered before they are split.*reads.folds"):
        three_folds(logs(), "spring")  # type: ignore[call-overload]
    by_unit = Reads().register(logs(units=np.arange(4000) // 8))
    with pytest.raises(DataError, match=r"registered by their unit.*no unit"):
        three_folds(logs(), by_unit)


def test_there_are_three_folds() -> None:
    with pytest.raises(ConfigError, match=r"three folds.*\(0.5, 0.5\).*default"):
        split(logs(), "spring", (0.5, 0.5))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"sum to 1"):
        split(logs(), "spring", (0.5, 0.5, 0.5))
