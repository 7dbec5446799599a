"""Declared rungs in a certificate: what they change, what they cost, and that they hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue.assumptions import Rung
from depsue.certificates import (
    AssumedRung,
    Certificate,
    ItemDraw,
    ItemSplit,
    MixtureLadder,
    Reads,
    Registration,
    Rules,
    certify,
    safety_terms,
    verify,
)
from depsue.certificates.assumed import (
    item_draw,
    mass_by_proxy,
    new_items_worth,
)
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.errors import ConfigError, DataError
from depsue.policies import OwnPolicy, ScoreTable, Uniform
from depsue.policies.rule import ByRule
from depsue.promises import Floor, Promise
from depsue.rewards import LinearRewardModel
from depsue.testing.bounds import binomial_tail
from depsue.testing.splits import split

CONTEXT = np.zeros((1, 1), dtype=np.float32)
PI0 = np.array([0.5, 0.3, 0.2, 0.0])
Q = np.array([0.6, 0.4, 0.5, 0.3])
CATALOGUE = Catalogue(
    np.arange(4), PI0 == 0, labels={"like": ["", "", "", "1"], "kind": ["a", "b", "a", "b"]}
)


def own(*probabilities: float) -> OwnPolicy:
    return OwnPolicy(ScoreTable(CONTEXT, np.array([probabilities])), len(probabilities))


LOGGING = own(*PI0.tolist())
OLD = own(0.7, 0.1, 0.2, 0.0)
LADDER = MixtureLadder(
    (OLD, Uniform(CATALOGUE.novel)), np.array([[0.99, 0.01], [0.95, 0.05], [0.9, 0.1]])
)


def logged(seed: int = 0, n: int = 20_000, factor: float = 1.0, **more: Any) -> LoggedData:
    """Rows that pi0 drew; propensities are logged as `factor` times what they are."""
    draw = np.random.default_rng(seed)
    action = draw.choice(4, size=n, p=PI0)
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=CONTEXT,
        context=np.zeros(n, dtype=np.int64),
        action=action,
        reward=(draw.random(n) < Q[action]).astype(float),
        propensity=PI0[action] * factor,
        round=np.zeros(n, dtype=np.int16),
        r_max=1.0,
        **more,
    )


def certificate_of(logs: LoggedData, rules: Rules, ladder: MixtureLadder = LADDER) -> Certificate:
    return certify(ladder, split(logs, "assumed"), rules, Reads())


def test_a_factor_of_one_is_nothing_to_the_digit() -> None:
    logs = logged()
    nothing = certificate_of(logs, Rules(clip=5.0))
    one = AssumedRung(Rung("propensities-within", factor=1.0), CATALOGUE)
    same = certificate_of(logs, Rules(clip=5.0, assumed=one))
    assert same.verdicts == nothing.verdicts and same.shares == nothing.shares
    assert (nothing.kind, same.kind) == ("strict", "propensities-within")


def test_a_factor_divides_what_speaks_for_the_policy_and_multiplies_what_speaks_against() -> None:
    logs = logged(n=4)
    weights, pi0 = np.array([2.0, 0.5, 1.0, 3.0]), np.ones(4)
    how: dict[str, Any] = {"clip": 2.5, "largest": 1.0}
    rows = replace(logs, reward=np.ones(4))
    paired = safety_terms(Promise(Floor(0.8)), rows, weights, paired=pi0, factor=2.0, **how)
    assert paired.values == pytest.approx([0.6, -0.6, 0.1, 0.85])
    assert paired.lower <= -1.6
    plain = safety_terms(Promise(Floor(None, 0.2)), rows, weights, paired=None, factor=2.0, **how)
    assert plain.values == pytest.approx([1.0, 0.25, 0.5, 1.25])


def test_a_factor_holds_where_propensities_are_wrong_within_it() -> None:
    """All p are logged a tenth too small, so w is a tenth too large."""
    worth = PI0 @ Q
    floor = Floor(None, float(0.999 * (OLD.probabilities(CONTEXT)[0] @ Q) * 1.02))
    assert floor.of(worth) > OLD.probabilities(CONTEXT)[0] @ Q  # the policy misses it
    ladder, promise = MixtureLadder((OLD,), np.ones((1, 1))), Promise(floor)
    wrong = {1.0: 0, 1.1: 0}
    runs = 50
    for seed in range(runs):
        logs = logged(seed, 4000, factor=1 / 1.1)
        for factor in wrong:
            rung = AssumedRung(Rung("propensities-within", factor=factor), CATALOGUE)
            rules = Rules((promise,), delta=0.2, clip=5.0, assumed=rung)
            wrong[factor] += certificate_of(logs, rules, ladder).passed
    assert wrong[1.0] > 0.5 * runs
    assert binomial_tail(wrong[1.1], runs, 0.2) > 1e-3


def test_a_control_variate_needs_propensities_that_are_right() -> None:
    from depsue.certificates import Control

    model = LinearRewardModel(0.5, np.zeros(1), np.zeros(4), 1.0)
    rung = AssumedRung(Rung("propensities-within", factor=1.2), CATALOGUE)
    with pytest.raises(ConfigError, match="a control variate needs propensities that are right"):
        Rules(assumed=rung, control=Control(LOGGING, model, 1.0))


# New items that are drawn like old ones.


def many_items(old: int = 40, new: int = 10, strata: int = 1) -> Catalogue:
    novel = np.arange(old + new) >= old
    labels = {"genre": [f"g{k % strata}" for k in range(old + new)]}
    return Catalogue(np.arange(old + new), novel, labels=labels)


SECRET = Registration("test", "ab" * 32, "row", (0.35, 0.05, 0.6), "family")


def test_old_items_are_split_within_strata_by_the_secret_alone() -> None:
    catalogue = many_items(strata=4)
    one = ItemSplit.of(Rung("exchangeable", "genre"), catalogue, SECRET)
    again = ItemSplit.of(Rung("exchangeable", "genre"), catalogue, SECRET)
    other = ItemSplit.of(
        Rung("exchangeable", "genre"), catalogue, replace(SECRET, secret="cd" * 32)
    )
    assert np.array_equal(one.tested, again.tested)
    assert not np.array_equal(one.tested, other.tested)
    parts = np.stack([one.learned, one.chosen, one.tested])
    assert (parts.sum(axis=0) == ~catalogue.novel).all()
    for name in np.unique(one.strata):
        assert int((one.tested & (one.strata == name)).sum()) == 5


def test_what_new_items_are_worth_by_hand() -> None:
    novel = np.array([False] * 4 + [True] * 2)
    strata = np.array(["a", "a", "b", "a", "a", "b"])
    tested = np.array([True, True, True, False, False, False])
    item_split = ItemSplit(~tested & ~novel, ~tested & ~novel, tested, strata)
    draw = ItemDraw(2.0, {"a": 0.8, "b": 0.9})
    means = np.array([0.1, 0.3, 0.2, 9.0, 9.0, 9.0])
    expected = 0.0
    for name, ratio, values in (("a", 0.5, (0.1, 0.3)), ("b", 1.0, (0.2,))):
        c = draw.centres[name]
        for x in values:
            expected += math.log(c**-ratio * (1 + ratio - ratio * math.exp(-2 * x) / c))
    expected = (expected - math.log(1 / 0.05)) / (2.0 * 2)
    assert new_items_worth(means, item_split, novel, draw, 0.05) == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.3, 1.5])
@pytest.mark.parametrize("fixed_items", [False, True])
def test_what_new_items_are_worth_is_exceeded_at_most_delta_of_the_time(
    spread: float, fixed_items: bool
) -> None:
    """Over items, which are new, and rows: items from one distribution, or fixed ones by lot."""
    delta, runs, old, new, n = 0.2, 600, 60, 30, 3000
    catalogue = many_items(old, new, strata=2)
    item_split = ItemSplit.of(Rung("exchangeable", "genre"), catalogue, SECRET)
    draw = np.random.default_rng(int(spread * 10) + fixed_items)
    every = np.minimum(0.1 * np.exp(spread * draw.normal(size=old + new)), 1.0)
    constants: ItemDraw | None = None
    wrong = 0
    for _ in range(runs):
        q = np.minimum(0.1 * np.exp(spread * draw.normal(size=old + new)), 1.0)
        if fixed_items:  # each stratum by itself
            q = every.copy()
            for k in range(2):
                q[k::2] = draw.permutation(every[k::2])
        shown = np.bincount(draw.integers(old, size=n), minlength=old + new)
        means = draw.binomial(shown, q) * old / n
        if constants is None:
            constants = item_draw(means, item_split, catalogue.novel, delta, 1.0)
        worth = new_items_worth(means, item_split, catalogue.novel, constants, delta)
        wrong += worth > q[catalogue.novel].mean()
    assert binomial_tail(wrong, runs, delta) > 1e-3


def flat_rule(catalogue: Catalogue, old: OwnPolicy, level: float = 0.5) -> ByRule:
    model = LinearRewardModel(0.0, np.zeros(1), np.zeros(len(catalogue)), 1.0)
    reference = np.zeros(len(catalogue), dtype=bool)
    reference[:3] = True
    how: dict[str, float] = {"strength": 0.0, "scale": 1.0, "level": level}
    return ByRule(old, model, catalogue.novel, reference, **how)


def of_many(
    catalogue: Catalogue, q: FloatArray, seed: int, n: int = 20_000, **more: Any
) -> LoggedData:
    draw = np.random.default_rng(seed)
    old = int((~catalogue.novel).sum())
    action = draw.integers(old, size=n)
    return LoggedData(
        catalogue=catalogue,
        contexts=CONTEXT,
        context=np.zeros(n, dtype=np.int64),
        action=action,
        reward=(draw.random(n) < q[action]).astype(float),
        propensity=np.full(n, 1 / old),
        round=np.zeros(n, dtype=np.int16),
        r_max=1.0,
        **more,
    )


def exchangeable_case(catalogue: Catalogue, logs: LoggedData) -> tuple[MixtureLadder, Rules, Any]:
    folds = split(logs, "assumed")
    old = own(*((~catalogue.novel) / (~catalogue.novel).sum()).tolist())
    rule = flat_rule(catalogue, old)
    item_split = ItemSplit.of(Rung("exchangeable"), catalogue, folds.registration)
    assumed = AssumedRung(Rung("exchangeable"), catalogue, item_split, rule, reach=0.5)
    means = assumed.item_sums(folds.learn, item_split.chosen) / len(folds.learn)
    constants = item_draw(means, item_split, catalogue.novel, 0.025, 1.0)
    assumed = replace(assumed, draws={"reward": constants})
    shares = np.linspace(0.02, 0.6, 30)
    ladder = MixtureLadder((old, rule), np.stack([1 - shares, shares], axis=1), 0.5)
    return ladder, Rules(clip=5.0, assumed=assumed), folds


def test_items_like_old_ones_are_worth_something_and_the_certificate_says_why() -> None:
    catalogue = many_items(200, 60)
    logs = of_many(catalogue, np.random.default_rng(0).uniform(0.3, 0.5, 260), 0)
    ladder, rules, folds = exchangeable_case(catalogue, logs)
    certificate = certify(ladder, folds, rules, Reads())
    alone = certify(ladder, folds, replace(rules, assumed=None), Reads())
    assert certificate.novelty > 1.5 * alone.novelty * 0.5 > 0
    assert certificate.kind == "exchangeable" and alone.kind == "strict"
    assert certificate.spent.items == {"reward": 0.025}
    assert certificate.verdicts[0].delta == 0.025
    text = str(certificate)
    assert "new items are drawn like old ones" in text
    assert "not the survivors of a choice" in text and "if new items are drawn" in text
    assert certificate.novelty == pytest.approx(certificate.shares[-1] * 0.5)
    read = Certificate.from_json(certificate.to_json())
    assert read == certificate
    level = ladder.shares[:, -1].tolist().index(certificate.shares[-1])
    assert verify(read, logs, ladder.policy(level)).equal
    lied = replace(read.verdicts[0], worth=0.9)
    assert not verify(replace(read, verdicts=(lied,)), logs, ladder.policy(level)).equal


def test_units_with_several_rows_are_refused() -> None:
    catalogue = many_items(200, 60)
    unit: dict[str, Any] = {"unit": np.repeat(np.arange(10_000), 2), "units": np.arange(10_000)}
    logs = of_many(catalogue, np.full(260, 0.4), 0, **unit)
    folds = split(logs, "assumed", units="all rows")
    ladder, rules, _ = exchangeable_case(catalogue, of_many(catalogue, np.full(260, 0.4), 0))
    with pytest.raises(ConfigError, match="needs one row for each unit"):
        certify(ladder, folds, rules, Reads())


# Proxies and groups.


def test_a_proxys_rows_count_for_the_new_item() -> None:
    logs = logged(n=2000)
    rung = AssumedRung(Rung("proxies", "like"), CATALOGUE)
    assert rung.proxies.tolist() == [-1, -1, -1, 1]
    mass = mass_by_proxy(Uniform(CATALOGUE.novel), logs, rung.proxies)
    assert mass.tolist() == (logs.action == 1).astype(float).tolist()


def test_proxies_certify_what_they_are_worth_less_the_allowance() -> None:
    logs = logged()
    found = {}
    for epsilon in (0.0, 0.1, 0.4):
        rung = AssumedRung(Rung("proxies", "like", epsilon=epsilon), CATALOGUE)
        certificate = certificate_of(logs, Rules(clip=5.0, assumed=rung))
        found[epsilon] = certificate
        assert certificate.kind == "proxies"
        need = certificate.verdicts[0].need
        assert need == pytest.approx(epsilon * certificate.shares[-1])
        level = LADDER.shares.tolist().index(list(certificate.shares))
        assert verify(certificate, logs, LADDER.policy(level)).equal
    plain = certificate_of(logs, Rules(clip=5.0)).verdicts[0].mean
    mean = found[0.0].verdicts[0].mean
    share = found[0.0].shares[-1]
    assert mean > plain
    old, pi0 = OLD.probabilities(CONTEXT)[0] @ Q, PI0 @ Q
    assert mean == pytest.approx((1 - share) * old + share * Q[1] - 0.95 * pi0, abs=0.02)


def test_a_proxy_must_be_an_old_item() -> None:
    for name in ("3", "nobody"):
        catalogue = Catalogue(np.arange(4), PI0 == 0, labels={"like": ["", "", "", name]})
        with pytest.raises(DataError, match="a proxy is the id of an old item"):
            _ = AssumedRung(Rung("proxies", "like"), catalogue).proxies


def test_groups_by_name_are_what_they_are_by_hand() -> None:
    from depsue import MIPS

    logs = logged()
    rung = AssumedRung(Rung("groups", "kind"), CATALOGUE)
    assert rung.groups is not None
    marginal = MIPS(LOGGING, rung.groups)
    by_name = certificate_of(logs, Rules(clip=5.0, assumed=rung, marginal=marginal))
    by_hand = certificate_of(logs, Rules(clip=5.0, marginal=MIPS(LOGGING, list("abab"))))
    assert by_name.kind == by_hand.kind == "groups"
    assert by_name.verdicts == by_hand.verdicts
    assert "within one kind" in str(by_name)
    level = LADDER.shares.tolist().index(list(by_name.shares))
    assert verify(by_name, logs, LADDER.policy(level), base=LOGGING).equal
    with pytest.raises(ConfigError, match="rests on the policy that logged the rows"):
        verify(by_name, logs, LADDER.policy(level))


def test_a_label_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match="speaks of a column of the items"):
        _ = AssumedRung(Rung("groups", "brand"), CATALOGUE).groups
