"""Certified exploration where every request brings candidates, with pi0 known in three ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from depsue import Catalogue, ExploreSettings, LoggedData, RewardSettings
from depsue.certificates import Reads
from depsue.data import Candidates, Requests
from depsue.data.checks import FloatArray, IntArray
from depsue.diagnostics import check_propensities
from depsue.estimators.weights import importance_weights
from depsue.exploration.round import certify_round, look_ahead
from depsue.exploration.rounds import CampaignState
from depsue.policies import (
    BasePolicy,
    BroughtPolicy,
    ChosenPolicy,
    Mixture,
    OrElse,
    SoftmaxOfScores,
    Uniform,
)
from depsue.policies.base import whole

A, NEW, D = 24, 6, 3
DRAW = np.random.default_rng(5)
FEATURES = DRAW.normal(size=(A, D)).astype(np.float32)
TASTES = DRAW.normal(size=(D, D)) * 0.6
CATALOGUE = Catalogue.of(
    [f"i{k}" for k in range(A)], novel=[f"i{k}" for k in range(A - NEW, A)], features=FEATURES
)
RANKER = SoftmaxOfScores(lambda x: 0.5 * (x @ TASTES @ FEATURES.T), 1.0, ~CATALOGUE.novel)
Known = Literal["called", "logged", "chosen"]
PI0: dict[Known, BasePolicy] = {
    "called": RANKER,
    "logged": BroughtPolicy(A),
    "chosen": ChosenPolicy(A),
}


def chances(contexts: FloatArray, items: IntArray) -> FloatArray:
    """(n,) the mean reward of each pair."""
    scores = np.einsum("nd,de,ne->n", contexts, TASTES, FEATURES[items])
    return np.asarray(1 / (1 + np.exp(1.0 - scores)))


def requests(n: int, draw: np.random.Generator) -> Requests:
    """Contexts from 27, and 4 to 9 candidates in stock, one of them old at least."""
    contexts = draw.integers(-1, 2, size=(n, D)).astype(np.float32)
    lists = [draw.choice(A, size=draw.integers(4, 10), replace=False) for _ in range(n)]
    lists = [items if (items < A - NEW).any() else np.append(items[1:], 0) for items in lists]
    return Requests(contexts, Candidates.of_lists(lists))


def served(
    policy: BasePolicy, known: Known, n: int, round: int, draw: np.random.Generator
) -> LoggedData:
    """n decisions by a policy, as a service logs them."""
    asked = requests(n, draw)
    sets = asked.sets
    assert sets is not None
    table = RANKER.over(asked)
    by_pi0: FloatArray | None = None
    if known == "logged":
        shares = table[np.arange(table.shape[1]) < sets.sizes[:, None]]
        sets = Candidates(sets.starts, sets.items, shares)
        asked = Requests(asked.contexts, sets)
    if known == "chosen" and round:
        share = policy.pi0_share(asked)
        own = draw.random(n) < share
        chosen, p0 = RANKER.sample(asked, draw)
        g = policy.besides_pi0(asked)
        spread = np.cumsum(g, axis=1) / np.maximum(g.sum(axis=1, keepdims=True), 1e-12)
        place = np.minimum((draw.random(n)[:, None] > spread).sum(axis=1), sets.sizes - 1)
        actions = np.where(own, chosen, sets.items[sets.starts[:-1] + place])
        propensities = np.where(own, share * p0, g[np.arange(n), place])
        by_pi0 = np.where(own, p0, 0.0)
    else:
        actions, propensities = (RANKER if known == "chosen" else policy).sample(asked, draw)
    return LoggedData.from_arrays(
        contexts=asked.contexts,
        actions=CATALOGUE.ids[actions],
        rewards=(draw.random(n) < chances(asked.contexts, actions)).astype(float),
        propensities=propensities,
        catalogue=CATALOGUE,
        r_max=1.0,
        rounds=np.full(n, round),
        candidates=sets,
        by_pi0=by_pi0,
    )


@pytest.mark.parametrize("known", PI0)
def test_three_rounds_show_new_items_and_keep_the_floor(known: Known) -> None:
    draw, n = np.random.default_rng(11), 6000
    small = RewardSettings(members=1, max_epochs=4)
    settings = ExploreSettings(deployments=3, rewards=small)
    logs = served(PI0[known], known, n, 0, draw)
    reads = Reads(secret="1" * 64)
    first = reads.register(logs, settings.fractions)
    state = CampaignState(settings, PI0[known], logs, first, settings.delta_of_deployment)
    shown = []
    for k in (1, 2, 3):
        inputs = state.inputs(n)
        candidate = look_ahead(inputs, state.settings, seed=k).frozen()
        explored = certify_round(candidate, inputs, state.settings, reads=reads)
        assert isinstance(explored.policy, BasePolicy)
        rows = served(explored.policy, known, n, k, draw)
        shown.append(float(CATALOGUE.novel[rows.action].mean()))
        assert rows.mean_reward() > 0.95 * logs.mean_reward() - 0.03
        state.observe(
            rows,
            explored.policy,
            reads.register(rows, settings.fractions, first=first),
            novelty=explored.novelty,
            certified=explored.certified,
            trust=candidate.trust,
        )
    assert min(shown) > 0.02 and max(shown) > 0.1


@pytest.mark.parametrize("known", PI0)
def test_what_is_certain_is_even_in_each_request_and_pi0_where_nothing_is_new(
    known: Known,
) -> None:
    draw = np.random.default_rng(12)
    settings = ExploreSettings(rewards=RewardSettings(members=1, max_epochs=2))
    logs = served(PI0[known], known, 900, 0, draw)
    reads = Reads(secret="1" * 64)
    first = reads.register(logs, settings.fractions)
    state = CampaignState(settings, PI0[known], logs, first, settings.delta_of_deployment)
    candidate = look_ahead(state.inputs(900), settings, seed=1).frozen()
    certain, ahead = candidate.certain, candidate.exposure
    assert certain is not None and ahead is not None
    asked = requests(400, draw)
    assert asked.sets is not None
    new = asked.table(CATALOGUE.novel[asked.sets.items].astype(float), A)
    brings = new.sum(axis=1) > 0
    assert 0.5 < brings.mean() < 0.99
    each = 0.05 * new[brings] / new[brings].sum(axis=1, keepdims=True)
    if known == "chosen":
        np.testing.assert_allclose(certain.besides_pi0(asked)[brings], each)
        np.testing.assert_allclose(certain.pi0_share(asked)[~brings], 1.0)
    elif known == "called":
        table = whole(certain, asked)
        np.testing.assert_allclose(table[brings] * new[brings], each, atol=1e-9)
        np.testing.assert_allclose(table[~brings], whole(RANKER, asked)[~brings], atol=1e-6)
    for exposure in (ahead.learned, ahead.even):  # of new items, where there are any
        assert exposure[CATALOGUE.novel].sum() == pytest.approx(brings.mean(), abs=0.06)


def test_limits_of_exposure_hold_for_what_is_certain_where_items_are_offered() -> None:
    """An item is offered beside few others: an even choice would show it more than its most."""
    draw = np.random.default_rng(12)
    rewards = RewardSettings(members=1, max_epochs=2)
    logs = served(RANKER, "called", 3000, 0, draw)
    shares = {}
    for most in (1.0, 0.6):
        settings = ExploreSettings(rewards=rewards, most=most)
        reads = Reads(secret="1" * 64)
        first = reads.register(logs, settings.fractions)
        state = CampaignState(settings, RANKER, logs, first, settings.delta_of_deployment)
        prospect = look_ahead(state.inputs(3000), settings, seed=1)
        pi = prospect.forecast.exposure_of(prospect.even.new.policy)
        shares[most] = (pi / prospect.forecast.offered())[CATALOGUE.novel]
    assert shares[0.6].max() <= 0.6 + 1e-4 and shares[1.0].max() > 0.601


def value(policy: BasePolicy, asked: Requests) -> float:
    """The mean reward of a policy on these requests, exactly, with pi0 = the ranker."""
    sets = asked.sets
    assert sets is not None
    table = whole(RANKER, asked) * policy.pi0_share(asked)[:, None] + policy.besides_pi0(asked)
    worth = asked.table(chances(asked.contexts[sets.request], sets.items), A)
    return float((table * worth).sum(axis=1).mean())


def test_weights_of_what_pi0_chose_never_overstate() -> None:
    """With g' over old and new items; items that g never shows, or p0 alone knows, only lower."""
    draw, n = np.random.default_rng(3), 20_000
    even = Uniform(np.ones(A, dtype=bool))
    deployed = Mixture(
        [ChosenPolicy(A), OrElse(Uniform(CATALOGUE.novel), ChosenPolicy(A))], [0.7, 0.3]
    )
    candidate = Mixture([ChosenPolicy(A), even], [0.6, 0.4])
    truth = value(candidate, requests(n, draw))
    first = served(PI0["chosen"], "chosen", n, 0, draw)
    rows = served(deployed, "chosen", n, 1, draw)
    by_old = importance_weights(candidate, first) * first.reward
    by_both = importance_weights(candidate, rows) * rows.reward
    error = by_both.std() / np.sqrt(n)
    assert by_old.mean() < truth - 0.02  # new items count as nothing
    assert by_both.mean() == pytest.approx(truth, abs=4 * error)  # and once they were shown, fully
    assert importance_weights(PI0["chosen"], rows).mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("known", PI0)
