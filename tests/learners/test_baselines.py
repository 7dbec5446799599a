"""Epsilon-greedy, Thompson sampling and PRPO's clip: what each does, and what none promises."""

from __future__ import annotations

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData
from depsue.data.requests import Candidates, Requests
from depsue.errors import ConfigError, DataError, PolicyError
from depsue.learners import (
    AscentSettings,
    PrpoSettings,
    ThompsonSettings,
    epsilon_greedy,
    linear_thompson,
    train_prpo,
)
from depsue.policies import RatioClipped, ScoreTable, Uniform
from depsue.rewards import LinearRewardModel, OwnRewardModel

DRAW = np.random.default_rng(3)
CONTEXTS = DRAW.normal(size=(8, 2)).astype(np.float32)
FEATURES = DRAW.normal(size=(6, 2)).astype(np.float32)
NOVEL = np.arange(6) >= 4
CATALOGUE = Catalogue(np.arange(6), NOVEL, FEATURES)
Q = 0.5 + 0.2 * np.tanh(CONTEXTS @ DRAW.normal(size=(2, 2)) @ FEATURES.T)
MODEL = OwnRewardModel(ScoreTable(CONTEXTS, Q), 6)
PI0 = Uniform(~NOVEL)


def logs_of(each: int) -> LoggedData:
    """Every logged pair `each` times, with rewards drawn from Q."""
    context, action = (part.ravel() for part in np.meshgrid(np.arange(8), np.arange(4)))
    context, action = np.repeat(context, each), np.repeat(action, each)
    mean = Q[context, action]
    return LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=context,
        actions=action,
        rewards=DRAW.random(len(mean)) < mean,
        propensities=np.full(len(mean), 0.25),
        catalogue=CATALOGUE,
        r_max=1.0,
    )


def test_epsilon_greedy_shows_the_best_item_new_or_old_and_all_others_alike() -> None:
    pi = epsilon_greedy(MODEL, CATALOGUE, 0.3).probabilities(CONTEXTS)
    best = Q.argmax(axis=1)
    assert NOVEL[best].any() and not NOVEL[best].all()
    np.testing.assert_allclose(pi[np.arange(8), best], 0.7 + 0.05)
    np.testing.assert_allclose(np.sort(pi, axis=1)[:, :-1], 0.05)


def test_epsilon_greedy_shares_ties_and_chooses_among_candidates() -> None:
    flat = LinearRewardModel(0.5, np.zeros(2), np.zeros(6), 1.0)
    np.testing.assert_allclose(epsilon_greedy(flat, CATALOGUE).probabilities(CONTEXTS), 1 / 6)
    few = Requests(CONTEXTS[:2], Candidates.of_lists([[1, 5], [0, 2, 3]]))
    pi = epsilon_greedy(MODEL, CATALOGUE, 0.2).over(few)
    assert pi[0, int(Q[0, 5] > Q[0, 1])] == pytest.approx(0.9)
    assert pi[1, int(Q[1, [0, 2, 3]].argmax())] == pytest.approx(0.8 + 0.2 / 3)


def test_thompson_narrows_to_the_best_items_as_rows_grow() -> None:
    """With products the model can say what is best; its doubt, and with it the spread of what is
    shown, shrinks with the rows."""
    settings = ThompsonSettings(draws=400)
    few, many = (
        linear_thompson(logs_of(each), settings, seed=1).probabilities(CONTEXTS)
        for each in (5, 4000)
    )
    best = Q.argmax(axis=1)
    assert (few > 0).sum() > 2 * (many > 0).sum()
    assert (many * Q).sum(axis=1).mean() > 0.97 * Q[np.arange(8), best].mean()
    np.testing.assert_allclose(few * 400, np.round(few * 400))


