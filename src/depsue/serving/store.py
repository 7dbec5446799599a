"""Decisions, rewards and the monitor's events on disk, durable before they are answered.

The store is a SQLite file or a PostgreSQL database. A file has one writing connection, and a lock
keeps a second service out; everybody else opens it read-only (`depsue.database` says why).
On PostgreSQL several services write to one store.

**Keys.** The first decision of a key that reaches the store is the decision of that key, for good.
Whoever writes another one is told the first, read in the same transaction. Nothing is deleted.

**Twins.** A service that cannot reach the store decides without it (`writing`). If a key was
decided in the store and outside, both decisions were answered, so both are stored. The one that
reaches the store later is marked a twin: it is no evidence and no row of the next logs, it is only
counted.

**Rewards.** Of two rewards with the same decision, name and event the one received first stays,
whichever is written first.

A store has a version (`SCHEMA`). Opening one that an older depsue wrote brings it up to date.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from depsue.database import (
    WRITE_AHEAD_LOG,
    Database,
    Migration,
    Profile,
    Schema,
    migrate,
    parse_address,
    schema_version,
    table,
)
from depsue.errors import FileError, require
from depsue.files import PRIVATE, hold_file
from depsue.serving.messages import DecidedBy, DecisionReply

AT_ONCE = 20_000
"""Rows that are read or written at once."""

EventKind = Literal["watch", "stop", "resume"]


class StoreGone(FileError):
    """The store cannot be written to, or read, now; later it may."""


class InDoubt(StoreGone):
    """A commit got no reply: what it wrote is in the store, or it is not."""


class Decision(msgspec.Struct):
    """One decision, as it is stored.

    Args:
        id: 32 hex digits, which another decision of the same key does not have.
        at: when, in seconds since 1970.
        round, policy: what served.
        decided_by: who decided; why: the reason of a fallback, else "".
        action: the item's place in the catalogue, which stays the same for the whole campaign.
        propensity: the probability it was drawn with.
        p_policy, p_pi0: of the action under the deployed policy and under pi0.
        holdout: the share of traffic that stayed on pi0.
        context: the request's columns, as JSON.
        unit: as requested, as JSON; key: as requested.
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


@dataclass(frozen=True)
class MonitorEvent:
    """Something about the monitor: it began to watch, the policy was stopped, or resumed.

    Args:
        id: of its own; an event that is recorded twice is recorded once.
        at: when, in seconds since 1970.
        kind: what happened.
        round, policy: what served.
        reason: in words.
        by: who.
        stops: ids of the stops that a resume names.
        after: the newest decision at that time; the store's to say.
        seq: its place among events; the store's to say.
    """

    id: str
    at: float
    kind: EventKind
    round: int
    policy: str
    reason: str
    by: str
    stops: tuple[str, ...] = ()
    after: int = 0
    seq: int = 0


# The tables as queries see them; `SCHEMA` below makes them.
decisions = table(
    "serving_decisions",
    "seq campaign id at round policy decided_by why action propensity p_policy p_pi0 holdout "
    "context unit key candidates twin",
)
rewards = table("serving_rewards", "decision name event value received shown")
events = table("serving_events", "seq campaign at kind round policy reason by after id stops")
aside = table("serving_set_aside", "campaign seq")
_OF_DECISION = [column for column in decisions.c if column.name not in ("seq", "campaign", "twin")]


