"""Planning: what it anticipates, what it must not read, and what it says when data are few."""

import json
from dataclasses import replace

import numpy as np
import pytest

from depsue import Reads, SyntheticSettings, Uniform, explore, synthetic_world, three_folds
from depsue.certificates import Levels, Promise, Rules, certify
from depsue.data.joined import joined
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, DataError
from depsue.experiments.world import World
from depsue.learners import ExploreSettings
from depsue.learners.assumed import Assumed, novelty_before_logs, rows_before_logs
from depsue.learners.candidates import Calibration, mixtures
from depsue.learners.frontier import independent, plan
from depsue.learners.planned import Plan, PlanSettings, about_rows
from depsue.learners.room import Aim, boldest, clip_for, moments, reach, room, rows_for
from depsue.rewards import RewardSettings, fit_linear

QUICK = RewardSettings(members=2, hidden=(16,), max_epochs=4)
SETTINGS = PlanSettings(rewards=QUICK, campaign="test")


def small_world(**changes: object) -> World:
    settings = SyntheticSettings(users=150, supported=30, novel=8, d=4, spread=1.2)
    return synthetic_world(replace(settings, **changes), seed=5)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> World:
    return small_world()


@pytest.fixture(scope="module")
def logs(world: World) -> LoggedData:
    return world.deploy(world.logging_policy, 30_000, round=0)


@pytest.fixture(scope="module")
def plain(logs: LoggedData) -> Plan:
    return plan(logs, SETTINGS)


@pytest.fixture(scope="module")
def better(world: World, logs: LoggedData) -> Plan:
    return plan(logs, SETTINGS, logging_policy=world.logging_policy)


def spoiled(logs: LoggedData, fold: str) -> LoggedData:
    """The logs with the rewards of one fold turned round."""
    keyed = replace(logs, columns={"row": np.arange(len(logs))})
    rows = getattr(three_folds(keyed, "test"), fold).columns["row"]
    reward = logs.reward.copy()
    reward[rows] = 1 - reward[rows]
    return replace(logs, reward=reward)


def text(found: Plan) -> str:
    return json.dumps(found.as_json())


@pytest.mark.parametrize("callable_pi0", [True, False])
def test_the_certifying_rewards_are_not_read(
    world: World, logs: LoggedData, plain: Plan, better: Plan, callable_pi0: bool
) -> None:
    pi0, before = (world.logging_policy, better) if callable_pi0 else (None, plain)
    assert text(plan(spoiled(logs, "certify"), SETTINGS, logging_policy=pi0)) == text(before)
    assert text(plan(spoiled(logs, "select"), SETTINGS, logging_policy=pi0)) != text(before)


def test_rich_logs_allow_more_than_is_certain_and_the_certificate_agrees(
    world: World, logs: LoggedData, plain: Plan, better: Plan
) -> None:
    assert plain.enough and better.enough
    assert better.pick.novelty >= plain.pick.novelty > plain.certain
    assert better.pick.novelty > better.certain + 0.02
    settings = ExploreSettings(rewards=QUICK)
    folds = three_folds(logs, "test")
    found = explore(folds, world.logging_policy, settings, seed=0, reads=Reads())
    assert found.novelty == pytest.approx(better.pick.novelty, abs=0.08)
    assert found.novelty > better.pick.novelty - 0.03


def test_a_plan_without_pi0_is_one_that_passes(logs: LoggedData) -> None:
    folds = three_folds(logs, "test")
    model = fit_linear(folds.learn)
    found = Calibration.of(model, folds.learn, folds.select)
    aim, n = Aim(), len(folds.certify)
    clip = clip_for(n)
    rows = joined([folds.learn, folds.select])
    options = mixtures(rows, model, found, n=n, described=True, seed=0).options
    for option in [one for one in options if one.policy is not None]:
        places = reach(option.moments(clip), n, aim)
        if not len(places) or aim.novelties[places[-1]] <= aim.certain:
            continue
        nu = float(aim.novelties[places[-1]]) - 0.02
        shares = [(1 - nu) * option.kept, (1 - nu) * (1 - option.kept), nu]
        parts = (None, option.policy, Uniform(logs.catalogue.novel))
        rules = Rules((Promise(),), bound="betting", clip=clip)
        levels = Levels(parts, np.array([shares]))
        assert certify(levels, folds, rules, Reads()).passed, option.name


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
    found = plan(logs, SETTINGS)
    assert not found.enough
    assert found.pick.novelty == pytest.approx(0.05)
    assert found.pick.policy.startswith("Naive Safe Exploration")
    assert "not enough data for more than the certain level" in found.why
    level, rows = found.needed[0]
    assert level == pytest.approx(0.06)
    assert rows is not None and rows > len(logs)
    assert about_rows(rows) in found.why
    assert "assumption" in found.needed_rests_on


