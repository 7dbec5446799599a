"""How far q-hat is believed where the logs cannot confirm it."""

import numpy as np
import pytest

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError
from depsue.exploration.forecast import Forecast
from depsue.exploration.learning import Calibration, trust_on_hidden_items
from depsue.exploration.settings import in_words, require_objective, worth
from depsue.policies import Uniform
from depsue.policies.tilted import Tilted
from depsue.rewards import OwnRewardModel, RewardSettings

QUICK = RewardSettings(members=1, hidden=(16,), max_epochs=8)
A, NOVEL = 60, 12


def logs_of(quality: FloatArray, features: FloatArray, n: int = 40_000) -> LoggedData:
    """Uniform logs; an action's mean reward is its quality."""
    draw = np.random.default_rng(5)
    novel = np.arange(A) >= A - NOVEL
    actions = draw.integers(0, A - NOVEL, n)
    return LoggedData.from_arrays(
        contexts=draw.normal(size=(200, 2)),
        context_rows=draw.integers(0, 200, n),
        actions=actions,
        rewards=draw.random(n) < quality[actions],
        propensities=np.full(n, 1 / (A - NOVEL)),
        catalogue=Catalogue(np.arange(A), novel, features),
        r_max=1.0,
    )


def trust(logs: LoggedData, seed: int) -> float:
    return trust_on_hidden_items(logs, QUICK, strength=2.0, even=0.1, seed=seed)


def test_a_promise_is_kept_where_features_say_what_an_action_is_worth() -> None:
    quality = np.random.default_rng(0).uniform(0.1, 0.7, A)
    logs = logs_of(quality, quality[:, None])
    assert np.mean([trust(logs, seed) for seed in range(5)]) > 0.9


def test_a_promise_is_broken_where_features_only_tell_known_actions_apart() -> None:
    draw = np.random.default_rng(1)
    quality = np.where(draw.random(A) < 0.3, 0.6, 0.05)
    logs = logs_of(quality, draw.normal(size=(A, 40)))
    assert np.mean([trust(logs, seed) for seed in range(5)]) < 0.8


def test_little_evidence_means_little_trust() -> None:
    quality = np.random.default_rng(0).uniform(0.1, 0.7, A)
    many, few = (logs_of(quality, quality[:, None], n) for n in (40_000, 400))
    assert np.mean([trust(few, s) for s in range(5)]) < np.mean([trust(many, s) for s in range(5)])


def test_without_actions_to_hide_nothing_is_believed() -> None:
    logs = logs_of(np.full(A, 0.5), np.ones((A, 1)))
    none_novel = LoggedData.from_arrays(
        contexts=logs.contexts,
        context_rows=logs.context,
        actions=logs.action,
        rewards=logs.reward,
        propensities=logs.propensity,
        catalogue=Catalogue(np.arange(A), np.zeros(A, dtype=bool), np.ones((A, 1))),
        r_max=1.0,
    )
    assert trust(none_novel, 0) == 0.0


class Boasting:
    """Says 1 of every tenth action, and .2 of the others; all are worth .3."""

    def predict(self, contexts: FloatArray) -> FloatArray:
        return np.tile(np.where(np.arange(A) % 10 == 0, 1.0, 0.2), (len(contexts), 1))

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        return np.where(actions % 10 == 0, 1.0, 0.2)


def anticipated(trust: float, clip: float) -> float:
    """The value that is anticipated of a policy that follows the boasts."""
    logs = logs_of(np.full(A, 0.3), np.ones((A, 1)))
    pi0 = Uniform(~logs.catalogue.novel)
    known = Forecast(
        logs, Boasting(), pi0, pi0, clip=clip, seed=0, calibrating=believing(logs), trust=trust
    )
    policy = Tilted(pi0, Boasting(), strength=9.0, cap=1e6, scale=known.spread)
    return known.sums(policy.tilt(known.pi0, known.q_hat))[0].value


def believing(logs: LoggedData) -> LoggedData:
    """Rows on which the boasts come true, so that calibration lets them stand."""
    draw = np.random.default_rng(3)
    quality = Boasting().predict_pairs(logs.contexts, logs.action)
    return LoggedData.from_arrays(
        contexts=logs.contexts,
        context_rows=logs.context,
        actions=logs.action,
        rewards=draw.random(len(logs)) < quality,
        propensities=logs.propensity,
        catalogue=logs.catalogue,
        r_max=1.0,
    )


def test_the_select_rows_correct_what_a_model_says_of_its_favourites() -> None:
    assert anticipated(trust=1.0, clip=100.0) == pytest.approx(0.3, abs=0.05)


def test_beyond_the_reach_of_the_logs_a_model_is_believed_as_far_as_it_is_trusted() -> None:
    believed, half, doubted = (anticipated(trust, clip=1.0) for trust in (1.0, 0.5, 0.0))
    assert doubted < half < believed
    assert believed > 0.6


def test_calibration_undoes_a_wrong_level_and_slope() -> None:
    quality = np.random.default_rng(0).uniform(0.1, 0.7, A)
    logs = logs_of(quality, quality[:, None])
    model = OwnRewardModel(lambda x: np.tile(0.9 + 2 * quality, (len(x), 1)), A)
    supported = ~logs.catalogue.novel
    corrected = Calibration.on(model, logs).corrected(model.predict(logs.contexts[:1]), ~supported)
    np.testing.assert_allclose(corrected[0, supported], quality[supported], atol=0.05)


def test_balanced_wants_less_novelty_where_it_costs_more() -> None:
    nu = np.linspace(0, 1, 1001)
    best = [
        nu[worth("balanced", 1.2 - cost * nu, nu).argmax()] for cost in (0.1, 0.4, 0.5, 0.6, 1.1)
    ]
    assert best == sorted(best, reverse=True) and best[0] > 0.5 and 0.04 < best[-1] < 0.06
    rich = nu[worth("balanced", 3 * (1.2 - 0.5 * nu), nu).argmax()]
    assert rich > best[2]  # who has earned more can spend more


def test_a_weight_and_the_two_plain_objectives() -> None:
    value, nu = np.array([1.1, 1.0]), np.array([0.1, 0.4])
    np.testing.assert_allclose(worth("most novelty", value, nu), nu)
    np.testing.assert_allclose(worth("most value", value, nu), value)
    np.testing.assert_allclose(worth(0.5, value, nu), [1.15, 1.2])
    assert in_words(0.5) == "the most of value + 0.5 x novelty"
    assert in_words("most value") == "the most value"
    assert "log(1 + novelty" in in_words("balanced")


@pytest.mark.parametrize(("earned", "given_up"), [(1.0, 0.012), (1.05, 0.020), (1.25, 0.047)])
def test_balanced_gives_up_more_for_twice_the_novelty_the_more_it_has_earned(
    earned: float, given_up: float
) -> None:
    value = np.array([earned, earned * (1 - given_up)])
    before, after = worth("balanced", value, np.array([0.2, 0.4]))
    assert after == pytest.approx(before, abs=0.002)


@pytest.mark.parametrize("wrong", ["most fun", -1.0, float("nan"), None, True])
def test_what_is_no_objective_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="the objective must be most novelty, most value"):
        require_objective(wrong)
