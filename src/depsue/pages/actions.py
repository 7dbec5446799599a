"""Stop and resume: what somebody is about to do to the policy, told before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from depsue.campaigns import Campaign
from depsue.errors import require, short
from depsue.pages.told import path_of
from depsue.serving.messages import MOST_TEXT
from depsue.serving.service import Service

Kind = Literal["stop", "resume"]
MEANS = {
    "stop": "From the next decision on, pi0 decides in place of the policy, also after a restart, "
    "until somebody resumes it. What was decided so far stays as it is.",
    "resume": "From the next decision on, the policy decides again. The monitor begins anew, with "
    "half the share of delta that it had: what stopped it does not count against the next epoch.",
}


@dataclass(frozen=True)
class ActionPage:
    """A stop, or a resumption, that somebody asks for.

    Args:
        kind: which.
        campaign, path: of what.
        means: what it does, in sentences.
        possible: whether it can be done now.
        state: how the monitor stands, in a sentence.
        reason, by: as given so far.
        sure: whether only the confirmation is missing.
        problem: what is wrong with what was given; "" if nothing is.
    """

    kind: Kind
    campaign: str
    path: str
    means: str
    possible: bool
    state: str
    reason: str = ""
    by: str = ""
    sure: bool = False
    problem: str = ""


def action_page(
    kind: Kind,
    campaign: Campaign,
    service: Service | None,
    given: Mapping[str, str],
    *,
    sure: bool = False,
    problem: str = "",
) -> ActionPage:
    """The page of an action.

    Args:
        kind: stop or resume.
        campaign: of which campaign.
        service: what serves it here; None if nothing does.
        given: reason and by, as far as they are given.
        sure: whether only the confirmation is missing.
        problem: what is wrong with them.
    """
    possible, state = False, "This campaign is not served here."
    if service is not None:
        stopped = service.stopped
        state = f"Stopped: {stopped}" if stopped else "The policy has not been stopped."
        possible = bool(stopped) == (kind == "resume")
    return ActionPage(
        kind,
        campaign.name,
        f"{path_of(campaign.name)}/{kind}",
        MEANS[kind],
        possible,
        state,
        given.get("reason", ""),
        given.get("by", ""),
        sure=sure and possible and not problem,
        problem=problem,
    )


def require_said(given: Mapping[str, str]) -> tuple[str, str]:
    """The reason and who gives it; refused if they say nothing."""
    reason, by = given.get("reason", "").strip(), given.get("by", "").strip()
    for text, rule in ((reason, "a reason is recorded"), (by, "it is recorded who does it")):
        ok = 0 < len(text) <= MOST_TEXT and text.isprintable()
        require(ok, f"{rule}: 1 to {MOST_TEXT} characters, in one line", found=short(text))
    return reason, by
