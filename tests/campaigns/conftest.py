"""The real PostgreSQL of the ledger's tests."""

from tests.ledger.conftest import postgres

__all__ = ["postgres"]
