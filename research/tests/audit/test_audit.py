"""The audit in a small dose: strict kinds keep delta, tempting rules do not; what is counted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from depsue import rng
from depsue.certificates import Reads, certify
from depsue.errors import ConfigError, FileError
from depsue.estimators.weights import importance_weights as weights
from depsue.promises import Floor
from depsue.shop import Known
from depsue.testing.bounds import binomial_tail
from depsue_research.audit import (
    GROUPS,
    Tally,
    campaigns,
    gather,
    requests,
    shopping,
    tallies,
    units,
    verdicts,
)
from depsue_research.audit import sweep as swept
from depsue_research.audit.answers import ANSWERS, Answer, Key, asked, judged
from depsue_research.audit.blocks import chosen, finished, keep, repeated, tasks
from depsue_research.audit.page import draw, exceeding, figure, page, verdict
from depsue_research.audit.paper import weights_of
from depsue_research.audit.units import BOLD, BOLD_FLOOR, PI0, sessions
from depsue_research.audit.verdicts import BASE, alone, candidates, folds_of, one_floor, rules_for
from depsue_research.audit.worlds import MISS, RHO, near_miss_world
from depsue_research.cli import app

DOSE = {
    **dict.fromkeys(("promises", "levels", "sorted", "units", "sessions", "coming back"), 10),
    **dict.fromkeys(("retried", "ended by choice", "cumulative", "sharper", "debts"), 6),
    **dict.fromkeys(("encodings", "estimated", "declarations", "appended"), 3),
    "names": 18,
    **dict.fromkeys(
        (f"candidate sets, {kind}" for kind in ("called", "logged", "chosen", "chosen later")), 8
    ),
    "pooled": 40,
    "pooled campaigns": 1,
    "worthless": 1,
    "late drift": 1,
    "ended at will": 1,
    "too much served": 1,
    "rollbacks": 1,
    "wrong propensities": 1,
}
"""Replications of each trial."""

BROKEN = {
    ("sorted by country, best first, bets that learn", "betting"),
    ("folds by the campaign's name, best of 100 names", "normal"),
    ("estimated propensities, called logged", "normal"),
    ("endogenous sessions, all rows, not tested", "normal"),
    ("users who come back, certify each round", "round 3"),
    ("pooled slices that taught", "round 3"),
    ("debts forgotten", "relative floor, no_drift"),
    ("old items in the rows of either policy", "normal"),
    ("debts forgotten", "relative floor, paired"),
}
"""Tempting rules that err so often that a few replications show it."""


@cache
def small() -> dict[str, Counter[tuple[Key, Answer]]]:
    """What came of the small dose, by trial."""
    every = tasks(1, 1)
    return {name: every[name].run(0, dose) for name, dose in DOSE.items()}


def counted_as(kind: str, variant: str, answer: Answer) -> tuple[int, int]:
    """How often a kind had this answer, and how often it was asked for."""
    for counts in small().values():
        for (_, name, which), _ in counts:
            if (name, which) == (kind, variant):
                key = next(key for key, _ in counts if key[1:] == (kind, variant))
                return counts[key, answer], sum(counts[key, each] for each in ANSWERS)
    raise AssertionError(f"{kind}, {variant} is not in the dose")


def test_no_strict_kind_exceeds_delta() -> None:
    for counts in small().values():
        for key in {key for key, _ in counts if key[0] == "strict"}:
            n = sum(counts[key, answer] for answer in ANSWERS)
            assert binomial_tail(counts[key, "wrong"], n, 0.05) > 1e-4, (key, counts)


@pytest.mark.parametrize("kind, variant", sorted(BROKEN))
def test_tempting_rules_exceed_delta(kind: str, variant: str) -> None:
    wrong, n = counted_as(kind, variant, "wrong")
    assert binomial_tail(wrong, n, 0.05) < 1e-2, f"{wrong} of {n}"


@pytest.mark.parametrize(
    "kind, variant",
    [
        ("declaration shopping, refused", "rows without times"),
        ("declaration shopping, refused", "rows with times"),
        ("unit shopping before a verdict, refused", "normal"),
        ("appended rows, refused", "normal"),
        ("estimated propensities, declared", "normal"),
        ("endogenous sessions, all rows, tested", "normal"),
        ("round ended by choice", "normal"),
        ("campaigns with files, wrong propensities", "round 1"),
    ],
)
def test_what_must_be_refused_is(kind: str, variant: str) -> None:
    """A second throw that is neither refused nor the first verdict's luck would show as failed."""
    failed, _ = counted_as(kind, variant, "failed")
    assert failed == 0