class Store:
    """The decisions, rewards and events of one campaign.

    Args:
        address: a file, or postgresql://...
        campaign: whose.
        writing: whether this process may write; to a file only one may.
    """

    def __init__(self, address: str | Path, campaign: str, *, writing: bool = False) -> None:
        self.campaign, self._writing = campaign, writing
        url = parse_address(address, _PROFILE.what)
        self.database = Database(url, _PROFILE, wait=_WAIT)
        self._reader = Database(url, _PROFILE, wait=_WAIT, read_only=True)
        self.name, self.is_file = self.database.name, self.database.kind != "postgresql"
        require(
            self.database.kind != "memory",
            f"a {_PROFILE.what} outlives its process",
            found=str(address),
            cure="name a file, or postgresql://...",
        )
        self._connection: sa.Connection | None = None
        self._is_newest = False

    def open(self) -> None:
        """Connect for writing; make the tables where there are none, or bring them up to date."""
        self.close()
        if self.is_file:
            with self.database.translating():
                Path(self.name).parent.mkdir(parents=True, exist_ok=True)
            # Opening a file to write makes a write-ahead log of its journal, so first see what it
            # is; but only a writer can roll back the journal of a process that was killed.
            if Path(self.name).exists() and not Path(f"{self.name}-journal").exists():
                schema_version(self._reader, SCHEMA, create=True)
        if self.is_file:
            with self.database.translating():
                _make_private(Path(self.name))
        migrate(self.database, SCHEMA)
        self._connection = self.database.connect(writing=True)

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except SQLAlchemyError:
                connection.invalidate()

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Keep other processes from writing to a file; False if another does.

        On PostgreSQL several may write, and nothing is held.
        """
        with ExitStack() as stack:
            held = True
            if self.is_file:
                with self.database.translating():
                    Path(self.name).parent.mkdir(parents=True, exist_ok=True)
                    held = stack.enter_context(hold_file(f"{self.name}.lock"))
            yield held

    def write(
        self,
        made: Sequence[Decision] = (),
        earned: Sequence[Reward] = (),
        *,
        check: Callable[[dict[str, Decision]], None] | None = None,
    ) -> dict[str, Decision]:
        """Put decisions and rewards on disk, all or none.

        Returns the decisions, by key, that came before one of `made` and stand in its place.

        Args:
            made: decisions.
            earned: rewards.
            check: is given what is returned, before the commit; if it raises, nothing is written.
        """
        # in one order everywhere, so that no two services ever wait for each other
        rows = sorted(made, key=lambda decision: decision.key or "")
        with self._committing() as connection:
            first: dict[str, Decision] = {}
            if self._add(connection, rows) < len(rows):
                ids = {decision.key: decision.id for decision in rows if decision.key is not None}
                stored = self._of_keys(connection, [*ids])
                first = {key: known for key, known in stored.items() if known.id != ids[key]}
            if check is not None:
                check(first)
            self._add_rewards(connection, earned)
        return first

    def replay(
        self, made: Sequence[Decision], in_doubt: Collection[str], earned: Sequence[Reward]
    ) -> int:
        """Write what waited in a journal, in its order, all or none; how many twins were new.

        What is in the store already stays as it is, so it is harmless to do this twice.

        Args:
            made: decisions.
            in_doubt: ids of those that nobody was answered with; they are never twins.
            earned: rewards.
        """
        twins: list[Decision] = []
        with self._committing() as connection:
            if self._add(connection, made) < len(made):
                stored = self._stored(connection, [decision.id for decision in made])
                known = stored | set(in_doubt)
                twins = [decision for decision in made if decision.id not in known]
                self._add(connection, twins, twin=True)
            self._add_rewards(connection, earned)
        return len(twins)

    def by_key(self, keys: Sequence[str]) -> dict[str, Decision]:
        """The decisions of these keys, but for twins."""
        if not keys:
            return {}
        with self._reading() if self._connection is None else self._transaction() as connection:
            return self._of_keys(connection, keys)

    def known(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids are of decisions of the campaign."""
        known: set[str] = set()
        with self._reading() as connection:
            for chunk in _chunks(ids):
                query = sa.select(decisions.c.id).where(
                    decisions.c.campaign == self.campaign, decisions.c.id.in_(chunk)
                )
                known.update(connection.scalars(query))
        return known

    def add_events(self, added: Sequence[MonitorEvent]) -> None:
        """Record what happened to the monitor; durable on return. Known ids stay as they are."""
        newest = sa.select(sa.func.coalesce(sa.func.max(decisions.c.seq), 0)).scalar_subquery()
        with self._committing() as connection:
            for event in added:
                values = {
                    "campaign": self.campaign,
                    "id": event.id,
                    "at": event.at,
                    "kind": event.kind,
                    "round": event.round,
                    "policy": event.policy,
                    "reason": event.reason,
                    "by": event.by,
                    "stops": msgspec.json.encode(event.stops).decode(),
                    "after": newest,
                }
                insert = sqlite.insert(events) if self.is_file else postgresql.insert(events)
                connection.execute(insert.values(**values).on_conflict_do_nothing())

    def events(self) -> list[MonitorEvent]:
        """What happened to the monitor, oldest first."""
        columns = [column for column in events.c if column.name != "campaign"]
        query = sa.select(*columns).where(events.c.campaign == self.campaign).order_by("seq")
        with self._reading() as connection:
            return [_event(row) for row in connection.execute(query)]

    def set_aside(self, seqs: Sequence[int]) -> None:
        """Record decisions that the monitor leaves out, for good; durable on return."""
        statement = f"{self._insert(aside, ('campaign', 'seq'))} ON CONFLICT DO NOTHING"
        with self._committing() as connection:
            for chunk in _chunks(seqs):
                connection.exec_driver_sql(statement, [(self.campaign, seq) for seq in chunk])

    def last_seq(self) -> int:
        """Of the newest decision; 0 without one."""
        with self._reading() as connection:
            return int(connection.scalar(sa.select(sa.func.max(decisions.c.seq))) or 0)

    def read(
        self,
        *,
        after: int = 0,
        until: float | None = None,
        ahead: float | None = None,
        wait: float = 0.0,
        where: Sequence[sa.ColumnElement[bool]] = (),
        columns: Sequence[str] = (),
        limit: int = AT_ONCE,
    ) -> tuple[list[sa.Row[Any]], list[sa.Row[Any]]]:
        """(decisions, their rewards), in the order of `seq`, up to the first that is still open.

        Twins are left out.

        Args:
            after: the last `seq` that is known already.
            until: decisions up to this time; None for all.
            ahead: decisions after this time, or of none, are not waited for, nor those set aside;
                the rows then have a further column, `set_aside`. None waits for every one.
            wait: rewards count that came at most so many seconds after their decision.
            where: further conditions.
            columns: of decisions, beside seq, id and at; () for all.
            limit: rows at most.
        """
        names = dict.fromkeys(["seq", "id", "at", *(columns or (c.name for c in decisions.c))])
        selected: list[sa.ColumnElement[Any]] = [decisions.c[name] for name in names]
        if ahead is not None:
            known = sa.select(aside.c.seq).where(
                aside.c.campaign == self.campaign, aside.c.seq == decisions.c.seq
            )
            selected.append(sa.exists(known).label("set_aside"))
        query = (
            sa.select(*selected)
            .where(decisions.c.seq > after, decisions.c.campaign == self.campaign, *where)
            .where(sa.not_(decisions.c.twin))
            .order_by(decisions.c.seq)
            .limit(limit)
        )
        with self._reading() as connection:
            rows = list(connection.execute(query).all())
            if until is not None:
                rows = _closed(rows, until, ahead)
            if not rows:
                return [], []
            earned = (
                sa.select(*(column for column in rewards.c if column.name != "event"))
                .join_from(rewards, decisions, decisions.c.id == rewards.c.decision)
                .where(
                    decisions.c.seq >= rows[0].seq,
                    decisions.c.seq <= rows[-1].seq,
                    decisions.c.campaign == self.campaign,
                    rewards.c.received <= decisions.c.at + wait,
                )
            )
            return rows, list(connection.execute(earned).all())

    def counts(self) -> dict[str, int]:
        """Decisions by who decided, twins apart from them, and rewards."""
        by_decider = (
            sa.select(decisions.c.decided_by, sa.func.count())
            .where(decisions.c.campaign == self.campaign, sa.not_(decisions.c.twin))
            .group_by(decisions.c.decided_by)
        )
        all_rewards = sa.select(sa.func.count()).select_from(rewards)
        with self._reading() as connection:
            counts = {str(who): int(n) for who, n in connection.execute(by_decider)}
            counts["rewards"] = int(connection.scalar(all_rewards) or 0)
        return {**counts, "twins": self.twins()}

    def twins(self, round: int | None = None) -> int:
        """Decisions that are marked as twins, of one round or of all."""
        count = sa.select(sa.func.count()).where(
            decisions.c.campaign == self.campaign, decisions.c.twin
        )
        if round is not None:
            count = count.where(decisions.c.round == round)
        with self._reading() as connection:
            return int(connection.scalar(count) or 0)

    def _add(
        self, connection: sa.Connection, made: Sequence[Decision], *, twin: bool = False
    ) -> int:
        """Insert decisions; how many are new. As text, for rows come by the million."""
        names = ["campaign", *(field.name for field in msgspec.structs.fields(Decision)), "twin"]
        statement = f"{self._insert(decisions, names)} ON CONFLICT DO NOTHING"
        new = 0
        for chunk in _chunks(made):
            rows = [(self.campaign, *msgspec.structs.astuple(each), twin) for each in chunk]
            new += connection.exec_driver_sql(
                statement, rows, execution_options={"preserve_rowcount": True}
            ).rowcount
        return new

    def _add_rewards(self, connection: sa.Connection, earned: Sequence[Reward]) -> None:
        names = [field.name for field in msgspec.structs.fields(Reward)]
        taken = ", ".join(f"{name} = excluded.{name}" for name in ("value", "received", "shown"))
        statement = (
            f"{self._insert(rewards, names)} ON CONFLICT (decision, name, event) "
            f"DO UPDATE SET {taken} WHERE excluded.received < {rewards.name}.received"
        )
        ordered = sorted(earned, key=lambda reward: (reward.decision, reward.name, reward.event))
        for chunk in _chunks(ordered):
            connection.exec_driver_sql(
                statement, [msgspec.structs.astuple(reward) for reward in chunk]
            )

    def _insert(self, into: sa.TableClause, names: Sequence[str]) -> str:
        columns = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join(["?" if self.is_file else "%s"] * len(names))
        return f"INSERT INTO {into.name} ({columns}) VALUES ({marks})"

    def _of_keys(self, connection: sa.Connection, keys: Sequence[str]) -> dict[str, Decision]:
        by_key = {}
        for chunk in _chunks(keys):
            query = sa.select(*_OF_DECISION).where(
                decisions.c.campaign == self.campaign,
                decisions.c.key.in_(chunk),
                sa.not_(decisions.c.twin),
            )
            for row in connection.execute(query):
                by_key[row.key] = Decision(**row._asdict())
        return by_key

    def _stored(self, connection: sa.Connection, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are in the store."""
        stored: set[str] = set()
        for chunk in _chunks(ids):
            query = sa.select(decisions.c.id).where(decisions.c.id.in_(chunk))
            stored.update(connection.scalars(query))
        return stored

    @contextmanager
    def _committing(self) -> Iterator[sa.Connection]:
        """One transaction that writes; `InDoubt` if its commit got no reply."""
        connection = self._connection
        if connection is None:
            raise StoreGone("the store must be open", found=self.name)
        with self.database.translating():
            transaction = connection.begin()
            try:
                yield connection
            except (SQLAlchemyError, OSError):  # nothing was committed
                connection.invalidate()
                raise
            except BaseException:
                transaction.rollback()
                raise
            try:
                with self.database.translating():
                    transaction.commit()
            except StoreGone as problem:
                connection.invalidate()
                raise InDoubt(problem.rule, found=problem.found, cure=problem.cure) from problem

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """One transaction on the connection that is kept."""
        if self._connection is None:
            raise StoreGone("the store must be open", found=self.name)
        with self.database.within(self._connection):
            yield self._connection

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self._require_newest()
        with self._reader.reading() as connection:
            yield connection

    def _require_newest(self) -> None:
        """Before the first read: bring an older store up to date, while nobody serves from it."""
        if not self._is_newest and schema_version(self._reader, SCHEMA) < len(SCHEMA.migrations):
            with self.hold() as held:
                require(
                    held,
                    "an older store of decisions is brought up to date while nobody writes to it",
                    found=f"another process holds {self.name}",
                    cure="stop the service that runs, and start it with this version",
                    error=StoreGone,
                )
                migrate(self.database, SCHEMA, create=False)
        self._is_newest = True


def _make_private(path: Path) -> None:
    """Let only the owner read a file of decisions; SQLite gives its other files the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).chmod(PRIVATE)


