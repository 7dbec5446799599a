"""Planning: what it anticipates, what it must not read, and what it says when data are few."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue import Reads, SyntheticSettings, explore, rng, synthetic_world
from depsue.certificates import certify
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, DataError
from depsue.exploration import ExploreSettings
from depsue.exploration.headroom import independent_values
from depsue.exploration.plan import Plan, plan, require_plannable
from depsue.exploration.round import RoundInputs, look_ahead
from depsue.exploration.rows_needed import about_rows
from depsue.promises import Floor, Promise
from depsue.protocols import RewardModel
from depsue.rewards import RewardSettings, fit_linear
from depsue.testing.splits import split
from depsue.world import World

QUICK = RewardSettings(members=2, hidden=(16,), max_epochs=4)
SETTINGS = ExploreSettings(objective="most novelty", deployments=1, rewards=QUICK)


def small_world(**changes: object) -> World:
    settings = SyntheticSettings(users=150, supported=30, novel=8, d=4, spread=1.2, beta=0.4)
    return synthetic_world(replace(settings, **changes), seed=5)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> World:
    return small_world()


@pytest.fixture(scope="module")
def logs(world: World) -> LoggedData:
    return world.deploy(world.logging_policy, 30_000, round=0)


def quickly(logs: LoggedData, settings: ExploreSettings = SETTINGS, **others: Any) -> Plan:
    """A plan with a linear reward model."""
    registration = split(logs, "test", settings.fractions).registration
    return plan(logs, settings, registration=registration, fit=fit_linear, **others)


@pytest.fixture(scope="module")
def plain(logs: LoggedData) -> Plan:
    return quickly(logs)


@pytest.fixture(scope="module")
def better(world: World, logs: LoggedData) -> Plan:
    return quickly(logs, logging_policy=world.logging_policy)


def spoiled(logs: LoggedData, fold: str) -> LoggedData:
    """The logs with the rewards of one fold turned round."""
    keyed = replace(logs, columns={"row": np.arange(len(logs))})
    rows = getattr(split(keyed, "test"), fold).columns["row"]
    reward = logs.reward.copy()
    reward[rows] = 1 - reward[rows]
    return replace(logs, reward=reward)


def floors(*floors: Floor) -> ExploreSettings:
    promises = tuple(Promise(floor, f"p{k}") for k, floor in enumerate(floors))
    return replace(SETTINGS, promises=promises)


def certified(planned: Plan, logs: LoggedData) -> float:
    """The novelty that the certificate allows the pick's levels; 0 if none."""
    folds = split(logs, "test")
    verdict = certify(planned.candidate.levels, folds, planned.candidate.rules, Reads())
    return verdict.novelty if verdict.passed else 0.0


def text(planned: Plan) -> str:
    return json.dumps(planned.as_json())


@pytest.mark.parametrize("callable_pi0", [True, False])
def test_the_certifying_rewards_are_not_read(
    world: World, logs: LoggedData, plain: Plan, better: Plan, callable_pi0: bool
) -> None:
    pi0, before = (world.logging_policy, better) if callable_pi0 else (None, plain)
    assert text(quickly(spoiled(logs, "certify"), SETTINGS, logging_policy=pi0)) == text(before)
    assert text(quickly(spoiled(logs, "select"), SETTINGS, logging_policy=pi0)) != text(before)


def test_rich_logs_allow_more_than_is_certain_and_the_certificate_agrees(
    world: World, logs: LoggedData, plain: Plan, better: Plan
) -> None:
    assert plain.enough and better.enough
    assert better.pick.novelty >= plain.pick.novelty > plain.certain
    assert better.pick.novelty > better.certain + 0.02
    folds = split(logs, "test")
    result = explore(folds, world.logging_policy, SETTINGS, seed=0, reads=Reads())
    assert result.novelty == pytest.approx(better.pick.novelty, abs=0.08)
    assert result.novelty > better.pick.novelty - 0.03


@pytest.mark.parametrize("callable_pi0", [True, False])
def test_the_pick_can_be_certified_and_comes_out_as_said(
    logs: LoggedData, plain: Plan, better: Plan, callable_pi0: bool
) -> None:
    planned = better if callable_pi0 else plain
    assert planned.enough
    assert certified(planned, logs) == pytest.approx(planned.pick.novelty, abs=0.05)
    levels, tilt = planned.candidate.levels, planned.pick.tilt
    assert (None in levels.parts) == (tilt.of != "pi0" and tilt.pi0_share > 0)
    novelties = levels.shares[:, -1]
    assert novelties[-1] == SETTINGS.max_novelty and planned.pick.novelty in novelties