def test_campaigns_pass_and_keep_their_promises() -> None:
    right, n = counted_as("campaigns, worthless new items, each", "round 1", "right")
    assert (right, n) == (1, 1)


def test_main_strict_kinds_keep_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "ROWS", 6000)
    counts = repeated("main", one_floor(BASE, ["normal"], ["normal"]), 0, 120)
    for key in {key for key, _ in counts}:
        assert binomial_tail(counts[key, "wrong"], 120, 0.05) >= 0.01, counts
    wrong = sum(counts[key, answer] for key, answer in counts if answer == "wrong")
    assert wrong > 0, "the floor is missed by so little that some errors are due"


def test_a_looser_bound_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "DELTA", 0.4)
    monkeypatch.setattr(verdicts, "ROWS", 6000)
    counts = repeated("looser", one_floor(BASE, ["normal"], []), 0, 60)
    assert (
        binomial_tail(sum(counts[each] for each in counts if each[1] == "wrong"), 60, 0.05) < 0.01
    )


def test_a_policy_above_the_floor_is_certified() -> None:
    world, _ = candidates("plain")
    good = world.mixed(world.tilt(rng.generator(0, "candidates", "plain")), 1.1 * world.floor)
    folds = folds_of(world.logs(world.pi0, 16_000, rng.generator(0, "good")))
    for floor in (Floor(RHO), Floor(None, world.floor)):
        rules = rules_for(world, "normal", floor)
        assert certify(alone(world.policy(good)), folds, rules, Reads()).passed


# The worlds.


@pytest.mark.parametrize("name", ["plain", "rare rewards", "novel mass", "heavy weights"])
def test_candidates_just_miss_the_floor_within_the_clip(name: str) -> None:
    world, levels = candidates(name)
    assert world.floor == pytest.approx(RHO * float(world.value(world.pi0)))
    for candidate in levels:
        pi = candidate.policy(0).probabilities(world.contexts)
        assert float(world.value(pi)) == pytest.approx((1 - MISS) * world.floor)
        assert weights_of(pi, world).max() < world.clip
        assert pi[:, world.catalogue.novel].sum(axis=1).min() > 0.05


@pytest.mark.parametrize(
    ("known", "number"), [("called", 0), ("logged", 0), ("chosen", 0), ("chosen", 1)]
)
def test_candidates_on_candidate_sets_just_miss_the_floor(known: Known, number: int) -> None:
    here, candidate = requests.shop(known), requests.near_miss(known, number)
    floor = RHO * here.value(here.logging_policy, round=number)
    assert here.value(candidate, round=number) == pytest.approx((1 - MISS) * floor)
    assert here.novelty(candidate, round=number) > 0.05
    first = here.deploy(here.logging_policy, 4000, round=0)
    assert weights(candidate, first).max() < requests.CLIP


def test_logs_have_the_policys_value_and_propensities() -> None:
    world = near_miss_world("plain")
    logs = world.logs(world.pi0, 200_000, rng.generator(0, "logs"))
    assert logs.mean_reward() == pytest.approx(float(world.value(world.pi0)), abs=0.005)
    assert np.array_equal(logs.propensity, world.pi0[logs.context, logs.action])


