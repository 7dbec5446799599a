"""The databases under the ledger and under the store of decisions: SQLite and PostgreSQL.

`engine` opens connections, waits for other writers and translates what drivers say; `migrations`
brings a schema to the newest version and refuses one that is newer.
"""

from depsue.database.engine import (
    ROLLBACK_JOURNAL,
    WRITE_AHEAD_LOG,
    Database,
    Profile,
    parse_address,
)
from depsue.database.migrations import Migration, Schema, migrate, schema_version, table

__all__ = [
    "ROLLBACK_JOURNAL",
    "WRITE_AHEAD_LOG",
    "Database",
    "Migration",
    "Profile",
    "Schema",
    "migrate",
    "parse_address",
    "schema_version",
    "table",
]
