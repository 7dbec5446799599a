"""What is kept of a decision and of a reward."""

from __future__ import annotations

import os
import time

import msgspec

from depsue.serving.messages import Arm, Decided


class Decision(msgspec.Struct):
    """One decision, as it is stored.

    Args:
        id: 32 hex digits; ids grow with time.
        at: when, in seconds since 1970.
        round, policy: what served.
        arm: who decided; why: the reason of a fallback, else "".
        action: the item's place in the catalogue, which stays the same for the whole campaign.
        propensity: the probability it was drawn with.
        p_policy, p_pi0: of the action under the deployed policy and under pi0.
        holdout: the share of traffic that stayed on pi0.
        context: the request's columns, as JSON.
        unit: as requested, as JSON; key: as requested.
        asked: a digest of the request, where it has a key.
        candidates: places, as JSON; None is all items.
    """

    id: str
    at: float
    round: int
    policy: str
    arm: Arm
    why: str
    action: int
    propensity: float
    p_policy: float
    p_pi0: float
    holdout: float
    context: str
    unit: str | None = None
    key: str | None = None
    asked: str | None = None
    candidates: str | None = None

    def reply(self, ids: list[int | str]) -> Decided:
        """What the requester is told."""
        return Decided(
            self.id, ids[self.action], self.propensity, self.policy, self.round, self.arm
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


def new_ids(count: int, now: float | None = None) -> list[str]:
    """Fresh ids: 48 bits of milliseconds, 80 bits of chance."""
    head = f"{int((time.time() if now is None else now) * 1000) & (2**48 - 1):012x}"
    noise = os.urandom(10 * count).hex()
    return [head + noise[20 * k : 20 * (k + 1)] for k in range(count)]