def test_no_reward_at_all_is_no_crash(logs: LoggedData) -> None:
    found = plan(replace(logs, reward=np.zeros(len(logs))), SETTINGS)
    assert not found.enough and found.pick.novelty == pytest.approx(0.05)


def test_equal_items_do_not_pay_however_many_rows() -> None:
    world = small_world(spread=1e-6, reward_rate=0.5)
    found = plan(world.deploy(world.logging_policy, 40_000, round=0), SETTINGS)
    assert not found.enough
    assert found.needed[0][1] is None or found.needed[0][1] > 40_000
    assert "nothing shows that more rows would do" in found.why or "about" in found.why


def test_objectives(logs: LoggedData, plain: Plan) -> None:
    value = plan(logs, replace(SETTINGS, objective="most-value")).pick
    assert value.value == max(point.value for point in plain.frontier)
    assert value.novelty <= plain.pick.novelty
    assert plan(logs, replace(SETTINGS, objective=100.0)).pick.novelty == plain.pick.novelty
    assert plan(logs, replace(SETTINGS, objective=0.0)).pick.value == value.value


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
        plan(replace(logs, propensity=wrong), SETTINGS)


def test_units_count_for_no_more_than_rows(world: World) -> None:
    logs = small_world(with_units=True).deploy(world.logging_policy, 6000, round=0)
    folds = three_folds(logs, "test")
    assert folds.certify.units is not None
    found = independent(folds.learn, folds)
    assert len(folds.certify.units) <= found <= len(folds.certify)
    assert "units" in " ".join(plan(logs, SETTINGS).assumptions)


def test_items_that_nothing_describes(logs: LoggedData) -> None:
    found = plan(logs, replace(SETTINGS, described=False))
    assert all(point.value == point.worst for point in found.frontier)
    bare = replace(logs.catalogue, features=None)
    without = plan(replace(logs, catalogue=bare), replace(SETTINGS, described=False))
    assert not without.enough


def test_room_is_what_the_terms_say() -> None:
    draw = np.random.default_rng(1)
    w, n = draw.gamma(2.0, 0.5, 4000), 4000
    r = (draw.random(n) < 0.3) * 1.0
    found = moments(np.full(n, 1 / n), w, (r, r, r), clip=3.0)
    nu, aim = np.array([0.0, 0.1]), Aim(delta=0.05)
    far = room(found, nu, 1e12, aim)
    for place, keep in enumerate(1 - nu):
        terms = (keep * np.minimum(w, 3.0) - 0.95) * r
        assert far[place] == pytest.approx(terms.mean(), abs=1e-5)
        gap = far[place] - room(found, nu, 1e6, aim)[place]
        assert 1.6 < gap / (terms.std() / 1e3) < 3.5


def test_pi0_goes_to_the_certain_level_and_no_further() -> None:
    q = np.full(10, 0.1)
    pi0 = moments(np.full(10, 0.1), np.ones(10), (q, q, q), clip=5.0)
    assert boldest([pi0], 1e9, Aim()) == pytest.approx(0.05, abs=1e-3)
    assert rows_for([pi0], 0.06, Aim()) is None
    assert rows_for([pi0], 0.05, Aim()) == 0


def test_before_logs_rarer_rewards_and_bolder_wishes_need_more() -> None:
    aim = Aim()
    need = {
        (rate, wish): rows_before_logs(wish, Assumed(rate), aim)
        for rate in (0.2, 0.02)
        for wish in (0.05, 0.08, 0.12)
    }
    assert need[0.2, 0.05] == 0
    a, b, c = need[0.2, 0.08], need[0.2, 0.12], need[0.02, 0.08]
    assert a is not None and b is not None and c is not None
    assert a < b and 5 * a < c < 20 * a
    assert novelty_before_logs(b, Assumed(0.2), aim) == pytest.approx(0.12, abs=0.005)
    assert rows_before_logs(0.5, Assumed(0.2, 0.05), aim) is None


@pytest.mark.parametrize("rows, words", [(None, "no number"), (0, "0"), (64_321, "65,000")])
def test_rows_in_words(rows: float | None, words: str) -> None:
    assert about_rows(rows) == words


def test_settings_out_of_range(logs: LoggedData) -> None:
    for call in (
        lambda: Aim(ratio=1.2),
        lambda: Aim(ratio=0.0),
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