def _closed(rows: list[sa.Row[Any]], until: float, ahead: float | None) -> list[sa.Row[Any]]:
    """The rows before the first that is open."""
    for place, row in enumerate(rows):
        left_out = ahead is not None and (row.set_aside or not 0 <= row.at <= ahead)
        if row.at > until and not left_out:
            return rows[:place]
    return rows


def _event(row: sa.Row[Any]) -> MonitorEvent:
    """An event as it is stored; an older service that still runs records none of the ids."""
    values = row._asdict()
    values["id"] = values["id"] or f"{row.kind}-{row.seq}"
    values["stops"] = tuple(msgspec.json.decode(row.stops or "[]", type=list[str]))
    return MonitorEvent(**values)


def _chunks(values: Sequence[Any]) -> Iterable[list[Any]]:
    return (list(values[k : k + 5000]) for k in range(0, len(values), 5000))


_DECISIONS = """CREATE TABLE IF NOT EXISTS serving_decisions (seq {serial},
 campaign TEXT NOT NULL, id TEXT NOT NULL UNIQUE, at DOUBLE PRECISION NOT NULL,
 round INTEGER NOT NULL, policy TEXT NOT NULL,
 arm TEXT NOT NULL CHECK (arm IN ('policy', 'holdout', 'pi0')), why TEXT NOT NULL,
 action INTEGER NOT NULL,
 propensity DOUBLE PRECISION NOT NULL CHECK (propensity > 0 AND propensity <= 1),
 p_policy DOUBLE PRECISION NOT NULL, p_pi0 DOUBLE PRECISION NOT NULL,
 holdout DOUBLE PRECISION NOT NULL, context TEXT NOT NULL, unit TEXT, "key" TEXT, asked TEXT,
 candidates TEXT)"""
