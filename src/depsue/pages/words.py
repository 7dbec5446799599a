"""What the page says in sentences: where the campaign stands, what was promised, what was not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from depsue.campaigns.records import CandidateFacts, RoundSummary
from depsue.ledger import JournalEntry
from depsue.pages.story import Kept, Story, Tried
from depsue.plural import counted, plural
from depsue.promises import Promise

DOING = {
    "campaign": "created the campaign",
    "observation": "took in the logs",
    "policy": "trained a candidate",
    "read": "began the test: a read of certifying rows, counted",
    "read continued": "continued the test that was begun",
    "verdict": "the verdict was written",
    "deploy": "deployed",
    "rollback": "rolled back",
}
MOST_NAMED = 3
"""Items that are named where some arrived or were withdrawn, and rounds that are told apart."""


def percent(share: float) -> str:
    """A share in per cent, with what digits it needs."""
    return f"{100 * share:.4g}%"


def plus_minus(mean: float, error: float) -> str:
    """A mean and what it may be off by, with the digits that this leaves."""
    if error <= 0:
        return f"{mean:.4g}"
    digits = min(max(1 - math.floor(math.log10(error)), 0), 9)
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def promise_words(promise: Promise) -> str:
    """What is promised, and of whom."""
    floor = promise.floor
    least = f"a mean reward of {floor}"
    if floor.ratio is not None:
        least = f"{percent(floor.ratio)} of what pi0 earns"
    about = "" if promise.reward is None else f", in the column {promise.reward}"
    if promise.segment is not None:
        about += f", where {promise.segment[0]} is {promise.segment[1]}"
    return f"{promise.name}: at least {least}{about}"


def headline(story: Story) -> str:
    """Where the campaign stands, in a sentence."""
    status = story.status
    if not story.observations:
        return "The campaign was created, but the logs of pi0 are not taken in yet."
    if story.over:
        k = status.rounds
        every = "its one deployment was" if k == 1 else f"all {k} deployments were"
        return f"The campaign is over: {every} served and observed."
    at = f"Round {status.round} of {status.rounds}"
    mine = [one for one in story.tried if one.round == status.round]
    served = [one for one in story.deployments if one.round == status.round]
    if served and served[-1].kind == "rollback":
        return f"{at}: rolled back; what serves now is still to be observed."
    if served:
        return f"{at}: deployed; what it logs is still to be observed."
    if not mine:
        begun = "nothing has changed for users yet" if status.round == 1 else "it has just begun"
        return f"{at}: {begun}."
    return f"{at}: {_tested(mine[-1])}."


def _tested(tried: Tried) -> str:
    state = tried.state
    if state == "passed" and tried.certified is not None:
        return f"a candidate passed its test, with novelty {percent(tried.certified[0])}"
    attempt = tried.attempt
    if state == "open" and attempt is not None:
        return f"a test that {attempt.by} began at {attempt.at:%Y-%m-%d %H:%M} has no verdict yet"
    return {
        "failed": "the candidate's test failed, so it is not deployed",
        "abandoned": "the test was given up, which counts as failed",
    }.get(state, "a candidate is trained and not tested yet")


def serving_words(story: Story) -> str:
    """What serves now, in a sentence."""
    newest = story.serving
    if newest is None:
        return "pi0 serves, the policy from before the campaign: it shows no new item."
    since = f"since {newest.at:%Y-%m-%d %H:%M} UTC, by {newest.by}"
    what = story.campaign.choice_of(newest.round, newest.policy_hash)
    how = ", after a rollback" if newest.kind == "rollback" else ""
    if what.what == "pi0":
        return f"pi0 serves{how}, the policy from before the campaign: no new item ({since})."
    often = f"shows a new item in {percent(what.novelty)} of decisions"
    if what.what == "certain":
        return f"pi0 serves with a few new items beside it{how}: it {often} ({since})."
    made = [one.round for one in story.tried if _is(one, newest.policy_hash)]
    of = f" of round {made[-1]}" if made else ""
    return f"The certified policy{of} serves{how}: it {often} ({since})."


def _is(tried: Tried, hash: str) -> bool:
    return tried.attempt is not None and tried.attempt.certified == hash


def outcome(kept: Kept) -> str:
    """How the newest round that was observed came out, in a sentence; "" before there is one."""
    if len(kept.observed) < 2:
        return ""
    first, last = kept.observed[0], kept.observed[-1]
    if last.mean is None or last.error is None or first.mean is None:
        return ""
    several = len(kept.observed) > 2
    together = f"; all {last.round} rounds together: {kept.together}" if several else ""
    relative = f", {percent(round(last.mean / first.mean, 3))} of pi0's" if first.mean > 0 else ""
    return (
        f"In round {last.round} the mean of {kept.promise.name} was "
        f"{plus_minus(last.mean, 2 * last.error)}{relative}, against a floor of {last.need:.4g}: "
        f"{last.apart}{together}."
    )


def item_changes(story: Story) -> str:
    """Which items came and went since the campaign began, in a sentence; "" if none did."""
    arrived: dict[int, list[str]] = {}
    gone: dict[int, list[str]] = {}
    before: set[str] = set()
    summaries = [RoundSummary.of(one) for one in story.observations]
    last = set(summaries[-1].withdrawn) if summaries else set()
    for k, summary in enumerate(summaries):
        arrived[k] = list(summary.arrived)
        gone[k] = [id for id in summary.withdrawn if id in last and id not in before]
        before.update(gone[k])
    came, went = (sum(len(ids) for ids in found.values()) for found in (arrived, gone))
    said = []
    if came:
        said.append(f"{counted(came, 'new item')} arrived ({_after(arrived)})")
    if went:
        verb = plural(went, "was", "were")
        said.append(f"{counted(went, 'item')} {verb} withdrawn ({_after(gone)})")
    return f"Since the campaign began, {' and '.join(said)}." if said else ""


def _after(changes: Mapping[int, Sequence[str]]) -> str:
    """After which rounds, and which items where there is room to say so."""
    told = {k: ids for k, ids in changes.items() if ids}
    if len(told) > MOST_NAMED:
        return f"after {len(told)} of the rounds, the last time after round {max(told)}"
    return "; ".join(f"after round {k}: {_some(ids)}" for k, ids in told.items())


def _some(ids: Sequence[str]) -> str:
    named = [id if len(id) <= 40 else f"{id[:37]}..." for id in ids[:MOST_NAMED]]
    return ", ".join([*named, *(["..."] if len(ids) > MOST_NAMED else [])])


def concerns(story: Story) -> list[str]:
    """What a reader must not miss."""
    found = []
    each = story.campaign.settings.explore.safety == "each"
    for kept in story.kept:
        if not each and kept.together == "below the floor":
            found.append(
                f"{kept.promise.name}: all deployments together lie below the floor by more than "
                "two standard errors."
            )
        below = [str(one.round) for one in kept.observed[1:] if one.apart == "below the floor"]
        if each and below:
            found.append(
                f"{kept.promise.name}: the mean reward of round {', '.join(below)} lies below the "
                "floor by more than two standard errors."
            )
    for one in story.tried:
        if one.certificate is not None and one.certificate.kind == "paper":
            found.append(f"Round {one.round} has a certificate as published, which has gaps.")
        if _refuted(story, one):
            found.append(
                f"Before round {one.round}, pi0's value was found to have changed, although it was "
                "declared not to: from then on rows are paired with pi0, and earlier certificates "
                "that rest on the declaration are in doubt."
            )
            break
    newest = story.serving
    if newest is None or newest.kind == "deploy":
        return found
    what = story.campaign.choice_of(newest.round, newest.policy_hash).what
    if what == "certified" and story.campaign.settings.explore.safety == "cumulative":
        found.append(
            "What serves was certified in an earlier round, with the margin of that time; nothing "
            "certifies anew that all deployments together stay above the floor."
        )
    return found


def _refuted(story: Story, tried: Tried) -> bool:
    explore = story.campaign.settings.explore
    relative = any(one.floor.ratio is not None for one in explore.promises)
    paired = not CandidateFacts.of(tried.candidate).ceilings
    return explore.no_drift and relative and tried.round > 1 and paired


def journal_cells(story: Story, entry: JournalEntry) -> list[str]:
    """A line of the journal: when, who, round, what."""
    what = DOING.get(entry.what, entry.what)
    if entry.what in ("deploy", "rollback") and entry.round is not None:
        chosen = story.campaign.choice_of(entry.round, entry.detail)
        named = "pi0" if chosen.what == "pi0" else f"the {chosen.what} policy"
        what += f"{' to' if entry.what == 'rollback' else ''} {named}"
        what += f", novelty {percent(chosen.novelty)}" if chosen.novelty > 0 else ""
    detail = entry.detail[:12] if len(entry.detail) == 64 else entry.detail
    if entry.what == "campaign":
        detail = counted(story.status.rounds, "round")
    when = f"{entry.at:%Y-%m-%d %H:%M:%S}"
    return [when, entry.by, "" if entry.round is None else str(entry.round), what, detail]
