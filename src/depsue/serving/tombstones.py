"""Tombstones: what stays of decisions whose unit was erased.

A tombstone is a row with its id, place, time, round, policy and who decided; context, unit, action
and probabilities are gone, and in place of the key there is a keyed hash of it. So a retry of the
key is recognised and refused, and a replay of the decision changes nothing. `Tombstones` works
within a transaction of the store's.

What was never shown is no evidence either, and its row stays as it is: it is marked as a twin of
what its caller showed instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from depsue.errors import ConfigError
from depsue.serving.messages import SHOWN
from depsue.serving.schema import Decision, decisions, erased_units, rewards

ERASED = "erased"
"""Why a tombstone has no context."""


class KeyErased(ConfigError):
    """A key's decision was erased.

    Args:
        keys: which keys.
    """

    def __init__(self, keys: Collection[str]) -> None:
        super().__init__(
            "a key names one decision, and the decision of this key was erased",
            cure="send a new key for a new request",
        )
        self.keys = frozenset(keys)


@dataclass(frozen=True)
class ErasedCounts:
    """What the store has of a unit, or what was taken out of it.

    Args:
        ids: of the decisions.
        rewards: how many of these.
        last: the largest place of a decision that was looked at.
    """

    ids: tuple[str, ...]
    rewards: int
    last: int = 0


class Tombstones:
    """The tombstones of one campaign, within transactions of its store.

    Args:
        campaign: whose.
        hidden: the keyed hash of a purpose and a name (`Secret.hidden`), by which erased units and
            keys are known again; None where nothing is decided.
        reports_within: seconds after a decision in which its caller may report that it showed
            pi0's own choice; later it was judged.
    """

    def __init__(
        self, campaign: str, hidden: Callable[[str, str], str] | None, reports_within: float = 0.0
    ) -> None:
        self._campaign, self._hidden, self._reports_within = campaign, hidden, reports_within

    def mark_not_shown(self, connection: sa.Connection, made: Sequence[Decision]) -> None:
        """Mark as twins the decisions in whose place callers showed pi0's own choice.

        Args:
            connection: in a transaction that writes.
            made: what was just written; reports among them end the key of what was not shown.
        """
        for each in made:
            if each.key is not None and each.key.endswith(SHOWN):
                unshown = sa.update(decisions).where(
                    decisions.c.campaign == self._campaign,
                    decisions.c.key == each.key.removesuffix(SHOWN),
                    decisions.c.at > each.at - self._reports_within,
                    sa.not_(decisions.c.twin),
                    decisions.c.erased.is_(None),
                )
                connection.execute(unshown.values(twin=True))

    def any(self, connection: sa.Connection) -> bool:
        """Whether there is a tombstone; so what was never erased costs next to nothing."""
        query = sa.select(decisions.c.seq).where(
            decisions.c.campaign == self._campaign, decisions.c.erased.is_not(None)
        )
        return connection.execute(query.limit(1)).first() is not None

    def keys(self, connection: sa.Connection, keys: Sequence[str]) -> set[str]:
        """Those of the keys whose decision was erased."""
        if self._hidden is None or not keys or not self.any(connection):
            return set()
        by_hash = {self._hidden("key", key): key for key in keys}
        erased: set[str] = set()
        for chunk in chunks([*by_hash]):
            query = sa.select(decisions.c.key).where(
                decisions.c.campaign == self._campaign,
                decisions.c.key.in_(chunk),
                sa.not_(decisions.c.twin),
                decisions.c.erased.is_not(None),
            )
            erased.update(by_hash[known] for known in connection.scalars(query))
        return erased

    def ids(self, connection: sa.Connection, ids: Sequence[str]) -> set[str]:
        """Those of the decisions that are tombstones."""
        if not ids or not self.any(connection):
            return set()
        erased: set[str] = set()
        for chunk in chunks(ids):
            query = sa.select(decisions.c.id).where(
                decisions.c.id.in_(chunk), decisions.c.erased.is_not(None)
            )
            erased.update(connection.scalars(query))
        return erased

    def counts(self, connection: sa.Connection, round: int | None) -> list[sa.Row[Any]]:
        """(policy, decided_by, count), of one round or of all; without twins."""
        what = (decisions.c.policy, decisions.c.decided_by)
        query = (
            sa.select(*what, sa.func.count().label("decisions"))
            .where(decisions.c.campaign == self._campaign, decisions.c.erased.is_not(None))
            .where(sa.not_(decisions.c.twin))
            .group_by(*what)
        )
        if round is not None:
            query = query.where(decisions.c.round == round)
        return list(connection.execute(query))

    def named(self, connection: sa.Connection, hashed: str) -> set[str]:
        """Ids of the tombstones of a unit; the unit by its keyed hash."""
        query = sa.select(decisions.c.id).where(
            decisions.c.campaign == self._campaign, decisions.c.erased == hashed
        )
        return set(connection.scalars(query))

    def of_unit(self, connection: sa.Connection, unit: str, after: int) -> ErasedCounts:
        """What the store has of a unit, after a place."""
        last = int(connection.scalar(sa.select(sa.func.max(decisions.c.seq))) or 0)
        query = sa.select(decisions.c.id).where(
            decisions.c.campaign == self._campaign,
            decisions.c.seq > after,
            decisions.c.unit.in_(unit_texts(unit)),
        )
        ids = tuple(connection.scalars(query.order_by(decisions.c.seq)))
        earned = 0
        for chunk in chunks(ids):
            count = sa.select(sa.func.count()).where(rewards.c.decision.in_(chunk))
            earned += int(connection.scalar(count) or 0)
        return ErasedCounts(ids, earned, last)

    def bury(self, connection: sa.Connection, ids: Sequence[str], unit: str) -> int:
        """Make tombstones of a unit's decisions; how many rewards were deleted with them."""
        assert self._hidden is not None
        known = ("seq", "key", "p_policy", "p_pi0", "holdout", "candidates")
        deleted = 0
        for chunk in chunks(ids):
            mine = decisions.c.id.in_(chunk)
            rows = connection.execute(sa.select(*(decisions.c[name] for name in known)).where(mine))
            for row in rows.all():
                tombstone = {
                    "why": ERASED,
                    "action": -1,
                    "propensity": 1.0,
                    "p_policy": 0.0,
                    "p_pi0": _rounded_up(row.p_policy, row.p_pi0, row.holdout),
                    "context": "",
                    "unit": None,
                    "key": None if row.key is None else self._hidden("key", row.key),
                    "candidates": None if row.candidates is None else "[]",
                    "pi0": None,
                    "chosen": None,
                    "p_chosen": None,
                    "version": None,
                    "would": None,
                    "p_would": None,
                    "erased": unit,
                }
                place = decisions.c.seq == row.seq
                connection.execute(sa.update(decisions).where(place).values(**tombstone))
            gone = connection.execute(sa.delete(rewards).where(rewards.c.decision.in_(chunk)))
            deleted += gone.rowcount
        return deleted

    def bury_late(self, connection: sa.Connection, made: Sequence[Decision]) -> None:
        """Make tombstones of decisions that came in after their unit was erased."""
        if self._hidden is None or not any(decision.unit is not None for decision in made):
            return
        query = sa.select(erased_units.c.unit, erased_units.c.at).where(
            erased_units.c.campaign == self._campaign
        )
        erased: dict[str, float] = {}
        for row in connection.execute(query):
            erased[row.unit] = max(row.at, erased.get(row.unit, row.at))
        groups: dict[str, list[str]] = {}
        for decision in made if erased else ():
            if decision.unit is not None:
                unit = self._hidden("unit", str(msgspec.json.decode(decision.unit)))
                if decision.at <= erased.get(unit, -math.inf):
                    groups.setdefault(unit, []).append(decision.id)
        for unit, ids in groups.items():
            gone = self.ids(connection, ids)
            self.bury(connection, [id for id in ids if id not in gone], unit)


def unit_texts(unit: str) -> list[str]:
    """How requests may have named a unit, as JSON: as text, and as a number if it is one."""
    texts = [msgspec.json.encode(unit).decode()]
    return [*texts, unit] if re.fullmatch(r"0|-?[1-9][0-9]*", unit) else texts


def _rounded_up(p_policy: float, p_pi0: float, holdout: float) -> float:
    """pi0 / p, with p what the policy and its holdout drew by, rounded up to a power of two."""
    mixed = (1 - holdout) * p_policy + holdout * p_pi0
    ratio = p_pi0 / mixed if mixed > 0 else 0.0
    if not 0 < ratio < math.inf:
        return 0.0 if ratio == 0 else 1.0
    return float(2.0 ** math.ceil(math.log2(ratio)))


def chunks(values: Sequence[Any]) -> Iterable[list[Any]]:
    """The values, 5,000 at a time."""
    return (list(values[k : k + 5000]) for k in range(0, len(values), 5000))
