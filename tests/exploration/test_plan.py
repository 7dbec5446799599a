"""Planning: what it anticipates, what it must not read, and what it says when data are few."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue import Reads, SyntheticSettings, explore, synthetic_world, three_folds
from depsue.certificates import certify
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, DataError
from depsue.exploration import ExploreSettings
from depsue.exploration.before_logs import Assumed, novelty_before_logs, rows_before_logs
from depsue.exploration.candidates import rehearse
from depsue.exploration.headroom import (
    Aim,
    Moments,
    boldest,
    moments,
    rooms,
    rows_for,
    tighter_bound,
)
from depsue.exploration.plan import (
    Calibration,
    Chosen,
    Plan,
    PlanSettings,
    about_rows,
    independent,
    plan,
)
from depsue.promises import Floor, Promise
from depsue.protocols import RewardModel
from depsue.rewards import LinearRewardModel, RewardSettings, fit_linear
from depsue.world import World

QUICK = RewardSettings(members=2, hidden=(16,), max_epochs=4)
SETTINGS = PlanSettings(rewards=QUICK, campaign="test")


def small_world(**changes: object) -> World:
    settings = SyntheticSettings(users=150, supported=30, novel=8, d=4, spread=1.2, beta=0.4)
    return synthetic_world(replace(settings, **changes), seed=5)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> World:
    return small_world()


@pytest.fixture(scope="module")
def logs(world: World) -> LoggedData:
    return world.deploy(world.logging_policy, 30_000, round=0)


def quickly(logs: LoggedData, settings: PlanSettings = SETTINGS, **others: Any) -> Plan:
    """A plan with a linear reward model."""
    return plan(logs, settings, fit=fit_linear, **others)


@pytest.fixture(scope="module")
def plain(logs: LoggedData) -> Plan:
    return quickly(logs)


@pytest.fixture(scope="module")
def better(world: World, logs: LoggedData) -> Plan:
    return quickly(logs, logging_policy=world.logging_policy)


def spoiled(logs: LoggedData, fold: str) -> LoggedData:
    """The logs with the rewards of one fold turned round."""
    keyed = replace(logs, columns={"row": np.arange(len(logs))})
    rows = getattr(three_folds(keyed, "test"), fold).columns["row"]
    reward = logs.reward.copy()
    reward[rows] = 1 - reward[rows]
    return replace(logs, reward=reward)


def aim(*floors: Floor, **others: float) -> Aim:
    return Aim(tuple(Promise(floor, f"p{k}") for k, floor in enumerate(floors)), **others)


def certified(found: Plan, logs: LoggedData) -> float:
    """The novelty that the certificate allows the pick's levels; 0 if none."""
    assert isinstance(found.chosen, Chosen)
    folds = three_folds(logs, "test")
    verdict = certify(found.chosen.levels, folds, found.chosen.rules, Reads())
    return verdict.shares[-1] if verdict.passed else 0.0


def text(found: Plan) -> str:
    return json.dumps(found.as_json())


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
    settings = ExploreSettings(objective="most novelty", deployments=1, rewards=QUICK)
    folds = three_folds(logs, "test")
    found = explore(folds, world.logging_policy, settings, seed=0, reads=Reads())
    assert found.novelty == pytest.approx(better.pick.novelty, abs=0.08)
    assert found.novelty > better.pick.novelty - 0.03


@pytest.mark.parametrize("callable_pi0", [True, False])
def test_the_pick_can_be_certified_and_comes_out_as_said(
    logs: LoggedData, plain: Plan, better: Plan, callable_pi0: bool
) -> None:
    found = better if callable_pi0 else plain
    assert found.enough
    assert certified(found, logs) == pytest.approx(found.pick.novelty, abs=0.05)
    assert isinstance(found.chosen, Chosen)
    assert (None in found.chosen.levels.parts) == ("pi0 +" in found.pick.policy)
    novelties = found.chosen.levels.shares[:, -1]
    assert novelties[-1] == SETTINGS.aim.most and found.pick.novelty in novelties


