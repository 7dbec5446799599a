"""The ledger's tables: as migrations make them, as queries see them, as records show them.

A record's id is that of its line in the journal, so none can be without one. The database itself
refuses to change or delete a row of any of these tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from depsue.database import Migration, Schema, table

T = TypeVar("T")

journal = table("depsue_journal", "id at who what campaign round detail")
campaigns = table("depsue_campaigns", "id name rounds retries settings")
observations = table("depsue_observations", "id campaign round data_hash rows source summary")
policies = table("depsue_policies", "id campaign round policy_hash folder trained_on fixed")
reads = table("depsue_attempts", "id campaign round attempt data_hash policy_hash family")
verdicts = table("depsue_outcomes", "id read_id passed certified certificate note")
deployments = table("depsue_deployments", "id campaign round policy_hash kind declared")
registrations = table(
    "depsue_registrations", "id campaign round data_hash rows family registration sketch"
)
supplements = table("depsue_supplements", "id campaign round data_hash rows source summary")
families = table("depsue_families", "id name terms")
pins = table("depsue_pins", "id campaign round hashes")
identity = table("depsue_identity", "id name")
RECORDS = (
    journal,
    campaigns,
    observations,
    supplements,
    registrations,
    families,
    policies,
    reads,
    verdicts,
    deployments,
    pins,
)
"""In an order in which none points at a later one."""

_FINISHED = journal.alias("finished")
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("settings", "summary", "trained_on", "fixed", "declared", "terms", "hashes"), json.loads
    ),
    **dict.fromkeys(("at", "finished_at"), datetime.fromisoformat),
    **dict.fromkeys(("passed", "retries"), bool),
}


def rows_of(records: sa.TableClause, **where: object) -> sa.Select[Any]:
    """The rows of a table with who and when, oldest first; of `reads`, with their verdicts."""
    by, at = journal.c.who.label("by"), journal.c.at
    columns: list[Any] = [records, by] if records is journal else [records, by, at]
    source: sa.FromClause = records
    if records is not journal:
        source = source.join(journal, journal.c.id == records.c.id)
    if records is reads:
        source = source.outerjoin(verdicts, verdicts.c.read_id == reads.c.id)
        source = source.outerjoin(_FINISHED, _FINISHED.c.id == verdicts.c.id)
        columns += [verdicts.c[name] for name in ("passed", "certified", "certificate", "note")]
        columns += [_FINISHED.c.at.label("finished_at"), _FINISHED.c.who.label("finished_by")]
    conditions = [records.c[name] == value for name, value in where.items()]
    return sa.select(*columns).select_from(source).where(*conditions).order_by(records.c.id)


def record(kind: type[T], row: sa.Row[Any]) -> T:
    """A row as the frozen record that readers get."""
    values = {field.name: row._mapping[field.name] for field in fields(kind)}  # type: ignore[arg-type]
    for name in _FROM_TEXT.keys() & values.keys():
        if values[name] is not None:
            values[name] = _FROM_TEXT[name](values[name])
    return kind(**values)


_RECORD = "id BIGINT NOT NULL PRIMARY KEY REFERENCES depsue_journal (id)"
_OF_A_ROUND = """campaign TEXT NOT NULL REFERENCES depsue_campaigns (name),
 round INTEGER NOT NULL CHECK (round >= {first})"""
_JOURNAL = """CREATE TABLE depsue_journal (id {counter}, at TEXT NOT NULL, who TEXT NOT NULL,
 what TEXT NOT NULL, campaign TEXT NOT NULL, round INTEGER, detail TEXT NOT NULL)"""
_CAMPAIGNS = f"""CREATE TABLE depsue_campaigns ({_RECORD}, name TEXT NOT NULL UNIQUE,
 rounds INTEGER NOT NULL CHECK (rounds >= 1), retries INTEGER NOT NULL CHECK (retries IN (0, 1)),
 settings TEXT NOT NULL)"""
_OBSERVATIONS = f"""CREATE TABLE depsue_observations ({_RECORD}, {_OF_A_ROUND.format(first=0)},
 data_hash TEXT NOT NULL CHECK (length(data_hash) = 64),
 rows BIGINT NOT NULL CHECK (rows >= 1), source TEXT NOT NULL, summary TEXT NOT NULL,
 UNIQUE (campaign, round), UNIQUE (campaign, data_hash))"""
_POLICIES = f"""CREATE TABLE depsue_policies ({_RECORD}, {_OF_A_ROUND.format(first=1)},
 policy_hash TEXT NOT NULL CHECK (length(policy_hash) = 64), folder TEXT NOT NULL,
 trained_on TEXT NOT NULL, fixed TEXT NOT NULL, UNIQUE (campaign, round, policy_hash))"""
_READS = f"""CREATE TABLE depsue_reads ({_RECORD}, {_OF_A_ROUND.format(first=1)},
 attempt INTEGER NOT NULL CHECK (attempt >= 1), data_hash TEXT NOT NULL,
 policy_hash TEXT NOT NULL,
 UNIQUE (campaign, round, policy_hash), UNIQUE (data_hash, attempt),
 FOREIGN KEY (campaign, round, policy_hash)
 REFERENCES depsue_policies (campaign, round, policy_hash),
 FOREIGN KEY (campaign, data_hash) REFERENCES depsue_observations (campaign, data_hash))"""
_VERDICTS = f"""CREATE TABLE depsue_verdicts ({_RECORD},
 read_id BIGINT NOT NULL UNIQUE REFERENCES depsue_reads (id),
 passed INTEGER NOT NULL CHECK (passed IN (0, 1)), certified TEXT, certificate TEXT,
 note TEXT NOT NULL, CHECK (certificate IS NOT NULL OR passed = 0))"""
_DEPLOYMENTS = f"""CREATE TABLE depsue_deployments ({_RECORD}, {_OF_A_ROUND.format(first=1)},
 policy_hash TEXT NOT NULL CHECK (length(policy_hash) = 64),
 kind TEXT NOT NULL CHECK (kind IN ('deploy', 'rollback')))"""
_IDENTITY = """CREATE TABLE depsue_identity (id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
 name TEXT NOT NULL)"""
_REGISTRATIONS = f"""CREATE TABLE depsue_registrations ({_RECORD}, campaign TEXT NOT NULL,
 round INTEGER NOT NULL CHECK (round >= 0), data_hash TEXT NOT NULL CHECK (length(data_hash) = 64),
 rows BIGINT NOT NULL CHECK (rows >= 1), family TEXT NOT NULL, registration TEXT NOT NULL,
 sketch TEXT NOT NULL, UNIQUE (campaign, round, data_hash))"""
_SUPPLEMENTS = f"""CREATE TABLE depsue_supplements ({_RECORD}, {_OF_A_ROUND.format(first=0)},
 data_hash TEXT NOT NULL CHECK (length(data_hash) = 64),
 rows BIGINT NOT NULL CHECK (rows >= 1), source TEXT NOT NULL, summary TEXT NOT NULL,
 UNIQUE (campaign, data_hash))"""
_FAMILIES = f"""CREATE TABLE depsue_families ({_RECORD}, name TEXT NOT NULL UNIQUE,
 terms TEXT NOT NULL)"""
_ATTEMPTS = f"""CREATE TABLE depsue_attempts ({_RECORD}, {_OF_A_ROUND.format(first=1)},
 attempt INTEGER NOT NULL CHECK (attempt >= 1), data_hash TEXT NOT NULL,
 policy_hash TEXT NOT NULL, family TEXT NOT NULL,
 UNIQUE (campaign, round, policy_hash),
 FOREIGN KEY (campaign, round, policy_hash)
 REFERENCES depsue_policies (campaign, round, policy_hash))"""
_OUTCOMES = _VERDICTS.replace("depsue_verdicts", "depsue_outcomes").replace(
    "depsue_reads", "depsue_attempts"
)
_KEPT_ATTEMPTS = (
    "INSERT INTO depsue_attempts (id, campaign, round, attempt, data_hash, policy_hash, family) "
    "SELECT id, campaign, round, attempt, data_hash, policy_hash, data_hash FROM depsue_reads",
    "INSERT INTO depsue_outcomes (id, read_id, passed, certified, certificate, note) "
    "SELECT id, read_id, passed, certified, certificate, note FROM depsue_verdicts",
    "DROP TABLE depsue_verdicts",
    "DROP TABLE depsue_reads",
    "ALTER TABLE depsue_deployments ADD COLUMN declared TEXT NOT NULL DEFAULT '{}'",
)
_PINS = f"""CREATE TABLE depsue_pins ({_RECORD}, {_OF_A_ROUND.format(first=0)},
 hashes TEXT NOT NULL)"""
_REFUSE = """CREATE OR REPLACE FUNCTION depsue_append_only() RETURNS trigger LANGUAGE plpgsql AS
 $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"""


def _append_only(connection: sa.Connection, tables: list[str]) -> None:
    """Let the database refuse to change or delete a row, and, on SQLite, to replace one."""
    inspector = sa.inspect(connection)
    for name in tables:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(_REFUSE)
            connection.exec_driver_sql(
                f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} "
                "FOR EACH STATEMENT EXECUTE FUNCTION depsue_append_only()"
            )
            continue
        keys = [inspector.get_pk_constraint(name)["constrained_columns"]]
        keys += [unique["column_names"] for unique in inspector.get_unique_constraints(name)]
        same = " OR ".join(
            "(" + " AND ".join(f"{column} = NEW.{column}" for column in key) + ")" for key in keys
        )
        replaced = f"WHEN EXISTS (SELECT 1 FROM {name} WHERE {same})"
        for event, when in (("UPDATE", ""), ("DELETE", ""), ("INSERT", replaced)):
            connection.exec_driver_sql(
                f"CREATE TRIGGER {name}_{event.lower()} BEFORE {event} ON {name} {when} "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )


SCHEMA = Schema(
    versions=table("depsue_schema", "version at depsue"),
    migrations=(
        Migration(
            both=(
                _JOURNAL,
                _CAMPAIGNS,
                _OBSERVATIONS,
                _POLICIES,
                _READS,
                _VERDICTS,
                _DEPLOYMENTS,
            )
        ),
        # rows are registered, verdicts counted by family, rounds extended, lengths declared
        Migration(
            both=(
                _IDENTITY,
                _REGISTRATIONS,
                _SUPPLEMENTS,
                _FAMILIES,
                _ATTEMPTS,
                _OUTCOMES,
                *_KEPT_ATTEMPTS,
            ),
            sqlite=("INSERT INTO depsue_identity VALUES (1, lower(hex(randomblob(16))))",),
            postgresql=(
                "INSERT INTO depsue_identity VALUES "
                "(1, replace(CAST(gen_random_uuid() AS text), '-', ''))",
            ),
        ),
        # what a policy rests on is pinned: items, mapping, certificate
        Migration(both=(_PINS,)),
    ),
    finish=_append_only,
    absent="check the address, or create a campaign there first",
)
