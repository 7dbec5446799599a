"""Recipes: the shipped ones are the paper's, mistakes are named, hashes follow the settings."""

from dataclasses import replace
from pathlib import Path

import pytest
from research.tests.paper.outputs.made_up import movielens

from depsue.errors import ConfigError, FileError
from depsue.learners.gradient import ValueWithEntropy
from depsue_research.paper.recipe import METHODS, Recipe, differences, load_recipe, recipe_folder

SHIPPED = sorted(recipe_folder().glob("*.toml"))


def test_all_recipes_are_there() -> None:
    names = {path.stem for path in SHIPPED}
    assert {"paper-movielens", "paper-movielens-fitted", "paper-wiki10"} <= names


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_have_the_papers_settings(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.opg.steps == recipe.safe_opg.steps == 10_000
    assert recipe.opg.rate == 0.1 and recipe.safe_opg.rate == 0.001
    assert recipe.safe_opg.rate_lambda == 0.01 and recipe.safe_opg.delta == 0.05
    for learner in (recipe.opg, recipe.safe_opg):
        assert isinstance(learner.objective, ValueWithEntropy) and learner.objective.alpha == 0.1
    assert recipe.floor == 0.95 and recipe.rows == 500_000 and recipe.explore == 0.05
    assert recipe.rewards.members == 5 and recipe.cql.conservatism == 2.0
    assert recipe.rewards.hidden == recipe.cql.hidden == (100, 10)
    assert recipe.opg.hidden == recipe.safe_opg.hidden == (100,)
    assert recipe.methods == tuple(METHODS)
    assert recipe.clip == (1.05 if recipe.experiment == "wiki10" else None)


def test_levels_and_sizes_are_the_papers() -> None:
    movielens = load_recipe(recipe_folder() / "paper-movielens.toml")
    assert list(movielens.levels) == [-24, -16, -8, 0, 8, 16, 24]
    assert (movielens.supported, movielens.novel) == (800, 200)
    assert movielens.validation_rows == 50_000 and movielens.safe_opg.bound_every == 1
    wiki10 = load_recipe(recipe_folder() / "paper-wiki10.toml")
    assert list(wiki10.levels) == [0.8, 0.5, 0.2]
    assert (wiki10.supported, wiki10.novel) == (8000, 2000)


def test_a_setting_changes_the_hash_of_the_methods_it_touches(small_recipe: Recipe) -> None:
    changed = small_recipe.with_options(bound_every=7)
    same = {m for m in METHODS if changed.hash_of(m) == small_recipe.hash_of(m)}
    assert same == {m for m in METHODS if not m.startswith("depsue")}
    changed = small_recipe.with_options(rows=999)
    assert not any(changed.hash_of(m) == small_recipe.hash_of(m) for m in METHODS)
    narrower = small_recipe.with_options(levels=(8.0,), methods=("opg_min",))
    assert narrower.hash_of("opg_min") == small_recipe.hash_of("opg_min")
    assert narrower.levels == (8.0,) and narrower.methods == ("opg_min",)


def test_a_reading_is_a_line_in_a_recipe(tmp_path: Path) -> None:
    """Each changes the hash of what it touches; written out at its default it changes none."""
    shipped = (recipe_folder() / "paper-movielens.toml").read_text("utf-8")
    original = load_recipe(recipe_folder() / "paper-movielens.toml")

    def touched(part: str, line: str) -> set[str]:
        text = shipped.replace(part, f"{part}\n{line}", 1) if part else f"{line}\n{shipped}"
        path = tmp_path / "reading.toml"
        path.write_text(text, "utf-8")
        recipe = load_recipe(path)
        return {m for m in METHODS if recipe.hash_of(m) != original.hash_of(m)}

    safe = {"depsue_1", "depsue_2", "depsue_5"}
    assert touched("[safe_opg]", 'factor = "none"') == safe
    assert touched("[safe_opg]", 'factor_on = "objective"') == safe
    assert touched("[safe_opg]", 'entropy = "one action"') == safe
    assert (
        touched("", 'model_rows = "all"') == touched("", 'when_failed = "logging policy"') == safe
    )
    assert touched("[opg]", "baseline = false") == {"opg_mean", "opg_min", "opg_cql"}
    assert touched("[cql]", 'optimiser = "sgd"') == {"opg_cql"}
    assert "opg_cql" not in touched("[rewards]", 'optimiser = "sgd"') >= safe
    for part, line in (
        ("[safe_opg]", 'factor = "minibatch"\nfactor_on = "all"\nentropy = "exact"'),
        ("[rewards]", 'optimiser = "adam"'),
        ("", 'model_rows = "S1"\nwhen_failed = "deploy anyway"'),
    ):
        assert touched(part, line) == set()


def test_steps_are_of_both_learners(small_recipe: Recipe) -> None:
    changed = small_recipe.with_options(steps=3)
    assert changed.opg.steps == changed.safe_opg.steps == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('experiment = "netflix"\nlevels = [1]', "experiment must be one of movielens, wiki10"),
        ('experiment = "wiki10"', "a recipe needs levels"),
        ("levels = [1]", "a recipe needs experiment"),
        ('experiment = "wiki10"\nlevels = ["a"]', "levels must be numbers"),
        ('experiment = "wiki10"\nlevels = []', "needs levels and methods"),
        ('experiment = "wiki10"\nlevels = [1]\nstep = 3', "Found: step in bad"),
        ('experiment = "wiki10"\nlevels = [1]\n[opg]\nspeed = 3', r"Found: speed in \[opg\]"),
        ('experiment = "wiki10"\nlevels = [1]\n[opg]\nsteps = 0', "steps must be"),
        ('experiment = "wiki10"\nlevels = [1]\n[opg]\nhidden = 3', "right types"),
        ('experiment = "wiki10"\nlevels = [1]\nopg = 3', "opg must be a table"),
        ('experiment = "wiki10"\nlevels = [1]\nrows = 0', "rows must be a whole number"),
        ('experiment = "wiki10"\nlevels = [1]\nmethods = ["ppo"]', "methods must be one of"),
        ('experiment = "wiki10"\nlevels = [1]\n[safe_opg]\nbound = "best"', "a bound must be one"),
        ('experiment = "wiki10"\nlevels = [1]\nexplore = 1.5', "explore must lie in"),
        ('experiment = "wiki10"\nlevels = "123"', "levels must be a list"),
        ('experiment = "wiki10"\nlevels = [true]', "levels must be numbers"),
        ('experiment = "wiki10"\nlevels = [1.5]', r"epsilon must lie in \[0, 1\]"),
        ('experiment = "movielens"\nlevels = [nan]', "beta must lie in"),
        ('experiment = "movielens"\nlevels = [1, 1]', "levels must be different"),
        ('experiment = "wiki10"\nlevels = [1]\nofficial_data = "no"', "true or false"),
        ('experiment = "wiki10"\nlevels = [1]\nvalidation_rows = 9', "of MovieLens only"),
        ('experiment = "movielens"\nlevels = [1]\nfloor = 100', "a ratio must be at most 2"),
        ('experiment = "movielens"\nlevels = [1]\nclip = -1', "clip must be a positive"),
        ('experiment = "movielens"\nlevels = [1]\n[opg]\nhidden = ["a"]', "hidden must be"),
        ('experiment = "movielens"\nlevels = [1]\n[opg]\nstandardise = "no"', "standardise"),
        ('experiment = "movielens"\nlevels = [1]\n[rewards]\nrate = -1', "rate must be"),
        ('experiment = "movielens"\nlevels = [1]\n[rewards]\nbatch = 2.5', "batch must be"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_recipe(path)


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"readable file.*paper-movielens"):
        load_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("levels = [")
    with pytest.raises(FileError, match="valid TOML"):
        load_recipe(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="valid TOML"):
        load_recipe(tmp_path / "bad.toml")


def test_a_level_that_is_not_the_recipes(small_recipe: Recipe) -> None:
    with pytest.raises(ConfigError, match="beta must be one of the recipe's. Found: 3"):
        small_recipe.with_options(levels=(3.0,))


PAPER = load_recipe(recipe_folder() / "paper-movielens.toml")


def test_every_kind_of_setting_is_told_once() -> None:
    recipe = PAPER.with_options(
        steps=200, rows=5000, bound_every=10, levels=(-8.0, 8.0), methods=("naive_safe", "opg_cql")
    )
    words = differences(recipe)
    assert words.startswith("Differs from recipes/paper-movielens.toml: ")
    for change in (
        "steps 200 (recipe: 10,000)",
        "rows 5,000 (recipe: 500,000)",
        "bound_every 10 (recipe: 1)",
        "levels -8, 8 (recipe: -24, -16, -8, 0, 8, 16, 24)",
        "methods naive_safe, opg_cql (recipe: opg_mean, ",
    ):
        assert words.count(change) == 1, change


def test_other_settings_are_told_with_their_part() -> None:
    other = replace(PAPER, rewards=replace(PAPER.rewards, members=7))
    assert "rewards.members 7 (recipe: " in differences(other)


def test_nothing_is_told_where_nothing_differs_or_is_known() -> None:
    assert differences(PAPER) == ""
    assert differences(movielens(rows=5)) == ""
