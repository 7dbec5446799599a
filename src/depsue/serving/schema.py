"""What the store holds: its records, its tables, and the migrations that make them.

Opening a store that an older depsue wrote brings it up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from depsue.database import Migration, Schema, table
from depsue.serving.messages import DecidedBy, DecisionReply

EventKind = Literal["watch", "stop", "resume"]


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
        candidates: places, packed (`brought.packed`; JSON in older rows); None is all items.
        pi0: pi0's probabilities of the candidates, packed, where the request brought them.
        chosen, p_chosen: the place of the item that pi0 itself chose, and its probability, where
            the request brought them.
        version: of pi0, as requested.
        would, p_would: of a decision of the holdout, the place of the item that the policy would
            have shown, and the policy's probability of it.
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
    pi0: str | None = None
    chosen: int | None = None
    p_chosen: float | None = None
    version: str | None = None
    would: int | None = None
    p_would: float | None = None

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


@dataclass(frozen=True)
class ShareChange:
    """The share of traffic on the policy was changed.

    Args:
        id: of its own; a change that is recorded twice is recorded once.
        at: when, in seconds since 1970.
        round, policy: what served.
        share: on the policy, from then on.
        reason: in words.
        by: who.
    """

    id: str
    at: float
    round: int
    policy: str
    share: float
    reason: str
    by: str


# The tables as queries see them; `SCHEMA` below makes them.
decisions = table(
    "serving_decisions",
    "seq campaign id at round policy decided_by why action propensity p_policy p_pi0 holdout "
    "context unit key candidates twin erased pi0 chosen p_chosen version would p_would",
)
rewards = table("serving_rewards", "decision name event value received shown")
events = table("serving_events", "seq campaign at kind round policy reason by after id stops")
shares = table("serving_shares", "seq campaign id at round policy share reason by")
aside = table("serving_set_aside", "campaign seq")
erased_units = table("serving_erased_units", "campaign unit at")
OF_DECISION = [decisions.c[field.name] for field in msgspec.structs.fields(Decision)]


def event_of(row: sa.Row[Any]) -> MonitorEvent:
    """An event as it is stored; an older service that still runs records none of the ids."""
    values = row._asdict()
    values["id"] = values["id"] or f"{row.kind}-{row.seq}"
    values["stops"] = tuple(msgspec.json.decode(row.stops or "[]", type=list[str]))
    return MonitorEvent(**values)


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
_ERASED_UNITS = """CREATE TABLE serving_erased_units (campaign TEXT NOT NULL,
 unit TEXT NOT NULL, at DOUBLE PRECISION NOT NULL)"""
_EVENTS = """CREATE TABLE IF NOT EXISTS {name} (seq {serial}, campaign TEXT NOT NULL,
 at DOUBLE PRECISION NOT NULL,
 kind TEXT NOT NULL CONSTRAINT serving_events_kind_check CHECK (kind IN {kinds}),
 round INTEGER NOT NULL, policy TEXT NOT NULL, reason TEXT NOT NULL, "by" TEXT NOT NULL,
 "after" BIGINT NOT NULL)"""
_OF_REQUESTS = ("pi0 TEXT", "chosen INTEGER", "p_chosen DOUBLE PRECISION", "version TEXT",
                "would INTEGER", "p_would DOUBLE PRECISION")  # fmt: skip
_SHARES = """CREATE TABLE serving_shares (seq {serial}, campaign TEXT NOT NULL, id TEXT NOT NULL,
 at DOUBLE PRECISION NOT NULL, round INTEGER NOT NULL, policy TEXT NOT NULL,
 share DOUBLE PRECISION NOT NULL CHECK (share >= 0 AND share <= 1), reason TEXT NOT NULL,
 "by" TEXT NOT NULL, UNIQUE (campaign, id))"""
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
        # Decisions of a unit may become tombstones: `erased` is the keyed hash of the unit.
        Migration(
            both=(
                "ALTER TABLE serving_decisions ADD COLUMN erased TEXT",
                "CREATE INDEX serving_erased ON serving_decisions (campaign) "
                "WHERE erased IS NOT NULL",
                _ERASED_UNITS,
            ),
        ),
        # What requests bring of pi0, what the policy would have done in its place, and the share
        # of traffic on the policy, which may change while it serves.
        Migration(
            both=(
                *(f"ALTER TABLE serving_decisions ADD COLUMN {column}" for column in _OF_REQUESTS),
                _SHARES,
            ),
        ),
    ),
    unversioned=frozenset({"serving_decisions", "serving_rewards", "serving_events"}),
    absent="start the service first: depsue serve",
)
