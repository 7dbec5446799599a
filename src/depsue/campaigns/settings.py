"""What is fixed when a campaign is created, and stays fixed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from depsue import codec
from depsue.errors import is_whole, require, require_settings, short
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import CampaignRecord
from depsue.promises import upgraded_promise


@dataclass(frozen=True)
class CampaignSettings:
    """What a team decides when it creates a campaign.

    Args:
        explore: promises, delta, objective, and how policies are learned; its `deployments` is K.
        seed: of all training.
        retries: whether a failed certificate may be followed by another attempt on the same rows,
            attempt j at delta 2^-j; without them there is one attempt for each set of rows.
        decisions: about how many decisions each deployment serves; None takes as many as the
            newest logs have. Only `safety="cumulative"` uses it, to spend margin.
    """

    explore: ExploreSettings = ExploreSettings()
    seed: int = 0
    retries: bool = False
    decisions: int | None = None

    def __post_init__(self) -> None:
        require_settings(self.explore, ExploreSettings)
        ok = is_whole(self.seed) and 0 <= self.seed < 2**63
        require(ok, "the seed must be a whole number >= 0", found=short(self.seed))
        ok = self.decisions is None or (is_whole(self.decisions) and self.decisions >= 1)
        require(ok, "decisions must be a whole number >= 1", found=short(self.decisions))


@dataclass(frozen=True)
class CampaignTerms:
    """What the ledger keeps of a campaign's beginning.

    Args:
        campaign: what the team decided.
        pi0: SHA-256 of the logging policy.
        catalogue: SHA-256 of the first catalogue.
    """

    campaign: CampaignSettings
    pi0: str
    catalogue: str

    @classmethod
    def of(cls, record: CampaignRecord) -> CampaignTerms:
        """The terms that a ledger recorded, in this version or an earlier one."""

        def upgraded(values: Any) -> Any:
            """From version 0.1: promises were flat, and retries a column of the ledger alone."""
            campaign = {"retries": record.retries, **values["campaign"]}
            promises = [upgraded_promise(promise) for promise in campaign["explore"]["promises"]]
            campaign["explore"] = {**campaign["explore"], "promises": promises}
            if "reserve" not in campaign["explore"] and campaign["explore"].get("no_drift"):
                campaign["explore"]["reserve"] = 0.0  # begun before rows were reserved
            return {**values, "campaign": campaign}

        what = f"the settings of campaign {record.name!r}"
        return codec.typed(dict(record.settings), cls, what=what, upgrade=upgraded)

    def require_same(self, other: CampaignTerms, name: str) -> None:
        """Refuse other terms than a campaign was created with, and name the first that differs."""
        for key, mine, others in _differences(self, other):
            require(
                False,
                "what is fixed when a campaign is created stays fixed",
                found=f"{key} {short(others)}, while {name!r} has {short(mine)}",
                cure="go on with it as it was created, or give the new one another name",
            )


def _differences(mine: Any, others: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, other value) of each setting that differs, nested settings first."""
    for part in fields(mine):
        value, other = getattr(mine, part.name), getattr(others, part.name)
        if isinstance(value, CampaignSettings | ExploreSettings):
            yield from _differences(value, other)
        elif value != other:
            yield part.name, value, other
