"""Which column of the logs is what, for `depsue plan`: by --mapping, by options, or by a guess.

Context columns that options name may hold numbers, lists of numbers, or text with few values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from depsue.data.mapping import LogMapping
from depsue.data.tables import (
    MOST_FEATURES,
    exact,
    is_numeric,
    is_text,
    listed_names,
    require_columns,
    require_few_values,
    unnamed,
)
from depsue.errors import DataError, require

if TYPE_CHECKING:
    import polars as pl

    from depsue.data.reading import Source
    from depsue.promises import Promise


DEFAULTS = ("action", "reward", "propensity")
"""Roles whose columns go by the same name where no option names another."""
OTHERS = ("unit", "decision")
"""Roles that need no column; a column "decision" names the rows, as the service exports it."""


@dataclass(frozen=True)
class ColumnOptions:
    """What was said of the logs' columns; None, or nothing, where nothing was.

    Args:
        action, reward, propensity, unit, decision: one column each.
        context: feature columns; a name that ends in * stands for all that begin so. Empty: all
            numeric columns that have no other role.
        r_max: the largest possible reward.
        kept: share of decisions kept, where the rows of some items were dropped.
        mapping: a TOML file that says all of it.
    """

    action: str | None = None
    reward: str | None = None
    propensity: str | None = None
    unit: str | None = None
    decision: str | None = None
    context: tuple[str, ...] = ()
    r_max: float | None = None
    kept: float | None = None
    mapping: Path | None = None

    @property
    def named(self) -> list[str]:
        """The options that name columns."""
        roles = [role for role in (*DEFAULTS, *OTHERS) if getattr(self, role) is not None]
        return [f"--{role}" for role in (*roles, *(["context"] if self.context else []))]


class Mapped(NamedTuple):
    """A source, its mapping, and what was settled by rule or guessed, a sentence each."""

    source: Source
    mapping: LogMapping
    notes: tuple[str, ...]


def mapped_by(source: Source, options: ColumnOptions, promises: Sequence[Promise] = ()) -> Mapped:
    """The mapping that the options say; without a word and without the usual names, a guess.

    Columns that promises speak of are among the mapping's other rewards and segments.
    """
    rewards = [promise.reward for promise in promises if promise.reward is not None]
    segments = [promise.segment[0] for promise in promises if promise.segment is not None]
    carried = list(dict.fromkeys([*rewards, *segments]))
    require_columns(carried, list(source.names), source.name, "--promises")
    if options.mapping is not None:
        source, mapping, notes = _from_file(source, options, options.mapping)
    elif options.named or set(DEFAULTS) <= set(source.names):
        source, mapping, notes = _from_names(source, options, rewards, carried)
    else:
        source, mapping, notes = _guessed(source, rewards, options.r_max)
    if options.r_max is not None:
        mapping = replace(mapping, r_max=options.r_max)
    if options.kept is not None:
        mapping = replace(mapping, kept=options.kept)
    if not mapping.numeric and not mapping.categorical:
        notes += ("no context columns: all decisions count as alike",)
    return Mapped(source, _with_promises(mapping, promises), notes + _lines(source))


def require_first_round(source: Source, mapping: LogMapping) -> None:
    """Refuse rows of later rounds: pi0 did not draw them."""
    if mapping.round is None:
        return
    frame = source.frame.select(exact(mapping.round).max().alias("last"))
    last = source.collect(frame).item()
    if last is not None and last != 0:
        raise DataError(
            "a plan rests on what pi0 logged: rows of round 0",
            column=mapping.round,
            found=f"rounds up to {last}",
            cure="give the rows of round 0; if the column counts something else, write a mapping "
            "without round and name it with --mapping",
        )


def _from_file(source: Source, options: ColumnOptions, path: Path) -> Mapped:
    from depsue.check import read_or_guess

    require(
        not options.named,
        "columns come from --mapping or from options that name them, not from both",
        found=f"--mapping and {', '.join(options.named)}",
        cure="write them all into the file of --mapping",
    )
    return Mapped(source, *read_or_guess(source, path, options.r_max))


def _guessed(source: Source, rewards: Sequence[str], r_max: float | None) -> Mapped:
    """The guess of `depsue check`; rewards of promises are no contexts."""
    from depsue.check import guess_mapping

    mapping, notes = guess_mapping(source, r_max)
    hidden = {*rewards} & {*mapping.numeric, *mapping.categorical}
    if hidden:
        others = tuple(name for name in source.names if name not in hidden)
        frame = source.frame.select(exact(name) for name in others)
        mapping, notes = guess_mapping(replace(source, frame=frame, names=others), r_max)
    return Mapped(source, mapping, notes)


def _from_names(
    source: Source, options: ColumnOptions, rewards: Sequence[str], carried: Sequence[str]
) -> Mapped:
    """Columns by the names that were given, or the usual ones."""
    names: list[str] = list(source.names)
    roles: dict[str, Any] = {}
    for role in (*DEFAULTS, *OTHERS):
        name = getattr(options, role)
        named_so = role == "decision" and role in names and role not in options.context
        if name is None and role not in DEFAULTS and not named_so:
            continue
        roles[role] = role if name is None else name
        require_columns([roles[role]], names, source.name, f"--{role}, or in the file of --mapping")
    taken = {*roles.values(), *rewards}
    head = source.collect(source.frame.head(0))
    notes: list[str] = []
    if options.context:
        wanted = _matching(options.context, names, source.name)
        other = [name for name in options.context if name in taken]
        if other:
            notes.append(
                f"not among the contexts, as they have another role: {listed_names(other)}"
            )
        wanted = [name for name in wanted if name not in taken]
    else:
        free = [name for name in names if name not in taken]
        wanted = [name for name in free if is_numeric(head[name]) and not unnamed(name)]
        left = [name for name in free if name not in (*wanted, *carried)]
        if left:
            notes.append(
                f"log columns that are not read: {listed_names(left)} (--context can name them)"
            )
    source, numeric, categorical = _contexts_among(source, head, wanted, notes)
    mapping = LogMapping(**roles, numeric=numeric, categorical=categorical)
    return Mapped(source, mapping, tuple(notes))


def _with_promises(mapping: LogMapping, promises: Sequence[Promise]) -> LogMapping:
    """The mapping with the columns that promises speak of."""
    rewards, segments = dict(mapping.other_rewards), list(mapping.segments)
    contexts = (*mapping.numeric, *mapping.categorical)
    for promise in promises:
        if promise.reward is not None and promise.r_max is not None:
            require(
                promise.reward not in contexts,
                "a column that a promise takes its reward from is no context",
                found=f"'{promise.reward}', of the promise '{promise.name}'",
                cure="take it out of [contexts] in the mapping",
            )
            if promise.reward in mapping.role_columns and promise.reward not in rewards:
                segments.append(promise.reward)  # it has a role, and is carried along as it is
            else:
                rewards.setdefault(promise.reward, promise.r_max)
        if promise.segment is not None:
            segments.append(promise.segment[0])
    return replace(mapping, other_rewards=rewards, segments=tuple(dict.fromkeys(segments)))


def _lines(source: Source) -> tuple[str, ...]:
    """A note on lines of dsjson that cannot be read; too many of them are refused."""
    if not source.bad_lines:
        return ()
    import polars as pl

    from depsue.check.rules import BAD_LINES

    bad = len(source.bad_lines)
    lines = bad + int(source.collect(source.frame.select(pl.len())).item())
    found = f"{bad:,} of {lines:,} lines cannot be read; the first is {source.bad_lines[0]}"
    require(
        bad <= BAD_LINES * lines,
        f"at most {BAD_LINES:.0%} of the lines may be unreadable",
        found=found,
        cure="mend what writes them; lines left out by what was shown would bias everything",
    )
    return (found,)


def _matching(patterns: Sequence[str], names: list[str], file: str) -> list[str]:
    """The columns that names and prefixes stand for, each once."""
    columns: list[str] = []
    for pattern in patterns:
        begun = [n for n in names if n.startswith(pattern[:-1])] if pattern[-1:] == "*" else []
        require_columns([] if begun else [pattern], names, file, "--context")
        columns += begun or [pattern]
    return list(dict.fromkeys(columns))


def _contexts_among(
    source: Source, head: pl.DataFrame, wanted: Sequence[str], notes: list[str]
) -> tuple[Source, tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Numeric columns, lists as one column for each number; and text with its values."""
    texts = [name for name in wanted if is_text(head[name])]
    numbers = [name for name in wanted if name not in texts]
    if [*numbers, *texts] != list(wanted):
        notes.append(f"contexts are numbers, then text: {listed_names([*numbers, *texts])}")
    numeric: list[str] = []
    for name in numbers:
        if head[name].dtype.is_nested() and is_numeric(head[name]):
            source, parts = _unnested(source, head, name)
            numeric += parts
        else:
            numeric.append(name)
    categorical = {name: _values(source, name) for name in texts}
    width = len(numeric) + sum(len(values) for values in categorical.values())
    require(
        width <= MOST_FEATURES,
        f"there may be {MOST_FEATURES:,} features at most",
        found=f"{width:,} in {source.name}",
        cure="name the columns that matter with --context",
    )
    return source, tuple(numeric), categorical