def test_worlds_are_drawn_anew_and_new_items_are_worth_their_share() -> None:
    draw = rng.generator(0, "anew")
    one_world, other = (near_miss_world("plain", draw) for _ in range(2))
    assert not np.array_equal(one_world.q, other.q)
    assert not one_world.q[:, one_world.catalogue.novel].any()
    lucky = campaigns.novel_worth(one_world, 0.5, draw)
    known = float(one_world.q[one_world.pi0 > 0].mean())
    assert 0.2 * known < lucky.q[:, lucky.catalogue.novel].mean() < 0.8 * known
    assert lucky.floor == one_world.floor


def test_units_differ_in_size_yet_their_mean_is_the_value() -> None:
    world = near_miss_world("plain")
    logs = world.unit_logs(50_000, rng.generator(0, "units"))
    sizes = np.bincount(np.asarray(logs.unit))
    assert (sizes.min(), sizes.max()) == (1, 8)
    assert logs.mean_reward() == pytest.approx(float(world.value(world.pi0)), abs=0.005)


def test_bold_sessions_are_far_below_their_floor() -> None:
    draw = rng.generator(0, "bold")
    bold = sessions(draw, 60_000, np.array(BOLD), 1).mean_reward()
    assert bold < (BOLD_FLOOR - 0.005) * sessions(draw, 60_000, PI0).mean_reward()


def test_the_same_rows_are_declared_in_eight_ways() -> None:
    world, pi = shopping.below_floor()
    logs = shopping.timed(world.logs(world.pi0, 1000, rng.generator(0, "declared")))
    ways = dict(shopping.redeclared(logs, pi))
    assert set(ways) == {
        "r_max",
        "feature",
        "item",
        "column",
        "unit",
        "fractions",
        "fewer rows",
        "order",
    }
    hashes = {declared.logs.hash for name, declared in ways.items() if name != "fractions"}
    assert len(hashes | {logs.hash}) == 8  # to a hash they are other rows
    for declared in ways.values():
        assert declared.levels.policy(0).probabilities(declared.logs.contexts).shape[0] == 6


def test_what_a_campaign_promises_is_judged_by_what_was_served() -> None:
    world = near_miss_world("plain")
    pi0, floor = world.policy(world.pi0), world.floor
    settings = campaigns.settings_for(safety="cumulative")
    play = campaigns.Play(world, settings, rng.generator(0, "judged"))
    better = world.policy(world.mixed(world.tilt(rng.generator(0, "better")), 1.02 * floor))
    base = float(world.value(world.pi0))
    keeps = play.keeps(world, better)
    assert keeps and play.keeps(world, pi0)
    play.sums.append((0.95 * floor, base, play.rows))  # a debt of 5% of a round
    assert not play.keeps(world, better)
    play.sums.append((1.2 * floor, base, play.rows))
    assert play.keeps(world, better)


# What is counted, kept and shown.


@pytest.mark.parametrize("errors", [0, 7, 100, 2000])
def test_interval_is_clopper_and_pearsons(errors: int) -> None:
    from scipy.stats import binomtest

    exact = binomtest(errors, 2000).proportion_ci(method="exact")
    tally = Tally("strict", "kind", "normal", errors, 0, 0, 2000)
    assert tally.interval == pytest.approx((exact.low, exact.high), abs=1e-8)


def test_answers_are_judged_and_refusals_are_none_of_them() -> None:
    def refuses() -> bool:
        raise ConfigError("no", found="this")

    assert asked(refuses) == "refused"
    assert asked(lambda: True) == judged(True) == "wrong"
    assert judged(True, true=True) == "right" and judged(False, true=True) == "failed"