_KEYS = """CREATE UNIQUE INDEX IF NOT EXISTS serving_keys ON serving_decisions (campaign, "key")
 WHERE "key" IS NOT NULL"""
_REWARDS = """CREATE TABLE IF NOT EXISTS serving_rewards (decision TEXT NOT NULL,
 name TEXT NOT NULL, event TEXT NOT NULL, value DOUBLE PRECISION NOT NULL,
 received DOUBLE PRECISION NOT NULL, shown INTEGER, PRIMARY KEY (decision, name, event))
 {without_rowid}"""
_FIRST_OF_KEY = """CREATE UNIQUE INDEX serving_keys ON serving_decisions (campaign, "key")
 WHERE "key" IS NOT NULL AND NOT twin"""
_EVENTS = """CREATE TABLE IF NOT EXISTS {name} (seq {serial}, campaign TEXT NOT NULL,
 at DOUBLE PRECISION NOT NULL,
 kind TEXT NOT NULL CONSTRAINT serving_events_kind_check CHECK (kind IN {kinds}),
 round INTEGER NOT NULL, policy TEXT NOT NULL, reason TEXT NOT NULL, "by" TEXT NOT NULL,
 "after" BIGINT NOT NULL)"""
_NEW_KIND = "CASE kind WHEN 'trip' THEN 'stop' WHEN 'lift' THEN 'resume' ELSE kind END"


