"""Error rates of certificates: the arithmetic, the worlds, and the two main strict kinds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from depsue import rng
from depsue.bounds import Hcope
from depsue.certificates import Reads, certify
from depsue.data.terms import WeightedTerms
from depsue.errors import ConfigError
from depsue.promises import Floor
from depsue.testing.bounds import binomial_tail
from depsue_research.error_rates import GROUPS, TRIALS, ErrorRate, error_rates
from depsue_research.error_rates import paper as paper_kinds
from depsue_research.error_rates import strict as strict_kinds
from depsue_research.error_rates.paper import (
    Counts,
    algorithm_1,
    best_of_many,
    counted,
    eq4,
    weights_of,
)
from depsue_research.error_rates.rates import DELTA, repeated
from depsue_research.error_rates.strict import (
    BASE,
    alone,
    candidates,
    folds_of,
    one_floor,
    rules_for,
)
from depsue_research.error_rates.worlds import MISS, RHO, near_miss_world


@pytest.mark.parametrize("k, n, p", [(3, 10, 0.2), (0, 5, 0.3), (140, 2000, 0.05), (2000, 2000, 1)])
def test_binomial_tail(k: int, n: int, p: float) -> None:
    from scipy.stats import binom

    assert binomial_tail(k, n, p) == pytest.approx(binom.sf(k - 1, n, p), rel=1e-9)


@pytest.mark.parametrize("errors", [0, 7, 100, 2000])
def test_interval_is_clopper_and_pearsons(errors: int) -> None:
    from scipy.stats import binomtest

    exact = binomtest(errors, 2000).proportion_ci(method="exact")
    assert ErrorRate("strict", "kind", "normal", errors, 2000).interval == pytest.approx(
        (exact.low, exact.high), abs=1e-8
    )


@pytest.mark.parametrize("name", ["plain", "rare rewards", "novel mass", "sharp pi0"])
def test_candidates_just_miss_the_floor_within_the_clip(name: str) -> None:
    world, levels = candidates(name, 5 if name == BASE else 1)
    assert world.floor == pytest.approx(RHO * float(world.value(world.pi0)))
    for candidate in levels:
        pi = candidate.policy(0).probabilities(world.contexts)
        assert float(world.value(pi)) == pytest.approx((1 - MISS) * world.floor)
        assert weights_of(pi, world).max() < world.clip
        assert pi[:, world.catalogue.novel].sum(axis=1).min() > 0.05


def test_logs_have_the_policys_value_and_propensities() -> None:
    world = near_miss_world("plain")
    logs = world.logs(world.pi0, 200_000, rng.generator(0, "logs"))
    assert logs.mean_reward() == pytest.approx(float(world.value(world.pi0)), abs=0.005)
    assert np.array_equal(logs.propensity, world.pi0[logs.context, logs.action])


def test_units_differ_in_size_yet_their_mean_is_the_value() -> None:
    world = near_miss_world("plain")
    logs = world.unit_logs(100_000, rng.generator(0, "units"))
    sizes = np.bincount(np.asarray(logs.unit))
    assert (sizes.min(), sizes.max()) == (1, 8)
    assert logs.mean_reward() == pytest.approx(float(world.value(world.pi0)), abs=0.005)


def test_main_strict_kinds_keep_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_kinds, "ROWS", 6000)
    rates = repeated("main", one_floor(BASE, ["normal"], ["normal"]), 2000, 1)
    assert {rate.kind for rate in rates} == {f"paired floor, {BASE}", f"absolute floor, {BASE}"}
    for rate in rates:
        assert rate.n == 2000
        assert rate.p_value >= 0.01, rate
        assert rate.errors > 0, "the floor is missed by so little that some errors are due"


def test_a_looser_bound_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_kinds, "DELTA", 0.4)
    monkeypatch.setattr(strict_kinds, "ROWS", 6000)
    [rate] = repeated("looser", one_floor(BASE, ["normal"], []), 100, 0)
    assert ErrorRate("strict", "", "", rate.errors, 100, DELTA).p_value < 0.01


def test_a_policy_above_the_floor_is_certified() -> None:
    world, _ = candidates("plain")
    good = world.mixed(world.tilt(rng.generator(0, "candidates", "plain")), 1.1 * world.floor)
    folds = folds_of(world.logs(world.pi0, 16_000, rng.generator(0, "good")))
    for floor in (Floor(RHO), Floor(None, world.floor)):
        rules = rules_for(world, "normal", floor)
        assert certify(alone(world.policy(good)), folds, rules, Reads()).passed


@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_names_its_kinds(name: str) -> None:
    outcome = TRIALS[name](rng.generator(0, "once"))
    assert outcome == TRIALS[name](rng.generator(0, "once"))
    assert all(isinstance(wrong, bool) for wrong in outcome.values())
    assert any(group == "strict" for group, _, _ in outcome)


def test_eq4_on_counts_is_hcopes() -> None:
    world = near_miss_world("sharp pi0")
    pi = world.mixed(world.tilt(rng.generator(0, "eq4")), 0.9 * world.floor)
    logs = world.logs(world.pi0, 40_000, rng.generator(1, "eq4"))
    weights = pi[logs.context, logs.action] / logs.propensity
    exact = Hcope().lower(WeightedTerms.of(weights, logs.reward, r_max=1.0), DELTA)

    from depsue.bounds import tuning_rows

    cells, tunes = logs.context * 8 + logs.action, np.zeros(len(logs), dtype=bool)
    tunes[tuning_rows(len(logs))] = True
    tuning, rest = (
        np.bincount(cells[part], logs.reward[part], minlength=48)[None].astype(np.float64)
        for part in (tunes, ~tunes)
    )
    none = np.zeros((1, 48))
    counts = Counts(none, none, tuning, rest, (1, int(tunes.sum()), int((~tunes).sum())))
    assert eq4(weights_of(pi, world), counts)[0] == pytest.approx(exact.value, rel=1e-9)
    many = np.broadcast_to(weights_of(pi, world), (1, 48))
    assert eq4(many, counts)[0] == pytest.approx(exact.value, rel=1e-9)


def test_algorithm_1_reaches_its_constraint_and_errs_without_a_bound() -> None:
    world, replications = near_miss_world("plain"), 40
    counts = counted(world, replications, rng.generator(0, "algorithm"))
    seen: list[float] = []

    def watched(bound: Callable[..., object]) -> Callable[..., object]:
        def call(weights: object, counts: Counts) -> object:
            bounds = np.asarray(bound(weights, counts))
            seen.append(float(np.abs(bounds / counts.floor - 1).mean()))
            return bounds

        return call

    safe = algorithm_1(world, counts, watched(eq4), None, 300)  # type: ignore[arg-type]
    assert seen[-1] < 0.01 < 0.1 < seen[0]  # lambda holds the bound at the floor
    assert not safe["last policy"].any()
    plain_mean = lambda w, c: (w * (c.tuning + c.rest)).sum(axis=1) / sum(c.sizes[1:])  # noqa: E731
    wrong = algorithm_1(world, counts, plain_mean, None, 300)
    assert wrong["last passing policy"].mean() > 0.2


def test_best_of_many_errs_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_kinds, "MANY", (1, 100))
    errors = best_of_many(1.0, 400, 0)
    rates = {f"{bound}, {kind}": float(x.mean()) for (_, kind, bound), x in errors.items()}
    name = "central limit, best of {} by S2, spread 1, C known"
    assert rates[name.format(1)] < 0.1 < 0.2 < rates[name.format(100)]
    for name, rate in rates.items():
        assert rate <= rates[name.replace("best of 1 ", "best of 100 ")]


def test_all_kinds_in_a_small_dose(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MANY": (2, 5),
        "STEPS": 5,
        "ROWS": 800,
        "FEWER": 800,
        "LARGE": 4000,
    }.items():
        home = strict_kinds if hasattr(strict_kinds, name) else paper_kinds
        monkeypatch.setattr(home, name, value)
    names: list[str] = []
    rates = error_rates(2, seed=3, watch=lambda task, done, total, words: names.append(words))
    assert names == [*TRIALS, "the paper's"]
    groups = [rate.group for rate in rates]
    assert groups == sorted(groups, key=GROUPS.index)
    assert len({(rate.kind, rate.bound) for rate in rates}) == len(rates)
    assert all(rate.n == 2 and 0 <= rate.errors <= 2 for rate in rates)


def test_replications_are_checked() -> None:
    with pytest.raises(ConfigError, match="replications must be a whole number"):
        error_rates(0)
