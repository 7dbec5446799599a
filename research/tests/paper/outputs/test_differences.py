"""What differs from the shipped recipe is told, setting by setting."""

from dataclasses import replace

from research.tests.paper.outputs.made_up import movielens

from depsue_research.paper.outputs.differences import differences
from depsue_research.paper.recipe import load_recipe, recipe_folder

SHIPPED = load_recipe(recipe_folder() / "paper-movielens.toml")


def test_every_kind_of_setting_is_told_once() -> None:
    recipe = SHIPPED.with_options(
        steps=200, rows=5000, bound_every=10, levels=(-8.0, 8.0), methods=("naive_safe", "opg_cql")
    )
    told = differences(recipe)
    assert told.startswith("Differs from recipes/paper-movielens.toml: ")
    for words in (
        "steps 200 (recipe: 10,000)",
        "rows 5,000 (recipe: 500,000)",
        "bound_every 10 (recipe: 1)",
        "levels -8, 8 (recipe: -24, -16, -8, 0, 8, 16, 24)",
        "methods naive_safe, opg_cql (recipe: opg_mean, ",
    ):
        assert told.count(words) == 1, words


def test_other_settings_are_told_with_their_part() -> None:
    other = replace(SHIPPED, rewards=replace(SHIPPED.rewards, members=7))
    assert "rewards.members 7 (recipe: " in differences(other)


def test_nothing_is_told_where_nothing_differs_or_is_known() -> None:
    assert differences(SHIPPED) == ""
    assert differences(movielens(rows=5)) == ""
