"""Hostile worlds: what they are, what is counted, and that wrong propensities are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue import rng
from depsue.errors import ConfigError, DataError, FileError
from depsue_research.hostile import WORLDS, Case, cases, finished, keep, refused, run_case
from depsue_research.hostile import campaigns as campaigns_module
from depsue_research.hostile import refusals as refusals_module
from depsue_research.hostile import sweep as sweep_module
from depsue_research.hostile.campaigns import RECIPE
from depsue_research.hostile.page import Broken, figure, groups, page, pooled
from depsue_research.hostile.refusals import Misreporting, misreported, mistaken
from depsue_research.hostile.sweep import LAST, NAMES, sweep, work
from depsue_research.paper.recipe import load_recipe, recipe_folder


def made(
    values: list[float],
    safety: str = "each",
    *,
    world: str = "plain",
    seed: int = 0,
    novelty: float = 0.1,
) -> dict[str, Any]:
    """A result such as `run_case` gives, with these values of its deployments."""
    rounds = [
        {"k": k, "novelty": novelty, "value": v, "anticipated": 1.2, "answer": "certified"}
        for k, v in enumerate(values, start=1)
    ]
    return {
        "key": f"{world} {safety} {seed}",
        "config": "c",
        "seed": seed,
        "world": world,
        "deployments": len(values),
        "safety": safety,
        "objective": RECIPE,
        "logging_value": 0.3,
        "naive_value": 0.97,
        "rounds": rounds,
    }


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows in every world."""
    for name, kind in WORLDS.items():
        monkeypatch.setitem(WORLDS, name, replace(kind, rows=3000))


def test_worthless_items_earn_nothing_and_look_like_the_others() -> None:
    world, plain = (WORLDS[name].world(3) for name in ("worthless", "plain"))
    novel = world.catalogue.novel
    assert world.q[:, novel].max() == 0
    assert np.array_equal(world.q[:, ~novel], plain.q[:, ~novel])
    assert world.catalogue.hash == plain.catalogue.hash


def test_rewards_are_about_one_in_a_thousand() -> None:
    values = [
        world.value(world.logging_policy) for world in map(WORLDS["rare rewards"].world, range(8))
    ]
    assert 0.0005 < np.mean(values) < 0.002


def test_the_deterministic_policy_has_999_in_1000_and_is_mistaken() -> None:
    world = WORLDS["deterministic"].world(1)
    pi = world.logging_policy.probabilities(world.contexts)
    supported = np.where(world.catalogue.novel, 0, world.q)
    assert pi.max(axis=1).min() > 0.999 and pi[:, world.catalogue.novel].max() == 0
    assert 0.1 < (pi.argmax(axis=1) == supported.argmax(axis=1)).mean() < 0.9


def test_cases_go_seed_after_seed_through_all_k_and_modes() -> None:
    campaigns = cases(2)
    assert [case.seed for case in campaigns] == sorted(case.seed for case in campaigns)
    plain = {(c.deployments, c.safety) for c in campaigns if c.world == "plain"}
    assert plain == {(1, "each"), *((k, s) for k in (2, 5) for s in ("each", "cumulative"))}
    assert {c.world for c in campaigns if c.objective == "most value"} == {"worthless"}
    assert len({str(case) for case in campaigns}) == len(campaigns)


def test_the_settings_are_the_recipes() -> None:
    settings = Case(0, "plain", 5, "cumulative").settings
    recipe = load_recipe(recipe_folder() / "paper-movielens.toml").exploration
    for name in ("objective", "delta", "no_drift", "max_novelty", "novel", "even"):
        assert getattr(settings, name) == getattr(recipe, name)
    assert settings.promises[0].floor.ratio == 0.95 and settings.max_novelty == 0.5


def test_a_config_changes_with_the_world_and_not_with_the_seed(small: None) -> None:
    case = Case(0, "plain", 2, "each")
    assert case.config == replace(case, seed=5).config
    assert case.config != replace(case, world="worthless").config
    assert case.config != replace(case, deployments=5).config


