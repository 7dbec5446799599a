"""Decisions and rewards on disk, on SQLite or PostgreSQL, durable before they are answered.

SQLite runs with a write-ahead log and one writing connection: versions before 3.51.3 can corrupt a
database when several connections write and checkpoint, so everybody else opens it read-only, and a
lock keeps a second service out.

What is kept of a decision and of a reward.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from depsue.errors import FileError
from depsue.serving.messages import DecidedBy, DecisionReply


class Decision(msgspec.Struct):
    """One decision, as it is stored.

    Args:
        id: 32 hex digits; ids grow with time.
        at: when, in seconds since 1970.
        round, policy: what served.
        decided_by: who decided; why: the reason of a fallback, else "".
        action: the item's place in the catalogue, which stays the same for the whole campaign.
        propensity: the probability it was drawn with.
        p_policy, p_pi0: of the action under the deployed policy and under pi0.
        holdout: the share of traffic that stayed on pi0.
        context: the request's columns, as JSON.
        unit: as requested, as JSON; key: as requested.
        asked: a digest of the request, where it has a key.
        candidates: places, as JSON; None is all items.
    """

    id: str
    at: float
    round: int
    policy: str
    decided_by: DecidedBy = msgspec.field(name="arm")  # as spools of earlier services say it
    why: str
    action: int
    propensity: float
    p_policy: float
    p_pi0: float
    holdout: float
    context: str
    unit: str | None = None
    key: str | None = None
    asked: str | None = None
    candidates: str | None = None

    def reply(self, ids: list[int | str]) -> DecisionReply:
        """What the requester is told."""
        return DecisionReply(
            self.id, ids[self.action], self.propensity, self.policy, self.round, self.decided_by
        )


class Reward(msgspec.Struct):
    """One reward, as it is stored.

    Args:
        decision: the id of its decision.
        name: of its column.
        event: tells several of one decision apart.
        value: in the units of the logs.
        received: when, in seconds since 1970.
        shown: the place of the item that was shown, if it was said; -1 for one that is unknown.
    """

    decision: str
    name: str
    event: str
    value: float
    received: float
    shown: int | None = None


def new_ids(count: int, now: float | None = None) -> list[str]:
    """Fresh ids: 48 bits of milliseconds, 80 bits of chance."""
    head = f"{int((time.time() if now is None else now) * 1000) & (2**48 - 1):012x}"
    noise = os.urandom(10 * count).hex()
    return [head + noise[20 * k : 20 * (k + 1)] for k in range(count)]


_meta = sa.MetaData()
_Big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
decisions = sa.Table(
    "serving_decisions",
    _meta,
    sa.Column("seq", _Big, primary_key=True, autoincrement=True),
    sa.Column("campaign", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("decided_by", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("action", sa.Integer, nullable=False),
    sa.Column("propensity", sa.Double, nullable=False),
    sa.Column("p_policy", sa.Double, nullable=False),
    sa.Column("p_pi0", sa.Double, nullable=False),
    sa.Column("holdout", sa.Double, nullable=False),
    sa.Column("context", sa.Text, nullable=False),
    sa.Column("unit", sa.Text),
    sa.Column("key", sa.Text),
    sa.Column("asked", sa.Text),
    sa.Column("candidates", sa.Text),
    sa.CheckConstraint("propensity > 0 AND propensity <= 1"),
    sa.CheckConstraint("decided_by IN ('policy', 'holdout', 'pi0')"),
)
sa.Index(
    "serving_keys",
    decisions.c.campaign,
    decisions.c.key,
    unique=True,
    sqlite_where=decisions.c.key.is_not(None),
    postgresql_where=decisions.c.key.is_not(None),
)
rewards = sa.Table(
    "serving_rewards",
    _meta,
    sa.Column("decision", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("received", sa.Double, nullable=False),
    sa.Column("shown", sa.Integer),
    sqlite_with_rowid=False,
)
events = sa.Table(
    "serving_events",
    _meta,
    sa.Column("seq", _Big, primary_key=True, autoincrement=True),
    sa.Column("campaign", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("after", _Big, nullable=False),
    sa.CheckConstraint("kind IN ('watch', 'stop', 'resume')"),
)
_OF_DECISION = [column for column in decisions.c if column.name not in ("seq", "campaign")]
AT_ONCE = 20_000
"""Rows that are read or written at once."""


class StoreGone(FileError):
    """The store cannot be written to, or read, now; later it may."""


@dataclass(frozen=True)
class MonitorEvent:
    """Something about the monitor: it began to watch, the policy was stopped, or resumed.

    Args:
        seq: its place among events; at: when.
        kind: watch, stop or resume.
        round, policy: what served.
        reason: in words; by: who.
        after: the newest decision at that time.
    """

    seq: int
    at: float
    kind: str
    round: int
    policy: str
    reason: str
    by: str
    after: int


class Store:
    """The decisions, rewards and events of one campaign.

    Args:
        address: a file, or postgresql://...
        campaign: whose.
        writing: whether this process may write; for SQLite only one may.
    """

    def __init__(self, address: str | Path, campaign: str, *, writing: bool = False) -> None:
        self.campaign, self._writing = campaign, writing
        text = str(address)
        self.is_file = not text.startswith(("postgresql:", "postgresql+", "postgres:"))
        self.name = text if self.is_file else _shown(text)
        if self.is_file:
            mode = "rwc" if writing else "ro"
            place = Path(text).absolute().as_uri()
            url = f"sqlite:///{place}?mode={mode}&uri=true"
            self._engine = sa.create_engine(
                url, poolclass=NullPool, connect_args={"timeout": 5, "check_same_thread": False}
            )
            sa.event.listen(self._engine, "connect", _prepare if writing else _prepare_reading)
        else:
            address = text.replace("postgres://", "postgresql://", 1)
            address = address.replace("postgresql://", "postgresql+psycopg://", 1)
            made = sa.make_url(address)
            if "connect_timeout" not in made.query:
                made = made.update_query_dict({"connect_timeout": "3"})
            self._engine = sa.create_engine(made, poolclass=NullPool)
        self._connection: sa.Connection | None = None

    def open(self) -> None:
        """Connect for writing; make the tables where there are none."""
        self.close()
        with _telling(self.name):
            if self.is_file:
                Path(self.name).parent.mkdir(parents=True, exist_ok=True)
            _meta.create_all(self._engine)
            self._connection = self._engine.connect()

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except SQLAlchemyError:
                connection.invalidate()

    def write(
        self,
        made: Sequence[Decision] = (),
        earned: Sequence[Reward] = (),
        *,
        instead_of: Sequence[str] = (),
    ) -> dict[str, Decision]:
        """Put decisions and rewards on disk, all or none; what is there already stays as it is.

        Returns the decisions that another service made for the same keys meanwhile.

        Args:
            made: decisions.
            earned: rewards.
            instead_of: ids that were perhaps written, never answered, and are not to count.
        """
        if self._connection is None:
            raise StoreGone("the store must be open", found=self.name)
        with _telling(self.name, self._connection), self._connection.begin():
            for some in _chunks(instead_of):
                self._connection.execute(sa.delete(decisions).where(decisions.c.id.in_(some)))
            for chunk in _chunks(made):
                rows = [(self.campaign, *msgspec.structs.astuple(one)) for one in chunk]
                self._connection.exec_driver_sql(self._insert(decisions, Decision), rows)
            for part in _chunks(earned):
                earnings = [msgspec.structs.astuple(one) for one in part]
                self._connection.exec_driver_sql(self._insert(rewards, Reward), earnings)
        keyed = {one.key: one.id for one in made if one.key is not None}
        if self.is_file or not keyed:  # no other writes to a file
            return {}
        known = self.by_key(list(keyed))
        return {key: one for key, one in known.items() if one.id != keyed[key]}

    def replay(
        self, made: Sequence[Decision], earned: Sequence[Reward], instead_of: Sequence[str]
    ) -> None:
        """Write what a spool kept; a decision whose key was taken meanwhile loses the key."""
        taken = self.by_key([one.key for one in made if one.key is not None])
        kept = []
        for one in made:
            known = None if one.key is None else taken.get(one.key)
            if known is not None and known.id != one.id and known.id not in instead_of:
                one = msgspec.structs.replace(one, key=None)
            kept.append(one)
        self.write(kept, earned, instead_of=instead_of)

    def by_key(self, keys: Sequence[str]) -> dict[str, Decision]:
        """The decisions that were made for these keys."""
        if not keys:
            return {}
        if self._connection is None and self._writing:
            raise StoreGone("the store must be open", found=self.name)
        if self._connection is None:  # a reader keeps one, too, for keys come with every batch
            with _telling(self.name):
                self._connection = self._engine.connect()
        found = {}
        with _telling(self.name, self._connection), self._connection.begin():
            for some in _chunks(keys):
                query = sa.select(*_OF_DECISION).where(
                    decisions.c.campaign == self.campaign, decisions.c.key.in_(some)
                )
                for row in self._connection.execute(query):
                    found[row.key] = Decision(**row._asdict())
        return found

    def add_event(self, kind: str, round: int, policy: str, reason: str, by: str) -> None:
        """Record something about the monitor; durable on return."""
        if self._connection is None:
            raise StoreGone("the store must be open", found=self.name)
        values = {
            "campaign": self.campaign,
            "at": time.time(),
            "kind": kind,
            "round": round,
            "policy": policy,
            "reason": reason[:2000],
            "by": by,
        }
        newest = sa.select(sa.func.coalesce(sa.func.max(decisions.c.seq), 0)).scalar_subquery()
        with _telling(self.name, self._connection), self._connection.begin():
            self._connection.execute(sa.insert(events).values(**values, after=newest))

    def events(self) -> list[MonitorEvent]:
        """What happened to the monitor, oldest first."""
        query = sa.select(events).where(events.c.campaign == self.campaign).order_by(events.c.seq)
        with self._reading() as connection:
            rows = [row._asdict() for row in connection.execute(query)]
        return [MonitorEvent(**{k: v for k, v in row.items() if k != "campaign"}) for row in rows]

    def last_seq(self) -> int:
        """Of the newest decision; 0 without one."""
        with self._reading() as connection:
            return int(connection.scalar(sa.select(sa.func.max(decisions.c.seq))) or 0)

    def read(
        self,
        *,
        after: int = 0,
        until: float | None = None,
        wait: float = 0.0,
        where: Sequence[sa.ColumnElement[bool]] = (),
        columns: Sequence[str] = (),
        limit: int = AT_ONCE,
    ) -> tuple[list[sa.Row[Any]], list[sa.Row[Any]]]:
        """(decisions, their rewards), in the order of `seq`, up to the first that is still open.

        Args:
            after: the last `seq` that is known already.
            until: decisions up to this time; None for all.
            wait: rewards count that came at most so many seconds after their decision.
            where: further conditions.
            columns: of decisions, beside seq, id and at; () for all.
            limit: rows at most.
        """
        names = dict.fromkeys(["seq", "id", "at", *(columns or (c.name for c in decisions.c))])
        query = (
            sa.select(*(decisions.c[name] for name in names))
            .where(decisions.c.seq > after, decisions.c.campaign == self.campaign, *where)
            .order_by(decisions.c.seq)
            .limit(limit)
        )
        with self._reading() as connection:
            rows = list(connection.execute(query).all())
            if until is not None:
                rows = _closed(rows, until)
            if not rows:
                return [], []
            earned = (
                sa.select(*(one for one in rewards.c if one.name != "event"))
                .join(decisions, decisions.c.id == rewards.c.decision)
                .where(
                    decisions.c.seq >= rows[0].seq,
                    decisions.c.seq <= rows[-1].seq,
                    decisions.c.campaign == self.campaign,
                    rewards.c.received <= decisions.c.at + wait,
                )
            )
            return rows, list(connection.execute(earned).all())

    def counts(self) -> dict[str, int]:
        """Decisions by who decided, and rewards."""
        by_decider = (
            sa.select(decisions.c.decided_by, sa.func.count())
            .where(decisions.c.campaign == self.campaign)
            .group_by(decisions.c.decided_by)
        )
        with self._reading() as connection:
            found = {str(decided_by): int(n) for decided_by, n in connection.execute(by_decider)}
            found["rewards"] = int(
                connection.scalar(sa.select(sa.func.count()).select_from(rewards)) or 0
            )
        return found

    def _insert(self, table: sa.Table, of: type[msgspec.Struct]) -> str:
        """The statement that takes tuples of such rows; as text, for rows come by the million."""
        names = ["campaign"] * (table is decisions) + [
            one.name for one in msgspec.structs.fields(of)
        ]
        columns = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join(["?" if self.is_file else "%s"] * len(names))
        return f"INSERT INTO {table.name} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING"

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with _telling(self.name), self._engine.connect() as connection:
            yield connection


def _closed(rows: list[sa.Row[Any]], until: float) -> list[sa.Row[Any]]:
    for place, row in enumerate(rows):
        if row.at > until:
            return rows[:place]
    return rows


def _chunks(values: Sequence[Any]) -> Iterable[list[Any]]:
    return (list(values[k : k + 5000]) for k in range(0, len(values), 5000))


@contextmanager
def _telling(name: str, connection: sa.Connection | None = None) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, OSError) as problem:
        if connection is not None:
            connection.invalidate()
        cause = getattr(problem, "orig", None) or problem
        said = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise StoreGone(
            "the store of decisions must answer",
            found=f"{name}: {said[:200]}",
            cure="start the server, or make room on the disk; the service goes on by itself",
        ) from problem


def _shown(url: str) -> str:
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "postgresql://..."


def _prepare(connection: Any, _: Any) -> None:
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "cache_size = -65536",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _prepare_reading(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA query_only = ON")
