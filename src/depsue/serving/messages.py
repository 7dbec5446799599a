"""What is asked and answered, as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MOST_TEXT = 200
MOST_BATCH = 1000
MOST_COLUMNS = 2000
MOST_CANDIDATES = 100_000

SHOWN = "\x1f shown by the caller"
"""Ends the stored keys of decisions that callers made themselves."""
NO_NUL = r"^[^\x00]*$"  # which PostgreSQL does not store
Text = Annotated[str, Meta(min_length=1, max_length=MOST_TEXT, pattern=NO_NUL)]
_Name = Annotated[str, Meta(min_length=1, max_length=MOST_TEXT, pattern=NO_NUL)]
Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | _Name
Probability = Annotated[float, Meta(ge=0, le=1)]
Value = bool | int | float | Annotated[str, Meta(max_length=10_000)] | None
DecidedBy = Literal["policy", "holdout", "pi0"]


class Decide(msgspec.Struct, forbid_unknown_fields=True):
    """A decision that is wanted.

    Args:
        context: the columns of the campaign's mapping by name: contexts, and segments.
        candidates: ids of the items to choose among; None is all.
        unit: the user, where logs have units.
        key: a request repeated with its key gets the same decision.
        probabilities: pi0's, of the candidates in their order.
        chosen: the id of the item that pi0 itself chose for this request.
        chosen_probability: with which probability pi0 chose it.
        version: of pi0, as the logs name it.
        shown: the caller got no answer in time and has shown `chosen`: nothing is drawn, it counts
            as pi0's decision, and what was decided for this key counts as not shown.
    """

    context: Annotated[dict[str, Value], Meta(max_length=MOST_COLUMNS)] = {}
    candidates: Annotated[list[Id], Meta(min_length=1, max_length=MOST_CANDIDATES)] | None = None
    unit: Id | None = None
    key: Text | None = None
    probabilities: Annotated[list[Probability], Meta(max_length=MOST_CANDIDATES)] | None = None
    chosen: Id | None = None
    chosen_probability: Annotated[float, Meta(gt=0, le=1)] | None = None
    version: Text | None = None
    shown: bool = False

    @property
    def name(self) -> str | None:
        """By what the decision is known: the key, or the key and that the caller decided."""
        return f"{self.key}{SHOWN}" if self.shown and self.key is not None else self.key


class DecideBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several at once; all of them are decided, or none."""

    decisions: Annotated[list[Decide], Meta(min_length=1, max_length=MOST_BATCH)]


class DecisionReply(msgspec.Struct):
    """A decision, as `depsue.client.Decided` describes it field by field."""

    decision: str
    action: int | str
    propensity: float
    policy: str
    round: int
    decided_by: DecidedBy


class DecisionReplyBatch(msgspec.Struct):
    """In the order of the requests."""

    decisions: list[DecisionReply]


class RewardReport(msgspec.Struct, forbid_unknown_fields=True):
    """What a decision earned.

    Args:
        decision: its id.
        reward: in the units of the logs' column.
        name: another reward column of the mapping; None is the reward.
        event: tells several rewards of one decision apart; the same one twice counts once.
        action: the id of the item that was really shown; another than was decided is reported.
    """

    decision: Annotated[str, Meta(pattern="^[0-9a-f]{32}$", max_length=32)]
    reward: float
    name: Text | None = None
    event: Annotated[str, Meta(max_length=MOST_TEXT, pattern=NO_NUL)] | None = None
    action: Id | None = None


class RewardBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several at once."""

    rewards: Annotated[list[RewardReport], Meta(min_length=1, max_length=MOST_BATCH)]


class Accepted(msgspec.Struct):
    """How many rewards are on disk now; those known before are among them."""

    accepted: int


class Refusal(msgspec.Struct):
    """Why a request was refused: the rule, the value, the cure."""

    error: str
    found: str = ""
    cure: str = ""


class Intervention(msgspec.Struct, forbid_unknown_fields=True):
    """A person stops the policy.

    Args:
        reason: in words, for the record.
        by: who.
    """

    reason: Text
    by: Text = "admin"


class Resumption(msgspec.Struct, forbid_unknown_fields=True):
    """A person resumes the policy.

    Args:
        reason: in words, for the record.
        by: who.
        stops: ids of the stops that the person saw; the policy stays stopped by any other.
    """

    reason: Text
    by: Text = "admin"
    stops: Annotated[list[Text], Meta(max_length=MOST_BATCH)] = []


class NewShare(msgspec.Struct, forbid_unknown_fields=True):
    """A person puts another share of traffic on the policy.

    Args:
        share: on the policy; the rest is the holdout, on pi0. 0 makes a shadow of the policy.
        reason: in words, for the record.
        by: who.
    """

    share: Annotated[float, Meta(ge=0, le=1)]
    reason: Text
    by: Text = "admin"