def test_a_campaign_is_measured_exactly(small: None) -> None:
    result = run_case(Case(0, "worthless", 2, "cumulative"))
    world = WORLDS["worthless"].world(0)
    assert result["logging_value"] == pytest.approx(world.value(world.logging_policy))
    assert result["naive_value"] == pytest.approx(0.95)
    assert [round["k"] for round in result["rounds"]] == [1, 2]
    assert result["rounds"][0]["answer"] == "certain"  # 1,500 rows certify nothing
    assert result["rounds"][0]["novelty"] == pytest.approx(0.05)
    assert result["rounds"][0]["value"] == pytest.approx(0.95)
    assert run_case(Case(0, "worthless", 2, "cumulative"))["rounds"] == result["rounds"]


def test_an_error_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **more: object) -> None:
        raise DataError("no", column="propensity")

    monkeypatch.setattr(campaigns_module, "run_exploration", fails)
    result = run_case(Case(0, "plain", 1, "each"))
    assert "propensity" in result["refused"] and result["rounds"] == []
    (group,) = groups([result])
    assert group.refused == 1 and not group.runs
    assert "ended with an error: 1" in page([result], "command")


def test_misreported_logs_are_wrong_in_a_fifth_of_the_rows() -> None:
    world = WORLDS["plain"].world(0)
    logs = world.deploy(world.logging_policy, 40_000, round=0)
    ratio = misreported(logs, rng.generator(0, "test")).propensity / logs.propensity
    assert (ratio != 1).mean() == pytest.approx(0.2, abs=0.01)
    assert (1 / ratio).mean() == pytest.approx(1.05, abs=0.01)
    assert {0.5, 1.0, 2.0} >= set(np.round(ratio, 6).tolist())


def test_a_mistaken_policy_agrees_with_its_logs_and_not_with_what_was_drawn() -> None:
    world = WORLDS["plain"].world(0)
    liar = mistaken(world, rng.generator(0, "test"))
    claims = Misreporting(world, liar, 0)
    logs = claims.deploy(claims.logging_policy, 5000, round=0)
    really = world.deploy(world.logging_policy, 5000, round=0)
    assert np.array_equal(logs.action, really.action)
    said = np.exp(liar.log_prob(logs.contexts, logs.action, logs.context))
    np.testing.assert_allclose(logs.propensity, said)
    assert (np.abs(said / really.propensity - 1) > 0.3).mean() > 0.1


def test_wrong_propensities_are_refused_by_themselves(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals_module, "SIZES", (150_000,))
    answers = {answer["what"]: answer["said"] for answer in refused(0)["answers"]}
    rule = "propensities must be those of the deployed policy, to 0.1%"
    assert answers["run_exploration, logs handed in"].startswith(rule)
    assert "Cure:" in answers["run_exploration, logs handed in"]
    assert answers["run_exploration, a service that misreports"].startswith(rule)
    assert "must be at most 1" in answers["test of m/p, 20% wrong"]
    assert "must be at most 1" in answers["test of m/p, pi0 itself is wrong"]
    assert answers["test of m/p, correct propensities"] is None


def test_each_counts_deployments_and_cumulative_the_mean_so_far() -> None:
    values = [1.0, 0.94, 0.96]  # means so far: 1, .97, .967
    each, cumulative = groups([made(values), made(values, "cumulative")])
    assert (each.broken.count, each.broken.n) == (1, 3)
    assert (cumulative.broken.count, cumulative.broken.n) == (0, 3)
    assert groups([made([0.95 - 1e-12])])[0].broken.count == 0
    assert groups([made([0.94, 0.955], "cumulative")])[0].broken.count == 2


def test_only_certified_answers_can_be_wrong() -> None:
    run = made([0.9, 1.0, 0.96])
    run["rounds"][2]["answer"] = "certain"
    broken = pooled(groups([run]))
    assert broken["certified"] == Broken(1, 2) and broken["both"] == Broken(1, 3)


def test_pooled_is_tested_against_delta() -> None:
    good, bad = ([made([v], seed=s) for s in range(40)] for v in (1.0, 0.9))
    assert pooled(groups(good))["both"].p_value == 1
    spoiled = pooled(groups([*good, *bad[:8]]))["each"]
    assert (spoiled.count, spoiled.n) == (8, 48) and spoiled.p_value < 0.01
    assert "**fails**" in page([*good, *bad[:8]], "command")
    assert "**fails**" not in page(good, "command")
    assert Broken(1, 20) + Broken(2, 30) == Broken(3, 50)


