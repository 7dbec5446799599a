"""Which column is what: a mapping guessed from names and types, with a sentence for each guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from depsue.check.counting import is_id
from depsue.data.mapping import LISTS, LogMapping
from depsue.data.open_bandit import ROLES as OPEN_BANDIT
from depsue.data.open_bandit import is_open_bandit, left_out, simulated_draws
from depsue.data.reading import Source
from depsue.data.tables import MOST_VALUES, exact, is_numeric, is_text, listed_names, unnamed
from depsue.errors import ConfigError

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
    "version": "pi0_version policy_version model_version ranker_version",
}
"""For each role, the names that it goes by, the likeliest first."""
ABOUT = 0.9
"""Distinct values to rows, where a column names rows; the count is approximate."""
FROM_ACTION = ("item", "action", "arm", "product", "article")
"""A column whose name begins so describes what was shown, so it cannot be a context."""


def guess_mapping(source: Source, r_max: float | None = None) -> tuple[LogMapping, tuple[str, ...]]:
    """The likeliest mapping of the columns, and a sentence for each guess.

    Args:
        source: the logs.
        r_max: the largest possible reward, where it is declared; None guesses 1.
    """
    head = source.collect(source.frame.head(1000))
    roles: dict[str, Any] = {}
    notes = []
    published = dict(OPEN_BANDIT) if is_open_bandit(source.names) else {}
    for role, names in NAMES.items():
        column = published.get(role) or _first(head, role, names.split())
        if column is not None and (role != "decision" or _names_rows(source, column)):
            roles[role] = column
    if "candidates" not in roles:
        roles.pop("probabilities", None)
    for role in ("action", "reward"):
        if role not in roles:
            raise ConfigError(
                f"the column of the {role} must be known",
                found=f"columns {listed_names(source.names)}",
                cure=f"name it in a mapping: [columns] {role} = ...; then --mapping m.toml",
            )
    for role, name in roles.items():
        notes.append(f"guessed from its name: {role} is the column '{name}'")
    if r_max is None:
        notes.append("r_max = 1 is a guess: declare the largest possible reward in the mapping")
    rewards = [n for n in _matching(source.names, NAMES["reward"]) if n not in roles.values()]
    skipped = {*roles.values(), *rewards, *left_out(source.names)}
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