def test_what_is_planned_is_what_a_campaign_would_train(world: World, logs: LoggedData) -> None:
    pi0 = world.logging_policy
    fast = replace(SETTINGS, rewards=RewardSettings(members=1, hidden=(4,), max_epochs=1))
    logs = logs.take(slice(0, 8000))
    folds = split(logs, "test")
    planned = plan(logs, fast, registration=folds.registration, logging_policy=pi0, seed=3)
    seed = rng.derive(3, "exploration", 1)
    trained = look_ahead(RoundInputs(folds, pi0), fast, seed=seed).frozen()
    np.testing.assert_array_equal(planned.candidate.levels.shares, trained.levels.shares)
    assert planned.candidate.rules.bound == trained.rules.bound
    assert planned.candidate.expected == trained.expected
    assert planned.pick.value == pytest.approx(trained.expected.value(planned.pick.novelty))


def test_promises_have_all_of_delta_each_and_the_tightest_binds(
    world: World, logs: LoggedData
) -> None:
    draw = np.random.default_rng(3)
    young = (logs.contexts[logs.context][:, 1] > 0.8).astype(np.int64)
    revenue = logs.reward * draw.uniform(0, 10, len(logs))
    rich = replace(logs, columns={"young": young, "revenue": revenue})
    promises = (
        Promise(Floor(0.9), "clicks"),
        Promise(Floor(0.9), "revenue", "revenue", 10.0),
        Promise(Floor(0.9), "young", segment=("young", 1)),
    )
    several = replace(SETTINGS, promises=promises)
    pi0 = world.logging_policy
    planned = quickly(rich, several, logging_policy=pi0)
    alone = quickly(rich, replace(SETTINGS, promises=promises[:1]), logging_policy=pi0)
    assert planned.certain == alone.certain == pytest.approx(0.1)
    assert planned.pick.novelty < alone.pick.novelty
    assert [promise.name for promise in planned.promises] == ["clicks", "revenue", "young"]
    assert all(promise.delta == pytest.approx(0.05) for promise in planned.promises)
    clicks, money, segment = planned.promises
    assert segment.rows == pytest.approx(young.mean() * clicks.rows, rel=0.1)
    assert money.pi0_value == pytest.approx(revenue.mean(), rel=0.1)
    left = {promise.name: promise.headroom for promise in planned.promises}
    assert planned.pick.binds == min(left, key=lambda name: left[name]) != "clicks"
    assert planned.pick.binds in planned.why
    assert certified(planned, rich) >= planned.pick.novelty - 0.03


def test_an_absolute_floor(world: World, logs: LoggedData) -> None:
    value = float(logs.reward.mean())
    low, high = (
        quickly(
            logs,
            floors(Floor(None, share * value)),
            logging_policy=world.logging_policy,
        )
        for share in (0.8, 2.5)
    )
    assert low.certain == 0 and low.enough and low.pick.novelty > 0.1
    assert certified(low, logs) >= low.pick.novelty - 0.03
    assert not high.enough and high.pick.novelty == 0
    assert "pi0 itself is not likely to be certified" in high.why


def test_a_segment_without_rows_is_refused(logs: LoggedData) -> None:
    rich = replace(logs, columns={"country": np.full(len(logs), "SE")})
    nobody = (Promise(segment=("country", "NO")),)
    with pytest.raises(DataError, match="a segment needs rows"):
        quickly(rich, replace(SETTINGS, promises=nobody))


def test_a_reward_model_of_ones_own(logs: LoggedData) -> None:
    asked: list[int] = []

    def fit(rows: LoggedData) -> RewardModel:
        asked.append(len(rows))
        return fit_linear(rows)

    plan(logs, SETTINGS, campaign="test", fit=fit)
    learn = len(split(logs, "test").learn)
    assert len(asked) == 1 and asked[0] == pytest.approx(0.9 * learn, rel=0.02)  # 10% calibrate it


def test_the_usual_reward_model(world: World, logs: LoggedData, better: Plan) -> None:
    planned = plan(logs, SETTINGS, campaign="test", logging_policy=world.logging_policy)
    assert planned.pick.novelty > better.pick.novelty - 0.05
    assert planned.model != better.model


def test_few_rewards_say_nothing_of_new_items() -> None:
    rare, common = (small_world(reward_rate=rate) for rate in (0.002, 0.2))
    few, many = (
        plan(world.deploy(world.logging_policy, 6000, round=0), SETTINGS, campaign="test")
        for world in (rare, common)
    )
    assert few.pick.value == pytest.approx(few.pick.worst, abs=0.01)
    assert "; 0% of what it says of new items is believed" in few.model
    assert many.pick.value > many.pick.worst + 0.02