def test_the_page_says_whether_worthless_items_go_on_being_shown() -> None:
    def told(novelty: list[float], anticipated: float = 1.0) -> str:
        run = made([1.0] * len(novelty), world="worthless")
        for round, nu in zip(run["rounds"], novelty, strict=True):
            round |= {"novelty": nu, "anticipated": anticipated}
        return page([run], "command")

    assert "it never showed them" in told([0.0, 0.0])
    assert "it has stopped showing them" in told([0.3, 0.0])
    assert "it shows them less" in told([0.3, 0.1])
    assert "as the objective pays for novelty" in told([0.3, 0.3])
    assert "takes them to be worth something" in told([0.3, 0.3], anticipated=1.3)


def test_the_page_names_its_command_and_what_was_not_refused() -> None:
    asked = [
        {"what": "run_exploration, pi0 itself is wrong", "rows": 10, "said": None},
        {"what": "run_exploration, logs handed in", "rows": 10, "said": "They are wrong."},
    ]
    text = page([made([1.0]), {"key": "k", "config": "c", "answers": asked}], "python this.py")
    assert "Made by `python this.py`" in text and "> They are wrong." in text
    assert "logs handed in | 10 | 1 of 1" in text
    assert "**Not refused by itself:** run_exploration, pi0 itself is wrong." in text


def test_the_figure_has_a_panel_for_each_world_with_floor_and_certain_level() -> None:
    drawn = figure([made([1.1], world=name) for name in WORLDS])
    panels = drawn.axes
    assert len(panels) == len(WORLDS)
    for axis in panels:
        assert any(np.all(np.asarray(line.get_ydata()) == 0.95) for line in axis.lines)
        assert any(np.allclose(np.asarray(line.get_xdata()), 0.05) for line in axis.lines)
        low, high = axis.get_ylim()
        assert low < 0.95 and high > 1.1


def test_finished_work_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def quick(case: Case) -> dict[str, Any]:
        ran.append(str(case))
        return {"key": str(case), "config": case.config, "rounds": []}

    monkeypatch.setattr(sweep_module, "run_case", quick)
    path = tmp_path / "work.jsonl"
    assert len(sweep(1, path, worlds=["plain"])) == 5
    assert len(sweep(2, path, worlds=["plain"])) == 10
    assert len(ran) == 10 == len(set(ran))


def test_work_has_all_worlds_seed_after_seed() -> None:
    keys = list(work(2))
    half = len(keys) // 2
    assert all(key.endswith("seed 0") for key in keys[:half])
    assert all(key.endswith("seed 1") for key in keys[half:])
    assert all(any(key.startswith(name) for key in keys[:half]) for name in NAMES)
    assert [key for key in work(1, [LAST])] == ["wrong propensities, seed 0"]


def test_a_line_that_was_cut_off_is_dropped_and_other_settings_are_passed_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "work.jsonl"
    assert finished(path, {"a": "1"}) == {}
    for key, config in (("a", "1"), ("b", "old"), ("c", "1")):
        keep({"key": key, "config": config}, path)
    with path.open("ab") as file:
        file.write(b'{"key": "d", "conf')
    wanted = {"c": "1", "b": "new", "a": "1", "d": "1"}
    assert list(finished(path, wanted)) == ["c", "a"]
    keep({"key": "d", "config": "1"}, path)
    assert list(finished(path, wanted)) == ["c", "a", "d"]


@pytest.mark.parametrize("line", ["nonsense", '{"key": "a"}', '{"key": 1, "config": "1"}', "[]"])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text(f'{{"key": "a", "config": "1"}}\n{line}\n')
    with pytest.raises(FileError, match=r"line 2.*Cure: delete that line"):
        finished(path, {"a": "1"})


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="replications must be a whole number, at least 1"):
        cases(0)
    with pytest.raises(ConfigError, match="worlds must be among plain, worthless"):
        work(1, ["nowhere"])
