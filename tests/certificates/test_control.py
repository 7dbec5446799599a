"""The control variate keeps the mean, within its limits; weights over groups; both are verified."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue.certificates import (
    Certificate,
    Control,
    MixtureLadder,
    Reads,
    Rules,
    certify,
    tuned,
    verify,
)
from depsue.certificates.promise_test import PromiseTest
from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError, DataError
from depsue.estimators import MIPS
from depsue.policies import Mixture, OwnPolicy, ScoreTable, Uniform
from depsue.promises import Promise
from depsue.rewards import OwnRewardModel
from depsue.testing.splits import split

DRAW = np.random.default_rng(3)
U, A, CLIP = 5, 6, 1.5
NOVEL = np.arange(A) >= 4
CATALOGUE = Catalogue.of(range(A), novel=[4, 5])
CONTEXTS = np.arange(U, dtype=np.float32)[:, None]
BASE = DRAW.dirichlet(np.ones(4), U) @ np.eye(4, A)
BASE[0] = [0.5, 0.5, 0, 0, 0, 0]
"""At one context the logging policy does not show all supported actions."""
Q = DRAW.uniform(0.2, 0.9, (U, A))
TILT = np.where(NOVEL, 0.0, BASE * Q**2)
TILT /= TILT.sum(axis=1, keepdims=True)
GROUPS = np.array([0, 0, 1, 1, 0, 1])


def policy(pi: np.ndarray[Any, Any]) -> OwnPolicy:
    return OwnPolicy(ScoreTable(CONTEXTS, pi), A)


def model(q: np.ndarray[Any, Any] = Q) -> OwnRewardModel:
    return OwnRewardModel(ScoreTable(CONTEXTS, q), A)


PI0, BETTER, NEW = policy(BASE), policy(TILT), Uniform(NOVEL)
CONTROL = Control(PI0, model(), 1.0, {"reward": 1.0})


def logs_of(context: Any, action: Any, reward: Any, propensity: Any) -> LoggedData:
    return LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=context,
        actions=action,
        rewards=reward,
        propensities=propensity,
        catalogue=CATALOGUE,
        r_max=1.0,
    )


def drawn(n: int, seed: int) -> LoggedData:
    draw = np.random.default_rng(seed)
    context = draw.integers(0, U, n)
    action = (draw.random(n)[:, None] > np.cumsum(BASE, axis=1)[context]).sum(axis=1)
    reward = (draw.random(n) < Q[context, action]).astype(float)
    return logs_of(context, action, reward, BASE[context, action])


@pytest.mark.parametrize("q", [Q, np.full((U, A), 0.3), DRAW.uniform(-1, 3, (U, A))])
def test_its_mean_is_zero_at_every_context_whatever_the_model_says(q: Any) -> None:
    context, action = np.nonzero(BASE)
    logs = logs_of(context, action, np.zeros(len(context)), BASE[context, action])
    uniform = policy(np.full((U, A), 1 / A))  # shows what the logging policy does not
    variates = Control(PI0, model(q), 1.0, {}).of([BETTER, NEW, uniform, PI0], logs, [CLIP] * 4)
    assert np.abs(variates[[0, 2, 3]]).max() > 0.05 and not variates[1].any()
    for values in variates:
        means = np.bincount(context, values * logs.propensity)
        assert means == pytest.approx(np.zeros(U), abs=1e-6)
        assert values.min() >= -1 and values.max() <= CLIP


def test_the_terms_keep_their_mean_and_vary_less() -> None:
    logs = drawn(40_000, 4)
    plain = PromiseTest(logs, Rules(clip=CLIP), 0.05)
    less = PromiseTest(logs, Rules(clip=CLIP, control=CONTROL), 0.05)
    without = plain.terms(0, plain.evidence([BETTER]).mixed(np.ones(1))).terms
    evidence = less.evidence([BETTER]).mixed(np.ones(1))
    limited = less.terms(0, evidence)
    terms = limited.terms
    assert terms.values.std() < 0.8 * without.values.std()
    apart = terms.values.mean() - without.values.mean()
    assert abs(apart) < 4 * (terms.values - without.values).std() / 200
    assert terms.lower <= terms.values.min() and terms.values.max() <= limited.upper
    assert "less a control variate" in terms.proof
    assert less.best_coefficient(0, evidence) == pytest.approx(1.0, abs=0.1)
    alone, bounds = MixtureLadder((BETTER,), np.ones((1, 1))), []
    for rules in (Rules(clip=CLIP), Rules(clip=CLIP, control=CONTROL)):
        test = PromiseTest(logs, tuned(rules, alone, drawn(4_000, 5), 40_000, 0.05), 0.05)
        bounds.append(test(test.evidence([BETTER]).mixed(np.ones(1)))[0].bound)
    assert bounds[1] > bounds[0]


def test_a_model_that_says_nothing_gets_no_coefficient() -> None:
    constant = Control(PI0, model(np.zeros((U, A))), 1.0, {"reward": 1.0})
    flat = PromiseTest(drawn(5000, 6), Rules(clip=CLIP, control=constant), 0.05)
    assert flat.best_coefficient(0, flat.evidence([BETTER]).mixed(np.ones(1))) == 0.0


LOGS = drawn(6000, 7)
FOLDS = split(LOGS, "control")


def certified(old: OwnPolicy = BETTER, **rules: Any) -> tuple[Certificate, Mixture]:
    levels = MixtureLadder((old, NEW), np.array([[0.99, 0.01], [0.9, 0.1]]))
    made = certify(levels, FOLDS, Rules(clip=CLIP, **rules), Reads())
    return Certificate.from_json(made.to_json()), Mixture((old, NEW), made.shares)


@pytest.mark.parametrize("bound", ["normal", "betting", "smoothing"])
def test_a_certificate_with_it_says_so_and_is_verified(bound: str) -> None:
    made, served = certified(control=CONTROL, bound=bound)
    assert made.control == {"reward": 1.0} and made.control_most == 1.0
    assert any("distribution that its logging policy answers" in a for a in made.assumptions)
    assert verify(made, LOGS, served, base=PI0, model=CONTROL.model).equal
    other = verify(made, LOGS, served, base=PI0, model=model(Q * 0.5))
    assert not other.equal and "mean is" in str(other)
    with pytest.raises(ConfigError, match=r"rests on a reward model.*verify\(\.\.\., base="):
        verify(made, LOGS, served)


def test_weights_over_groups_count_a_novel_action_as_its_group() -> None:
    marginal = MIPS(PI0, GROUPS)
    made, served = certified(PI0, marginal=marginal)
    plain, _ = certified(PI0)
    assert made.shares == (0.9, 0.1) and plain.shares == (0.99, 0.01)
    assert any("worth what its group is" in words for words in made.assumptions)
    assert verify(made, LOGS, served, base=PI0, groups=GROUPS).equal
    other = GROUPS.copy()
    other[4] = 1
    assert "the groups of actions are not" in str(
        verify(made, LOGS, served, base=PI0, groups=other)
    )
    with pytest.raises(ConfigError, match=r"marginal weights rests on groups"):
        verify(made, LOGS, served)


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must lie in \[0, 1\].*2"):
        Control(PI0, model(), 1.0, {"reward": 2.0})
    with pytest.raises(ConfigError, match=r"most must be"):
        Control(PI0, model(), 0.0)
    with pytest.raises(ConfigError, match=r"needs a reward model"):
        Control(PI0, "q", 1.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"coefficients.*are by the name of a promise.*other"):
        Rules(control=replace(CONTROL, coefficients={"other": 1.0}))
    with pytest.raises(ConfigError, match=r"hcope takes no paired terms and no control"):
        Rules((Promise(),), bound="hcope", control=CONTROL)
    with pytest.raises(ConfigError, match=r"give one of them"):
        Rules(control=CONTROL, marginal=MIPS(PI0, GROUPS))
    with pytest.raises(DataError, match=r"those of the deployed policy"):
        Control(BETTER, model(), 1.0).of([PI0], drawn(50, 8), [CLIP])