def test_a_rehearsal_asks_models_about_rows_that_they_have_not_seen(logs: LoggedData) -> None:
    some = replace(logs.take(slice(0, 4000)), columns={"row": np.arange(4000)})
    fitted: list[set[int]] = []

    class Remembers(LinearRewardModel):
        def __init__(self, rows: LoggedData) -> None:
            self.seen = set(rows.columns["row"].tolist())
            fitted.append(self.seen)
            count = len(rows.catalogue)
            super().__init__(0.1, np.zeros(rows.contexts.shape[1]), np.zeros(count), 1.0)

    def fit(rows: LoggedData, name: str) -> RewardModel:
        return Remembers(rows)

    found = rehearse(some, fit, None, values=4000, n=6000, seed=0)
    held = np.array_split(found.rows.columns["row"], [0])[1].tolist()
    assert sorted(held) == list(range(4000))
    seen = [sum(row in one for one in fitted) for row in held]
    assert set(seen) == {len(fitted) - 1}
    assert (found.weights[0] == 1).all()


def test_promises_split_delta_and_the_tightest_binds(world: World, logs: LoggedData) -> None:
    draw = np.random.default_rng(3)
    young = (logs.contexts[logs.context][:, 0] > 0.8).astype(np.int64)
    revenue = logs.reward * draw.uniform(0, 10, len(logs))
    rich = replace(logs, columns={"young": young, "revenue": revenue})
    promises = (
        Promise(Floor(0.9), "clicks"),
        Promise(Floor(0.9), "revenue", "revenue", 10.0),
        Promise(Floor(0.9), "young", segment=("young", 1)),
    )
    several = replace(SETTINGS, aim=Aim(promises))
    pi0 = world.logging_policy
    found = quickly(rich, several, logging_policy=pi0)
    alone = quickly(rich, replace(SETTINGS, aim=Aim(promises[:1])), logging_policy=pi0)
    assert found.certain == alone.certain == pytest.approx(0.1)
    assert found.pick.novelty < alone.pick.novelty
    assert [one.name for one in found.promises] == ["clicks", "revenue", "young"]
    assert all(one.delta == pytest.approx(0.05 / 3) for one in found.promises)
    clicks, money, segment = found.promises
    assert segment.rows == pytest.approx(young.mean() * clicks.rows, rel=0.1)
    assert money.logging_value == pytest.approx(revenue.mean(), rel=0.1)
    rooms_at_pick = {one.name: one.room for one in found.promises}
    assert found.pick.binds == min(rooms_at_pick, key=lambda name: rooms_at_pick[name]) != "clicks"
    assert found.pick.binds in found.why
    assert certified(found, rich) >= found.pick.novelty - 0.03