def test_values_are_those_of_the_world(world: World, better: Plan) -> None:
    pi0 = world.value(world.logging_policy)
    calm = next(point for point in better.frontier if point.novelty == 0)
    assert 1 < calm.value < world.best_value() / pi0
    for point in better.frontier:
        assert point.worst <= point.value
        assert point.headroom >= -1e-12


def test_rare_rewards_give_the_certain_level_and_a_number_of_rows() -> None:
    world = small_world(reward_rate=0.002)
    logs = world.deploy(world.logging_policy, 6000, round=0)
    planned = quickly(logs, SETTINGS)
    assert not planned.enough
    assert planned.pick.novelty == pytest.approx(0.05)
    assert planned.pick.policy.startswith("Naive Safe Exploration")
    assert "not enough data for more than the certain level" in planned.why
    level, rows = planned.needed[0].novelty, planned.needed[0].rows
    assert level == pytest.approx(0.06)
    assert rows is not None and rows > len(logs)
    assert planned.pick.what == "certain"  # it needs no certificate
    assert about_rows(rows) in planned.why
    assert "assumption" in planned.needed_rests_on


def test_a_pick_below_the_certain_level_is_explained(plain: Plan) -> None:
    pick = replace(plain.pick, novelty=0.03, value=1.0811)
    found = replace(plain, pick=pick, enough=False)
    assert found.why.endswith("; by the objective, 3.0% at value 1.081 is better")


def test_no_reward_at_all_is_no_crash(logs: LoggedData) -> None:
    planned = quickly(replace(logs, reward=np.zeros(len(logs))), SETTINGS)
    assert not planned.enough and planned.pick.novelty == pytest.approx(0.05)


def test_equal_items_do_not_pay_however_many_rows() -> None:
    world = small_world(spread=1e-6, reward_rate=0.5)
    planned = quickly(world.deploy(world.logging_policy, 40_000, round=0), SETTINGS)
    assert not planned.enough
    assert planned.needed[0].rows is None or planned.needed[0].rows > 40_000
    assert "nothing shows that more rows would do" in planned.why or "about" in planned.why


def test_objectives(logs: LoggedData, plain: Plan) -> None:
    value = quickly(logs, replace(SETTINGS, objective="most value")).pick
    assert value.value == max(point.value for point in plain.frontier)
    assert value.novelty <= plain.pick.novelty
    assert quickly(logs, replace(SETTINGS, objective=100.0)).pick.novelty == plain.pick.novelty
    assert quickly(logs, replace(SETTINGS, objective=0.0)).pick.value == value.value


def test_more_rows_never_buy_less(better: Plan) -> None:
    novelties = [more.novelty for more in better.times]
    assert novelties == sorted(novelties)
    assert novelties[0] == pytest.approx(better.pick.novelty)
    rows = [needed.rows for needed in better.needed if needed.rows is not None]
    assert rows == sorted(rows) and rows[0] < better.rows


def test_wrong_propensities_are_refused(logs: LoggedData) -> None:
    draw = np.random.default_rng(0)
    wrong = np.where(draw.random(len(logs)) < 0.5, logs.propensity / 3, logs.propensity)
    with pytest.raises(DataError, match=r"propensities must be.*Cure"):
        quickly(replace(logs, propensity=wrong), SETTINGS)


def test_units_count_for_no_more_than_rows(world: World) -> None:
    logs = small_world(with_units=True).deploy(world.logging_policy, 6000, round=0)
    folds = split(logs, "test")
    assert folds.certify.units is not None
    values = independent_values(folds.learn, folds.certify)
    assert len(folds.certify.units) <= values <= len(folds.certify)
    declared = replace(SETTINGS, units="all rows")
    assert "units" in " ".join(quickly(logs, declared).assumptions)


def test_items_that_nothing_describes(logs: LoggedData) -> None:
    bare = replace(logs.catalogue, features=None)
    without = plan(replace(logs, catalogue=bare), SETTINGS, campaign="test")
    assert not without.enough and without.reward_model.trust == 0
    assert all(point.value == point.worst for point in without.frontier)


@pytest.mark.parametrize("rows, words", [(None, "no number"), (0, "0"), (64_321, "65,000")])
def test_rows_in_words(rows: float | None, words: str) -> None:
    assert about_rows(rows) == words


def test_settings_out_of_range(logs: LoggedData) -> None:
    for call in (
        lambda: require_plannable(floors(Floor(1.2)), 1.0),
        lambda: require_plannable(floors(Floor(None, 1.5)), 1.0),
        lambda: require_plannable(replace(SETTINGS, max_novelty=1.0), 1.0),
        lambda: quickly(logs, SETTINGS, wish=0.9),
    ):
        with pytest.raises(ConfigError, match="must"):
            call()
