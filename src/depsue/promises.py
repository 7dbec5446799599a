"""What is promised: floors, for one reward column or several, for everybody or a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from depsue import defaults
from depsue.data.checks import Mask
from depsue.data.logs import LoggedData
from depsue.errors import DataError, require, require_positive, short


@dataclass(frozen=True)
class Floor:
    """C, what the value must exceed: a share of V(pi0), or an absolute number."""

    ratio: float | None = defaults.FLOOR
    """C = ratio V(pi0); 1 asks for no loss at all."""
    absolute: float | None = None
    """C itself; give ratio=None with it."""

    def __post_init__(self) -> None:
        require(
            (self.ratio is None) != (self.absolute is None),
            "a floor is either a ratio or an absolute number",
            found=f"ratio {self.ratio}, absolute {self.absolute}",
            cure="Floor(ratio=0.95), or Floor(ratio=None, absolute=0.2)",
        )
        value = self.ratio if self.ratio is not None else self.absolute
        require_positive(value, "a floor", "Floor(0.95) asks for 95% of pi0's value")
        require(
            self.ratio is None or self.ratio <= 2,
            "a ratio must be at most 2",
            found=short(self.ratio),
            cure="it is a share, not a percentage: Floor(0.95)",
        )

    def of(self, logging_value: float) -> float:
        """C, given V_on(pi0)."""
        return self.absolute if self.ratio is None else self.ratio * logging_value  # type: ignore[return-value]

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.absolute:g}"
        return f"{self.ratio:g} of pi0's value"


@dataclass(frozen=True)
class Promise:
    """One floor: which reward, whose, and how much of it.

    Args:
        floor: C.
        name: what it is called in certificates and tables.
        reward: one of the logs' further columns; None is the logs' reward.
        r_max: the largest possible value of that column, declared.
        segment: (column, value): only the rows in which that further column has that value.
    """

    floor: Floor = Floor()
    name: str = "reward"
    reward: str | None = None
    r_max: float | None = None
    segment: tuple[str, Any] | None = None

    def __post_init__(self) -> None:
        require(
            (self.reward is None) == (self.r_max is None),
            "a promise about another reward column declares its largest value",
            found=f"reward {self.reward!r}, r_max {self.r_max}",
            cure="Promise(reward='revenue', r_max=100.0)",
        )
        require(
            self.segment is None or len(self.segment) == 2,
            "a segment is a column and a value",
            found=short(self.segment),
            cure="Promise(segment=('country', 'SE'))",
        )
        if self.segment is not None:
            column, value = self.segment
            plain = value.item() if isinstance(value, np.generic) else value
            require(
                isinstance(plain, str | int | float),
                "a segment's value must be a string or a number: certificates are written as JSON",
                found=short(value),
                cure="Promise(segment=('country', 'SE'))",
            )
            object.__setattr__(self, "segment", (column, plain))

    @property
    def plain(self) -> bool:
        """Whether it is about the logs' own reward over all rows."""
        return self.reward is None and self.segment is None

    def count(self, logs: LoggedData) -> int:
        """How many of the rows the promise is about."""
        return len(logs) if self.segment is None else int(logs.where(*self.segment).sum())

    def rows(self, logs: LoggedData) -> tuple[LoggedData, Mask]:
        """The rows that the promise is about, with their reward; and (n,) which they are."""
        mask = np.ones(len(logs), dtype=bool)
        if self.segment is not None:
            mask = logs.where(*self.segment)
            if not mask.any():
                raise DataError(
                    "a segment needs rows",
                    column=self.segment[0],
                    found=f"none with the value {short(self.segment[1])}",
                    cure="check the value, or collect more data",
                )
            logs = logs.take(mask)
        if self.reward is not None and self.r_max is not None:
            logs = logs.with_reward(self.reward, r_max=self.r_max)
        return logs, mask


def upgraded_promise(values: dict[str, Any]) -> dict[str, Any]:
    """A promise's JSON values, from before floors were nested: ratio and absolute stood beside."""
    if "floor" in values:
        return values
    floor = {name: values[name] for name in ("ratio", "absolute")}
    return {"floor": floor} | {name: x for name, x in values.items() if name not in floor}


def checked_promises(promises: Sequence[Promise]) -> tuple[Promise, ...]:
    """One promise or more, with names of their own."""
    checked = tuple(promises)
    require(
        len(checked) > 0 and all(isinstance(promise, Promise) for promise in checked),
        "there must be at least one promise",
        found=short(promises),
        cure="promises=[Promise(Floor(0.95))]",
    )
    names = [promise.name for promise in checked]
    require(
        len(set(names)) == len(names),
        "promises must have names of their own",
        found=short(names),
        cure="Promise(name=...)",
    )
    return checked
