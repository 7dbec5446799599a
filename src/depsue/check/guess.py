"""Which column is what: a mapping guessed from names and types, with a sentence for each guess."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depsue.check.counting import is_id
from depsue.data.items import read_items
from depsue.data.logs import LoggedData
from depsue.data.mapping import LISTS, LogMapping, mapping_of, mapping_table, to_toml
from depsue.data.open_bandit import ROLES as OPEN_BANDIT
from depsue.data.open_bandit import is_open_bandit, left_out, simulated_draws
from depsue.data.reading import Source, mapped, open_source, read_mapped
from depsue.data.requests import SUM_SLACK
from depsue.data.tables import (
    MOST_VALUES,
    exact,
    is_numeric,
    is_text,
    listed_names,
    require_columns,
    unnamed,
)
from depsue.errors import ConfigError, require, short

if TYPE_CHECKING:
    import polars as pl

NAMES = {
    "action": "action action_id item_id item arm arm_id shown_item shown_item_id chosen_action "
    "product_id article_id ad_id content_id movie_id",
    "reward": "reward click clicked clicks is_click label outcome converted conversion purchase "
    "purchased revenue rating",
    "propensity": "propensity pscore propensity_score propensities probability prob p pi_b "
    "action_prob action_probability logging_prob logging_probability label_probability",
    "unit": "unit unit_id user_id user uid customer_id visitor_id member_id session_id session",
    "time": "time timestamp ts datetime event_time date created_at logged_at",
    "decision": "decision decision_id event_id eventid impression_id",
    "round": "round deployment",
    "position": "position pos slot rank",
    "candidates": "candidates candidate_ids candidate_items shortlist eligible_items action_set",
    "probabilities": "probabilities candidate_probabilities candidate_probs candidate_propensities "
    "pi0_probabilities",
    "by_pi0": "by_pi0",
    "version": "pi0_version policy_version model_version ranker_version ranker version model",
}
"""For each role, the names that it goes by, the likeliest first."""
SHORT = ("ranker", "version", "model")
"""Names of a version of pi0 where there are candidates, and of anything else where not."""
ABOUT = 0.9
"""Distinct values to rows, where a column names rows; the count is approximate."""
FROM_ACTION = ("item", "action", "arm", "product", "article")
"""A column whose name begins so describes what was shown, so it cannot be a context."""


def read_or_guess(
    source: Source, path: str | Path, r_max: float | None = None
) -> tuple[LogMapping, tuple[str, ...]]:
    """The mapping in a TOML file, and a sentence for each guess where the file asks for guesses.

    With `guess = true` what the file does not say is guessed: roles one by one, contexts where it
    has no [contexts].

    Args:
        source: the logs.
        path: the file.
        r_max: the largest possible reward, where it is declared; None is the file's.
    """
    table = mapping_table(path)
    wanted = table.pop("guess", False)
    require(
        isinstance(wanted, bool),
        "guess is true or false in a mapping",
        found=short(wanted),
        cure="guess = true",
    )
    if not wanted:
        return mapping_of(table), ()
    written = table.get("columns", {})
    ok = isinstance(written, dict) and all(isinstance(name, str) for name in written.values()
                                           if not isinstance(name, list))  # fmt: skip
    require(ok, "a column is named by text", found=short(written), cure='action = "item_id"')
    named = {role: name for role, name in written.items() if isinstance(name, str)}
    used = [*named.values(), *written.get("segments", []), *table.get("other_rewards", {})]
    require_columns(list(named.values()), list(source.names), source.name, str(path))
    guessed, notes = guess_mapping(source, r_max or table.get("r_max"), named=named, used=used)
    whole = tomllib.loads(to_toml(guessed))
    whole["columns"] |= written
    for name, section in table.items():
        if name != "columns":
            whole[name] = section
    return mapping_of(whole), notes


def read_logs(
    logs: Source | str | Path | Any,
    items: str | Path | Any,
    mapping: LogMapping | str | Path | None = None,
    *,
    id: str | None = None,
    novel: Sequence[str] | None = None,
) -> LoggedData:
    """Logs and their catalogue as they come: files or frames, mapped or guessed.

    Args:
        logs: an open source, the path of a file, a folder or a pattern, or a frame.
        items: the catalogue, a file or a frame: one row per item.
        mapping: which column is what, or the TOML file that says so; None guesses.
        id: the column of the items' ids.
        novel: ids of the new items; None takes the column `novel`, else what was never logged.
    """
    if isinstance(logs, str | Path):
        logs = open_source(logs)
    source = logs if isinstance(logs, Source) else Source.of(logs)
    if mapping is None:
        mapping = guess_mapping(source)[0]
    elif not isinstance(mapping, LogMapping):
        mapping = read_or_guess(source, mapping)[0]
    mapping = mapping.taken_in()
    shown = source.collect(mapped(source, mapping).select("action").unique())["action"]
    listed = read_items(items, id=id, novel=novel, logged=shown)
    return read_mapped(source, mapping, listed.catalogue)


UNKNOWN = "?"
"""Stands in a skeleton for a column that nobody could guess."""


def skeleton(source: Source) -> str:
    """A mapping to be filled in, where a guess fails: what was found, and the columns there are."""
    head = source.collect(source.frame.head(1000))
    lines = [
        "# Which column of the logs is what. Write the names of columns in place of each "
        f'"{UNKNOWN}".',
        "# What is not written here is guessed; take guess out where all is written.",
        "guess = true",
        "r_max = 1.0  # the largest possible reward: declare it",
        "",
        "[columns]",
    ]
    for role, words in (
        ("action", "the item that was shown"),
        ("reward", "what followed: a click, a purchase, an amount"),
        ("propensity", "the probability with which the item was drawn"),
    ):
        found = _first(head, role, NAMES[role].split())
        lines.append(f"{role} = {_quoted(found or UNKNOWN)}  # {words}")
    lines += ["", "# The columns, their types, and a value of each:"]
    for name in head.columns:
        column = head[name].drop_nulls()
        value = short(column[0] if len(column) else None, 60).replace("\n", " ")
        lines.append(f"# {_quoted(name)}  {head[name].dtype}  {value}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def guess_mapping(
    source: Source,
    r_max: float | None = None,
    *,
    named: Mapping[str, str] | None = None,
    used: Sequence[str] = (),
) -> tuple[LogMapping, tuple[str, ...]]:
    """The likeliest mapping of the columns, and a sentence for each guess.

    Args:
        source: the logs.
        r_max: the largest possible reward, where it is declared; None guesses 1.
        named: the columns of roles that are known already.
        used: columns that are used otherwise, so that none of them is guessed to be anything.
    """
    head = source.collect(source.frame.head(1000))
    roles: dict[str, Any] = dict(named or {})
    notes = []
    published = dict(OPEN_BANDIT) if is_open_bandit(source.names) else {}
    free_head = head.drop([name for name in {*roles.values(), *used} if name in head.columns])
    for role, names in NAMES.items():
        if role in roles:
            continue
        column = published.get(role) or _first(free_head, role, names.split())
        if column in used:
            continue
        if column is not None and (role != "decision" or _names_rows(source, column)):
            roles[role] = column
    if "candidates" not in roles:
        roles.pop("probabilities", None)
        if _plain(roles.get("version", "")) in SHORT:  # a model of car, a version of an app
            roles.pop("version")
    elif "probabilities" not in roles:
        beside = [name for name in head.columns if name not in {*roles.values(), *used}]
        likely = [n for n in beside if _distributions(head[n], head[roles["candidates"]])]
        if len(likely) == 1:
            roles["probabilities"] = likely[0]
    for role in ("action", "reward"):
        if role not in roles:
            raise ConfigError(
                f"the column of the {role} must be known",
                found=f"columns {listed_names(source.names)}",
                cure=f"name it in a mapping: [columns] {role} = ...; then --mapping m.toml. depsue "
                "check --write-mapping m.toml writes one to fill in",
            )
    for role, name in roles.items():
        if role not in (named or {}):
            notes.append(f"guessed from its name: {role} is the column '{name}'")
    if r_max is None:
        notes.append("r_max = 1 is a guess: declare the largest possible reward in the mapping")
    rewards = [n for n in _matching(source.names, NAMES["reward"]) if n not in roles.values()]
    skipped = {*roles.values(), *used, *rewards, *left_out(source.names)}
    free = [name for name in source.names if name not in skipped and not unnamed(name)]
    of_action = [name for name in free if _plain(name).split("_")[0] in FROM_ACTION]
    free = [name for name in free if name not in of_action and not is_id(name)]
    numeric = [n for n in free if is_numeric(head[n]) and not head[n].dtype.is_nested()]
    categorical = _categorical(source, [name for name in free if is_text(head[name])])
    left = [n for n in source.names if n not in {*roles.values(), *numeric, *categorical}]
    left = [name for name in left if not unnamed(name)]
    if numeric or categorical:
        notes.append(f"contexts: {listed_names([*numeric, *categorical])}")
    if left:
        notes.append(f"columns that are not read: {listed_names(left)}")
    simulated = simulated_draws(head[roles["propensity"]].to_numpy()) if published else None
    if simulated is not None:
        notes.append(
            f"propensities are multiples of 1/{simulated:,}, so they are taken for Monte Carlo "
            "estimates: certificates will be of the kind for estimated ones"
        )
    mapping = LogMapping(
        **roles,
        simulated=simulated,
        r_max=1.0 if r_max is None else r_max,
        numeric=tuple(numeric),
        categorical=categorical,
    )
    return mapping, tuple(notes)


def _first(head: pl.DataFrame, role: str, names: Sequence[str]) -> str | None:
    """The first of the names that is a column of a fitting type."""
    by_name = {_plain(name): name for name in reversed(head.columns)}
    for name in names:
        column = by_name.get(name)
        if column is not None and _fits(head[column], role):
            return column
    return None


def _fits(column: pl.Series, role: str) -> bool:
    if role in ("reward", "propensity", "by_pi0"):
        return is_numeric(column) and not column.dtype.is_nested()
    if role in LISTS:
        return column.dtype.is_nested() or _lists_in_text(column)
    if role == "version":
        return is_text(column) or column.dtype.is_integer()
    if role == "round":
        return column.dtype.is_integer()
    return not column.dtype.is_nested()


def _distributions(column: pl.Series, candidates: pl.Series) -> bool:
    """Whether lists of numbers are as long as those of the candidates, and sum to 1."""
    import polars as pl

    if not (isinstance(column.dtype, pl.List) and isinstance(candidates.dtype, pl.List)):
        return False
    if not len(column) or not (column.dtype.inner or pl.Null()).is_float() or column.null_count():
        return False
    lengths = bool((column.list.len() == candidates.list.len()).all())
    inside = bool((column.list.min() >= 0).all())
    return lengths and inside and bool(((column.list.sum() - 1).abs() <= SUM_SLACK).all())


def _lists_in_text(column: pl.Series) -> bool:
    """Whether the first texts look like lists in JSON."""
    if not is_text(column):
        return False
    return all(str(text).startswith("[") for text in column.drop_nulls().head(20))


def _names_rows(source: Source, name: str) -> bool:
    """Whether nearly all rows have a value of their own."""
    import polars as pl

    counts = source.frame.select(rows=pl.len(), distinct=exact(name).approx_n_unique())
    rows, distinct = source.collect(counts).row(0)
    return bool(distinct >= ABOUT * rows)


def _matching(names: Sequence[str], wanted: str) -> list[str]:
    return [name for name in names if _plain(name) in wanted.split()]


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_").lstrip("_")


def _categorical(source: Source, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Text columns of few values, each with its values."""
    import polars as pl

    columns: dict[str, tuple[str, ...]] = {}
    for name in names:
        column = exact(name).cast(pl.String).alias("value")
        # The approximate count is cheap, and spares columns of free text the exact one.
        about = int(source.collect(source.frame.select(column.approx_n_unique())).item())
        if about <= 2 * MOST_VALUES:
            table = source.collect(source.frame.select(column.unique()))
            values = table.to_series().drop_nulls().sort().to_list()
            if 0 < len(values) <= MOST_VALUES:
                columns[name] = tuple(values)
    return columns