def _unnested(source: Source, head: pl.DataFrame, name: str) -> tuple[Source, list[str]]:
    """The source with a column of lists as columns of numbers: name[0], name[1], ..."""
    import polars as pl

    column = exact(name).cast(pl.List(head[name].dtype.inner))  # type: ignore[attr-defined]
    length = column.list.len()
    least, most = source.collect(
        source.frame.select(length.min().alias("least"), length.max().alias("most"))
    ).row(0)
    if least != most or not most or most > MOST_FEATURES:
        raise DataError(
            f"lists of features must have one length, from 1 to {MOST_FEATURES:,}",
            column=name,
            found=f"lengths from {least} to {most}",
            cure="pad or recompute the features, or leave the column out with --context",
        )
    parts = [f"{name}[{k}]" for k in range(most)]
    columns = [column.list.get(k).alias(part) for k, part in enumerate(parts)]
    frame = source.frame.with_columns(columns)
    return replace(source, frame=frame, names=(*source.names, *parts)), parts


def _values(source: Source, name: str) -> tuple[str, ...]:
    """The distinct values of a text column, if they are few."""
    import polars as pl

    column = exact(name).cast(pl.String).drop_nulls().unique()
    values = source.collect(source.frame.select(column)).to_series().sort().to_list()
    require_few_values(name, len(values))
    return tuple(values)
