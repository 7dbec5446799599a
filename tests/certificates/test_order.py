"""What a verdict may not depend on: the order of rows, and when a round was ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from depsue.bounds import Betting, Normal, Pilot, best_bet
from depsue.certificates import (
    Certificate,
    Control,
    Folds,
    MixtureLadder,
    Reads,
    Registration,
    Rules,
    certify,
    tuned,
    verify,
)
from depsue.certificates.strict import verdicts_on
from depsue.certificates.terms import LimitedTerms
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.data.terms import ConservativeTerms
from depsue.errors import ConfigError
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.rewards import OwnRewardModel
from depsue.testing.bounds import binomial_tail
from depsue.testing.splits import split

CATALOGUE = Catalogue.of(range(3), novel=[2])
COUNTRIES = np.array([[0.0], [1.0]], dtype=np.float32)
"""Two countries: a poor and a rich one."""
PI0 = np.array([[0.5, 0.5, 0.0], [0.6, 0.4, 0.0]])
Q = np.array([[0.1, 0.05, 0.0], [0.9, 0.7, 0.0]])
PI = np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])


def own(table: FloatArray) -> OwnPolicy:
    return OwnPolicy(ScoreTable(COUNTRIES, table), 3)


LEVEL = MixtureLadder((own(PI),), np.ones((1, 1)))
VALUE = float((PI * Q).sum(axis=1).mean())
CONTROL = Control(
    own(PI0), OwnRewardModel(ScoreTable(COUNTRIES, Q), 3), 1.0, {"reward": 1.0, "other": 0.5}
)


def logged(draw: np.random.Generator, n: int, units: bool = False) -> LoggedData:
    country = draw.integers(0, 2, n)
    action = (draw.random(n) > PI0[country, 0]).astype(np.int32)
    reward = (draw.random(n) < Q[country, action]) * 1.0
    ids, unit = np.unique(draw.integers(0, n // 3, n), return_inverse=True)
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=COUNTRIES,
        context=country,
        action=action,
        reward=reward,
        propensity=PI0[country, action],
        r_max=1.0,
        unit=unit if units else None,
        units=ids if units else None,
        columns={"minutes": reward * draw.uniform(0, 5, n)},
    )


PROMISES = (Promise(Floor(0.9)), Promise(Floor(0.8), "other", "minutes", 5.0))
ABSOLUTE = (Promise(Floor(None, 0.2)),)
STRICT = {
    "normal": Rules(PROMISES, clip=1.5),
    "normal, control": Rules(PROMISES, clip=1.5, control=CONTROL),
    "betting": Rules(PROMISES, clip=1.5, bound="betting"),
    "betting, control": Rules(PROMISES, clip=1.5, bound="betting", control=CONTROL),
    "betting, any length": Rules(PROMISES, clip=1.5, bound="betting", fixed_length=False),
    "smoothing": Rules(PROMISES, clip=1.5, bound="smoothing"),
    "normal, absolute": Rules(ABSOLUTE, clip=1.5),
    "betting, absolute": Rules(ABSOLUTE, clip=1.5, bound="betting"),
    "hcope, absolute": Rules(ABSOLUTE, clip=1.5, bound="hcope"),
}


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("name", STRICT)
def test_the_order_of_rows_changes_nothing(name: str, units: bool) -> None:
    draw = np.random.default_rng(1)
    rows, select = logged(draw, 3_000, units), logged(draw, 250, units)
    rules = tuned(STRICT[name], LEVEL, select, len(rows), 0.05)
    by_value = np.lexsort((rows.action, rows.context, rows.reward))
    orders = [np.arange(len(rows)), draw.permutation(len(rows)), by_value, by_value[::-1]]
    bounds = []
    for order in orders:
        (verdicts,) = verdicts_on(LEVEL, rows.take(order), rules, 0.05)
        bounds.append([verdict.bound for verdict in verdicts])
    np.testing.assert_allclose(bounds[1:], [bounds[0]] * 3, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", STRICT)
def test_constants_are_recorded_and_recomputed_from(name: str) -> None:
    logs, rules = logged(np.random.default_rng(2), 4_000), STRICT[name]
    folds = split(logs, "spring")
    made = certify(LEVEL, folds, rules, Reads())
    given = tuned(rules, LEVEL, folds.select, len(folds.certify), 0.05)
    assert not given.untuned and certify(LEVEL, folds, given, Reads()) == made
    made = Certificate.from_json(made.to_json())
    policy = own(PI)
    knowledge = {} if rules.control is None else {"base": own(PI0), "model": CONTROL.model}
    assert verify(made, logs, policy, **knowledge).equal  # type: ignore[arg-type]


def test_certificates_without_constants_cannot_be_recomputed() -> None:
    logs = logged(np.random.default_rng(2), 1_000)
    made = certify(LEVEL, split(logs, "spring"), STRICT["normal"], Reads())
    bare = replace(made, verdicts=tuple(replace(v, constants={}) for v in made.verdicts))
    with pytest.raises(ConfigError, match=r"records the constants of its bound \(pilot\)"):
        verify(bare, logs, own(PI))
    (limits,) = verdicts_on(LEVEL, logs, replace(STRICT["smoothing"]), 0.05)
    assert limits
    with pytest.raises(ConfigError, match=r"constants of normal are fixed before.*reward.*tuned"):
        next(verdicts_on(LEVEL, logs, STRICT["normal"], 0.05))


def test_a_segment_without_select_rows_gets_constants_too() -> None:
    logs = logged(np.random.default_rng(3), 2_000)
    rare = (np.arange(2_000) >= 1_900).astype(int)
    logs = replace(logs, columns={**logs.columns, "rare": rare})
    promise = Promise(Floor(0.5), "rare", segment=("rare", 1))
    registration = Registration("test", "0" * 64, "row", (0.1, 0.2, 0.7), "rows")
    folds = Folds(logs, logs.take(slice(0, 500)), logs, logs.hash, registration, 0)
    for bound in ("normal", "betting"):
        made = certify(LEVEL, folds, Rules((promise,), clip=1.5, bound=bound), Reads())
        assert made.verdicts[0].n == 100


RUNS, DELTA = 400, 0.05
JUST_MISSED = (Promise(Floor(None, VALUE * 1.002)),)


def test_a_file_sorted_by_country_errs_with_bets_that_learn_and_not_with_constant_ones() -> None:
    """The rich country first: bets that grew there meet the poor one with capital to lose."""
    wrong = {"adaptive": 0, "constant": 0}
    for run in range(RUNS):
        draw = np.random.default_rng([4, run])
        rows, select = logged(draw, 2_000), logged(draw, 160)
        rows = rows.take(np.argsort(-rows.context, kind="stable"))
        rules = Rules(JUST_MISSED, DELTA, "betting", clip=1.5)
        rules = tuned(rules, LEVEL, select, len(rows), DELTA)
        (verdicts,) = verdicts_on(LEVEL, rows, rules, DELTA)
        wrong["constant"] += verdicts[0].passed
        weights = (PI / np.where(PI0 > 0, PI0, 1))[rows.context, rows.action]
        terms = ConservativeTerms(np.minimum(weights, 1.5) * rows.reward, 0.0, proof="ips")
        wrong["adaptive"] += Betting(unit_scale=1.0).lower(terms, DELTA).value >= VALUE * 1.002
    assert binomial_tail(wrong["constant"], RUNS, DELTA) > 1e-3, wrong
    assert binomial_tail(wrong["adaptive"], RUNS, DELTA) < 1e-9, wrong


def test_three_promises_of_which_one_is_just_missed_err_at_most_delta() -> None:
    """Each at the full delta: near its level, where a third of it would be far below."""
    delta, runs, floor = 0.2, 300, VALUE * 1.001
    promises = (
        Promise(Floor(None, floor)),
        Promise(Floor(None, 0.1), "easy"),
        Promise(Floor(None, 0.2), "minutes", "minutes", 5.0),
    )
    together = third = 0
    for run in range(runs):
        draw = np.random.default_rng([5, run])
        rows, select = logged(draw, 1_000), logged(draw, 100)
        rules = tuned(Rules(promises, delta, clip=1.5), LEVEL, select, len(rows), delta)
        (verdicts,) = verdicts_on(LEVEL, rows, rules, delta)
        together += all(verdict.passed for verdict in verdicts)
        (verdicts,) = verdicts_on(LEVEL, rows, rules, delta / 3)
        third += all(verdict.passed for verdict in verdicts)
    assert binomial_tail(together, runs, delta) > 1e-3, f"{together} of {runs}"
    assert together > 0.5 * delta * runs and together > 1.8 * third


PILOT = Pilot(0.5, 0.25, 0.01, 0.01)
LOOKS = np.unique(np.geomspace(300, 10_000, 100).astype(int) // 2 * 2)
"""When somebody looks at the mean of a round of 10,000 decisions at most."""


def rewards(values: FloatArray) -> ConservativeTerms:
    return ConservativeTerms(values, 0.0, proof="rewards")


def test_a_round_that_is_ended_when_it_looks_good_errs_with_normal_only() -> None:
    rules = Rules((Promise(Floor(None, 0.5)),), DELTA, "betting", fixed_length=False)
    bounds = {
        "normal": Normal(upper=1.0, pilot=PILOT),
        "declared bet": Betting(bets=(best_bet(0.25, float(LOOKS[-1]), DELTA),)),
        "grid": rules.bound_on(rules.promises[0], LimitedTerms(rewards(np.ones(1)), 1.0, 1.0)),
    }
    even = [bounds["normal"].lower(rewards(np.arange(n) % 2 * 1.0), DELTA) for n in LOOKS]
    enough = np.array([bound.mean - bound.value for bound in even])
    wrong = dict.fromkeys(bounds, 0)
    for run in range(RUNS):
        values = (np.random.default_rng([6, run]).random(LOOKS[-1]) < 0.5) * 1.0
        good = np.cumsum(values)[LOOKS - 1] / LOOKS - enough > 0.5
        ended = rewards(values[: LOOKS[good.argmax() if good.any() else -1]])
        for name, bound in bounds.items():
            wrong[name] += bound.lower(ended, DELTA).value > 0.5
    assert binomial_tail(wrong["normal"], RUNS, DELTA) < 1e-9, wrong
    for name in ("declared bet", "grid"):
        assert binomial_tail(wrong[name], RUNS, DELTA) > 1e-3, wrong


@pytest.mark.parametrize("bound", ["normal", "hcope"])
def test_bounds_for_a_fixed_length_are_refused_after_a_round_ended_by_choice(bound: str) -> None:
    with pytest.raises(ConfigError, match=rf"holds at any time.*{bound}.*betting or smoothing"):
        Rules(ABSOLUTE, bound=bound, fixed_length=False)


def test_the_certificate_prints_what_it_assumes_and_what_it_does_not() -> None:
    logs = logged(np.random.default_rng(7), 2_000, units=True)
    segment = Promise(Floor(0.5), "long", segment=("long", 1))
    logs = replace(logs, columns={**logs.columns, "long": np.arange(2_000) % 2})
    folds = split(logs, "spring")
    fixed = str(certify(LEVEL, folds, Rules((*PROMISES, segment), clip=1.5), Reads()))
    for words in (
        "assumes: minutes lies between 0 and 5",
        "assumes: the number of rows of a unit does not depend on what it was shown",
        "assumes: segments (long) are known before the decision",
        "assumes: the number of rows was fixed before their rewards were seen",
        "assumes: no verdict on these rows was asked of another ledger",
        "  fact: nothing depends on the order of the rows",
        "  fact: delta is the error rate of this verdict",
    ):
        assert words in fixed
    rules = Rules(PROMISES, bound="betting", fixed_length=False)
    chosen = str(certify(LEVEL, folds, rules, Reads()))
    assert "  fact: the round was ended by choice; betting is used" in chosen
    assert "was fixed before their rewards" not in chosen
