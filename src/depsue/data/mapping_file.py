"""Which column is what: a team's logs in their own words, as a TOML file.

::

    r_max = 1.0                  # the largest possible reward: declared, never read off the data
    position = 1                 # where there are several positions: the one that is kept

    [columns]
    action = "item_id"
    reward = "click"
    propensity = "propensity_score"
    time = "timestamp"           # also: unit, round, position
    segments = ["country"]

    [contexts]
    numeric = ["age"]
    categorical.device = ["app", "web"]    # one column for each value; others count as none

    [reward]                     # what is used is min(reward + shift, cap)
    shift = 5.0
    cap = 100.0

    [other_rewards]              # further reward columns, each with its r_max
    revenue = 100.0

    [propensities]               # where none were logged
    estimated = true
    groups = ["device"]
    smoothing = 1.0

    [propensities]               # or: where they were, and the rows of some items were dropped
    kept = 0.9375                # p is divided by the share of decisions that were kept
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from depsue.artifacts import write_synced
from depsue.data.mapping import EXAMPLE, ROLES, Estimated, LogMapping
from depsue.errors import FileError, is_whole, require, short

SECTIONS = ("columns", "contexts", "reward", "other_rewards", "propensities")


def to_toml(mapping: LogMapping) -> str:
    """The file that `read_mapping` reads."""
    lines = [
        "# Which column of the logs is what; depsue commands read it with --mapping.",
        f"r_max = {float(mapping.r_max)!r}  # the largest possible reward: declare it",
    ]
    if mapping.keep_position is not None:
        lines.append(f"position = {_toml(mapping.keep_position)}")
    lines += ["", "[columns]"]
    roles = [(role, getattr(mapping, role)) for role in ROLES]
    lines += [f"{role} = {_toml(name)}" for role, name in roles if name is not None]
    lines += [f"segments = {_toml(list(mapping.segments))}"] if mapping.segments else []
    lines += ["", "[contexts]", f"numeric = {_toml(list(mapping.numeric))}"]
    for name, values in mapping.categorical.items():
        lines.append(f"categorical.{_toml(name)} = {_toml(list(values))}")
    if mapping.shift or mapping.cap is not None:
        lines += ["", "[reward]", f"shift = {float(mapping.shift)!r}"]
        lines += [f"cap = {float(mapping.cap)!r}"] if mapping.cap is not None else []
    if mapping.other_rewards:
        lines += ["", "[other_rewards]"]
        lines += [f"{_toml(name)} = {float(x)!r}" for name, x in mapping.other_rewards.items()]
    if mapping.estimated is not None:
        lines += ["", "[propensities]", "estimated = true"]
        lines.append(f"groups = {_toml(list(mapping.estimated.groups))}")
        lines.append(f"smoothing = {float(mapping.estimated.smoothing)!r}")
    if mapping.kept < 1:
        lines += ["", "[propensities]", f"kept = {float(mapping.kept)!r}"]
    return "\n".join(lines) + "\n"


def read_mapping(path: str | Path) -> LogMapping:
    """The mapping in a TOML file."""
    rule = "a mapping must be a TOML file that can be read"
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise FileError(rule, found=f"{path}: {short(str(problem))}", cure=EXAMPLE) from problem
    return mapping_of(table)


def write_mapping(mapping: LogMapping, path: str | Path, *, force: bool = False) -> None:
    """Write the TOML file, whole or not at all; one that is there is kept unless `force`."""
    place = Path(path)
    rule = "a mapping that is there is not overwritten"
    require(force or not place.exists(), rule, found=place, cure="--force", error=FileError)
    try:
        write_synced(place, to_toml(mapping).encode())
    except OSError as problem:
        rule, cure = "the mapping must be writable", "give another path"
        raise FileError(rule, found=f"{place}: {problem}", cure=cure) from problem


def mapping_of(table: Mapping[str, Any]) -> LogMapping:
    """The mapping out of the tables of a TOML file; what is not known is refused."""
    _known(table, ("r_max", "position", *SECTIONS), "the mapping")
    part = {name: table.get(name, {}) for name in SECTIONS}
    for name, value in part.items():
        found = f"{name} = {short(value)}"
        require(isinstance(value, dict), f"[{name}] must be a table", found=found, cure=EXAMPLE)
    columns, contexts, estimate = part["columns"], part["contexts"], part["propensities"]
    _known(columns, (*ROLES, "segments"), "[columns]")
    _known(contexts, ("numeric", "categorical"), "[contexts]")
    _known(part["reward"], ("shift", "cap"), "[reward]")
    _known(estimate, ("estimated", "groups", "smoothing", "kept"), "[propensities]")
    for role in ("action", "reward"):
        rule = f"[columns] must name the column of the {role}"
        require(role in columns, rule, found=short(sorted(columns)), cure=EXAMPLE)
    for role in ROLES:
        found = f"{role} = {short(columns.get(role))}"
        ok = isinstance(columns.get(role, ""), str)
        require(ok, "a column is named by text", found=found, cure=EXAMPLE)
    categorical = contexts.get("categorical", {})
    ok = isinstance(categorical, dict)
    require(ok, "categorical must be a table", found=short(categorical), cure=EXAMPLE)
    keep, flag = table.get("position"), estimate.get("estimated", False)
    ok = keep is None or is_whole(keep) or isinstance(keep, str)
    require(ok, "position must be a number or text", found=short(keep), cure="position = 1")
    ok = isinstance(flag, bool)
    require(ok, "estimated must be true or false", found=short(flag), cure="estimated = true")
    return LogMapping(
        **{role: columns.get(role) for role in ROLES},
        r_max=table.get("r_max"),  # type: ignore[arg-type]
        keep_position=keep,
        numeric=_texts(contexts.get("numeric", []), "numeric"),
        categorical={name: _texts(values, name) for name, values in categorical.items()},
        other_rewards=part["other_rewards"],
        segments=_texts(columns.get("segments", []), "segments"),
        shift=part["reward"].get("shift", 0.0),
        cap=part["reward"].get("cap"),
        estimated=_estimated(estimate) if flag else None,
        kept=estimate.get("kept", 1.0),
    )


def _estimated(table: Mapping[str, Any]) -> Estimated:
    return Estimated(_texts(table.get("groups", []), "groups"), table.get("smoothing", 1.0))


def _known(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(names))
    rule = f"{where} may hold {', '.join(names)}"
    require(not unknown, rule, found=short(unknown), cure=EXAMPLE)


def _texts(values: Any, name: str) -> tuple[str, ...]:
    ok = isinstance(values, list) and all(isinstance(one, str) for one in values)
    ok = ok and len(set(values)) == len(values)
    require(ok, f"{name} must be a list of distinct texts", found=short(values), cure=EXAMPLE)
    return tuple(values)


def _toml(value: Any) -> str:
    """Text, a whole number or a list of texts; JSON's text is TOML's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
