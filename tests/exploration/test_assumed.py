"""Declared rungs over rounds: false ones are refuted by what new items earn, true ones are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from depsue import Reads, SyntheticSettings, run_exploration, synthetic_world
from depsue.assumptions import Rung
from depsue.certificates import Registration
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.errors import ConfigError
from depsue.exploration import ExploreSettings, explore
from depsue.exploration.assumed import RungReport, check_rung
from depsue.exploration.plan import plan
from depsue.pages.plan_report import sections
from depsue.policies import Mixture, OwnPolicy, ScoreTable, Uniform
from depsue.rewards import RewardSettings
from depsue.testing.bounds import binomial_tail
from depsue.testing.splits import split

OLD, NEW = 200, 100
CONTEXT = np.zeros((1, 1), dtype=np.float32)
SECRET = Registration("test", "ab" * 32, "row", (0.35, 0.05, 0.6), "family")
NOVEL = np.arange(OLD + NEW) >= OLD
GENRE = np.where(np.arange(OLD + NEW) % 2, "drama", "comedy")
LIKE = np.where(NOVEL, (np.arange(OLD + NEW) - OLD).astype(str), "")
CATALOGUE = Catalogue(
    np.arange(OLD + NEW), NOVEL, labels={"genre": GENRE, "like": LIKE, "kind": GENRE}
)
SERVED = Mixture(
    [OwnPolicy(ScoreTable(CONTEXT, np.array([~NOVEL / OLD])), OLD + NEW), Uniform(NOVEL)],
    [0.7, 0.3],
)


def round_of(q: FloatArray, seed: int, n: int = 30_000) -> LoggedData:
    """A round that showed new items in 30% of its decisions."""
    draw = np.random.default_rng(seed)
    p = SERVED.probabilities(CONTEXT)[0]
    action = draw.choice(OLD + NEW, size=n, p=p / p.sum())
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=CONTEXT,
        context=np.zeros(n, dtype=np.int64),
        action=action,
        reward=(draw.random(n) < q[action]).astype(float),
        propensity=p[action],
        round=np.ones(n, dtype=np.int16),
        r_max=1.0,
    )


def worth(seed: int, *, new: float = 1.0, drama: float = 1.0) -> FloatArray:
    """Items of one distribution; new ones, and old dramas, times a factor."""
    q = np.random.default_rng(seed).uniform(0.1, 0.4, OLD + NEW)
    q[NOVEL] *= new
    q[~NOVEL & (GENRE == "drama")] *= drama
    return q


def checked(rung: Rung, q: FloatArray, seed: int) -> RungReport:
    report = check_rung(rung, round_of(q, seed), SERVED, SECRET)
    assert report is not None
    return report


def test_new_items_that_are_worse_refute_that_they_are_drawn_alike() -> None:
    """Old items are survivors, or new ones are another kind: it looks the same."""
    refuted = [not checked(Rung("exchangeable"), worth(s, new=0.4), s).ok for s in range(20)]
    assert np.mean(refuted) >= 0.9
    assert "is refuted: new items earned" in str(
        checked(Rung("exchangeable"), worth(0, new=0.4), 0)
    )


def test_strata_that_hide_it_are_refuted_by_new_items_of_the_poor_stratum() -> None:
    """All new items are dramas, and dramas are worse: without strata nothing says so before."""
    genre = np.where(NOVEL, "drama", GENRE)
    catalogue = replace(CATALOGUE, labels={"genre": genre})
    q = worth(3, new=0.1, drama=0.1)
    rows = replace(round_of(q, 3), catalogue=catalogue)
    hidden = check_rung(Rung("exchangeable"), rows, SERVED, SECRET)
    named = check_rung(Rung("exchangeable", "genre"), rows, SERVED, SECRET)
    assert hidden is not None and named is not None
    assert not hidden.ok and named.ok


@pytest.mark.parametrize(
    "rung", [Rung("exchangeable", "genre"), Rung("proxies", "like"), Rung("groups", "kind")]
)
def test_a_rung_that_is_true_is_hardly_ever_refuted(rung: Rung) -> None:
    refuted, runs = 0, 40
    for seed in range(runs):
        q = worth(seed)
        if rung.name == "proxies":
            q[NOVEL] = q[:NEW]
        if rung.name == "groups":
            q = np.where(GENRE == "drama", 0.2, 0.3)
        refuted += not checked(rung, q, seed).ok
    assert binomial_tail(refuted, runs, 0.01) > 1e-3


@pytest.mark.parametrize("rung", [Rung("proxies", "like", epsilon=0.02), Rung("groups", "kind")])
def test_proxies_and_groups_that_are_false_are_refuted(rung: Rung) -> None:
    refuted = []
    for seed in range(10):
        q = np.where(GENRE == "drama", 0.2, 0.3)
        q[NOVEL] *= 0.6
        refuted.append(not checked(rung, q, seed).ok)
    assert np.mean(refuted) >= 0.9


def test_a_round_without_new_items_says_nothing() -> None:
    rows = round_of(worth(0), 0)
    old = rows.take(np.flatnonzero(~NOVEL[rows.action]))
    assert check_rung(Rung("exchangeable"), old, SERVED, SECRET) is None
    assert check_rung(Rung("propensities-within", factor=2.0), rows, SERVED, SECRET) is None


QUICK = ExploreSettings(
    objective="most novelty",
    deployments=2,
    no_drift=True,
    rewards=RewardSettings(members=1, hidden=(16,), max_epochs=3),
    assume=(Rung("exchangeable"),),
)
SHOP = SyntheticSettings(users=100, supported=120, novel=60)


def test_a_campaign_falls_back_a_rung_by_itself() -> None:
    world = synthetic_world(replace(SHOP, novel_quality=0.1), seed=0)
    result = run_exploration(world, 60_000, QUICK, seed=0)
    first, second = result.deployments
    assert first.explored.certificate.kind == "exchangeable"
    assert "new items are drawn like old ones" in str(first.explored.certificate)
    assert [report.ok for report in second.rungs] == [False]
    assert second.explored.certificate.kind == "strict"
    assert "exchangeable is refuted" in str(result)


def test_true_or_not_the_certificate_says_what_it_rests_on() -> None:
    world = synthetic_world(SHOP, seed=0)
    logs = world.deploy(world.logging_policy, 30_000, round=0)
    found = {}
    for assume in ((), (Rung("exchangeable"),)):
        settings = replace(QUICK, deployments=1, assume=assume)
        folds = split(logs, "rungs", settings.fractions)
        found[assume] = explore(folds, world.logging_policy, settings, seed=0, reads=Reads())
    nothing, alike = found[()], found[Rung("exchangeable"),]
    assert (nothing.certificate.kind, alike.certificate.kind) == ("strict", "exchangeable")
    assert alike.novelty > 1.3 * nothing.novelty
    assert world.novelty(alike.policy) == pytest.approx(alike.novelty, rel=0.05)
    assert world.value(alike.policy) > 0.95 * world.value(world.logging_policy)
    assert "if new items are drawn like old ones" in alike.why


def test_limits_of_exposure_do_not_go_with_a_rule_for_each_item() -> None:
    with pytest.raises(ConfigError, match="it has no limits of exposure"):
        replace(QUICK, least=0.001)


def test_a_plan_shows_the_ladder_rung_by_rung() -> None:
    world = synthetic_world(SHOP, seed=0)
    logs = world.deploy(world.logging_policy, 20_000, round=0)
    settings = replace(QUICK, deployments=1)
    found = plan(logs, settings, logging_policy=world.logging_policy)
    nothing, alike = found.ladder
    assert (nothing.rung, alike.rung) == ("nothing", "exchangeable")
    assert alike.novelty == found.pick.novelty > nothing.novelty
    assert any("new items are drawn like old ones" in words for words in found.assumptions)
    assert found.as_json()["ladder"][1]["words"] == "if new items are drawn like old ones"
    (_, sentences), *_ = sections(found, ())
    assert sentences[1].startswith("exchangeable: ")
    assert (
        plan(logs, replace(settings, assume=()), logging_policy=world.logging_policy).ladder == ()
    )