def test_blocks_are_kept_resumed_and_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    swept(3, 1, path, only=["levels"])
    assert finished(path)["levels"].last == 3
    ran: list[tuple[int, int]] = []
    before = tallies(path)

    def quick(name: str, trial: object, first: int, last: int) -> Counter[tuple[Key, Answer]]:
        ran.append((first, last))
        return Counter({(("strict", "list of 20 levels", "normal"), "wrong"): last - first})

    monkeypatch.setattr("depsue_research.audit.blocks.repeated", quick)
    every = swept(5, 1, path, only=["levels"])
    assert ran == [(3, 5)]
    [normal] = [t for t in every if t.variant == "normal"]
    assert normal.n == 5 and normal.wrong == before[0].wrong + 2
    gather(path)
    assert len(path.read_text().splitlines()) == 1 and tallies(path) == every
    swept(5, 1, path, only=["levels"])
    assert ran == [(3, 5)]


def test_a_line_that_was_cut_off_is_dropped_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    counts: Counter[tuple[Key, Answer]] = Counter({(("strict", "a", "b"), "failed"): 2})
    keep(path, "levels", 0, 2, counts)
    keep(path, "levels", 7, 9, counts)  # 2 to 6 are missing
    with path.open("ab") as file:
        file.write(b'{"trial": "lev')
    assert finished(path)["levels"].last == 2
    assert path.read_bytes().endswith(b"\n")
    path.write_text('{"trial": 1}\n')
    with pytest.raises(FileError, match=r"line 1.*Cure: delete that line"):
        finished(path)


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="replications must be a whole number"):
        tasks(0, 1)
    with pytest.raises(ConfigError, match="campaigns must be a whole number"):
        tasks(1, 0)
    with pytest.raises(ConfigError, match="trials must be among plain"):
        chosen(tasks(1, 1), ["nowhere"])


def test_every_trial_has_a_task() -> None:
    every = tasks(2000, 400)
    assert every["plain"].replications == 2000 and every["worthless"].replications == 400
    assert every["rollbacks"].replications == 40
    named = (verdicts.TRIALS, shopping.TRIALS, units.TRIALS, campaigns.TRIALS, campaigns.VERDICTS)
    assert all(name in every for trials in named for name in trials)


def made(wrong: int, *, group: int = 0, n: int = 200, kind: str = "a kind") -> Tally:
    return Tally(GROUPS[group], kind, "normal", wrong, 0, 3, n)


def test_the_page_opens_with_the_verdict() -> None:
    fine = [made(4), made(80, group=1, kind="a tempting rule")]
    text = page(fine, (200, 10))
    assert "None of 1 strict kinds exceeds delta" in text
    assert "`depsue-research audit --replications 200 --campaigns 10`" in text
    assert "This page has 200 replications of one-shot verdicts, 0 replications of whole" in text
    assert "were asked for: the run was cut short" in text
    assert "a tempting rule (normal): 40.0%, above delta" in text
    assert "| a kind | normal | 4 of 200 | 0.0200 |" in text
    broken = [made(40), made(1, kind="another")]
    assert "1 of 2 strict kinds exceed delta: a kind (normal), 0.200" in verdict(broken)
    assert exceeding(broken, "strict") == broken[:1]
    assert "**above delta**" in page(broken, (200, 10))
    assert verdict([]) == "No strict kind was run."


def test_the_figure_is_light_and_marks_delta(tmp_path: Path) -> None:
    every = [made(k, kind=f"kind {k}") for k in range(40)]
    lines = figure(every).axes[0].lines
    assert any(np.all(np.asarray(line.get_xdata()) == 0.05) for line in lines)
    draw(every, tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size < 100_000


def test_the_command_writes_its_page(tmp_path: Path) -> None:
    arguments = ["--replications", "2", "--campaigns", "1", "--only", "levels; promises"]
    outcome = CliRunner().invoke(app, ["audit", *arguments, "--out", str(tmp_path), "--fresh"])
    assert outcome.exit_code == 0, outcome.output
    assert "| list of 20 levels | normal |" in outcome.output
    text = (tmp_path / "audit.md").read_text("utf-8")
    assert "depsue-research audit --replications 2 --campaigns 1" in text
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2
