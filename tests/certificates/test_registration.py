"""Nobody throws twice: neither by another name nor by another encoding of the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.data.encodings import ENCODINGS, columns, encoded, rows

from depsue import rng
from depsue.certificates import MixtureLadder, Reads, Rules, certify, three_folds
from depsue.data import Catalogue, LoggedData
from depsue.data.identity import identities, keyed_folds
from depsue.errors import ConfigError, FileError
from depsue.policies import Uniform
from depsue.promises import Floor, Promise

DELTA, REPLICATIONS, NAMES = 0.05, 150, 100
FRACTIONS = (0.5, 0.1, 0.4)
CATALOGUE = Catalogue.of(range(3), novel=[2])
POLICY = MixtureLadder((Uniform(~CATALOGUE.novel),), [[1.0]])  # type: ignore[arg-type]
RULES = Rules((Promise(Floor(None, 0.5005)),), delta=DELTA, bound="betting", clip=1.0)
"""The policy is worth 0.5: its floor is just missed."""
CHANCE = 1e-3


def _just_missed(seed: int) -> LoggedData:
    draw = np.random.default_rng(seed)
    n = 1000
    return LoggedData.from_arrays(
        contexts=draw.normal(size=(n, 1)),
        actions=draw.integers(0, 2, n),
        rewards=(draw.random(n) < 0.5).astype(float),
        propensities=np.full(n, 0.5),
        catalogue=CATALOGUE,
        r_max=1.0,
    )


def _passed(logs: LoggedData, secret: str) -> bool:
    reads = Reads(secret=secret)
    return certify(POLICY, reads.folds(logs, FRACTIONS), RULES, reads).passed


def test_choosing_among_names_chooses_nothing() -> None:
    logs, reads = _just_missed(0), Reads()
    folds = [reads.folds(logs, FRACTIONS, campaign=f"name {k}") for k in range(NAMES)]
    assert len({each.certify.hash for each in folds}) == 1
    assert len({each.registration.secret for each in folds}) == 1


def test_a_drawn_secret_errs_at_most_delta_and_a_chosen_one_far_more() -> None:
    names = identities(_just_missed(0), "row")  # the numbers of rows: alike in all replications
    secrets = [rng.secret(0, "registry", name) for name in range(NAMES)]
    seen = [keyed_folds(names, FRACTIONS, secret) < 2 for secret in secrets]
    drawn = chosen = 0
    for k in range(REPLICATIONS):
        logs = _just_missed(k)
        means = [float(logs.reward[mine].mean()) for mine in seen]
        drawn += _passed(logs, secrets[0])
        chosen += _passed(logs, secrets[int(np.argmin(means))])
    assert drawn <= binom.isf(CHANCE, REPLICATIONS, DELTA)
    assert chosen > binom.isf(CHANCE, REPLICATIONS, DELTA)


KNOWN = (
    [("plain", how) for how in ENCODINGS if how not in ("without units", "without ids")]
    + [("timed", "a row id as decision")]
    + [("ids", how) for how in ENCODINGS if how != "without units"]
    + [("timed", how) for how in ("a feature", "sorted", "a tenth of the rows", "appended rows")]
    + [("units", how) for how in ("without units", "r_max", "sorted", "appended rows")]
)
BASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "timed": {"timed": True},
    "units": {"units": 300},
    "ids": {"ids": True},
}
OTHER_FOLDS = {
    ("plain", "sorted"),
    ("plain", "a tenth of the rows"),
    ("timed", "a feature"),
    ("units", "without units"),
    ("ids", "without ids"),
    ("ids", "a row id as decision"),
}
"""Encodings under which rows would be named otherwise."""


@pytest.mark.parametrize(("base", "how"), KNOWN)
def test_without_retries_an_encoding_is_no_second_verdict(base: str, how: str) -> None:
    given, reads = columns(**BASES[base]), Reads()
    logs, again = LoggedData.from_arrays(**given), encoded(given, how)
    first = reads.register(logs)
    if (base, how) in OTHER_FOLDS:
        with pytest.raises(ConfigError, match=r"another throw of the dice.*declare retries"):
            reads.register(again)
        return
    second = reads.register(again)
    assert (second.secret, second.family) == (first.secret, first.family)
    assert reads.begin(logs.hash) == 1
    with pytest.raises(ConfigError, match=r"one verdict.*attempt 2"):
        reads.begin(again.hash)


@pytest.mark.parametrize(("base", "how"), KNOWN)
def test_with_retries_an_encoding_is_the_next_attempt(base: str, how: str) -> None:
    given, reads = columns(**BASES[base]), Reads(retries=True)
    logs, again = LoggedData.from_arrays(**given), encoded(given, how)
    reads.register(logs)
    registration = reads.register(again)
    other = (base, how) in OTHER_FOLDS
    assert registration.encodings == int(other)
    assert reads.count(again.hash) == int(other), "another encoding counts before any verdict"
    reads.begin(logs.hash)
    attempt = reads.begin(again.hash)
    assert attempt == 2 + other
    assert reads.delta_of_attempt(0.08, attempt) == 0.08 * 2.0**-attempt


def test_a_hundred_encodings_pay_for_themselves() -> None:
    given, reads = columns(), Reads(retries=True)
    reads.folds(LoggedData.from_arrays(**given))
    for k in range(20):
        order = np.random.default_rng(k).permutation(len(given["actions"]))
        shuffled = {
            name: value if name in ("catalogue", "r_max") else value[order]
            for name, value in given.items()
        }
        logs = LoggedData.from_arrays(**shuffled)
        reads.register(logs)
        assert reads.count(logs.hash) == k + 1


def test_other_shares_of_known_rows_are_refused() -> None:
    reads = Reads()
    reads.folds(rows())
    with pytest.raises(ConfigError, match=r"another throw.*shares \(0\.5, 0\.1, 0\.4\)"):
        reads.folds(rows(), FRACTIONS)


@pytest.mark.parametrize("retries", [False, True])
def test_a_mixture_of_registered_logs_is_refused(retries: bool) -> None:
    reads, (first, second) = Reads(retries=retries), (columns(seed=1), columns(seed=2))
    for given in (first, second):
        reads.folds(LoggedData.from_arrays(**given))
    both: dict[str, Any] = {
        name: value if name in ("catalogue", "r_max") else np.concatenate([value, second[name]])
        for name, value in first.items()
    }
    with pytest.raises(ConfigError, match="2 logs that were registered apart"):
        reads.folds(LoggedData.from_arrays(**both))


def test_fresh_rows_are_another_family() -> None:
    reads = Reads()
    first, second = reads.folds(rows(seed=1)), reads.folds(rows(seed=2))
    assert first.registration.family != second.registration.family
    assert first.registration.secret != second.registration.secret
    assert reads.begin(first.data) == reads.begin(second.data) == 1


def test_a_later_round_keeps_the_folds_of_its_units() -> None:
    reads = Reads()
    first = reads.register(rows(units=300, timed=True))
    later = {**columns(units=300, timed=True, seed=1), "units": columns(units=300)["units"]}
    second = reads.register(LoggedData.from_arrays(**later), first=first)
    assert second.secret == first.secret and second.family != first.family
    assert not second.declared_fresh


def test_what_was_declared_is_printed() -> None:
    reads, logs = Reads(), _just_missed(0)
    reads.folds(logs)
    order = np.argsort(logs.reward, kind="stable")
    look_alike = logs.take(order)  # the same contents in another order
    with pytest.raises(ConfigError, match=r"declare it \(fresh\)"):
        reads.folds(look_alike)
    folds = reads.folds(look_alike, fresh=True)
    assert folds.registration.declared_fresh
    made = certify(POLICY, folds, RULES, reads)
    assert any("the rows are new: this was declared" in words for words in made.assumptions)
    given = Reads(secret=rng.secret(0))
    made = certify(POLICY, given.folds(logs), RULES, given)
    assert any("was given, not drawn" in words for words in made.assumptions)
    honest = Reads()
    made = certify(POLICY, honest.folds(logs), RULES, honest)
    assert not any("declared" in words or "given" in words for words in made.assumptions)
    assert any("another ledger than reads in memory" in words for words in made.assumptions)


def test_a_file_remembers_registrations(tmp_path: Path) -> None:
    path, logs = tmp_path / "reads.json", rows()
    first = Reads(path)
    folds = first.folds(logs)
    again = Reads(path).folds(logs, campaign="another")
    assert again.registration == folds.registration
    assert again.certify.hash == folds.certify.hash
    assert first.begin(logs.hash) == 1
    with pytest.raises(ConfigError, match="attempt 2"):
        Reads(path).begin(logs.hash)
    assert three_folds(logs, replace(folds.registration)).certify.hash == folds.certify.hash


def test_a_file_of_older_rules_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "reads.json"
    path.write_text(json.dumps({"retries": False, "reads": {"ab" * 32: 1}}))
    with pytest.raises(FileError, match=r"before version 0\.2.*hash alone.*with another"):
        Reads(path)


def test_each_of_several_logs_has_a_verdict_of_its_own() -> None:
    reads = Reads()
    every = [rows(seed=seed) for seed in range(3)]
    families = {reads.register(logs).family for logs in every}
    assert len(families) == 3
    assert [reads.begin(logs.hash) for logs in every] == [1, 1, 1]
    for logs in every:
        with pytest.raises(ConfigError, match=r"one verdict.*attempt 2"):
            reads.begin(logs.hash)


def test_what_was_declared_fresh_stays_declared() -> None:
    given, reads = columns(timed=True), Reads()
    assert reads.register(LoggedData.from_arrays(**given), fresh=True).declared_fresh
    assert reads.register(encoded(given, "r_max")).declared_fresh
    given = columns(seed=1, timed=True)
    assert not reads.register(LoggedData.from_arrays(**given)).declared_fresh
    assert reads.register(encoded(given, "r_max"), fresh=True).declared_fresh


def _banners(seed: int, *, shares: tuple[float, ...] = (0.5, 0.3, 0.2)) -> LoggedData:
    """Three items, no context, no times: all that names a row is its number."""
    draw, n = np.random.default_rng(seed), 3000
    action = draw.choice(3, n, p=shares)
    return LoggedData.from_arrays(
        contexts=np.zeros((n, 1)),
        actions=action,
        rewards=(draw.random(n) < 0.2).astype(float),
        propensities=np.array(shares)[action],
        catalogue=Catalogue.of(range(3)),
        r_max=1.0,
    )


@pytest.mark.parametrize("dropped", [1, 30, 600])
@pytest.mark.parametrize("named", [False, True])
def test_rows_that_nothing_tells_apart_are_declared_to_be_new(dropped: int, named: bool) -> None:
    """Sorted anew and less a few rows, they had folds of their own, at full delta each time."""
    logs, reads = _banners(0), Reads()
    first = reads.register(logs)
    order = np.random.default_rng(1).permutation(len(logs))[dropped:]
    again = logs.take(order)
    if named:  # ids that were made up since
        again = replace(
            again,
            decision=np.random.default_rng(2).integers(2**63, size=len(order), dtype=np.uint64),
        )
    try:
        assert reads.register(again).family == first.family
    except ConfigError as problem:
        assert "declare" in str(problem) and "fresh" in str(problem)
    else:
        raise AssertionError("these rows were taken for others, or for the same in another order")


def test_other_contents_times_or_a_declaration_tell_rows_apart() -> None:
    logs, reads = _banners(0), Reads()
    families = [reads.register(logs).family]
    families.append(reads.register(_banners(1, shares=(0.6, 0.3, 0.1))).family)  # of another pi0
    declared = reads.register(_banners(2), fresh=True)
    assert declared.declared_fresh
    assert len({*families, declared.family}) == 3
    timed = [replace(_banners(k), time=k + np.arange(3000) / 3000) for k in (3, 4)]
    clocked = Reads()
    assert len({clocked.register(each).family for each in timed}) == 2
