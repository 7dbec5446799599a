"""The real PostgreSQL of the database's tests."""

from tests.database.conftest import postgres

__all__ = ["postgres"]
