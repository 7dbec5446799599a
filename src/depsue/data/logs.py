"""Logged data: what a policy showed, with which probability, and the reward that followed.

`LoggedData` is one log in memory, checked; `joined` makes one log of the logs of several rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import (
    Array,
    FloatArray,
    IntArray,
    Mask,
    check_rows,
    finite_matrix,
    first_bad,
    naming,
    number_column,
    plain_column,
    plain_ids,
    read_only,
    require_r_max,
    require_rows,
    round_column,
    row_index,
    same_length,
    time_column,
    whole_column,
)
from depsue.data.folds import fold_of, keys_of_ids
from depsue.data.frames import columns_of, rows_of_frame
from depsue.data.hashes import logs_hash
from depsue.data.identity import LogSketch
from depsue.data.keys import Keys, compacted, distinct_ids, distinct_rows
from depsue.data.lists import candidates_of
from depsue.data.open_bandit import NAMES, rows_of_feedback
from depsue.data.requests import (
    Candidates,
    PolicyVersion,
    Requests,
    distinct_requests,
    versions_of,
)
from depsue.errors import DataError, require, short

ONE_ROW = "the id of a decision is in one row of the logs"
NOT_AN_ID = (
    "keep each decision once (a join may have repeated it); if the column names something else, as "
    "a request with several rows or a user, leave decision out of the mapping"
)


@dataclass(frozen=True)
class ErasedRows:
    """Rows of one unit that were taken out of a log on request. Nothing of them is kept.

    Args:
        data: SHA-256 of the log before.
        rows: how many.
        places: their numbers in the log as it was registered, where rows are named by their
            number: so the others keep their folds; () where rows have another name.
        values: how many values of a mean they were: units, or rows that stand for themselves.
        certifying: how many of these were in the fold that a verdict on the log reads.
        at: when (ISO, UTC).
    """

    data: str
    rows: int
    places: tuple[int, ...]
    values: int
    certifying: int
    at: str


@dataclass(frozen=True, eq=False, repr=False)
class LoggedData:
    """n rows (context, action, reward, propensity) over u distinct requests.

    Each distinct request is kept once and rows point at it, so that a policy is evaluated on u
    requests instead of n rows. A request is a context; where each brings candidates of its own, it
    is a context with its candidates. Every instance has passed the checks below; nothing is
    dropped. Users build it with `from_arrays`, `from_frame` or `from_obp`.

    Args:
        catalogue: the A actions.
        contexts: (u, d) the contexts of the distinct requests, float32.
        context: (n,) which request a row has.
        action: (n,) position of the row's action in the catalogue.
        reward: (n,) rewards in [0, r_max].
        propensity: (n,) probability, in (0, 1], of the action under the policy that drew it.
        r_max: the largest reward that is possible: declared, never read off the data.
        unit: (n,) which of `units` a row belongs to (a user, say), or None.
        units: (v,) distinct unit ids, or None.
        time: (n,) time of the row, or None.
        decision: (n,) 64-bit keys of the ids of the decisions, which are distinct, or None.
        round: (n,) deployment that produced the row; 0 is the first logging policy.
        columns: other (n,) columns by name: further rewards, or what tells segments apart.
        estimating: (n,) rows that propensities were estimated on, none of which certifies; None
            where propensities were logged.
        erased: rows that were taken out since the log was registered, oldest erasure first.
        candidates: of the u requests; None where every action is a candidate of each.
        by_pi0: (n,) for logs of a pi0 that is only known by what it chose: its probability of the
            row's item where it chose that itself, 0 where another policy did. None where pi0 drew
            every row, or can be asked.
        version: (n,) pi0's version when the row was logged, as text, "" where that is not known;
            None without versions.
    """

    catalogue: Catalogue
    contexts: FloatArray
    context: IntArray
    action: IntArray
    reward: FloatArray
    propensity: FloatArray
    r_max: float
    unit: IntArray | None = None
    units: np.ndarray[Any, Any] | None = None
    time: np.ndarray[Any, Any] | None = None
    decision: Keys | None = None
    round: IntArray | None = None
    columns: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    estimating: Mask | None = None
    erased: tuple[ErasedRows, ...] = ()
    candidates: Candidates | None = None
    by_pi0: FloatArray | None = None
    version: np.ndarray[Any, Any] | None = None

    def __post_init__(self) -> None:
        n = len(self.action)
        require_rows(n)
        rounds = np.zeros(n, dtype=np.int16) if self.round is None else self.round
        columns: dict[str, Any] = {
            "context": self.context,
            "action": self.action,
            "reward": self.reward,
            "propensity": self.propensity,
            "unit": self.unit,
            "time": self.time,
            "decision": self.decision,
            "round": rounds,
            "estimating": self.estimating,
            "by_pi0": self.by_pi0,
            "version": self.version,
        }
        columns = {name: column for name, column in columns.items() if column is not None}
        for name, column in columns.items():
            same_length(name, len(column), n)
        object.__setattr__(self, "r_max", require_r_max(self.r_max))
        check_rows(self, rounds)
        for name, column in columns.items():
            object.__setattr__(self, name, read_only(column))
        object.__setattr__(self, "contexts", read_only(self.contexts))
        if self.units is not None:
            object.__setattr__(self, "units", read_only(self.units))
        for name, column in self.columns.items():
            same_length(name, len(column), n)
        others = {name: read_only(np.asarray(column)) for name, column in self.columns.items()}
        object.__setattr__(self, "columns", others)

    @classmethod
    def from_arrays(
        cls,
        *,
        contexts: Any,
        actions: Any,
        rewards: Any,
        propensities: Any,
        catalogue: Catalogue,
        r_max: float,
        context_rows: Any = None,
        units: Any = None,
        times: Any = None,
        decisions: Any = None,
        rounds: Any = None,
        columns: Mapping[str, Any] | None = None,
        estimating: Any = None,
        candidates: Candidates | None = None,
        by_pi0: Any = None,
        versions: Any = None,
    ) -> LoggedData:
        """Logs from arrays of n rows.

        Args:
            contexts: (n, d) features of each row; or (u, d) with `context_rows`.
            actions: (n,) action ids, as in the catalogue.
            rewards: (n,) in [0, r_max].
            propensities: (n,) in (0, 1].
            catalogue: the actions.
            r_max: the largest possible reward, declared.
            context_rows: (n,) which row of `contexts` each row has; None if there is one each.
            units: (n,) unit ids (users), integers or strings.
            times: (n,) numbers or datetime64.
            decisions: (n,) ids of the decisions, integers or strings, each in one row.
            rounds: (n,) whole numbers >= 0.
            columns: other (n,) columns of numbers or strings, by name: see `with_reward`, `where`.
            estimating: (n,) rows that propensities were estimated on; None if they were logged.
            candidates: those of each of the `contexts`; None if all actions always are.
            by_pi0: (n,) pi0's probability of an item that it chose itself, 0 where another policy
                chose; None where pi0 drew every row, or can be asked.
            versions: (n,) which version of pi0 was in production, integers or strings.
        """
        require(
            isinstance(catalogue, Catalogue),
            "logs need the catalogue of their actions",
            found=short(catalogue),
            cure="build one with Catalogue.of",
        )
        ids = plain_ids(actions, "action")
        require_rows(len(ids))
        matrix = finite_matrix(contexts, "context")
        if context_rows is None:
            same_length("context", len(matrix), len(ids))
        if candidates is None:
            distinct, context = distinct_rows(matrix)
        else:
            same_length("candidates", len(candidates), len(matrix))
            first, context = distinct_requests(Requests(matrix, candidates))
            if len(first) < len(matrix):
                matrix, candidates = matrix[first], candidates.take(first)
            distinct = matrix
        if context_rows is not None:
            cure = "point each row at one of the contexts"
            rows = whole_column(context_rows, "context_rows", below=len(context), cure=cure)
            same_length("context_rows", len(rows), len(ids))
            context, used = compacted(context[rows], len(distinct))
            distinct = distinct[used]
            candidates = None if candidates is None else candidates.take(used)
        unit = unit_ids = None
        if units is not None:
            unit_ids, unit = distinct_ids(plain_ids(units, "unit"))
        return cls(
            catalogue=catalogue,
            contexts=distinct,
            context=context,
            action=catalogue.index(ids).astype(np.int32),
            reward=number_column(rewards, "reward", flags=True),
            propensity=number_column(propensities, "propensity"),
            r_max=r_max,
            unit=unit,
            units=unit_ids,
            time=None if times is None else time_column(times),
            decision=None if decisions is None else _decision_keys(decisions),
            round=None if rounds is None else round_column(rounds),
            columns={name: plain_column(c, name) for name, c in (columns or {}).items()},
            estimating=None if estimating is None else np.asarray(estimating, dtype=bool),
            candidates=candidates,
            by_pi0=None if by_pi0 is None else number_column(by_pi0, "by_pi0"),
            version=None if versions is None else plain_ids(versions, "version").astype(str),
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        catalogue: Catalogue,
        *,
        r_max: float,
        context: Sequence[str],
        action: str = "action",
        reward: str = "reward",
        propensity: str = "propensity",
        unit: str | None = None,
        time: str | None = None,
        decision: str | None = None,
        round: str | None = None,
        columns: Sequence[str] = (),
        candidates: str | None = None,
        probabilities: str | None = None,
        by_pi0: str | None = None,
        version: str | None = None,
    ) -> LoggedData:
        """Logs from a polars, pandas or Arrow frame, or from a dict of columns.

        Args:
            frame: one row per decision; columns that are not named below are not read.
            catalogue: the actions.
            r_max: the largest possible reward, declared.
            context: the feature columns; a column of lists counts as several.
            action, reward, propensity: the names of these columns.
            unit, time, decision, round: the names of these columns, where there are any.
            columns: other columns to keep: further rewards, or what tells segments apart.
            candidates: the column of what could be shown: a list of ids in each row, or such a list
                as JSON text.
            probabilities: the column of pi0's probabilities of the candidates, in their order.
            by_pi0, version: the names of these columns, where there are any: see `from_arrays`.
        """
        names = {
            "actions": action,
            "rewards": reward,
            "propensities": propensity,
            "units": unit,
            "times": time,
            "decisions": decision,
            "rounds": round,
            "by_pi0": by_pi0,
            "versions": version,
        }
        rows, sources = rows_of_frame(frame, context, names)
        lists = [name for name in (candidates, probabilities) if name is not None]
        others = columns_of(frame, [action, *columns, *lists]) if columns or lists else {}
        further = {name: others[name] for name in columns}
        sources |= {"candidates": candidates or "", "probabilities": probabilities or ""}
        with naming(sources):
            sets = None
            if candidates is not None:
                shares = None if probabilities is None else others[probabilities]
                sets = candidates_of(others[candidates], shares, catalogue)
            return cls.from_arrays(
                **rows, catalogue=catalogue, r_max=r_max, columns=further, candidates=sets
            )

    @classmethod
    def from_obp(
        cls,
        feedback: Mapping[str, Any],
        *,
        r_max: float,
        novel: Sequence[int] = (),
        position: int | None = None,
    ) -> LoggedData:
        """Logs from the `bandit_feedback` dict of Open Bandit Pipeline.

        Args:
            feedback: n_actions, context, action, reward, pscore; action_context is optional.
            r_max: the largest possible reward, declared.
            novel: the actions (0 .. n_actions - 1) that the logging policy never shows.
            position: which position to keep, where the feedback has more than one.
        """
        columns, rows = rows_of_feedback(feedback, novel, position)
        with naming(NAMES, rows):
            return cls.from_arrays(**columns, r_max=r_max)

    def __repr__(self) -> str:
        rounds = "" if self.round is None else f", rounds {np.unique(self.round).tolist()}"
        units = "" if self.units is None else f", {len(self.units):,} units"
        return (
            f"LoggedData({len(self):,} rows, {len(self.contexts):,} contexts of "
            f"{self.contexts.shape[1]} features, {len(self.catalogue):,} actions{units}{rounds})"
        )

    def __len__(self) -> int:
        return len(self.action)

    @cached_property
    def numbers(self) -> IntArray:
        """(n,) the number of each row, in the log as it was registered where it hangs on that."""
        gone = [place for erasure in self.erased for place in erasure.places]
        return np.delete(np.arange(len(self) + len(gone), dtype=np.int64), gone)

    @cached_property
    def requests(self) -> Requests:
        """The u distinct requests that rows point at by `context`."""
        return Requests(self.contexts, "all" if self.candidates is None else self.candidates)

    @cached_property
    def context_counts(self) -> IntArray:
        """(u,) rows of each distinct context."""
        return np.bincount(self.context, minlength=len(self.contexts))

    @cached_property
    def deterministic(self) -> bool:
        """True if every propensity is 1: the logging policy always showed the same action."""
        return bool((self.propensity == 1).all())

    @cached_property
    def row_weights(self) -> FloatArray:
        """(n,) what each row counts for in a mean: 1/n, or 1/v over the rows of its unit."""
        if self.unit is None:
            return np.full(len(self), 1 / len(self))
        per_unit = np.bincount(self.unit)
        weights: FloatArray = 1 / (len(per_unit) * per_unit[self.unit])
        return weights

    @cached_property
    def place_in_unit(self) -> IntArray:
        """(n,) 0 for the first row of a unit, 1 for the next: by time, else in the rows' order."""
        if self.unit is None:
            return np.zeros(len(self), dtype=np.int64)
        keys = (self.unit,) if self.time is None else (self.time, self.unit)
        order = np.lexsort(keys)  # stable: rows of one time keep their order
        sizes = np.bincount(self.unit)
        starts = np.cumsum(sizes) - sizes
        place: IntArray = np.empty(len(self), dtype=np.int64)
        place[order] = np.arange(len(self)) - starts[self.unit[order]]
        return place

    @cached_property
    def versions(self) -> tuple[PolicyVersion, ...]:
        """The versions of pi0 that logged these rows, the oldest first; () where none are known.

        Without times the order is that of the rows.
        """
        if self.version is None:
            return ()
        return versions_of(self.version, self.time)

    @property
    def repeats_units(self) -> bool:
        """Whether some unit has more than one row."""
        return self.units is not None and len(self.units) < len(self)

    def mean_reward(self) -> float:
        """V_on: the mean reward of the policy that drew these rows; over units, if there are."""
        if self.unit is None:
            return float(self.reward.mean())
        return float((self.reward * self.row_weights).sum())

    def take(self, rows: Any) -> LoggedData:
        """The given rows (a mask, positions or a slice), with the contexts and units they use."""
        rows = row_index(rows, len(self))
        context, used = compacted(self.context[rows], len(self.contexts))
        unit = units = None
        if self.unit is not None and self.units is not None:
            unit, units_used = compacted(self.unit[rows], len(self.units))
            units = self.units[units_used]
        return LoggedData(
            catalogue=self.catalogue,
            contexts=self.contexts[used],
            context=context,
            action=self.action[rows],
            reward=self.reward[rows],
            propensity=self.propensity[rows],
            r_max=self.r_max,
            unit=unit,
            units=units,
            time=None if self.time is None else self.time[rows],
            decision=None if self.decision is None else self.decision[rows],
            round=None if self.round is None else self.round[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            estimating=None if self.estimating is None else self.estimating[rows],
            candidates=None if self.candidates is None else self.candidates.take(used),
            by_pi0=None if self.by_pi0 is None else self.by_pi0[rows],
            version=None if self.version is None else self.version[rows],
        )

    @cached_property
    def first_rows(self) -> LoggedData:
        """The first row of each unit: by time, else in the rows' order; all rows without units."""
        return self.take(np.flatnonzero(self.place_in_unit == 0)) if self.repeats_units else self

    def with_reward(self, column: str, *, r_max: float) -> LoggedData:
        """The same rows with another column as their reward.

        Args:
            column: which of `columns`.
            r_max: the largest value that is possible in it, declared.
        """
        reward = number_column(self.column(column), column, flags=True)
        with naming({"reward": column}):
            return replace(self, reward=reward, r_max=r_max)

    def where(self, column: str, value: Any) -> Mask:
        """(n,) True in rows whose column has that value: a segment."""
        return np.asarray(self.column(column) == value)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """(n,) one of `columns`."""
        if name not in self.columns:
            raise DataError(
                "the column must be among the logs' further columns",
                column=name,
                found=f"columns {sorted(self.columns)}",
                cure=f"read the logs with columns=['{name}']",
            )
        return self.columns[name]

    def split(self, fractions: Sequence[float], *, salt: str) -> tuple[LoggedData, ...]:
        """Folds of about the given fractions, by unit where there is one, else by row."""
        which = fold_of(self, fractions, salt=salt)
        return tuple(self.take(which == k) for k in range(len(fractions)))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the rows, their order included; the same however contexts were stored."""
        return logs_hash(self)

    @cached_property
    def sketch(self) -> LogSketch:
        """What a ledger knows the rows by, however they are encoded."""
        return LogSketch.of(self)


def joined(parts: Sequence[LoggedData]) -> LoggedData:
    """The rows of all parts, one after the other; every row keeps its own propensity and round.

    Ids of decisions are left behind: they name rows within the log of one round.

    Args:
        parts: logs over the same catalogue, with the same r_max and the same columns.
    """
    require(len(parts) > 0, "there must be logs to join", found="none")
    first = parts[0]
    if len(parts) == 1:
        return first
    for other in parts[1:]:
        for what in ("r_max", "columns", "unit", "time", "candidates"):
            mine, theirs = _shape(first, what), _shape(other, what)
            if mine != theirs:
                raise DataError(
                    "logs that are joined must have the same r_max and the same columns",
                    column=what,
                    found=f"{mine} and {theirs}",
                    cure="read all rounds with the same settings",
                )
        require(
            other.catalogue.hash == first.catalogue.hash,
            "logs that are joined must be over the same catalogue",
            found=f"{len(first.catalogue)} and {len(other.catalogue)} actions",
            cure="keep one catalogue, with all novel actions, for the whole campaign",
        )
    starts = np.cumsum([0, *(len(part.contexts) for part in parts)])
    return LoggedData.from_arrays(
        contexts=np.concatenate([part.contexts for part in parts]),
        context_rows=np.concatenate(
            [part.context + start for part, start in zip(parts, starts, strict=False)]
        ),
        actions=np.concatenate([first.catalogue.ids[part.action] for part in parts]),
        rewards=np.concatenate([part.reward for part in parts]),
        propensities=np.concatenate([part.propensity for part in parts]),
        catalogue=first.catalogue,
        r_max=first.r_max,
        units=_joined_units(parts),
        times=None
        if first.time is None
        else np.concatenate([part.time for part in parts if part.time is not None]),
        rounds=np.concatenate([np.asarray(part.round) for part in parts]),
        columns={
            name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
        },
        estimating=_joined_column(parts, "estimating", False),
        candidates=None
        if first.candidates is None
        else Candidates.joined([part.candidates for part in parts if part.candidates is not None]),
        by_pi0=_joined_column(parts, "by_pi0", "propensity"),
        versions=_joined_column(parts, "version", ""),
    )


def _decision_keys(ids: Any) -> Keys:
    """(n,) 64-bit keys of the ids of decisions; an id that is there twice is refused."""
    plain = plain_ids(ids, "decision")
    keys = keys_of_ids(plain)
    again = np.ones(len(keys), dtype=bool)
    again[np.unique(keys, return_index=True)[1]] = False
    first_bad(again, plain, ONE_ROW, "decision", NOT_AN_ID)
    return keys


def _joined_column(parts: Sequence[LoggedData], name: str, missing: Any) -> Any:
    """A column of all parts; None if none has it.

    Args:
        parts: the logs.
        name: of the column.
        missing: what stands for it in a part without it: a value, or the name of a column.
    """
    if all(getattr(part, name) is None for part in parts):
        return None
    columns = []
    for part in parts:
        own = getattr(part, name)
        if own is None:
            own = getattr(part, missing) if missing == "propensity" else np.full(len(part), missing)
        columns.append(own)
    return np.concatenate(columns)


def _joined_units(parts: Sequence[LoggedData]) -> Array | None:
    ids = [p.units[p.unit] for p in parts if p.units is not None and p.unit is not None]
    return np.concatenate(ids) if ids else None


def _shape(logs: LoggedData, what: str) -> object:
    """What must agree: the value of r_max, the names of columns, whether there are units."""
    value = getattr(logs, what)
    if what == "columns":
        return sorted(value)
    if what == "time" and value is not None:
        return "dates" if value.dtype.kind == "M" else "numbers"
    return value if what == "r_max" else "given" if value is not None else "not given"
