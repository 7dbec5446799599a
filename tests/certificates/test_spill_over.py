"""The spill-over test: it errs no more often than it may, has power, and can be refuted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from depsue.certificates import (
    Reads,
    SpillOver,
    SpillOverCertificate,
    certify_spill_over,
    check_spill_over,
)
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError, DataError
from depsue.policies import Mixture, OrElse, Uniform
from depsue.shop import Shop, ShopSettings
from depsue.testing.bounds import binomial_tail

FRACTIONS = (0.05, 0.15, 0.8)
SLOT, REST = 0.2, 0.5
"""What the decided slot earns, and each of two others."""


def pages(seed: int, n: int = 3000, slot: float = SLOT, rest: float = REST) -> LoggedData:
    """Pages of three slots; one item, since nothing depends on it."""
    draw = np.random.default_rng(seed)
    mine = (draw.random(n) < slot).astype(float)
    others = draw.binomial(2, rest, n)
    return LoggedData.from_arrays(
        contexts=np.zeros((n, 1)),
        actions=np.zeros(n, dtype=int),
        rewards=mine + others,
        propensities=np.ones(n),
        catalogue=Catalogue.of([0, 1], novel=[1]),
        r_max=3.0,
        columns={"slot_reward": mine},
    )


def certified(logs: LoggedData, rules: SpillOver, secret: int = 0) -> SpillOverCertificate:
    reads = Reads(secret=f"{secret:064x}")
    return certify_spill_over(reads.folds(logs, FRACTIONS), rules, reads)


def edge(spill: float, nu: float, miss: float = 0.001) -> SpillOver:
    """Rules by which the level nu misses the floor by so much, and the one below keeps it."""
    lost = nu * (SLOT + spill * 2 * REST) / (SLOT + 2 * REST)
    return SpillOver(spill, rho=1 - lost * (1 - miss), highest=nu)


@pytest.mark.parametrize("spill", [0.0, 0.2])
def test_a_level_that_misses_its_floor_passes_at_most_delta_of_the_time(spill: float) -> None:
    rules = edge(spill, 0.04)
    wrong = sum(certified(pages(seed, 2000), rules, seed).nu >= 0.04 for seed in range(120))
    assert binomial_tail(wrong, 120, 0.05) > 0.005, wrong


def test_pages_buy_most_of_what_is_true() -> None:
    rules = SpillOver(0.1, rho=0.95)
    most = 0.05 * (SLOT + 2 * REST) / (SLOT + 0.1 * 2 * REST)
    levels = [certified(pages(seed, 12_000), rules, seed).nu for seed in range(10)]
    assert np.mean(levels) > 0.85 * most
    assert most == pytest.approx(0.2)


def test_more_spill_over_buys_less_and_all_of_it_nothing() -> None:
    logs = pages(0, 20_000)
    levels = [certified(logs, SpillOver(spill)).nu for spill in (0.0, 0.2, 0.5, 1.0)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > 0.2
    last = certified(logs, SpillOver(1.0))
    assert last.nu == pytest.approx(0.05)
    assert (last.passed, len(last.tests)) == (False, 1)
    assert "nu 0.05, which is certain without rows" in str(last)


def test_levels_are_tested_in_fixed_sequence_until_one_fails() -> None:
    certificate = certified(pages(1, 20_000), SpillOver(0.1))
    levels = [test.nu for test in certificate.tests]
    assert levels == pytest.approx([0.06 + 0.01 * k for k in range(len(levels))])
    assert [test.passed for test in certificate.tests] == [True] * (len(levels) - 1) + [False]
    assert certificate.nu == levels[-2]
    assert f"nu {levels[-1]:.2f}: bound -" in str(certificate)
    assert any("spill-over: beside an item" in words for words in certificate.assumptions)


def test_a_second_verdict_on_the_same_pages_is_counted() -> None:
    logs = pages(2)
    reads = Reads(secret="2" * 64)
    folds = reads.folds(logs, FRACTIONS)
    assert certify_spill_over(folds, SpillOver(0.1), reads).attempt == 1
    with pytest.raises(ConfigError, match="are read by one verdict"):
        certify_spill_over(folds, SpillOver(0.0), reads)
    again = Reads(secret="2" * 64, retries=True)
    folds = again.folds(logs, FRACTIONS)
    deltas = [certify_spill_over(folds, SpillOver(0.1), again).delta for _ in range(2)]
    assert deltas == [0.025, 0.0125]  # attempt j at delta / 2^j


def shop(spill: float, **options: float) -> Shop:
    settings = ShopSettings(
        requests=100, users=40, items=50, new=6, retrieved=12, d=3, slots=3, decided=2, spill=spill
    )
    return Shop(replace(settings, **options), seed=4)  # type: ignore[arg-type]


def test_on_the_shop_what_is_certified_keeps_the_floor_with_worthless_items() -> None:
    here = shop(0.15, novel_quality=0.0)
    pi0, new = here.logging_policy, Uniform(here.catalogue.novel)
    g = OrElse(new, pi0)
    rest = [here.value(p) - here.value_of_slot(p) for p in (g, pi0)]
    spill = 1 - rest[0] / rest[1]
    assert spill == pytest.approx(0.15, abs=0.03)  # pi0's best item may move to the slot below
    logs = here.deploy(pi0, 12_000, round=0)
    certificate = certified(logs, SpillOver(max(spill, 0.0)))
    assert certificate.nu > 0.08
    floor = 0.95 * here.value(pi0)
    assert here.value(Mixture([pi0, g], [1 - certificate.nu, certificate.nu])) > floor
    assert here.value(Mixture([pi0, g], [0.7, 0.3])) < floor  # it was no gift


def test_pages_with_new_items_refute_a_spill_over_that_is_too_small() -> None:
    here = shop(0.3)
    pi0 = here.logging_policy
    policy = Mixture([pi0, OrElse(Uniform(here.catalogue.novel), pi0)], [0.8, 0.2])
    served = here.deploy(policy, 12_000, round=1)
    small = check_spill_over(served, spill=0.0, nu=0.2)
    assert not small.ok
    assert small.seen == pytest.approx(0.3, abs=0.08)
    assert str(small).startswith("refuted: a spill-over of at most 0")
    assert check_spill_over(served, spill=0.35, nu=0.2).ok


def test_a_true_spill_over_is_hardly_ever_refuted() -> None:
    here = shop(0.3)
    pi0 = here.logging_policy
    policy = Mixture([pi0, OrElse(Uniform(here.catalogue.novel), pi0)], [0.8, 0.2])
    g = policy.parts[1]
    rest = [here.value(p, round=1) - here.value_of_slot(p, round=1) for p in (g, pi0)]
    spill = 1 - rest[0] / rest[1]
    refuted = 0
    for seed in range(60):
        logs = Shop(here.settings, seed=4, traffic=seed).deploy(policy, 2000, round=1)
        refuted += not check_spill_over(logs, spill=spill, nu=0.2, delta=0.1).ok
    assert binomial_tail(refuted, 60, 0.1) > 0.005, refuted


def test_what_cannot_be_tested_is_refused() -> None:
    logs = pages(3)
    with pytest.raises(ConfigError, match="spill must lie in"):
        SpillOver(1.5)
    with pytest.raises(ConfigError, match="rho must lie in"):
        SpillOver(0.1, rho=1.0)
    with pytest.raises(DataError, match="slot_reward"):
        certified(replace(logs, columns={}), SpillOver(0.1))
    more = replace(logs, columns={"slot_reward": logs.reward + 1})
    with pytest.raises(DataError, match="part of what its page earns"):
        certified(more, SpillOver(0.1))
    with pytest.raises(ConfigError, match="pages with new items"):
        check_spill_over(logs, spill=0.1, nu=0.2)
    later = replace(logs, round=np.ones(len(logs), dtype=np.int16))
    with pytest.raises(ConfigError, match="pi0's own pages"):
        certified(later, SpillOver(0.1))
