"""Where a service keeps its things, among the files of its campaign."""

from __future__ import annotations

from depsue.campaigns import Campaign

STORE = "decisions.db"
SPOOL = "spool"
TRIPPED = "tripped.json"


def store_address(campaign: Campaign, store: str | None) -> str:
    """Where a campaign's decisions are: a file among its own, or another address."""
    return str(campaign.files.folder / STORE) if store is None else store
