"""Recipes: all settings of an experiment, as a TOML file that a person can read and change.

A *level* is here, in the cells and in everything that is made from them, the parameter of the
logging policy: beta on MovieLens, epsilon on Wiki10. In `depsue` the
word means something else: a step of a `MixtureLadder`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from depsue.bounds import bound_named
from depsue.errors import (
    ConfigError,
    FileError,
    is_real,
    is_whole,
    require,
    require_positive,
    short,
)
from depsue.exploration.settings import ExploreSettings, in_words
from depsue.learners.gradient import OpgSettings, ValueWithEntropy
from depsue.learners.safe_opg import SafeOpgSettings
from depsue.promises import Floor
from depsue.rewards import RewardSettings
from depsue_research import wiki10
from depsue_research.movielens import PRESETS


@dataclass(frozen=True)
class Method:
    """A way to learn, as a recipe names it.

    Args:
        learner: OPG; Naive Safe Exploration; DEPSUE, which is Safe OPG with one deployment; or
            certified exploration.
        deployments: K.
        model: of OPG: the mean or the min of the naive ensemble, or the model of CQL.
        safety: of certified exploration: every deployment above the floor, or the sum of all so
            far, as Eq. 9 has it.
    """

    learner: Literal["opg", "naive_safe", "depsue", "explore"]
    deployments: int = 1
    model: Literal["mean", "min", "cql"] = "mean"
    safety: Literal["each", "cumulative"] = "each"


METHODS: Mapping[str, Method] = {
    "opg_mean": Method("opg", model="mean"),
    "opg_min": Method("opg", model="min"),
    "opg_cql": Method("opg", model="cql"),
    "naive_safe": Method("naive_safe"),
    "depsue_1": Method("depsue", 1),
    "depsue_2": Method("depsue", 2),
    "depsue_5": Method("depsue", 5),
    "explore_1": Method("explore", 1),
    "explore_2": Method("explore", 2),
    "explore_5": Method("explore", 5),
    "explore_2_cumulative": Method("explore", 2, safety="cumulative"),
    "explore_5_cumulative": Method("explore", 5, safety="cumulative"),
}
"""By the names in recipes and cells, in the order in which they are shown."""
LATER: Mapping[str, Any] = {
    "model_rows": "S1",
    "when_failed": "deploy anyway",
    "optimiser": "adam",
    "baseline": True,
    "factor": "minibatch",
    "factor_on": "all",
    "entropy": "exact",
}
"""Settings that came after cells had been committed: where they have these values, they are left
out of the hash, so that those cells still count."""
SET_ELSEWHERE: dict[type, set[str]] = {
    ExploreSettings: {"promises", "safety", "deployments", "rewards"}
}
"""Settings that the recipe's other keys, or the method, decide."""

LEVEL = {"movielens": "beta", "wiki10": "epsilon"}
"""What the levels of an experiment are."""

S = TypeVar("S", OpgSettings, SafeOpgSettings, RewardSettings, ExploreSettings)


