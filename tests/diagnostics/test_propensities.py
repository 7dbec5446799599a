"""The test of the propensities: what it refuses, what it must not, and what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.diagnostics.propensities import (
    Rows,
    SeenPropensities,
    check_propensities,
    models,
    principal,
    require_propensities,
)
from depsue.errors import ConfigError, DataError
from depsue.policies import OwnPolicy, ScoreTable
from depsue.testing.bounds import binomial_tail

RUNS = 250


def softmax(scores: FloatArray) -> FloatArray:
    out = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(out / out.sum(axis=1, keepdims=True))


class Town:
    """u contexts, A supported and two novel actions, and a table of pi0."""

    def __init__(self, u: int, actions: int, beta: float, seed: int, floor: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        self.contexts = rng.normal(size=(u, 3)).astype(np.float32)
        scores = self.contexts @ rng.normal(size=(3, actions)) + rng.normal(size=actions)
        pi = (1 - floor) * softmax(beta * scores) + floor / actions
        self.pi = np.hstack([pi, np.zeros((u, 2))])
        novel = np.arange(actions + 2) >= actions
        self.catalogue = Catalogue(np.arange(actions + 2), novel)

    def logs(self, n: int, rng: np.random.Generator, *, round: int = 0) -> LoggedData:
        context = rng.integers(0, len(self.pi), n)
        steps = np.cumsum(self.pi, axis=1)[context]
        action = (rng.random((n, 1)) * steps[:, -1:] >= steps).sum(axis=1)
        return LoggedData.from_arrays(
            contexts=self.contexts,
            context_rows=context,
            actions=action,
            rewards=np.zeros(n),
            propensities=self.pi[context, action],
            catalogue=self.catalogue,
            r_max=1.0,
            rounds=np.full(n, round),
        )

    def policy(self) -> OwnPolicy:
        return OwnPolicy(ScoreTable(self.contexts, self.pi), len(self.catalogue))


def folds(logs: LoggedData) -> tuple[LoggedData, LoggedData]:
    learn, select = logs.split((0.8, 0.2), salt="test")
    return learn, select


def doubled_or_halved(logs: LoggedData, share: float, rng: np.random.Generator) -> LoggedData:
    n = len(logs)
    factor = np.where(rng.random(n) < share, rng.choice([0.5, 2.0], n), 1.0)
    return replace(logs, propensity=np.minimum(logs.propensity * factor, 1.0))


TOWN = Town(400, 20, beta=1.0, seed=1)
HOSTILE = {
    "contexts matter": TOWN,
    "almost deterministic": Town(400, 20, beta=12.0, seed=2),
    "rare actions": Town(30, 40, beta=3.0, seed=3, floor=1e-3),
    "every context once": Town(20_000, 10, beta=2.0, seed=4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_correct_propensities_are_refused_no_more_often_than_delta(name: str) -> None:
    town, delta = HOSTILE[name], 0.05
    refused = 0
    for run in range(RUNS):
        learn, select = folds(town.logs(1_200, np.random.default_rng([5, run])))
        refused += not check_propensities(learn, select, delta=delta, fixed_policy=True).ok
    assert binomial_tail(refused, RUNS, delta) > 1e-3, f"{refused} of {RUNS} refused"


@pytest.mark.parametrize("name", HOSTILE)
def test_every_candidate_sums_to_at_most_one(name: str) -> None:
    """The one thing that validity rests on."""
    town, rng = HOSTILE[name], np.random.default_rng(6)
    logs = doubled_or_halved(town.logs(3_000, rng), 0.5, rng)
    allowed = ~town.catalogue.novel
    part = np.zeros(len(logs), dtype=np.int64)
    fit = Rows(principal(logs.contexts), logs.context, logs.action, logs.propensity, part, allowed)
    asked = np.arange(min(200, len(logs.contexts)))
    context = np.repeat(asked, len(allowed))
    action = np.tile(np.arange(len(allowed)), len(asked))
    every = fit._replace(context=context, action=action)
    for model, logits in models(fit):
        for m in SeenPropensities.of(fit).over(logits, every):
            total = m.reshape(len(asked), -1).sum(axis=1)
            assert (m >= 0).all()
            assert total.max() <= 1 + 1e-9, model
            assert total.min() > 0.5, model


@pytest.mark.parametrize("name", HOSTILE)
def test_a_fifth_wrong_by_a_factor_of_two_is_refused(name: str) -> None:
    for run in range(5):
        rng = np.random.default_rng([7, run])
        learn, select = folds(doubled_or_halved(HOSTILE[name].logs(40_000, rng), 0.2, rng))
        report = check_propensities(learn, select)
        assert not report.ok, str(report)
        assert report.bound > 1
        assert "the mean of m/p must be at most 1" in report.findings[0]


def test_too_small_shuffled_and_dropped_are_refused() -> None:
    rng = np.random.default_rng(8)
    logs = TOWN.logs(40_000, rng)
    wrong = {
        "5% too small": replace(logs, propensity=logs.propensity / 1.05),
        "shuffled": replace(logs, propensity=rng.permutation(logs.propensity)),
        "dropped by action": logs.take(logs.action != np.bincount(logs.action).argmax()),
    }
    for name, one in wrong.items():
        assert not check_propensities(*folds(one)).ok, name


def test_too_large_everywhere_is_found_only_if_a_least_is_declared() -> None:
    town = Town(400, 20, beta=1.0, seed=9, floor=0.4)
    logs = town.logs(20_000, np.random.default_rng(10))
    wrong = replace(logs, propensity=np.minimum(1.2 * logs.propensity, 1))
    assert check_propensities(*folds(wrong)).ok
    report = check_propensities(*folds(wrong), least=0.02)
    assert not report.ok
    assert "propensities are too large" in report.findings[0]
    assert report.rounds[0].overstated is not None
    assert report.rounds[0].overstated.delta == 0.005
    assert check_propensities(*folds(logs), least=0.02).ok


def test_with_a_least_correct_propensities_are_refused_no_more_often_than_delta() -> None:
    town, runs = Town(100, 20, beta=4.0, seed=11, floor=0.1), 150
    refused = 0
    for run in range(runs):
        learn, select = folds(town.logs(1_000, np.random.default_rng([12, run])))
        refused += not check_propensities(learn, select, delta=0.2, least=0.005).ok
    assert binomial_tail(refused, runs, 0.2) > 1e-3, f"{refused} of {runs} refused"


def test_a_row_below_the_declared_least_refutes() -> None:
    report = check_propensities(*folds(TOWN.logs(2_000, np.random.default_rng(13))), least=0.049)
    assert "no propensity may be below the declared least" in report.findings[0]


def test_a_context_and_action_with_two_propensities_is_a_note_or_refutes() -> None:
    town = Town(5, 3, beta=0.5, seed=14)
    logs = town.logs(400, np.random.default_rng(15))
    propensity = logs.propensity.copy()
    propensity[7] *= 0.99
    learn, select = folds(replace(logs, propensity=propensity))
    report = check_propensities(learn, select)
    assert report.ok
    assert "one context and action must have one propensity" in report.notes[0]
    refuted = check_propensities(learn, select, fixed_policy=True)
    assert not refuted.ok
    assert refuted.findings == report.notes
    row = int(np.flatnonzero(np.isclose(learn.propensity, propensity[7], rtol=1e-12))[0])
    assert f"in learn row {row} and" in refuted.findings[0]


def test_propensities_of_one_context_that_sum_to_more_than_one_refute() -> None:
    town = Town(5, 3, beta=0.5, seed=16)
    logs = town.logs(400, np.random.default_rng(17))
    wrong = replace(logs, propensity=np.minimum(1.3 * logs.propensity, 1))
    report = check_propensities(*folds(wrong), fixed_policy=True)
    assert any("must sum to at most 1; 5 contexts" in one for one in report.findings)
    assert check_propensities(*folds(logs), fixed_policy=True).notes == ()


def test_a_policy_that_can_be_called_is_held_against_every_row() -> None:
    logs = TOWN.logs(2_000, np.random.default_rng(18))
    assert check_propensities(*folds(logs), logging_policy=TOWN.policy()).ok
    learn, select = folds(logs)
    propensity = select.propensity.copy()
    propensity[[4, 9]] *= 1.002
    report = check_propensities(
        learn, replace(select, propensity=propensity), logging_policy=TOWN.policy()
    )
    assert not report.ok
    assert "2 of 2,000 rows are not, the first is select row 4" in report.findings[0]


def test_rounds_are_tested_one_by_one() -> None:
    rng = np.random.default_rng(19)
    first, second = TOWN.logs(30_000, rng), Town(400, 20, 3.0, 1).logs(30_000, rng, round=1)
    second = doubled_or_halved(second, 0.2, rng)
    both = LoggedData.from_arrays(
        contexts=TOWN.contexts,
        context_rows=np.concatenate([_context(first), _context(second)]),
        actions=np.concatenate([first.action, second.action]),
        rewards=np.zeros(60_000),
        propensities=np.concatenate([first.propensity, second.propensity]),
        catalogue=TOWN.catalogue,
        r_max=1.0,
        rounds=np.repeat([0, 1], 30_000),
    )
    report = check_propensities(*folds(both))
    assert [one.startswith("round 1: ") for one in report.findings] == [True]
    assert [one.bound.delta for one in report.rounds] == [0.005, 0.005]
    assert report.worst.round == 1
    only_first = check_propensities(*folds(both), logging_policy={0: TOWN.policy()})
    assert only_first.findings == report.findings
    with pytest.raises(ConfigError, match="several rounds were drawn by several policies"):
        check_propensities(*folds(both), logging_policy=TOWN.policy())


def _context(logs: LoggedData) -> np.ndarray:
    """Which of TOWN's contexts each row has."""
    match = (logs.contexts[:, None] == TOWN.contexts).all(axis=2)
    return np.asarray(match.argmax(axis=1)[logs.context])


