"""In what a run's settings differ from the recipe of that name that comes with depsue."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from depsue_research.paper.recipe import Recipe, load_recipe, recipe_folder

PLAIN = ("steps", "bound_every")
"""Settings that go by one name in all parts of a recipe; others are told with their part."""


def differences(recipe: Recipe) -> str:
    """One line: Differs from recipes/paper-movielens.toml: bound_every 10 (recipe: 1).

    Empty where nothing differs, or where no recipe of that name comes with depsue.
    """
    path = recipe_folder() / f"{recipe.name}.toml"
    if not path.is_file():
        return ""
    shipped = load_recipe(path)
    told: list[str] = []
    for field in fields(Recipe):
        here, there = getattr(recipe, field.name), getattr(shipped, field.name)
        if is_dataclass(here) and is_dataclass(there):
            told += [
                _told(part.name if part.name in PLAIN else f"{field.name}.{part.name}", a, b)
                for part in fields(here)
                if (a := getattr(here, part.name)) != (b := getattr(there, part.name))
            ]
        elif here != there and field.name != "name":
            told.append(_told(field.name, here, there))
    if not told:
        return ""
    return f"Differs from recipes/{path.name}: {'; '.join(dict.fromkeys(told))}."


def _told(name: str, here: Any, there: Any) -> str:
    return f"{name} {_shown(here)} (recipe: {_shown(there)})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