def _events_table(name: str, kinds: str) -> str:
    return _EVENTS.replace("{name}", name).replace("{kinds}", kinds)


def _named_stops(together: str) -> str:
    return f"""UPDATE serving_events SET stops = COALESCE((SELECT {together} FROM serving_events s
 WHERE s.campaign = serving_events.campaign AND s.kind = 'stop' AND s.seq < serving_events.seq),
 '[]') WHERE kind = 'resume'"""


SCHEMA = Schema(
    versions=table("serving_schema", "version at depsue"),
    migrations=(
        # The tables as they were before stores had a version: where they are, they stay.
        Migration(
            both=(
                _DECISIONS,
                _KEYS,
                _REWARDS,
                _events_table("serving_events", "('watch', 'trip', 'lift')"),
            )
        ),
        # A trip is called a stop, a lift a resume, an arm who decided. SQLite cannot change a
        # constraint, so the table of events is made anew.
        Migration(
            both=("ALTER TABLE serving_decisions RENAME COLUMN arm TO decided_by",),
            sqlite=(
                _events_table("serving_events_2", "('watch', 'stop', 'resume')"),
                "INSERT INTO serving_events_2 SELECT seq, campaign, at, "
                f'{_NEW_KIND}, round, policy, reason, "by", "after" FROM serving_events',
                "DROP TABLE serving_events",
                "ALTER TABLE serving_events_2 RENAME TO serving_events",
            ),
            postgresql=(
                "ALTER TABLE serving_events DROP CONSTRAINT serving_events_kind_check",
                f"UPDATE serving_events SET kind = {_NEW_KIND}",
                "ALTER TABLE serving_events ADD CONSTRAINT serving_events_kind_check "
                "CHECK (kind IN ('watch', 'stop', 'resume'))",
            ),
        ),
        # A key may have a second decision, marked a twin. A repeated request is known by its
        # context and unit, which are stored anyway.
        Migration(
            both=(
                "ALTER TABLE serving_decisions DROP COLUMN asked",
                "ALTER TABLE serving_decisions ADD COLUMN twin BOOLEAN NOT NULL DEFAULT FALSE",
                "DROP INDEX serving_keys",
                _FIRST_OF_KEY,
                "CREATE INDEX serving_twins ON serving_decisions (campaign) WHERE twin",
            ),
        ),
        # Stops have ids, and a resume names those that it is about: of the resumes of before, all
        # stops before it. Decisions that are stamped ahead of the clock are set aside.
        Migration(
            both=(
                "ALTER TABLE serving_events ADD COLUMN id TEXT",
                "ALTER TABLE serving_events ADD COLUMN stops TEXT",
                "UPDATE serving_events SET id = kind || '-' || seq, stops = '[]'",
                "CREATE UNIQUE INDEX serving_event_ids ON serving_events (campaign, id)",
                """CREATE TABLE serving_set_aside (campaign TEXT NOT NULL, seq BIGINT NOT NULL,
 PRIMARY KEY (campaign, seq))""",
            ),
            sqlite=(_named_stops("json_group_array(s.id)"),),
            postgresql=(_named_stops("json_agg(s.id)::text"),),
        ),
    ),
    unversioned=frozenset({"serving_decisions", "serving_rewards", "serving_events"}),
    absent="start the service first: depsue serve",
)
_PROFILE = Profile(
    what="store of decisions",
    pragmas=WRITE_AHEAD_LOG,
    connect_timeout=3,
    again="; the service goes on by itself",
    error=StoreGone,
)
_WAIT = 5.0
"""Seconds that a write to a file waits for its turn."""
