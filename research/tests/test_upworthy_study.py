"""The study of headline tests, on made-up ones: parts, blocks, judges, methods, and the page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from research.tests.test_upworthy import made_up
from typer.testing import CliRunner

from depsue.policies import BroughtPolicy, Uniform
from depsue_research.cli import app
from depsue_research.intervals import clopper_pearson, mean_interval
from depsue_research.rivals import METHODS, RivalSettings
from depsue_research.upworthy import UpworthyTests, read_upworthy
from depsue_research.upworthy_study import (
    WeeksWorld,
    blocks_of,
    judged,
    part_of,
    run_cell,
    split_visitors,
)

VW = find_spec("vowpalwabbit") is not None
INSTALLED = [method for method in METHODS if VW or not method.startswith("VW")]
SETTINGS = RivalSettings(rows=4000, rounds=1, dimensions=3, chunk=50)


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> UpworthyTests:
    folder = tmp_path_factory.mktemp("upworthy")
    made_up().write_parquet(folder / "packages.parquet")
    return read_upworthy(folder).outside((201325, 201352))


def test_parts_share_no_test_and_blocks_share_no_week(tests: UpworthyTests) -> None:
    development, final = part_of(tests, False), part_of(tests, True)
    assert set(development.tests).isdisjoint(final.tests)
    assert len(development) + len(final) == len(tests)
    blocks = blocks_of(tests, 12)
    assert np.sum(blocks, axis=0).tolist() == [1] * len(tests)
    assert all(block.sum() >= 12 for block in blocks)
    weeks = [set(tests.week[block]) for block in blocks]
    assert all(max(a) < min(b) for a, b in zip(weeks, weeks[1:], strict=False))


def test_visitors_are_split_without_loss(tests: UpworthyTests) -> None:
    one, other = split_visitors(tests, seed=0)
    assert np.array_equal(one.impressions + other.impressions, tests.impressions)
    assert np.array_equal(one.clicks + other.clicks, tests.clicks)
    assert (np.abs(one.impressions - other.impressions) <= 1).all()
    rates = one.clicks.sum() / one.impressions.sum(), other.clicks.sum() / other.impressions.sum()
    assert rates[0] == pytest.approx(rates[1], rel=0.02)


def test_a_judge_knows_pi0_and_a_share_of_new_packages(tests: UpworthyTests) -> None:
    live = tests.week < 201320 + 3
    world = WeeksWorld(tests, live, seed=1)
    logs = world.deploy(world.logging_policy, 2000, round=0)
    assert set(np.unique(world.tests.test[logs.action])) <= set(np.flatnonzero(live))
    pi0 = judged(world, BroughtPolicy(len(world.catalogue)), live, tests, 0.95)
    assert pi0["ratio"] == pytest.approx(1) and pi0["novelty"] == 0 and pi0["z"] > 3
    every = Uniform(np.ones(len(world.catalogue), dtype=bool))
    mine = judged(world, every, live, tests, 0.95)
    assert mine["novelty"] == pytest.approx(np.mean(1 / tests.sizes[live]))
    worst = WeeksWorld(tests, live, seed=1, first=tests.clicks / tests.impressions)
    assert judged(worst, every, live, tests, 0.95)["ratio"] < mine["ratio"] - 0.02


@pytest.mark.parametrize("method", INSTALLED)
def test_every_method_is_deployed_and_judged(tests: UpworthyTests, method: str) -> None:
    cell = run_cell(tests, 0, 100, SETTINGS, 15, method, "worst")
    (done,) = cell["rounds"]
    assert set(done) == {"certified", "here", "visitors", "later"}
    for judge in ("here", "visitors", "later"):
        assert 0.6 < done[judge]["ratio"] < 1.7
    if method in ("certified", "even"):
        assert done["here"]["ratio"] > 0.94 and done["here"]["novelty"] > 0.02
    assert 0 <= cell["rewarded"] <= 1 and 0 <= cell["shown"] <= 1


def test_the_command_resumes_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import depsue_research.upworthy_study as module

    some = ("even", "epsilon-greedy")
    study = module.study
    monkeypatch.setattr(module, "study", lambda *a, **k: study(*a, **k, methods=some))
    made_up(tests=6).write_parquet(tmp_path / "packages.parquet")
    asked = ["upworthy-study", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    asked += ["--seeds", "100-100", "--rows", "2000", "--size", "10", "--final"]
    first = CliRunner().invoke(app, asked)
    assert first.exit_code == 0, first.output
    lines = (tmp_path / "out" / "cells.jsonl").read_text().splitlines()
    assert len(lines) == len(first.output.splitlines()) >= 4
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 0 and not again.output
    page = (tmp_path / "out" / "study.md").read_text()
    assert "| epsilon-greedy |" in page and "The worst package of each test is new" in page
    assert (tmp_path / "out" / "study.png").stat().st_size > 10_000


def test_intervals() -> None:
    assert clopper_pearson(0, 20) == "0 of 20 (0.0% to 16.8%)"
    assert clopper_pearson(20, 20) == "20 of 20 (83.2% to 100.0%)"
    assert clopper_pearson(5, 50).startswith("5 of 50 (3.3% to 21.8%)")
    assert mean_interval([1.0, 2.0, 3.0], 2) == "2.00 +- 2.48"
    assert mean_interval([1.5]) == "1.500"
