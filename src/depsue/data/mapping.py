"""Which column of a log is what, and what was declared of it; `mapping_file` says it in TOML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from depsue.data.rows import require_r_max
from depsue.errors import is_real, require, short

ROLES = ("action", "reward", "propensity", "unit", "time", "round", "position")
EXAMPLE = "see the documentation of depsue check; depsue check LOGS --write-mapping writes one"


@dataclass(frozen=True)
class Estimated:
    """Propensities that were never logged, as (count of a in its group + s) / (rows + s A).

    Args:
        groups: the columns whose values form the groups; () for one group of all rows.
        smoothing: s.
    """

    groups: tuple[str, ...] = ()
    smoothing: float = 1.0


@dataclass(frozen=True)
class LogMapping:
    """Which column of the logs is what, and what was declared of them.

    Args:
        action, reward: columns.
        propensity: column; None where there is none, and then `estimated` must say how.
        unit, time, round, position: columns, or None.
        r_max: the largest possible reward, after shift and cap.
        keep_position: the position whose rows are kept, where there are several.
        numeric: context columns of numbers.
        categorical: context columns of text, each with the values that get a column of their own.
        other_rewards: further reward columns, each with its r_max.
        segments: columns that tell segments apart.
        shift, cap: the reward used is min(reward + shift, cap).
        estimated: how propensities are estimated, or None.
        kept: share of the decisions whose rows were kept, where those of some items were dropped:
            the others were then drawn with p / kept. 1 if none were.
    """

    action: str
    reward: str
    propensity: str | None = None
    unit: str | None = None
    time: str | None = None
    round: str | None = None
    position: str | None = None
    r_max: float = 1.0
    keep_position: int | str | None = None
    numeric: tuple[str, ...] = ()
    categorical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_rewards: Mapping[str, float] = field(default_factory=dict)
    segments: tuple[str, ...] = ()
    shift: float = 0.0
    cap: float | None = None
    estimated: Estimated | None = None
    kept: float = 1.0

    def __post_init__(self) -> None:
        require_r_max(self.r_max)
        for limit in self.other_rewards.values():
            require_r_max(limit)
        finite = all(is_real(x) and math.isfinite(x) for x in (self.shift, self.cap or 0.0))
        found = f"shift {short(self.shift)}, cap {short(self.cap)}"
        require(finite, "shift and cap must be numbers", found=found, cure=EXAMPLE)
        require(
            self.cap is None or 0 < self.cap <= self.r_max,
            "the cap must lie in (0, r_max]: no reward may exceed r_max",
            found=f"cap {self.cap}, r_max {self.r_max:g}",
            cure="r_max = cap",
        )
        e = self.estimated
        require(
            e is None or (is_real(e.smoothing) and 0 < e.smoothing < math.inf),
            "smoothing must be a positive number",
            found=short(e and e.smoothing),
            cure="smoothing = 1.0",
        )
        require(
            e is None or self.propensity is None,
            "propensities are a column or estimated, not both",
            found=f"propensity = {self.propensity!r}, and [propensities] estimated = true",
            cure="drop one of them",
        )
        require(
            is_real(self.kept)
            and 0 < self.kept <= 1
            and (self.propensity is not None or self.kept == 1),
            "kept must lie in (0, 1], and goes with propensities that were logged",
            found=f"{short(self.kept)}, and propensity = {self.propensity!r}",
            cure="kept = 0.9375 where a uniform choice of 80 items has lost the rows of 5",
        )
        once = [name for name in self.role_columns if name not in self.segments]
        twice = sorted({name for name in once if once.count(name) > 1})
        rule = "a column has one role"
        require(not twice, rule, found=short(twice), cure="name each column once")

    @property
    def role_columns(self) -> list[str]:
        """Columns by role, contexts after the others; segments and groups may be in both."""
        roles = [getattr(self, role) for role in ROLES]
        named = [*roles, *self.other_rewards, *self.numeric, *self.categorical]
        return [name for name in named if name is not None]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        groups = self.estimated.groups if self.estimated else ()
        return tuple(dict.fromkeys([*self.role_columns, *self.segments, *groups]))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a certificate from these logs must list beside its own, a sentence each."""
        said = []
        if self.cap is not None or self.shift:
            used = f"{self.reward} + {self.shift:g}" if self.shift else self.reward
            used = f"min({used}, {self.cap:g})" if self.cap is not None else used
            more = ", of which an item never shown earns 0" if self.shift else ""
            said.append(
                f"rewards are {used}{more}: floor, bound and value are in this reward, not in "
                f"{self.reward} itself"
            )
        if self.estimated is not None:
            by = " and ".join(self.estimated.groups)
            where = f" in each group of {by}" if by else " over all rows"
            said.append(
                f"propensities were estimated: the frequency of each action{where}, with "
                f"{self.estimated.smoothing:g} added to each count; nothing is guaranteed if the "
                "logging policy looked at anything else, or changed"
            )
        if self.kept < 1:
            said.append(
                f"rows were dropped by the item they show, and in every context the same share of "
                f"decisions, {self.kept:g}, was kept: pi0 is what is left of it without these "
                f"items, and propensities are {self.propensity} / {self.kept:g}"
            )
        if self.keep_position is not None:
            said.append(f"only rows with {self.position} = {self.keep_position} are used")
        return tuple(said)
