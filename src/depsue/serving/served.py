"""What serves now: the newest deployment of the ledger, with its policy, pi0 and items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from depsue.campaigns import Campaign
from depsue.certificates import Certificate
from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import FloatArray
from depsue.data.mapping import LogMapping
from depsue.policies import BasePolicy
from depsue.serving.contexts import ContextReader

MOST_REMEMBERED = 1 << 23
"""Probabilities of recent contexts that are kept: 64 MiB."""


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """What serves; it never changes, another takes its place.

    Args:
        round: that deployed it; 0 before the first deployment.
        hash: of the policy.
        what: certified, certain or pi0.
        novelty: its nu.
        policy: over the places of `catalogue`.
        pi0: over the same.
        catalogue: the items.
        mapping: what a request's columns are.
        credits: margin per decision that its certificate spent, by promise.
    """

    round: int
    hash: str
    what: str
    novelty: float
    policy: BasePolicy
    pi0: BasePolicy
    catalogue: ActionCatalogue
    mapping: LogMapping
    credits: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_pi0(self) -> bool:
        """Whether pi0 is what was deployed, or nothing was yet."""
        return self.what == "pi0"

    @cached_property
    def reader(self) -> ContextReader:
        """Reads contexts."""
        return ContextReader(self.mapping)

    @cached_property
    def ids(self) -> list[Any]:
        """Of the items, by place."""
        return list(self.catalogue.ids.tolist())

    @cached_property
    def places(self) -> dict[Any, int]:
        """Of the items, by id."""
        return {id: place for place, id in enumerate(self.ids)}

    def distributions(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(m, A) of the policy and of pi0."""
        base = self.pi0.probabilities(contexts)
        return (base if self.is_pi0 else self.policy.probabilities(contexts)), base

    def remembered(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same; users come back, so the distributions of recent contexts are kept."""
        keys = [row.tobytes() for row in contexts]
        known = self._recent
        new = [k for k, key in enumerate(keys) if key not in known]
        if len(new) == len(keys) and len(keys) >= self._most_recent:
            return self.distributions(contexts)
        if new:
            own, base = self.distributions(contexts[new])
            for place, k in enumerate(new):
                known[keys[k]] = own[place], base[place]
        found = [known[key] for key in keys]
        while len(known) > self._most_recent:
            del known[next(iter(known))]
        return np.stack([one[0] for one in found]), np.stack([one[1] for one in found])

    @cached_property
    def _recent(self) -> dict[bytes, tuple[FloatArray, FloatArray]]:
        return {}

    @cached_property
    def _most_recent(self) -> int:
        return max(1, MOST_REMEMBERED // (2 * len(self.catalogue)))


def what_serves(campaign: Campaign) -> tuple[int, str]:
    """(round, hash) of what the ledger says serves now; cheap."""
    deployed = campaign.ledger.deployments(campaign.name)
    if not deployed:
        return 0, campaign.terms.pi0
    return deployed[-1].round, deployed[-1].policy_hash


def load_served(campaign: Campaign) -> ServedPolicy:
    """What serves now, its files checked against their hashes; a FileError if they are damaged."""
    k, hash = what_serves(campaign)
    at = max(k - 1, 0)
    catalogue = campaign.files.items(at)
    choice = campaign.choice_of(max(k, 1), hash)
    pi0 = campaign.pi0_today(at)
    if choice.what == "pi0":
        policy = pi0
    else:
        policy = campaign.widened(campaign.policy(max(k, 1), hash), catalogue)
    return ServedPolicy(
        round=k,
        hash=hash,
        what=choice.what,
        novelty=choice.novelty,
        policy=policy,
        pi0=pi0,
        catalogue=catalogue,
        mapping=campaign.files.mapping(at),
        credits=_credits(campaign, hash),
    )


def _credits(campaign: Campaign, hash: str) -> dict[str, float]:
    for one in reversed(campaign.ledger.attempts(campaign.name)):
        if one.certified == hash and one.certificate is not None:
            verdicts = Certificate.from_json(one.certificate).verdicts
            return {verdict.promise.name: verdict.credit for verdict in verdicts}
    return {}
