"""Decisions, rewards and the monitor's events on disk, durable before they are answered.

The store is a SQLite file or a PostgreSQL database. A file has one writing connection, and a lock
keeps a second service out; everybody else opens it read-only (`depsue.database` says why).
On PostgreSQL several services write to one store.

**Keys.** The first decision of a key that reaches the store is that key's, for good. Whoever writes
another one is told the first, read in the same transaction. Nothing is deleted but by erasures:

**Erasures.** On a user's request the decisions of a unit become `tombstones`, and their rewards are
deleted. Rewards that come later are dropped. A service that was cut off may still bring decisions
of before the erasure; they become tombstones as they come in.

**Twins.** If a key was decided in the store and outside it (`writing`), both decisions were
answered, so both are stored. The one that comes later is marked a twin, and so is one that its
caller did not show: it is no evidence and no row of the next logs, it is only counted.

**Rewards.** Of two rewards with the same decision, name and event the one received first stays,
whichever is written first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from depsue.database import (
    WRITE_AHEAD_LOG,
    Database,
    Profile,
    migrate,
    parse_address,
    refuses,
    schema_version,
)
from depsue.errors import FileError, require
from depsue.files import hold_file, make_private
from depsue.serving.places import announce, closed_rows, end_when_idle, settled_places
from depsue.serving.schema import (
    OF_DECISION,
    SCHEMA,
    Decision,
    MonitorEvent,
    Reward,
    ShareChange,
    aside,
    decisions,
    erased_units,
    event_of,
    events,
    rewards,
    shares,
)
from depsue.serving.tombstones import ErasedCounts, KeyErased, Tombstones, chunks

AT_ONCE = 20_000
"""Rows that are read or written at once."""


class StoreGone(FileError):
    """The store cannot be written to, or read, now; later it may."""


class InDoubt(StoreGone):
    """A commit got no reply: what it wrote is in the store, or it is not."""


class Store:
    """The decisions, rewards and events of one campaign.

    Args:
        address: a file, or postgresql://...
        campaign: whose.
        writing: whether this process may write; to a file only one may.
        hidden: `Secret.hidden`, by which erased units and keys are known again; None without it.
        reports_within: seconds in which a caller may report that it showed something else.
    """

    def __init__(
        self,
        address: str | Path,
        campaign: str,
        *,
        writing: bool = False,
        hidden: Callable[[str, str], str] | None = None,
        reports_within: float = 0.0,
    ) -> None:
        self.campaign, self._writing, self._hidden = campaign, writing, hidden
        self._tombstones = Tombstones(campaign, hidden, reports_within)
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
        self.database.require_file(same=False)
        if self.is_file:
            with self.database.translating():
                Path(self.name).parent.mkdir(parents=True, exist_ok=True)
            # opening to write makes a write-ahead log of its journal: first see what it is. But
            # only a writer can roll back the journal of a process that was killed
            if Path(self.name).exists() and not Path(f"{self.name}-journal").exists():
                schema_version(self._reader, SCHEMA, create=True)
            with self.database.translating():
                make_private(Path(self.name))
        migrate(self.database, SCHEMA)
        self._connection = self.database.connect(writing=True)
        with self._transaction() as connection:
            end_when_idle(connection)

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
            check: is given what is returned, before the commit; if it raises, nothing is written,
                nor is where a key's decision was erased (`KeyErased`).
        """
        # in one order everywhere, so that no two services wait for each other
        rows = sorted(made, key=lambda decision: decision.key or "")
        with self._committing() as connection:
            announce(connection)
            first: dict[str, Decision] = {}
            if self._add(connection, rows) < len(rows):
                ids = {decision.key: decision.id for decision in rows if decision.key is not None}
                stored = self._of_keys(connection, [*ids])
                first = {key: known for key, known in stored.items() if known.id != ids[key]}
            # after the insert: it has waited for an erasure of these keys that was under way
            if erased := self._tombstones.keys(connection, [each.key for each in rows if each.key]):
                raise KeyErased(erased)
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
            announce(connection)
            # decided again while the store could not be asked: a twin of what was erased
            again = self._tombstones.keys(connection, [each.key for each in made if each.key])
            if again:
                twins = [each for each in made if each.key in again and each.id not in in_doubt]
                self._add(connection, twins, twin=True)
                made = [each for each in made if each.key not in again]
            if self._add(connection, made) < len(made):
                stored = self._stored(connection, [decision.id for decision in made])
                known = stored | set(in_doubt)
                new = [decision for decision in made if decision.id not in known]
                self._add(connection, new, twin=True)
                twins = [*twins, *new]
            self._tombstones.bury_late(connection, [*made, *twins])
            self._add_rewards(connection, earned)
        return len(twins)

    def erased_keys(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys whose decision was erased."""
        if not keys:
            return set()
        with self._reading() if self._connection is None else self._transaction() as connection:
            return self._tombstones.keys(connection, keys)

    def of_unit(self, unit: str, *, after: int = 0) -> ErasedCounts:
        """What the store has of a unit.

        Args:
            unit: its id, as text: the number 7 and the text "7" are the same unit.
            after: look at decisions after this place only.
        """
        with self._reading() as connection:
            return self._tombstones.of_unit(connection, unit, after)

    def erase(self, unit: str, at: float) -> ErasedCounts:
        """Make tombstones of a unit's decisions and delete their rewards; what was taken out.

        On PostgreSQL services may go on: they wait while the tables are locked for a moment. In a
        file the old content is overwritten, in the write-ahead log too.

        Args:
            unit: as for `of_unit`.
            at: decisions up to this time that a cut-off service brings later are erased as well.
        """
        if self._hidden is None:
            raise RuntimeError("an erasure needs the campaign's secret")
        hashed = self._hidden("unit", unit)
        done = self.of_unit(unit)  # the long look, before anybody has to wait
        with self._committing() as connection:
            if not self.is_file:
                tables = f"{decisions.name}, {rewards.name}, {erased_units.name}"
                connection.exec_driver_sql(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
            late = self._tombstones.of_unit(connection, unit, done.last)
            ids = [*done.ids, *late.ids]
            count = self._tombstones.bury(connection, ids, hashed)
            values = {"campaign": self.campaign, "unit": hashed, "at": at}
            connection.execute(sa.insert(erased_units).values(**values))
        self._overwrite()
        return ErasedCounts(tuple(ids), count, late.last)

    def _overwrite(self) -> None:
        """Leave nothing of what was deleted in the file, or in the database's tables."""
        self.close()
        connection = self.database.connect(writing=True)
        with self.database.translating():
            try:
                if self.is_file:
                    raw = connection.connection.driver_connection
                    assert raw is not None
                    raw.execute("VACUUM")
                    busy, *_ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    require(
                        not busy,
                        "nobody reads the file of decisions while what was erased is overwritten",
                        found=f"another process reads {self.name}",
                        cure="close it, and run the same command again",
                        error=StoreGone,
                    )
                else:
                    own = connection.execution_options(isolation_level="AUTOCOMMIT")
                    own.exec_driver_sql(f"VACUUM {decisions.name}, {rewards.name}")
            finally:
                connection.close()
        self.open()

    def by_key(self, keys: Sequence[str]) -> dict[str, Decision]:
        """The decisions of these keys, but for twins."""
        if not keys:
            return {}
        with self._reading() if self._connection is None else self._transaction() as connection:
            return self._of_keys(connection, keys)

    def known(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids are of decisions of the campaign."""
        with self._reading() as connection:
            return self._stored(connection, ids)

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
            return [event_of(row) for row in connection.execute(query)]

    def add_share(self, change: ShareChange) -> None:
        """Record another share of traffic; durable on return. A known id stays as it is."""
        values = {"campaign": self.campaign, **asdict(change)}
        with self._committing() as connection:
            statement = f"{self._insert(shares, [*values])} ON CONFLICT DO NOTHING"
            connection.exec_driver_sql(statement, tuple(values.values()))

    def shares(self) -> list[ShareChange]:
        """Every change of the share of traffic on the policy, oldest first."""
        columns = [shares.c[name] for name in ShareChange.__dataclass_fields__]
        query = sa.select(*columns).where(shares.c.campaign == self.campaign).order_by("seq")
        with self._reading() as connection:
            return [ShareChange(*row) for row in connection.execute(query)]

    def set_aside(self, seqs: Sequence[int]) -> None:
        """Record decisions that the monitor leaves out, for good; durable on return."""
        statement = f"{self._insert(aside, ('campaign', 'seq'))} ON CONFLICT DO NOTHING"
        with self._committing() as connection:
            for chunk in chunks(seqs):
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
        erased: bool = False,
    ) -> tuple[list[sa.Row[Any]], list[sa.Row[Any]]]:
        """(decisions, their rewards), in the order of `seq`, up to the first that is still open.

        Twins are left out, and tombstones unless they are asked for. Of a tombstone `p_pi0` is the
        largest pi0 / p that it may have had, rounded up to a power of two; nothing else is known.

        Args:
            after: the last `seq` that is known already.
            until: decisions up to this time, none of which can come in later; None for all.
            ahead: decisions after this time, or of none, are not waited for, nor those set aside;
                the rows then have a further column, `set_aside`. None waits for every one.
            wait: rewards count that came at most so many seconds after their decision.
            where: further conditions.
            columns: of decisions, beside seq, id and at; () for all.
            limit: rows at most.
            erased: whether to give tombstones, too.
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
        if not erased:
            query = query.where(decisions.c.erased.is_(None))
        with self._reading() as connection:
            if until is not None:
                query = query.where(decisions.c.seq <= settled_places(connection)[1])
            rows = list(connection.execute(query).all())
            if until is not None:
                rows = closed_rows(rows, until, ahead)
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

    def settled(self) -> tuple[int, int]:
        """(newest, settled): the newest decision, and the place up to which none can come in."""
        with self._reading() as connection:
            return settled_places(connection)

    def newest(self, most: int, columns: Sequence[str]) -> list[sa.Row[Any]]:
        """The newest decisions with `at` and these columns, newest first; twins are left out."""
        names = dict.fromkeys(["at", *columns])
        query = (
            sa.select(*(decisions.c[name] for name in names))
            .where(decisions.c.campaign == self.campaign, sa.not_(decisions.c.twin))
            .order_by(decisions.c.seq.desc())
            .limit(most)
        )
        with self._reading() as connection:
            return list(connection.execute(query).all())

    def holdouts(self, round: int, policy: str) -> tuple[float, ...]:
        """The shares of the holdout, each once, while a policy and its holdout decided."""
        shares = (
            sa.select(decisions.c.holdout)
            .where(
                decisions.c.campaign == self.campaign,
                decisions.c.round == round,
                decisions.c.policy == policy,
                decisions.c.decided_by.in_(("policy", "holdout")),
            )
            .distinct()
        )
        with self._reading() as connection:
            return tuple(sorted(float(share) for (share,) in connection.execute(shares)))

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

    def erased(self, round: int | None = None) -> list[sa.Row[Any]]:
        """(policy, decided_by, count) of tombstones, of one round or of all; without twins."""
        with self._reading() as connection:
            return self._tombstones.counts(connection, round)

    def tombstones_of(self, hashed: str) -> set[str]:
        """Ids of the decisions of a unit that were erased; the unit by its keyed hash."""
        with self._reading() as connection:
            return self._tombstones.named(connection, hashed)

    def erasures(self) -> int:
        """How many erasures there were."""
        count = sa.select(sa.func.count()).where(erased_units.c.campaign == self.campaign)
        with self._reading() as connection:
            return int(connection.scalar(count) or 0)

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
        names = ["campaign", *Decision.__struct_fields__, "twin"]
        statement = f"{self._insert(decisions, names)} ON CONFLICT DO NOTHING"
        new = 0
        for chunk in chunks(made):
            rows = [(self.campaign, *msgspec.structs.astuple(each), twin) for each in chunk]
            new += connection.exec_driver_sql(
                statement, rows, execution_options={"preserve_rowcount": True}
            ).rowcount
        self._tombstones.mark_not_shown(connection, made)
        return new

    def _add_rewards(self, connection: sa.Connection, earned: Sequence[Reward]) -> None:
        gone = self._tombstones.ids(connection, [reward.decision for reward in earned])
        earned = [reward for reward in earned if reward.decision not in gone]
        taken = ", ".join(f"{name} = excluded.{name}" for name in ("value", "received", "shown"))
        statement = (
            f"{self._insert(rewards, Reward.__struct_fields__)} "
            "ON CONFLICT (decision, name, event) "
            f"DO UPDATE SET {taken} WHERE excluded.received < {rewards.name}.received"
        )
        ordered = sorted(earned, key=lambda reward: (reward.decision, reward.name, reward.event))
        for chunk in chunks(ordered):
            connection.exec_driver_sql(
                statement, [msgspec.structs.astuple(reward) for reward in chunk]
            )

    def _insert(self, into: sa.TableClause, names: Sequence[str]) -> str:
        columns = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join(["?" if self.is_file else "%s"] * len(names))
        return f"INSERT INTO {into.name} ({columns}) VALUES ({marks})"

    def _of_keys(self, connection: sa.Connection, keys: Sequence[str]) -> dict[str, Decision]:
        by_key = {}
        for chunk in chunks(keys):
            query = sa.select(*OF_DECISION).where(
                decisions.c.campaign == self.campaign,
                decisions.c.key.in_(chunk),
                sa.not_(decisions.c.twin),
                decisions.c.erased.is_(None),
            )
            for row in connection.execute(query):
                by_key[row.key] = Decision(**row._asdict())
        return by_key

    def _stored(self, connection: sa.Connection, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are in the store."""
        stored: set[str] = set()
        for chunk in chunks(ids):
            mine = decisions.c.campaign == self.campaign, decisions.c.id.in_(chunk)
            stored.update(connection.scalars(sa.select(decisions.c.id).where(*mine)))
        return stored

    @contextmanager
    def _committing(self) -> Iterator[sa.Connection]:
        """One transaction that writes; `InDoubt` if its commit got no reply."""
        connection = self._connection
        if connection is None:
            raise StoreGone("the store must be open", found=self.name)
        self.database.require_file()
        with self.database.translating():
            transaction = connection.begin()
            try:
                yield connection
            except BaseException as problem:  # nothing was committed
                lost = isinstance(problem, SQLAlchemyError | OSError) and not refuses(problem)
                (connection.invalidate if lost else transaction.rollback)()
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
        if (connection := self._connection) is None:
            raise StoreGone("the store must be open", found=self.name)
        with self.database.within(connection):
            yield connection

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


_PROFILE = Profile(
    what="store of decisions",
    pragmas=WRITE_AHEAD_LOG,
    connect_timeout=3,
    again="; the service goes on by itself",
    error=StoreGone,
)
_WAIT = 5.0  # seconds that a write to a file waits for its turn