def test_wrong_propensities_are_found_on_candidates(known: Known) -> None:
    draw, n = np.random.default_rng(7), 8000
    learn, select = (served(PI0[known], known, n, 0, draw) for _ in range(2))
    assert check_propensities(learn, select).ok
    # the log says 1.5 times too much of two items, and so too little of the others
    favoured = np.isin(learn.action, [0, 1]), np.isin(select.action, [0, 1])
    wrong = [
        replace(rows, propensity=np.minimum(np.where(mine, 1.5, 0.6) * rows.propensity, 1.0))
        for rows, mine in zip((learn, select), favoured, strict=True)
    ]
    assert not check_propensities(wrong[0], wrong[1]).ok
    policy = PI0[known] if known != "chosen" else None
    assert check_propensities(learn, select, logging_policy=policy).ok
    if policy is not None:
        report = check_propensities(wrong[0], wrong[1], logging_policy=policy)
        assert "propensities must be those of the logging policy" in report.findings[0]


def test_right_propensities_of_two_arms_are_not_refused() -> None:
    draw, n = np.random.default_rng(8), 6000
    deployed = Mixture(
        [ChosenPolicy(A), OrElse(Uniform(CATALOGUE.novel), ChosenPolicy(A))], [0.7, 0.3]
    )
    learn, select = (served(deployed, "chosen", n, 1, draw) for _ in range(2))
    assert check_propensities(learn, select, logging_policy=deployed).ok
    lies = replace(select, propensity=np.where(select.by_pi0 == 0, 0.5, 1.0) * select.propensity)
    assert not check_propensities(learn, lies).ok
