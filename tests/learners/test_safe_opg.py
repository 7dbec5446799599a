"""Algorithm 1: the constraint binds, lambda follows Eq. 8, and the bound is the right one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.learners.conftest import Setting

from depsue.bounds import Betting, Hcope, Smoothing
from depsue.data import Catalogue
from depsue.data.terms import WeightedTerms
from depsue.errors import ConfigError
from depsue.learners import OpgSettings, SafeOpgSettings, train_safe_opg
from depsue.learners.opg import initial_policy
from depsue.learners.safe_opg import BoundOnLogs
from depsue.policies.network import NetworkPolicy
from depsue.protocols import Bound

QUICK = SafeOpgSettings(steps=800, rate=0.03, rate_lambda=0.05)


@pytest.mark.parametrize("bound", [Hcope(), Smoothing(), Betting()])
def test_the_fast_bound_is_the_bound_of_all_rows(setting: Setting, bound: Bound) -> None:
    logs = setting.logs
    policy = initial_policy(logs, QUICK, seed=5)
    weights = np.exp(policy.log_prob(logs.contexts, logs.action, logs.context)) / logs.propensity
    expected = bound.lower(WeightedTerms.of(weights, logs.reward, r_max=1.0), 0.05)
    check = BoundOnLogs(logs, bound, 0.05)
    value = check(policy)
    assert value.value == pytest.approx(expected.value, abs=1e-6)
    assert check.value(policy) == pytest.approx(value.value, abs=1e-12)
    assert value.value > 0


def test_the_fast_bound_survives_huge_logits(setting: Setting) -> None:
    logs = setting.logs
    mild = initial_policy(logs, QUICK, seed=5)
    (w0, b0), (w1, b1) = mild.layers
    steep = NetworkPolicy([(w0, b0), (w1 * 1000, b1 + 500)], mild.shift, mild.scale)
    check = BoundOnLogs(logs, Hcope(), 0.05)
    weights = np.exp(steep.log_prob(logs.contexts, logs.action, logs.context)) / logs.propensity
    expected = Hcope().lower(WeightedTerms.of(weights, logs.reward, r_max=1.0), 0.05)
    assert weights.max() > 10
    assert check.value(steep) == pytest.approx(expected.value, abs=1e-6)
    assert check.value(mild) > 0  # and nothing of the steep one is left


@pytest.mark.parametrize("shift", [-103.0, 95.0])
def test_the_fast_bound_survives_shifted_logits(setting: Setting, shift: float) -> None:
    """A softmax does not change when all logits are shifted; nor may its bound."""
    logs = setting.logs
    plain = initial_policy(logs, QUICK, seed=5)
    moved = plain.copy()
    moved.layers[-1][1].add_(shift)
    check = BoundOnLogs(logs, Hcope(), 0.05)
    assert check.value(moved) == pytest.approx(check.value(plain), abs=1e-5)


@pytest.mark.parametrize(
    ("need", "message"),
    [(float("nan"), "need must be a number"), (None, "need must be a number")],
)
def test_a_need_must_be_a_number(setting: Setting, need: Any, message: str) -> None:
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    with pytest.raises(ConfigError, match=message):
        train_safe_opg(s1, s2, setting.model, need, QUICK, seed=0)


def test_folds_must_be_two_of_one_catalogue(setting: Setting) -> None:
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    with pytest.raises(ConfigError, match="the same rows twice"):
        train_safe_opg(s1, s1, setting.model, 0.1, QUICK, seed=0)
    other = Catalogue(setting.world.catalogue.ids[::-1], setting.world.catalogue.novel)
    with pytest.raises(ConfigError, match="the same catalogue"):
        train_safe_opg(s1, replace(s2, catalogue=other), setting.model, 0.1, QUICK, seed=0)
    with pytest.raises(ConfigError, match="settings must be SafeOpgSettings"):
        train_safe_opg(s1, s2, setting.model, 0.1, OpgSettings(), seed=0)  # type: ignore[arg-type]


def test_the_verdict_can_be_read(setting: Setting) -> None:
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    trained = train_safe_opg(s1, s2, setting.model, 0.9, replace(QUICK, steps=3), seed=0)
    assert str(trained).startswith("FAILED: bound 0.") and "need 0.9000" in str(trained)


def test_units_enter_the_bound(setting: Setting) -> None:
    logs = setting.logs
    units = replace(logs, unit=logs.context, units=np.arange(len(logs.contexts)))
    policy = initial_policy(logs, QUICK, seed=5)
    by_row = BoundOnLogs(logs, Hcope(), 0.05)(policy)
    by_unit = BoundOnLogs(units, Hcope(), 0.05)(policy)
    assert by_unit.n < len(logs.contexts) <= by_row.n


def test_lambda_follows_eq_8(setting: Setting) -> None:
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    settings = replace(QUICK, steps=25)
    history = train_safe_opg(s1, s2, setting.model, 0.15, settings, seed=0).history
    lambda_ = 0.0
    for bound, recorded in zip(history.bound, history.lambda_, strict=True):
        lambda_ = max(lambda_ - settings.rate_lambda * (bound - 0.15), 0.0)
        assert recorded == pytest.approx(lambda_)
    assert history.lambda_[-1] > 0


def test_the_constraint_binds(setting: Setting) -> None:
    """With the floor, the bound passes it and the policy is safe; without, it does not."""
    world, logs = setting.world, setting.logs
    s1, s2 = logs.split((0.5, 0.5), salt="t")
    floor = 0.9 * logs.mean_reward()
    safe = train_safe_opg(s1, s2, setting.model, floor, QUICK, seed=0)
    free = train_safe_opg(s1, s2, setting.model, 1e-9, QUICK, seed=0)
    assert safe.passed and safe.bound.value > floor
    assert not free.bound.value > floor
    assert max(free.history.lambda_) == 0
    assert world.value(safe.policy) >= floor
    assert world.novelty(free.policy) > world.novelty(safe.policy)
    assert safe.bound.value == BoundOnLogs(s2, Hcope(), 0.05)(safe.policy).value
    assert safe.history.bound[-1] == pytest.approx(safe.bound.value, abs=1e-12)


def test_bound_every_recomputes_less_but_lambda_moves_every_step(setting: Setting) -> None:
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    settings = replace(QUICK, steps=20, bound_every=5)
    history = train_safe_opg(s1, s2, setting.model, 0.2, settings, seed=0).history
    assert len(set(history.bound)) == 4
    assert len(set(history.lambda_)) == 20


def test_the_last_passing_policy_may_be_kept(setting: Setting) -> None:
    """Training that ends below the need returns the latest policy that was above it."""
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    need = 0.9 * setting.logs.mean_reward()
    settings = replace(QUICK, rate_lambda=0.5)
    last = train_safe_opg(s1, s2, setting.model, need, settings, seed=0)
    bounds = np.array(last.history.bound)
    falls = np.flatnonzero((bounds[:-1] > need) & (bounds[1:] <= need))
    assert len(falls), "the example must cross the need downwards"
    short = replace(settings, steps=int(falls[0]) + 2)  # ends one step below the need
    at_end = train_safe_opg(s1, s2, setting.model, need, short, seed=0)
    best = train_safe_opg(s1, s2, setting.model, need, replace(short, keep="last passing"), seed=0)
    assert not at_end.passed
    assert best.passed and best.bound.value == pytest.approx(bounds[falls[0]])
    assert best.history.bound == at_end.history.bound


def test_an_interrupt_leaves_a_usable_policy_with_its_bound(setting: Setting) -> None:
    seen: list[str] = []

    def stop(task: str, done: int, total: int, words: str) -> None:
        seen.append(words)
        raise KeyboardInterrupt

    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    trained = train_safe_opg(s1, s2, setting.model, 0.2, QUICK, seed=0, watch=stop)
    assert trained.interrupted and len(trained.history) == 20
    assert trained.bound.value == BoundOnLogs(s2, Hcope(), 0.05)(trained.policy).value
    assert "bound" in seen[0] and "0.2000" in seen[0]


def test_deterministic_logging_is_handled(setting: Setting) -> None:
    """All propensities 1: the policy may only imitate, and the bound is still a bound."""
    logs = setting.logs
    best = setting.world.q[:, ~setting.world.catalogue.novel].argmax(axis=1)
    fixed = replace(logs, action=best[logs.context].astype(np.int32), propensity=np.ones(len(logs)))
    s1, s2 = fixed.split((0.5, 0.5), salt="t")
    trained = train_safe_opg(s1, s2, setting.model, 0.05, QUICK, seed=0)
    assert fixed.deterministic
    assert 0 < trained.bound.value <= fixed.mean_reward()


def test_the_history_plots_itself(setting: Setting) -> None:
    s1, s2 = setting.logs.split((0.5, 0.5), salt="t")
    settings = replace(QUICK, steps=30)
    figure = train_safe_opg(s1, s2, setting.model, 0.2, settings, seed=0).history.plot()
    titles = [axis.get_title() for axis in figure.axes]
    assert "bound against need" in titles and "R against the bound" in titles


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta must lie in"),
        ({"keep": "best"}, "keep must be"),
        ({"bound_every": 0}, "bound_every must be a whole number"),
        ({"bound": "hcope"}, "bound must be a bound"),
        ({"bound": Hcope}, "bound must be a bound"),
        ({"rate_lambda": 0.0}, "rate_lambda must be a positive number"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(QUICK, **change)
