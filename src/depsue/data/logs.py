"""Logged data: what a policy showed, with which probability, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import (
    FloatArray,
    IntArray,
    Mask,
    distinct_rows,
    finite_matrix,
    first_bad,
    number_column,
    plain_ids,
    read_only,
    row_keys,
    same_length,
)
from depsue.errors import DataError


@dataclass(frozen=True, eq=False)
class LoggedData:
    """n rows (context, action, reward, propensity) over u distinct contexts.

    Each distinct context is kept once and rows point at it, so that a policy is evaluated on u
    contexts instead of n rows. Every instance has passed the checks below; nothing is dropped.
    Users build it with `from_arrays`, `from_frame` or `from_obp`.

    Args:
        catalogue: the A actions.
        contexts: (u, d) distinct contexts, float32.
        context: (n,) which context a row has.
        action: (n,) position of the row's action in the catalogue.
        reward: (n,) rewards in [0, r_max].
        propensity: (n,) probability, in (0, 1], of the action under the policy that drew it.
        r_max: the largest reward that is possible: declared, never read off the data.
        unit: (n,) which of `units` a row belongs to (a user, say), or None.
        units: (v,) distinct unit ids, or None.
        time: (n,) time of the row, or None.
        round: (n,) deployment that produced the row; 0 is the first logging policy.
    """

    catalogue: ActionCatalogue
    contexts: FloatArray
    context: IntArray
    action: IntArray
    reward: FloatArray
    propensity: FloatArray
    r_max: float
    unit: IntArray | None = None
    units: np.ndarray[Any, Any] | None = None
    time: np.ndarray[Any, Any] | None = None
    round: IntArray | None = None

    def __post_init__(self) -> None:
        n = len(self.action)
        if n == 0:
            raise DataError(
                "a log needs at least one row",
                column="action",
                found="an empty log",
                cure="check the filter or the path that produced it",
            )
        if not (np.isfinite(self.r_max) and self.r_max > 0):
            raise DataError(
                "r_max must be a positive number",
                column="r_max",
                found=str(self.r_max),
                cure="declare the largest possible reward, for example 1 for clicks",
            )
        rounds = np.zeros(n, dtype=np.int16) if self.round is None else self.round
        columns: dict[str, Any] = {
            "context": self.context,
            "action": self.action,
            "reward": self.reward,
            "propensity": self.propensity,
            "unit": self.unit,
            "time": self.time,
            "round": rounds,
        }
        for name, column in columns.items():
            if column is not None:
                same_length(name, len(column), n)
        _check_rows(self, rounds)
        for name in columns:
            if columns[name] is not None:
                object.__setattr__(self, name, read_only(columns[name]))
        object.__setattr__(self, "contexts", read_only(self.contexts))
        object.__setattr__(self, "r_max", float(self.r_max))

    @classmethod
    def from_arrays(
        cls,
        *,
        contexts: Any,
        actions: Any,
        rewards: Any,
        propensities: Any,
        catalogue: ActionCatalogue,
        r_max: float,
        context_rows: Any = None,
        units: Any = None,
        times: Any = None,
        rounds: Any = None,
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
            rounds: (n,) whole numbers >= 0.
        """
        ids = plain_ids(actions, "action")
        n = len(ids)
        matrix = finite_matrix(contexts, "context")
        if context_rows is None:
            if n:
                same_length("context", len(matrix), n)
            rows: IntArray = np.arange(len(matrix))
        else:
            rows = _context_rows(context_rows, len(matrix))
        distinct, which = distinct_rows(matrix)
        unit = unit_ids = None
        if units is not None:
            unit_ids, unit = np.unique(plain_ids(units, "unit"), return_inverse=True)
        return cls(
            catalogue=catalogue,
            contexts=distinct,
            context=which[rows],
            action=catalogue.index(ids).astype(np.int32),
            reward=number_column(rewards, "reward"),
            propensity=number_column(propensities, "propensity"),
            r_max=r_max,
            unit=None if unit is None else unit.astype(np.int32),
            units=unit_ids,
            time=None if times is None else _times(times),
            round=None if rounds is None else _rounds(rounds),
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        catalogue: ActionCatalogue,
        *,
        r_max: float,
        context: Sequence[str],
        action: str = "action",
        reward: str = "reward",
        propensity: str = "propensity",
        unit: str | None = None,
        time: str | None = None,
        round: str | None = None,
    ) -> LoggedData:
        """Logs from a polars, pandas or Arrow frame; `context` names the feature columns."""
        from depsue.data.frames import Frame

        source = Frame(frame)
        optional = {"units": unit, "times": time, "rounds": round}
        return cls.from_arrays(
            contexts=source.matrix(context),
            actions=source.column(action),
            rewards=source.column(reward),
            propensities=source.column(propensity),
            catalogue=catalogue,
            r_max=r_max,
            **{key: source.column(name) for key, name in optional.items() if name is not None},
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
        from depsue.data.obp import rows_of_feedback

        return cls.from_arrays(**rows_of_feedback(feedback, novel, position), r_max=r_max)

    def __len__(self) -> int:
        return len(self.action)

    @cached_property
    def context_counts(self) -> IntArray:
        """(u,) rows of each distinct context."""
        return np.bincount(self.context, minlength=len(self.contexts))

    @cached_property
    def deterministic(self) -> bool:
        """True if every propensity is 1: the logging policy always showed the same action."""
        return bool((self.propensity == 1).all())

    def mean_reward(self) -> float:
        """V_on: the mean reward of the policy that drew these rows."""
        return float(self.reward.mean())

    def take(self, rows: Any) -> LoggedData:
        """The given rows (indices or a mask), with only the contexts and units they use."""
        context, kept = _compact(self.context[rows], len(self.contexts))
        unit = units = None
        if self.unit is not None and self.units is not None:
            unit, kept_units = _compact(self.unit[rows], len(self.units))
            units = self.units[kept_units]
        return LoggedData(
            catalogue=self.catalogue,
            contexts=self.contexts[kept],
            context=context,
            action=self.action[rows],
            reward=self.reward[rows],
            propensity=self.propensity[rows],
            r_max=self.r_max,
            unit=unit,
            units=units,
            time=None if self.time is None else self.time[rows],
            round=None if self.round is None else self.round[rows],
        )

    def split(self, fractions: Sequence[float], *, salt: str) -> tuple[LoggedData, ...]:
        """Folds of about the given fractions, by unit where there is one, else by row."""
        from depsue.data.folds import fold_of

        which = fold_of(self, fractions, salt=salt)
        return tuple(self.take(which == k) for k in range(len(fractions)))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the rows, their order included; the same however contexts were stored."""
        digest = hashlib.sha256(b"depsue-logs-1")
        digest.update(self.catalogue.hash.encode() + repr(self.r_max).encode())
        digest.update(np.array(self.contexts.shape[1], dtype="<i8").tobytes())
        digest.update(row_keys(self.contexts)[self.context].astype("<u8").tobytes())
        for contents, kind in (
            (self.action, "<i4"),
            (self.reward, "<f8"),
            (self.propensity, "<f8"),
            (self.round, "<i2"),
        ):
            digest.update(np.asarray(contents).astype(kind).tobytes())
        if self.unit is not None and self.units is not None:
            from depsue.data.folds import keys_of_ids

            digest.update(b"unit" + keys_of_ids(self.units)[self.unit].astype("<u8").tobytes())
        if self.time is not None:
            digest.update(b"time" + str(self.time.dtype).encode() + self.time.tobytes())
        return digest.hexdigest()


def _check_rows(logs: LoggedData, rounds: Any) -> None:
    reward, propensity = logs.reward, logs.propensity
    first_bad(
        ~(np.isfinite(propensity) & (propensity > 0) & (propensity <= 1)),
        propensity,
        "propensities must lie in (0, 1]",
        "propensity",
        "log the probability with which the shown action was drawn; if it was never logged, it "
        "must be estimated and declared as such",
    )
    first_bad(
        ~(np.isfinite(reward) & (reward >= 0) & (reward <= logs.r_max)),
        reward,
        f"rewards must lie in [0, r_max] with r_max = {logs.r_max:g}",
        "reward",
        "declare a larger r_max, or cap and shift the rewards knowingly",
    )
    first_bad(
        (logs.action < 0) | (logs.action >= len(logs.catalogue)),
        logs.action,
        f"actions must be positions in a catalogue of {len(logs.catalogue)}",
        "action",
        "build logs with from_arrays, which takes ids",
    )
    first_bad(
        (logs.context < 0) | (logs.context >= len(logs.contexts)),
        logs.context,
        f"rows must point at one of the {len(logs.contexts):,} contexts",
        "context",
        "check the context index",
    )
    first_bad(
        logs.catalogue.novel[logs.action] & (rounds == 0),
        logs.action,
        "an action that is novel must not be in the logs of round 0",
        "action",
        "mark it as supported in the catalogue, or give the rows the round in which it was shown",
        show=lambda row: logs.catalogue.ids[logs.action[row]],
    )


def _context_rows(rows: Any, u: int) -> IntArray:
    numbers = number_column(rows, "context_rows")
    bad: Mask = ~((numbers >= 0) & (numbers < u) & (numbers == np.floor(numbers)))
    first_bad(
        bad,
        numbers,
        f"context_rows must be whole numbers from 0 to {u - 1}",
        "context_rows",
        "point each row at one of the contexts",
    )
    return numbers.astype(np.int64)


def _rounds(rounds: Any) -> IntArray:
    numbers = number_column(rounds, "round")
    bad: Mask = ~((numbers >= 0) & (numbers < 2**15) & (numbers == np.floor(numbers)))
    first_bad(
        bad,
        numbers,
        "rounds must be whole numbers from 0 to 32767",
        "round",
        "count deployments from 0, the first logging policy",
    )
    return numbers.astype(np.int16)


def _times(times: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(times)
    if array.dtype.kind == "M":
        first_bad(np.isnat(array), array, "times must not be missing", "time", "fill them")
        return array.astype("datetime64[us]")
    numbers = number_column(times, "time")
    first_bad(~np.isfinite(numbers), numbers, "times must be finite", "time", "fill them")
    return numbers


def _compact(index: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """`index` renumbered without gaps, and which of the `size` values it uses."""
    used = np.zeros(size, dtype=bool)
    used[index] = True
    renumber = np.cumsum(used, dtype=np.int32) - 1
    return renumber[index], np.flatnonzero(used)