def test_an_absolute_floor(world: World, logs: LoggedData) -> None:
    value = float(logs.reward.mean())
    low, high = (
        quickly(
            logs,
            replace(SETTINGS, aim=aim(Floor(None, share * value))),
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
    nobody = Aim((Promise(segment=("country", "NO")),))
    with pytest.raises(DataError, match="a segment needs rows"):
        quickly(rich, replace(SETTINGS, aim=nobody))


def test_a_reward_model_of_ones_own(logs: LoggedData) -> None:
    asked: list[int] = []

    def fit(rows: LoggedData) -> RewardModel:
        asked.append(len(rows))
        return fit_linear(rows)

    plan(logs, SETTINGS, fit=fit)
    assert len(asked) == 5 and asked[-1] == len(three_folds(logs, "test").learn)


def test_the_usual_reward_model(world: World, logs: LoggedData, better: Plan) -> None:
    found = plan(logs, SETTINGS, logging_policy=world.logging_policy)
    assert found.pick.novelty > better.pick.novelty - 0.05
    assert found.model != better.model


def test_few_rewards_say_nothing_of_new_items() -> None:
    rare, common = (small_world(reward_rate=rate) for rate in (0.002, 0.2))
    few, many = (
        plan(world.deploy(world.logging_policy, 6000, round=0), SETTINGS)
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
        assert point.room >= -1e-12


def test_rare_rewards_give_the_certain_level_and_a_number_of_rows() -> None:
    world = small_world(reward_rate=0.002)
    logs = world.deploy(world.logging_policy, 6000, round=0)
    found = quickly(logs, SETTINGS)
    assert not found.enough
    assert found.pick.novelty == pytest.approx(0.05)
    assert found.pick.policy.startswith("Naive Safe Exploration")
    assert "not enough data for more than the certain level" in found.why
    level, rows = found.needed[0]
    assert level == pytest.approx(0.06)
    assert rows is not None and rows > len(logs)
    assert found.chosen is None  # what is certain needs no certificate
    assert about_rows(rows) in found.why
    assert "assumption" in found.needed_rests_on


def test_no_reward_at_all_is_no_crash(logs: LoggedData) -> None:
    found = quickly(replace(logs, reward=np.zeros(len(logs))), SETTINGS)
    assert not found.enough and found.pick.novelty == pytest.approx(0.05)


def test_equal_items_do_not_pay_however_many_rows() -> None:
    world = small_world(spread=1e-6, reward_rate=0.5)
    found = quickly(world.deploy(world.logging_policy, 40_000, round=0), SETTINGS)
    assert not found.enough
    assert found.needed[0][1] is None or found.needed[0][1] > 40_000
    assert "nothing shows that more rows would do" in found.why or "about" in found.why


def test_objectives(logs: LoggedData, plain: Plan) -> None:
    value = quickly(logs, replace(SETTINGS, objective="most value")).pick
    assert value.value == max(point.value for point in plain.frontier)
    assert value.novelty <= plain.pick.novelty
    assert quickly(logs, replace(SETTINGS, objective=100.0)).pick.novelty == plain.pick.novelty
    assert quickly(logs, replace(SETTINGS, objective=0.0)).pick.value == value.value


def test_more_rows_never_buy_less(better: Plan) -> None:
    novelties = [novelty for _, novelty in better.times]
    assert novelties == sorted(novelties)
    assert novelties[0] == pytest.approx(better.pick.novelty)
    rows = [rows for _, rows in better.needed if rows is not None]
    assert rows == sorted(rows) and rows[0] < better.rows


def test_wrong_propensities_are_refused(logs: LoggedData) -> None:
    draw = np.random.default_rng(0)
    wrong = np.where(draw.random(len(logs)) < 0.5, logs.propensity / 3, logs.propensity)
    with pytest.raises(DataError, match=r"propensities must be.*Cure"):
        quickly(replace(logs, propensity=wrong), SETTINGS)


def test_units_count_for_no_more_than_rows(world: World) -> None:
    logs = small_world(with_units=True).deploy(world.logging_policy, 6000, round=0)
    folds = three_folds(logs, "test")
    assert folds.certify.units is not None
    found = independent(folds.learn, folds)
    assert len(folds.certify.units) <= found <= len(folds.certify)
    assert "units" in " ".join(quickly(logs, SETTINGS).assumptions)


def test_items_that_nothing_describes(logs: LoggedData) -> None:
    found = quickly(logs, replace(SETTINGS, described=False))
    assert all(point.value == point.worst for point in found.frontier)
    bare = replace(logs.catalogue, features=None)
    without = plan(replace(logs, catalogue=bare), replace(SETTINGS, described=False))
    assert not without.enough


def test_room_is_what_the_terms_say() -> None:
    draw = np.random.default_rng(1)
    w, n = draw.gamma(2.0, 0.5, 4000), 4000
    r = (draw.random(n) < 0.3) * 1.0
    found = [moments(np.full(n, 1 / n), w, (r, r, r), clip=3.0)]
    nu, base = np.array([0.0, 0.1]), r.mean()
    for floor, rho, need in ((Floor(0.95), 0.95, 0.0), (Floor(None, 0.2), 0.0, 0.2)):
        far = rooms(found, nu, 1e12, aim(floor))[0] * base
        near = rooms(found, nu, 1e6, aim(floor))[0] * base
        for place, keep in enumerate(1 - nu):
            terms = (keep * np.minimum(w, 3.0) - rho) * r
            assert far[place] == pytest.approx(terms.mean() - need, abs=1e-5)
            gap = far[place] - near[place]
            assert 1.6 < gap / (terms.std() / 1e3) < 3.5


def test_two_promises_cost_more_than_one_and_a_segment_has_fewer_rows() -> None:
    draw = np.random.default_rng(1)
    w, n = draw.gamma(2.0, 0.5, 4000), 4000
    r = (draw.random(n) < 0.3) * 1.0
    one = moments(np.full(n, 1 / n), w, (r, r, r), clip=3.0)
    nu = np.array([0.02])
    alone = rooms([one], nu, 1e4, aim(Floor(0.95)))
    both = rooms([one, replace(one, share=0.1)], nu, 1e4, aim(Floor(0.95), Floor(0.95)))
    assert both.shape == (2, 1)
    assert alone[0, 0] > both[0, 0] > both[1, 0]


def test_what_was_estimated_from_rows_is_taken_off_and_fades_with_more() -> None:
    q = np.full(10, 0.1)
    sure = moments(np.full(10, 0.1), np.full(10, 1.2), (q, q, q), clip=5.0)
    doubted = replace(sure, error=0.01, at=1000.0)
    nu = np.zeros(1)

    def lost(n: float) -> float:
        pair = [float(rooms([one], nu, n, Aim())[0, 0]) for one in (sure, doubted)]
        return (pair[0] - pair[1]) * 0.1

    assert lost(1000) == pytest.approx(0.01, rel=0.2)
    assert lost(100_000) == pytest.approx(0.001, rel=0.2)


def test_the_bound_is_the_one_that_costs_less() -> None:
    def at(rate: float) -> list[Moments]:
        z = np.linspace(-4, 4, 801)
        share = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
        q = np.full(len(z), rate)
        return [moments(share, np.exp(z - 0.5), (q, q, q), clip=5.0)]

    assert tighter_bound(at(0.3), 0.1, 1e6, Aim()) == "normal"
    assert tighter_bound(at(0.003), 0.1, 3e3, Aim()) == "betting"


def test_calibration_recovers_slope_and_level(logs: LoggedData) -> None:
    draw = np.random.default_rng(0)
    q_hat = draw.uniform(0, 1, len(logs))
    rewards = (draw.random(len(logs)) < 0.2 + 0.5 * q_hat) * 1.0
    found = Calibration.of(q_hat, replace(logs, reward=rewards))
    assert found.slope == pytest.approx(0.5, abs=4 * found.error)
    assert found.used == pytest.approx(found.slope - found.error)
    assert found(np.array([0.5]))[0] == pytest.approx(0.45, abs=0.02)


def test_pi0_goes_to_the_certain_level_and_no_further() -> None:
    q = np.full(10, 0.1)
    pi0 = [moments(np.full(10, 0.1), np.ones(10), (q, q, q), clip=5.0)]
    assert boldest([pi0], 1e9, Aim()) == pytest.approx(0.05, abs=1e-3)
    assert rows_for([pi0], 0.06, Aim()) is None
    assert rows_for([pi0], 0.05, Aim()) == 0


def test_before_logs_the_unit_of_rewards_does_not_matter() -> None:
    in_euros = Aim((Promise(Floor(None, 4.5)),), r_max=100.0)
    in_shares = Aim((Promise(Floor(None, 0.045)),))
    rows = [rows_before_logs(0.08, Assumed(0.05), one) for one in (in_euros, in_shares)]
    assert rows[0] == rows[1] and rows[0] is not None and rows[0] > 0


def test_before_logs_rarer_rewards_and_bolder_wishes_need_more() -> None:
    usual = Aim()
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


@pytest.mark.parametrize("rows, words", [(None, "no number"), (0, "0"), (64_321, "65,000")])
def test_rows_in_words(rows: float | None, words: str) -> None:
    assert about_rows(rows) == words


def test_settings_out_of_range(logs: LoggedData) -> None:
    for call in (
        lambda: aim(Floor(1.2)),
        lambda: aim(Floor(0.0)),
        lambda: aim(Floor(None, 1.5)),
        lambda: Aim((Promise(), Promise())),
        lambda: Aim(()),
        lambda: Aim(delta=0.0),
        lambda: Aim(most=1.0),
        lambda: Aim(r_max=0.0),
        lambda: Assumed(0.0),
        lambda: Assumed(0.1, 3.0),
        lambda: PlanSettings(objective="more"),
        lambda: PlanSettings(objective=-1.0),
        lambda: PlanSettings(wish=0.9),
        lambda: rows_before_logs(0.0, Assumed(0.1), Aim()),
    ):
        with pytest.raises(ConfigError, match="must"):
            call()