def test_thompson_draws_have_the_spread_of_the_posterior() -> None:
    """Standardised Gaussian design by hand: one context, one feature, no products."""
    features = np.array([[-1.0], [1.0]], dtype=np.float32)
    n = 400
    rewards = np.tile([0.0, 1.0, 0.0, 0.0], n // 4)
    logs = LoggedData.from_arrays(
        contexts=np.zeros((1, 1), dtype=np.float32),
        context_rows=np.zeros(n, dtype=int),
        actions=np.tile([0, 1], n // 2),
        rewards=rewards,
        propensities=np.full(n, 0.5),
        catalogue=Catalogue.of([0, 1], features=features),
        r_max=1.0,
    )
    settings = ThompsonSettings(draws=20_000, products=False, ridge=1e-6)
    draws = linear_thompson(logs, settings, seed=0).draws[:, 0, 1]
    slope = (0.5 - 0.0) / 2  # means .0 and .5 at features -1 and 1
    noise = np.sqrt(0.25 / 2)  # the mean of the variances 0 and 1/4
    assert draws.mean() == pytest.approx(slope, abs=4 * noise / np.sqrt(n * 20_000))
    assert draws.std() == pytest.approx(noise / np.sqrt(n), rel=0.03)


def test_the_clipped_policy_keeps_its_ratios_and_its_share_of_the_value() -> None:
    base = PI0.probabilities(CONTEXTS)
    clipped = RatioClipped(PI0, MODEL, low=0.6, high=1.5)
    pi = clipped.probabilities(CONTEXTS)
    ratio = pi[:, :4] / base[:, :4]
    assert ratio.min() >= 0.6 - 1e-12 and ratio.max() <= 1.5 + 1e-12
    assert (pi[:, 4:] == 0).all()
    # whatever the rewards are: also where the model has everything upside down
    hostile = (pi * (1 - Q)).sum(axis=1)
    assert (hostile >= 0.6 * (base * (1 - Q)).sum(axis=1)).all()
    # the best of all that keep them: each context by linear programming
    from scipy.optimize import linprog

    for x in range(8):
        best = linprog(-Q[x, :4], A_eq=np.ones((1, 4)), b_eq=[1.0], bounds=[(0.15, 0.375)] * 4)
        assert pi[x] @ Q[x] == pytest.approx(-best.fun)


def test_the_clipped_policy_shares_what_is_predicted_alike() -> None:
    flat = OwnRewardModel(ScoreTable(CONTEXTS, np.full((8, 6), 0.5)), 6)
    pi = RatioClipped(PI0, flat, low=0.2, high=3).probabilities(CONTEXTS)
    np.testing.assert_allclose(pi, PI0.probabilities(CONTEXTS))


def test_prpo_gains_within_its_clip_and_does_not_hold_it() -> None:
    """The clip removes what can be gained, so the policy stays nearer to pi0 with a narrower one;
    but ratios do leave the limits, where `RatioClipped` holds them."""
    logs = logs_of(300)
    base, value0 = PI0.probabilities(CONTEXTS), (PI0.probabilities(CONTEXTS) * Q).sum()
    spread = []
    for low in (0.9, 0.3):
        settings = PrpoSettings(low=low, high=1 / low, ascent=AscentSettings(steps=150))
        pi = train_prpo(logs, PI0, MODEL, settings).policy.probabilities(CONTEXTS)
        assert (pi[:, 4:] == 0).all()
        assert (pi * Q).sum() > value0
        spread.append(np.abs(pi - base).sum())
        assert (pi[:, :4] / base[:, :4]).max() > 1 / low + 0.01
    assert spread[0] < spread[1]


def test_prpo_without_a_baseline_has_little_to_clip_from_below() -> None:
    logs = logs_of(300)
    pis = [
        train_prpo(
            logs, PI0, MODEL, PrpoSettings(baseline=baseline, ascent=AscentSettings(steps=100))
        ).policy.probabilities(CONTEXTS)
        for baseline in (True, False)
    ]
    assert np.abs(pis[0] - pis[1]).max() > 0.01


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="the clip is low"):
        PrpoSettings(low=1.2)
    with pytest.raises(PolicyError, match="low must lie in"):
        RatioClipped(PI0, MODEL, low=1.2, high=2)
    with pytest.raises(PolicyError, match="high must be at least 1"):
        RatioClipped(PI0, MODEL, low=0.5, high=0.9)
    with pytest.raises(ConfigError, match="draws must be a whole number"):
        ThompsonSettings(draws=0)
    with pytest.raises(ConfigError, match="spread must be a finite number"):
        ThompsonSettings(spread=-1)
    with pytest.raises(ConfigError, match="steps must be a whole number"):
        AscentSettings(steps=0)
    with pytest.raises(ConfigError, match="entropy must be a finite number"):
        AscentSettings(entropy=-1)
    with pytest.raises(ConfigError, match="ridge"):
        ThompsonSettings(ridge=0)
    bare = Catalogue(np.arange(6), NOVEL)
    logs = LoggedData.from_arrays(
        contexts=CONTEXTS[:2],
        actions=[0, 1],
        rewards=[1, 0],
        propensities=[0.25, 0.25],
        catalogue=bare,
        r_max=1.0,
    )
    with pytest.raises(DataError, match="action features"):
        linear_thompson(logs, seed=0)
