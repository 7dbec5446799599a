"""Certified exploration: what it promises, its fallbacks, and what it must not read."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from depsue import Floor, Promise, Reads, SyntheticSettings, synthetic_world, verify
from depsue.certificates import MixtureLadder, Rules, certify
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, DataError
from depsue.exploration import Explored, ExploreSettings, explore, run_exploration
from depsue.exploration.round import RoundInputs, certify_round, look_ahead
from depsue.policies import Uniform
from depsue.policies.cached import CachedPolicy
from depsue.policies.tilted import ModelSoftmax
from depsue.protocols import Policy
from depsue.rewards import RewardSettings, fit_linear
from depsue.testing.splits import split
from depsue.world import World

QUICK = RewardSettings(members=2, hidden=(16,), max_epochs=4)
SETTINGS = ExploreSettings(objective="most novelty", deployments=1, rewards=QUICK)


def small_world(seed: int = 0, **changes: object) -> World:
    settings = SyntheticSettings(users=200, supported=40, novel=10, spread=1.5)
    return synthetic_world(replace(settings, **changes), seed=seed)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> World:
    return small_world()


@pytest.fixture(scope="module")
def logs(world: World) -> LoggedData:
    return world.deploy(world.logging_policy, 60_000, round=0)


def result_of(world: World, logs: LoggedData, settings: ExploreSettings = SETTINGS) -> Explored:
    folds = split(logs, "test", settings.fractions)
    return explore(folds, world.logging_policy, settings, seed=0, reads=Reads())


def test_more_novelty_than_is_certain_and_still_above_the_floor(
    world: World, logs: LoggedData
) -> None:
    result = result_of(world, logs)
    assert result.certified and result.certificate.passed
    assert result.novelty > SETTINGS.certain + 0.02
    assert world.novelty(result.policy) == pytest.approx(result.novelty)
    assert world.value(result.policy) > 0.95 * world.value(world.logging_policy)


def test_the_certificate_can_be_recomputed(world: World, logs: LoggedData) -> None:
    result = result_of(world, logs)
    assert result.certificate.control is not None  # pi0 can be asked, and q-hat explains something
    pi0, model = world.logging_policy, result.model
    assert verify(result.certificate, logs, result.policy, base=pi0, model=model).equal


def test_rows_for_q_hat_may_be_fewer_than_there_are(world: World, logs: LoggedData) -> None:
    few = result_of(world, logs, replace(SETTINGS, most_rows=1000))
    assert few.certificate.model != result_of(world, logs).certificate.model
    with pytest.raises(ConfigError, match=r"most_rows must be a whole number, at least 1,000"):
        replace(SETTINGS, most_rows=10)


def test_worthless_novel_items_do_not_break_the_promise() -> None:
    world = small_world(1, novel_quality=0.0)
    logs = world.deploy(world.logging_policy, 60_000, round=0)
    result = result_of(world, logs)
    assert result.novelty >= SETTINGS.certain
    assert world.value(result.policy) >= 0.95 * world.value(world.logging_policy)


def test_too_few_rows_give_the_level_that_is_certain(world: World) -> None:
    logs = world.deploy(world.logging_policy, 600, round=0)
    result = result_of(world, logs)
    assert not result.certified
    assert result.why.startswith("Naive Safe Exploration")
    assert result.novelty == pytest.approx(0.05)


def test_what_is_certain_is_even_over_new_items_whatever_q_hat_prefers(world: World) -> None:
    logs, novel = world.deploy(world.logging_policy, 600, round=0), world.catalogue.novel
    settings = replace(SETTINGS, even=0.0, least=0.09, most=0.11)
    inputs = RoundInputs(split(logs, "test", settings.fractions), world.logging_policy)
    prospect = look_ahead(inputs, replace(settings, least=0.0, most=1.0), seed=0)
    learned = prospect.forecast.exposure_of(prospect.frozen().new)[novel]
    assert learned.max() > 2 / novel.sum(), "q-hat has its favourites among the ten"
    result = result_of(world, logs, settings)
    assert result.choice.what == "certain" and result.choice.even
    shown = prospect.forecast.exposure_of(result.policy)[novel]
    assert shown == pytest.approx(np.full(10, 0.05 / 10)), "within the declared limits, too"
    expected = result.candidate.expected
    assert expected.even is not None
    assert result.choice.value == pytest.approx(0.95 * expected.logging + 0.05 * expected.even)


def test_an_absolute_floor_that_nothing_reaches_gives_pi0(world: World, logs: LoggedData) -> None:
    promise = Promise(Floor(ratio=None, absolute=0.9))
    result = result_of(world, logs, replace(SETTINGS, promises=(promise,)))
    assert result.policy is world.logging_policy
    assert result.why.startswith("pi0") and result.novelty == 0


def test_the_choice_does_not_look_at_the_certifying_rewards(world: World, logs: LoggedData) -> None:
    folds = split(logs, "test", SETTINGS.fractions)
    spoiled = replace(folds, certify=replace(folds.certify, reward=1 - folds.certify.reward))
    choices = []
    for used in (folds, spoiled):
        result = explore(used, world.logging_policy, SETTINGS, seed=0, reads=Reads())
        new = result.candidate.new.policy  # type: ignore[attr-defined]
        assert isinstance(new, ModelSoftmax)
        choices.append((result.certificate.bound, result.certificate.clip, new.scale))
    assert choices[0] == choices[1]


def test_objectives_trade_novelty_for_value(world: World, logs: LoggedData) -> None:
    most_novelty = result_of(world, logs)
    most_value = result_of(world, logs, replace(SETTINGS, objective="most value"))
    weighted = result_of(world, logs, replace(SETTINGS, objective=5.0))
    assert most_value.novelty <= most_novelty.novelty
    assert most_value.choice.value >= most_novelty.choice.value - 1e-9
    assert weighted.novelty > most_value.novelty or most_value.novelty == most_novelty.novelty


def test_no_policy_shows_more_than_the_most(world: World, logs: LoggedData) -> None:
    result = result_of(world, logs, replace(SETTINGS, max_novelty=0.07))
    assert world.novelty(result.policy) <= 0.07 + 1e-9


def test_uniform_is_the_plain_choice(world: World, logs: LoggedData) -> None:
    result = result_of(world, logs, replace(SETTINGS, novel="uniform"))
    pi = result.candidate.new.probabilities(world.contexts)  # type: ignore[attr-defined]
    novel = world.catalogue.novel
    np.testing.assert_allclose(pi[:, novel], 0.1)


def test_exposure_stays_within_its_limits(world: World, logs: LoggedData) -> None:
    free = result_of(world, logs, replace(SETTINGS, even=0.0))
    limited = result_of(world, logs, replace(SETTINGS, even=0.0, least=0.08, most=0.12))
    novel = world.catalogue.novel
    shares = [
        result.candidate.new.probabilities(world.contexts)[:, novel].mean(axis=0)  # type: ignore[attr-defined]
        for result in (free, limited)
    ]
    assert shares[0].max() > 0.14  # the model has favourites
    assert shares[1].min() > 0.075 and shares[1].max() < 0.125


def test_tables_of_earlier_rounds_are_freed(world: World) -> None:
    settings = replace(SETTINGS, deployments=3, no_drift=True)
    result = run_exploration(world, 60_000, settings, seed=0)
    *earlier, newest = (
        [part for part in d.explored.candidate.levels.parts if isinstance(part, CachedPolicy)]
        for d in result.deployments
    )
    used = {id(part) for part in newest}
    others = [part for parts in earlier for part in parts if id(part) not in used]
    assert others and not any(part.remembers for part in others)
    assert all(part.remembers for part in newest)


def test_units_that_certify_are_unknown_to_what_was_learned() -> None:
    """Folds go by unit, so the units that certify round 2 certified round 1 and must stay out."""
    world = small_world(users=80, with_units=True)
    settings = replace(SETTINGS, deployments=2, no_drift=True, fractions=(0.4, 0.1, 0.5))
    first = world.deploy(world.logging_policy, 8000, round=0)
    second = world.deploy(world.logging_policy, 8000, round=1)
    folds = split(second, "test", settings.fractions)
    assert first.unit is not None and first.units is not None and folds.certify.units is not None
    mine = np.isin(first.units[first.unit], folds.certify.units)
    changed = replace(first, reward=np.where(mine, 1 - first.reward, first.reward))
    models = []
    for earlier in (first, changed):
        inputs = RoundInputs(folds, world.logging_policy, earlier=[earlier], trust=1.0)
        models.append(look_ahead(inputs, settings, seed=0).model.predict(world.contexts))
    assert mine.any()
    np.testing.assert_array_equal(models[0], models[1])


@pytest.mark.parametrize("safety", ["each", "cumulative"])
@pytest.mark.parametrize("no_drift", [True, False])
def test_later_deployments_show_more(
    world: World, safety: Literal["each", "cumulative"], no_drift: bool
) -> None:
    settings = replace(SETTINGS, deployments=2, no_drift=no_drift, safety=safety)
    result = run_exploration(world, 120_000, settings, seed=0)
    first, second = (d.explored for d in result.deployments)
    assert second.novelty > first.novelty
    floor = 0.95 * world.value(world.logging_policy)
    values = [world.value(d.explored.policy) for d in result.deployments]
    assert np.mean(values) >= floor
    if safety == "each":
        assert min(values) >= floor


def test_a_deployment_is_rarely_below_the_floor_in_a_hostile_world() -> None:
    below = 0
    for seed in range(12):
        world = small_world(seed, novel_quality=0.0, beta=2.0)
        settings = replace(SETTINGS, deployments=2, no_drift=True)
        result = run_exploration(world, 12_000, settings, seed=seed)
        floor = 0.95 * world.value(world.logging_policy)
        below += sum(world.value(d.explored.policy) < floor - 1e-12 for d in result.deployments)
    assert below <= 4  # of 24 at delta = .05: P(more than 4) < 1%


def test_wrong_propensities_are_refused(world: World, logs: LoggedData) -> None:
    draw = np.random.default_rng(0)
    factor = np.where(draw.random(len(logs)) < 0.2, draw.choice([0.5, 2.0], len(logs)), 1.0)
    wrong = replace(logs, propensity=np.minimum(logs.propensity * factor, 1.0))
    with pytest.raises(DataError, match="propensities must be those of the deployed policy"):
        result_of(world, wrong)


def test_without_a_pi0_nothing_is_certified(logs: LoggedData) -> None:
    inputs = RoundInputs(split(logs, "test", SETTINGS.fractions), None)
    candidate = look_ahead(inputs, SETTINGS, seed=0).frozen()
    with pytest.raises(ConfigError, match="certified with a pi0, which may have to serve"):
        certify_round(candidate, inputs, SETTINGS, reads=Reads())


def test_the_delta_of_a_campaign_is_split() -> None:
    assert ExploreSettings(deployments=5, per="campaign").delta_of_deployment == pytest.approx(0.01)
    assert ExploreSettings(deployments=5).delta_of_deployment == 0.05


def test_a_second_verdict_on_the_same_logs_is_refused(world: World, logs: LoggedData) -> None:
    reads = Reads()
    folds = split(logs, "test")
    explore(folds, world.logging_policy, SETTINGS, seed=0, reads=reads)
    with pytest.raises(ConfigError, match="read by one verdict"):
        explore(folds, world.logging_policy, SETTINGS, seed=1, reads=reads)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": "most fun"}, "the objective must be"),
        ({"per": "day"}, "per must be one of"),
        ({"novel": "optimistic"}, r"differ(.|\n)*members=5"),
        ({"safety": "none"}, "safety must be one of"),
        ({"max_novelty": 0.0}, "max_novelty must lie"),
        ({"deployments": 0}, "deployments"),
        ({"delta": 0.0}, "delta"),
        ({"even": 1.5}, "even must lie"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ExploreSettings(**change)  # type: ignore[arg-type]


class Fading:
    """A world whose rewards fade: from round 1 on, only so many of them come."""

    def __init__(self, world: World, left: float) -> None:
        self.world, self.left = world, left
        self.catalogue, self.logging_policy = world.catalogue, world.logging_policy

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        logs = self.world.deploy(policy, n, round=round)
        comes = np.random.default_rng(round).random(n) < (self.left if round else 1.0)
        return replace(logs, reward=logs.reward * comes)


def test_drift_that_is_found_ends_what_rested_on_its_absence(world: World) -> None:
    settings = replace(SETTINGS, deployments=3, no_drift=True)
    fading = run_exploration(Fading(world, 0.7), 90_000, settings, seed=0)
    steady = run_exploration(Fading(world, 1.0), 90_000, settings, seed=0)
    first, second, third = fading.deployments
    assert first.drift is None and second.drift is not None and not second.drift.ok
    assert second.explored.why.startswith("Naive Safe Exploration")  # that is certain regardless
    assert third.drift is None and third.explored.certificate.verdicts[0].ceiling is None
    assert "drift before 2" in str(fading) and "drift" not in str(steady)
    assert all(d.drift is None or d.drift.ok for d in steady.deployments)
    assert steady.deployments[1].drift is not None


@pytest.mark.parametrize(
    ("objective", "what"), [("balanced", "certain"), ("most value", "pi0"), (0.1, "pi0")]
)
def test_a_floor_says_what_may_be_given_up(objective: str | float, what: str) -> None:
    world = small_world(reward_rate=0.03)
    logs = world.deploy(world.logging_policy, 600, round=0)
    result = result_of(world, logs, replace(SETTINGS, objective=objective))
    assert not result.certificate.passed  # and nothing is known of the new items
    assert result.choice.what == what


def test_the_clip_is_chosen_on_the_select_fold_with_the_bound(
    world: World, logs: LoggedData
) -> None:
    """Near pi0 weights are small: a limit that is wider than they are costs `normal` a lot."""
    pi0, folds = world.logging_policy, split(logs, "test")
    settings = replace(SETTINGS, max_novelty=0.08)
    candidate = look_ahead(RoundInputs(folds, pi0), settings, seed=0, fit=fit_linear).frozen()
    assert candidate.rules.bound == "normal" and candidate.rules.clip < 5
    wider = replace(candidate.rules, clip=len(folds.certify) ** 0.5 / 8, pilots={})
    ours, theirs = (
        certify(candidate.levels, folds, rules, Reads()).verdicts[0].bound
        for rules in (candidate.rules, wider)
    )
    assert ours > theirs


def test_normal_passes_near_pi0_with_a_small_clip_only(world: World) -> None:
    pi0, passed = world.logging_policy, {1.1: 0, 5.0: 0}
    ladder = MixtureLadder((pi0, Uniform(world.catalogue.novel)), np.array([[0.97, 0.03]]))
    for run in range(20):
        folds = split(world.deploy(pi0, 4_000, round=run), "test")
        for clip in passed:
            passed[clip] += certify(ladder, folds, Rules(clip=clip), Reads()).passed
    assert passed == {1.1: 20, 5.0: 0}


def test_after_a_round_ended_by_choice_bounds_hold_at_any_time(world: World) -> None:
    pi0 = world.logging_policy
    folds = split(world.deploy(pi0, 12_000, round=0), "test")
    for fixed in (True, False):
        inputs = RoundInputs(folds, pi0, fixed_length=fixed)
        candidate = look_ahead(inputs, SETTINGS, seed=0, fit=fit_linear).frozen()
        made = certify_round(candidate, inputs, SETTINGS, reads=Reads()).certificate
        assert candidate.rules.fixed_length is made.fixed_length is fixed
        if not fixed:  # a bet sized for the rows there are would know when the round ended
            assert candidate.rules.bets == {}
        assert fixed or made.bound in ("betting", "smoothing")
