"""The forecast of a certificate: sums, what a bound costs, and how far that lets a level go."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from depsue import SyntheticSettings, synthetic_world
from depsue.certificates import Rules
from depsue.certificates.promise_test import PromiseTest
from depsue.data.logs import LoggedData
from depsue.exploration import ExploreSettings
from depsue.exploration.forecast import Forecast, LoggedForecast
from depsue.exploration.headroom import (
    LIKELY,
    MixtureSums,
    Requirement,
    Sums,
    headroom,
    likely,
    margins,
)
from depsue.policies import Mixture, Uniform, naive_safe_exploration
from depsue.policies.base import whole
from depsue.promises import Floor, Promise
from depsue.rewards import Blend, fit_linear
from depsue.world import World

ASKED = Requirement("reward", 0.0, 0.95, 0.05, 1.0, 0.3, 1.0)
NOTHING = Sums(0.0, 0.0, 0.0, 0.0, 0.0)
SETTINGS = ExploreSettings(objective="most novelty", deployments=1)


def sums_of(w: np.ndarray, r: np.ndarray) -> MixtureSums:
    """Of a pi_old with weights w beside pi0, on rows with rewards r, without a control variate."""

    def sums(t: np.ndarray) -> Sums:
        mean = float(t.mean())
        return Sums(mean, mean, mean, float(t.var()), float(np.cov(t, r, ddof=0)[0, 1]))

    return MixtureSums(sums(w * r), NOTHING, sums(r))


@pytest.fixture(scope="module")
def mixture() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    return draw.gamma(2.0, 0.5, 4000), (draw.random(4000) < 0.3) * 1.0


@pytest.mark.parametrize(("rho", "need"), [(0.95, 0.0), (None, 0.2)])
def test_margins_are_what_the_terms_say(
    mixture: tuple[np.ndarray, np.ndarray], rho: float | None, need: float
) -> None:
    w, r = mixture
    sums, nu = sums_of(w, r), np.array([0.0, 0.1])
    asked = replace(ASKED, rho=rho, need=need)
    far, near = (margins(sums, nu, asked, n=n) for n in (1e14, 1e6))
    for place, keep in enumerate(1 - nu):
        terms = (keep * w - (rho or 0.0)) * r
        assert far[place] == pytest.approx(terms.mean() - need, abs=1e-6)
        assert (far - near)[place] / (terms.std() / 1e3) == pytest.approx(2.3, rel=1e-3)


def test_a_bound_costs_more_with_a_smaller_delta_and_with_few_rewards() -> None:
    assert ASKED.cost(1e5) == 2.3
    smaller = replace(ASKED, delta=0.0025).cost(1e5)
    assert smaller == pytest.approx(2.3 * math.sqrt(2), rel=1e-3)
    costs = [replace(ASKED, pi0_value=rate).cost(5000) for rate in (0.3, 0.03, 0.003)]
    assert costs[0] == 2.3 < costs[1] < costs[2] / 1.5


def test_headroom_sets_luck_aside_and_more_where_little_was_observed(
    mixture: tuple[np.ndarray, np.ndarray],
) -> None:
    sums, nu, n = sums_of(*mixture), np.array([0.02]), 1e4
    plain = float(margins(sums, nu, ASKED, n=n)[0])
    left = [
        float(headroom([sums], nu, [replace(ASKED, observed=m)], n)[0, 0]) * 0.3
        for m in (math.inf, n, n / 3)
    ]
    luck = NormalDist().inv_cdf(LIKELY)
    error = math.sqrt(((0.98 * mixture[0] - 0.95) * mixture[1]).var() / n)
    for room, times in zip(left, (1, 2, 4), strict=True):
        assert plain - room == pytest.approx(luck * error * math.sqrt(times), rel=1e-3)


def test_two_promises_cost_more_than_one_and_a_segment_has_fewer_rows(
    mixture: tuple[np.ndarray, np.ndarray],
) -> None:
    sums, nu = sums_of(*mixture), np.array([0.02])
    halved = replace(ASKED, delta=0.025)
    alone = headroom([sums], nu, [ASKED], 1e4)
    both = headroom([sums, sums], nu, [halved, replace(halved, share=0.1)], 1e4)
    assert both.shape == (2, 1)
    assert alone[0, 0] > both[0, 0] > both[1, 0]


def test_likely_levels_are_one_run_around_the_safest() -> None:
    left = np.array([[0.1, -0.1, 0.2, 0.5, 0.0, -0.1, 0.3], [1.0] * 7])
    assert likely(left).tolist() == [2, 3, 4]
    assert likely(left - 1).tolist() == []


@pytest.fixture(scope="module")
def world() -> World:
    settings = SyntheticSettings(users=150, supported=30, novel=8, d=4, spread=1.2, beta=0.4)
    return synthetic_world(settings, seed=5)


@pytest.fixture(scope="module")
def logs(world: World) -> LoggedData:
    return world.deploy(world.logging_policy, 30_000, round=0)


def test_exposure_stays_within_its_limits_however_strongly_q_hat_decides(world: World) -> None:
    served = naive_safe_exploration(world.logging_policy, world.catalogue, 0.3)
    rows = world.deploy(served, 20_000, round=1)
    known = Forecast(
        rows, Blend([fit_linear(rows)]), world.logging_policy, served, clip=20.0, seed=0
    )
    parts = known.new_parts(replace(SETTINGS, even=0.0, least=0.1, most=0.15))
    assert len(parts) == 4  # strengths, once the items have been shown
    for part in parts:
        pi = whole(part.policy, world.contexts)
        shares = pi[:, world.catalogue.novel].mean(axis=0)
        assert shares.min() > 0.095 and shares.max() < 0.155


def test_old_parts_show_nothing_new_also_beside_a_holdout(world: World) -> None:
    pi0, novel = world.logging_policy, world.catalogue.novel
    deployed = naive_safe_exploration(Mixture([pi0, Uniform(~novel)], [0.5, 0.5]), world.catalogue)
    for served in (deployed, Mixture([deployed, pi0], [0.95, 0.05])):
        rows = world.deploy(served, 4000, round=1)
        known = Forecast(rows, Blend([fit_linear(rows)]), pi0, served, clip=20.0, seed=0)
        parts = known.old_parts(0.1)
        assert parts[1].policy is deployed.parts[0]
        assert all(known.exposure_of(part.policy)[novel].sum() == 0 for part in parts[:5])


def test_what_is_forecast_of_a_policy_is_what_it_earns(world: World, logs: LoggedData) -> None:
    fitted, held = logs.take(slice(0, 12_000)), logs.take(slice(12_000, 30_000))
    pi0, model = world.logging_policy, Blend([fit_linear(fitted)])
    called = Forecast(held, model, pi0, pi0, clip=20.0, seed=0)
    logged = LoggedForecast(fitted, held, model, clip=20.0, seed=0)
    truth = world.value(pi0)
    for known in (called, logged):
        assert known.pi0_values[0] == pytest.approx(truth, rel=0.05)
    for part in called.old_parts(0.0)[:8]:
        value = world.value(part.policy)
        assert part.sums[0].observed == pytest.approx(value, rel=0.08)
    for part in logged.old_parts(0.0):
        share = part.pi0_share
        if share == 0:
            continue
        beside = 0.0 if share == 1 else world.value(part.policy)
        value = share * truth + (1 - share) * beside
        assert part.sums[0].observed == pytest.approx(value, rel=0.1)


def test_every_promise_has_sums_of_its_own(world: World, logs: LoggedData) -> None:
    young = (logs.contexts[logs.context][:, 0] > 0.8).astype(np.int64)
    revenue = logs.reward * (1 + logs.action % 3)
    rich = replace(logs, columns={"young": young, "revenue": revenue})
    promises = (
        Promise(Floor(0.9), "clicks"),
        Promise(Floor(0.9), "revenue", "revenue", 3.0),
        Promise(Floor(0.9), "young", segment=("young", 1)),
    )
    pi0, model = world.logging_policy, Blend([fit_linear(rich.take(slice(0, 12_000)))])
    held = rich.take(slice(12_000, 30_000))
    known = Forecast(held, model, pi0, pi0, clip=20.0, seed=0, promises=promises)
    part = known.old_parts(0.0)[3]
    test = PromiseTest(held, Rules(promises, clip=20.0), 0.05)
    evidence = test.evidence([part.policy]).mixed(np.array([1.0]))
    for place, (sums, asked) in enumerate(
        zip(part.sums, known.requirements(Rules(promises, clip=20.0), 0.06), strict=True)
    ):
        terms = test.terms(place, evidence).terms.values  # w r - 0.9 r
        rows = test.rows(place)
        error = terms.std() / math.sqrt(len(terms))
        mean = sums.observed - 0.9 * known.pi0_sums[place].observed
        assert mean == pytest.approx(terms.mean(), abs=4 * error)
        assert asked.pi0_value == pytest.approx(rows.reward.mean(), rel=0.1)
        assert asked.delta == pytest.approx(0.06) and asked.rho == 0.9
        assert asked.share == pytest.approx(len(rows) / len(held))
