"""What is fixed when a campaign is created, as the JSON that the ledger keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from depsue.errors import ConfigError, is_whole, require, require_settings, short
from depsue.exploration.settings import ExploreSettings
from depsue.promises import Promise
from depsue.rewards import RewardSettings


@dataclass(frozen=True)
class CampaignSettings:
    """What is fixed when a campaign is created.

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

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        explore = {one.name: getattr(self.explore, one.name) for one in fields(self.explore)}
        explore["promises"] = [one.to_dict() for one in self.explore.promises]
        explore["rewards"] = _plain(asdict(self.explore.rewards))
        explore["fractions"] = list(self.explore.fractions)
        return {"explore": explore, "seed": self.seed, "decisions": self.decisions}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], *, retries: bool) -> CampaignSettings:
        """The settings that `to_json` described."""
        try:
            explore = dict(found["explore"])
            explore["promises"] = tuple(Promise.from_dict(one) for one in explore["promises"])
            rewards = {name: _tupled(value) for name, value in explore["rewards"].items()}
            explore["rewards"] = RewardSettings(**rewards)
            explore["fractions"] = tuple(explore["fractions"])
            settings = ExploreSettings(**explore)
            return cls(settings, found["seed"], retries, found["decisions"])
        except (KeyError, TypeError, AttributeError) as problem:
            raise ConfigError(
                "a campaign's settings must be as this version of depsue writes them",
                found=f"{type(problem).__name__}: {short(str(problem))}",
                cure="go on with the version that created the campaign",
            ) from problem


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(x) if isinstance(x, tuple) else x for name, x in values.items()}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