@dataclass(frozen=True)
class Recipe:
    """An experiment's settings."""

    name: str
    experiment: str
    levels: tuple[float, ...]
    """beta (MovieLens) or epsilon (Wiki10) of the logging policies."""
    opg: OpgSettings
    safe_opg: SafeOpgSettings
    rewards: RewardSettings
    cql: RewardSettings
    exploration: ExploreSettings = field(default_factory=ExploreSettings)
    """Certified exploration; its floor and its `rewards`, but for `members`, are the recipe's."""
    methods: tuple[str, ...] = tuple(METHODS)
    preset: str = "paper"
    """Which MovieLens simulator."""
    supported: int = 800
    novel: int = 200
    rows: int = 500_000
    """|D|; every deployment has |D| / K rows."""
    validation_rows: int = 0
    """Rows of pi0 that OPE validates the OPG policies on (MovieLens only; the paper has 50,000)."""
    floor: float = 0.95
    """C over V_on(pi0)."""
    explore: float = 0.05
    """Share of novel actions in Naive Safe Exploration."""
    clip: float | None = None
    """Limit of V_on(pi_k) over V_on(pi0) in the margin."""
    model_rows: Literal["S1", "all"] = "S1"
    """The rows that q-hat of DEPSUE is fitted on."""
    when_failed: Literal["logging policy", "deploy anyway"] = "deploy anyway"
    """What DEPSUE deploys when its bound stays below the need."""
    official_data: bool = True
    """Hold the data against its published counts and checksums; false for data of one's own."""

    def __post_init__(self) -> None:
        _one_of("experiment", self.experiment, tuple(LEVEL))
        _one_of("preset", self.preset, ("paper", "fitted"))
        _one_of("model_rows", self.model_rows, ("S1", "all"))
        _one_of("when_failed", self.when_failed, ("logging policy", "deploy anyway"))
        for name in self.methods:
            method_of(name)
        for name, least in (("supported", 1), ("novel", 1), ("rows", 1), ("validation_rows", 0)):
            require(
                is_whole(getattr(self, name)) and getattr(self, name) >= least,
                f"{name} must be a whole number, at least {least}",
                found=short(getattr(self, name)),
            )
        require(
            len(self.levels) > 0 and len(self.methods) > 0,
            "a recipe needs levels and methods",
            found=f"{len(self.levels)} levels and {len(self.methods)} methods",
        )
        for name in ("levels", "methods"):
            values = getattr(self, name)
            require(
                len(set(values)) == len(values),
                f"{name} must be different from each other",
                found=short(values),
            )
        low, high = (-1000.0, 1000.0) if self.experiment == "movielens" else (0.0, 1.0)
        for level in self.levels:  # NaN is in no range
            require(
                low <= level <= high,
                f"{self.level_name} must lie in [{low:g}, {high:g}]",
                found=short(level),
            )
        require(
            type(self.official_data) is bool,
            "official_data must be true or false",
            found=short(self.official_data),
        )
        require(
            self.experiment == "movielens" or self.validation_rows == 0,
            "validation is of MovieLens only: its rows are asked about every action",
            found=f"{self.validation_rows:,} validation rows",
            cure="validation_rows = 0",
        )
        Floor(self.floor)
        if self.clip is not None:
            require_positive(self.clip, "clip", "the paper's for Wiki10 is 1.05")
        require(0 < self.explore < 1, "explore must lie in (0, 1)", found=short(self.explore))

    @property
    def level_name(self) -> str:
        """beta or epsilon."""
        return LEVEL[self.experiment]

    def settings_of(self, method: str) -> dict[str, Any]:
        """All settings that the result of `method` depends on, as JSON values."""
        names = ["experiment", "supported", "novel", "rows", "floor"]
        if self.experiment == "movielens":
            names.append("preset")
        if not self.official_data:
            names.append("official_data")
        match method_of(method).learner:
            case "naive_safe":
                names.append("explore")
            case "opg":
                model = "cql" if method_of(method).model == "cql" else "rewards"
                names += ["validation_rows", "opg", model]
            case "explore":
                names += ["exploration", "rewards"]
            case "depsue":
                names += ["safe_opg", "rewards", "clip"]
                later = ("model_rows", "when_failed")
                names += [name for name in later if getattr(self, name) != LATER[name]]
        if self.experiment == "wiki10":
            world = wiki10.constants()
        else:
            world = asdict(PRESETS[self.preset])
        return {"world": world} | {name: _plain(getattr(self, name)) for name in sorted(names)}

    def hash_of(self, method: str) -> str:
        """Of the settings that `method` depends on: cells with another one are run again."""
        text = json.dumps(self.settings_of(method), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_options(
        self,
        *,
        steps: int | None = None,
        rows: int | None = None,
        bound_every: int | None = None,
        levels: tuple[float, ...] | None = None,
        methods: tuple[str, ...] | None = None,
    ) -> Recipe:
        """The recipe with what was asked for on the command line."""
        opg, safe = self.opg, self.safe_opg
        if steps is not None:
            opg, safe = replace(opg, steps=steps), replace(safe, steps=steps)
        if bound_every is not None:
            safe = replace(safe, bound_every=bound_every)
        for level in levels or ():
            require(
                level in self.levels,
                f"{self.level_name} must be one of the recipe's",
                found=f"{level:g}",
                cure=f"choose from {', '.join(f'{v:g}' for v in self.levels)}, or change levels in "
                "a recipe of your own",
            )
        return replace(
            self,
            opg=opg,
            safe_opg=safe,
            rows=rows or self.rows,
            levels=levels or self.levels,
            methods=methods or self.methods,
        )


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in a TOML file; unknown keys and wrong values are refused."""
    path = Path(path)
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        shipped = ", ".join(sorted(p.stem for p in recipe_folder().glob("*.toml")))
        raise FileError(
            "a recipe must be a readable file",
            found=f"{path}: {problem.strerror}",
            cure=f"give a path; depsue-research comes with {shipped}",
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise FileError("a recipe must be valid TOML", found=f"{path}: {problem}") from problem
    return recipe_from(text, path.stem)


def recipe_from(text: Mapping[str, Any], name: str) -> Recipe:
    """A recipe from parsed TOML."""
    values = dict(text)
    parts: dict[str, Any] = {
        "opg": _part(values, "opg", OpgSettings),
        "safe_opg": _part(values, "safe_opg", SafeOpgSettings),
        "rewards": _part(values, "rewards", RewardSettings),
        "cql": _part(values, "cql", RewardSettings),
        "exploration": _part(values, "exploration", ExploreSettings),
    }
    known = {field.name for field in fields(Recipe)} - {"name", *parts}
    _refuse_unknown(values, known, name)
    for needed in ("experiment", "levels"):
        require(needed in values, f"a recipe needs {needed}", found=f"none in {name}")
    try:
        for listed in ("levels", "methods"):
            require(
                isinstance(values.get(listed, []), list),
                f"{listed} must be a list",
                found=short(values.get(listed)),
            )
        values["levels"] = tuple(_number(v) for v in values["levels"])
        values["methods"] = tuple(values.get("methods", METHODS))
        return Recipe(name=name, **parts, **values)
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            "a recipe's values must have the right types", found=str(problem)
        ) from problem


def recipe_folder() -> Path:
    """Where the recipes are that come with this package."""
    return Path(__file__).parents[1] / "recipes"


def method_of(name: str) -> Method:
    """The method of a name; unknown names are refused."""
    _one_of("methods", name, tuple(METHODS))
    return METHODS[name]


def deployments_of(method: str) -> int:
    """K; 1 for the methods that deploy once."""
    return method_of(method).deployments


PLAIN = ("steps", "bound_every")
"""Settings that go by one name in all parts of a recipe; others are named with their part."""


def differences(recipe: Recipe) -> str:
    """One line: Differs from recipes/paper-movielens.toml: bound_every 10 (recipe: 1).

    Empty where nothing differs, or where no recipe of that name comes with depsue_research.
    """
    path = recipe_folder() / f"{recipe.name}.toml"
    if not path.is_file():
        return ""
    shipped = load_recipe(path)
    changes: list[str] = []
    for setting in fields(Recipe):
        here, there = getattr(recipe, setting.name), getattr(shipped, setting.name)
        if is_dataclass(here) and is_dataclass(there):
            changes += [
                _change(part.name if part.name in PLAIN else f"{setting.name}.{part.name}", a, b)
                for part in fields(here)
                if (a := getattr(here, part.name)) != (b := getattr(there, part.name))
            ]
        elif here != there and setting.name != "name":
            changes.append(_change(setting.name, here, there))
    if not changes:
        return ""
    return f"Differs from recipes/{path.name}: {'; '.join(dict.fromkeys(changes))}."


def _part(values: dict[str, Any], name: str, kind: type[S]) -> S:
    part = values.pop(name, {})
    require(isinstance(part, dict), f"{name} must be a table, [{name}]", found=short(part))
    part = dict(part)
    known = {field.name for field in fields(kind)} - SET_ELSEWHERE.get(kind, {"objective"})
    if kind in (OpgSettings, SafeOpgSettings):
        known |= {"alpha", "entropy"}
    _refuse_unknown(part, known, f"[{name}]")
    try:
        for listed in ("hidden", "fractions"):
            if listed in part:
                part[listed] = tuple(part[listed])
        if "bound" in part:
            part["bound"] = bound_named(part["bound"])
        terms = {name: part.pop(name) for name in ("alpha", "entropy") if name in part}
        if terms:
            part["objective"] = ValueWithEntropy(**terms)
        return kind(**part)
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            f"the values of [{name}] must have the right types", found=str(problem)
        ) from problem


def _refuse_unknown(values: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    require(
        not unknown,
        "a recipe's keys must be known",
        found=f"{', '.join(unknown)} in {where}",
        cure=f"known are {', '.join(sorted(known))}",
    )


def _number(value: object) -> float:
    require(is_real(value), "levels must be numbers", found=short(value))
    return float(value)  # type: ignore[arg-type]


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    require(
        value in known,
        f"{what} must be one of {', '.join(known)}",
        found=short(value),
        cure="correct the recipe",
    )


def _plain(value: Any) -> Any:
    """Settings as JSON values; a bound by its name and constants; options that are off, not."""
    if isinstance(value, ExploreSettings):
        names = {f.name for f in fields(value)} - SET_ELSEWHERE[ExploreSettings]
        if value.reserve is None:
            names.remove("reserve")
        plain = {name: getattr(value, name) for name in sorted(names)}
        return plain | {
            "members": value.rewards.members,
            "objective": in_words(value.objective),  # a formula that changes is another setting
        }
    if isinstance(value, OpgSettings | RewardSettings):
        out = {f.name: getattr(value, f.name) for f in fields(value)}
        if "bound" in out:
            out["bound"] = repr(out["bound"])
        if "objective" in out:
            out["objective"] = _without_later(asdict(out["objective"]))
        return {
            name: list(v) if isinstance(v, tuple) else v for name, v in _without_later(out).items()
        }
    return value


def _without_later(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: v
        for name, v in values.items()
        if v is not None and (name not in LATER or v != LATER[name])
    }


def _change(name: str, here: Any, there: Any) -> str:
    return f"{name} {_shown(here)} (recipe: {_shown(there)})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