def test_the_report_says_what_was_found_and_assumed() -> None:
    learn, select = folds(TOWN.logs(4_000, np.random.default_rng(20)))
    report = require_propensities(learn, select, fixed_policy=True, least=1e-4)
    assert report == check_propensities(learn, select, fixed_policy=True, least=1e-4)
    assert len(report.assumed) == 3
    assert report.n + report.rounds[0].learned_from == 4_000
    assert report.bound <= report.mean
    text = str(report)
    assert "nothing refutes the propensities" in text
    assert "assumed: declared: one policy a round" in text


def test_wrong_propensities_are_an_error_with_rule_and_cure() -> None:
    rng = np.random.default_rng(21)
    learn, select = folds(doubled_or_halved(TOWN.logs(20_000, rng), 0.5, rng))
    with pytest.raises(DataError) as error:
        require_propensities(learn, select, fixed_policy=True)
    assert error.value.column == "propensity"
    text = str(error.value)
    assert "must be the probabilities that the logged actions were drawn with" in text
    assert "one context and action must have one propensity" in text
    assert "more). Cure: log the probability" in text


def test_few_rows_are_no_reason_to_refuse() -> None:
    logs = TOWN.logs(12, np.random.default_rng(22))
    report = check_propensities(logs.take([0, 1]), logs.take(slice(2, 12)))
    assert report.ok
    assert report.n >= 10


@pytest.mark.parametrize("least", [0.0, 0.06, float("nan"), "much"])
def test_a_least_that_cannot_be_is_refused(least: float) -> None:
    learn, select = folds(TOWN.logs(200, np.random.default_rng(23)))
    with pytest.raises(ConfigError, match="least must lie in"):
        check_propensities(learn, select, least=least)


def test_folds_of_two_catalogues_are_refused() -> None:
    rng = np.random.default_rng(24)
    with pytest.raises(ConfigError, match="one catalogue"):
        check_propensities(TOWN.logs(50, rng), HOSTILE["rare actions"].logs(50, rng))
