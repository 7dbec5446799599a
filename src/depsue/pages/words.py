"""The story in words: sentences, the guarantee, and the table of rounds, for every page alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from depsue.campaigns.records import CandidateTest
from depsue.campaigns.story import PromiseHistory, Story
from depsue.ledger import JournalEntry
from depsue.plural import counted, plural
from depsue.promises import Promise

ROUND_HEADINGS = (
    "round", "test", "novelty certified", "value certified", "served", "decisions",
    "novelty served", "mean reward", "floor", "margin",
)  # fmt: skip
AGAINST = {
    "above": "above the floor",
    "below": "below the floor",
    "unclear": "too close to tell",
    "not observed": "not observed",
}
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
"""What an entry of the journal says, by its kind."""
MOST_NAMED = 3
"""Items that are named where some arrived or were withdrawn, and rounds that are told apart."""


@dataclass(frozen=True)
class Sentences:
    """What every page of a campaign says.

    Args:
        headline: where the campaign stands.
        deployed: what is deployed, by the ledger; who decides now is for the service to say.
        outcomes: how the newest observed round came out, for each promise.
        changes: which items came and went; "" if none did.
        concerns: what a reader must not miss.
        promises: what was promised, delta and safety last.
        may_deploy: what may be deployed now, the best first.
        next: what to do now, a command.
    """

    headline: str
    deployed: str
    outcomes: tuple[str, ...]
    changes: str
    concerns: tuple[str, ...]
    promises: tuple[str, ...]
    may_deploy: tuple[str, ...]
    next: str

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """What stands below the headline."""
        return tuple(words for words in (self.deployed, *self.outcomes, self.changes) if words)


def sentences(story: Story) -> Sentences:
    """A story in sentences."""
    explore = story.settings
    per = "for each deployment" if explore.per == "deployment" else "for the whole campaign"
    safety = (
        "every deployment keeps the floor by itself"
        if explore.safety == "each"
        else "all deployments so far, together, keep the floor"
    )
    outcomes = (_outcome(history) for history in story.promises)
    return Sentences(
        headline=_headline(story),
        deployed=_deployed(story),
        outcomes=tuple(words for words in outcomes if words),
        changes=_item_changes(story),
        concerns=tuple(str(concern) for concern in story.concerns),
        promises=(
            *(_promise(promise) for promise in explore.promises),
            f"delta {explore.delta:g} {per}; {safety}",
        ),
        may_deploy=tuple(f"{choice.why} (--what {choice.what})" for choice in story.may_deploy),
        next=story.next,
    )


def percent(share: float) -> str:
    """A share in per cent, with what digits it needs."""
    return f"{100 * share:.4g}%"


def plus_minus(mean: float, error: float) -> str:
    """A mean and what it may be off by, with the digits that this leaves."""
    if error <= 0:
        return f"{mean:.4g}"
    digits = min(max(1 - math.floor(math.log10(error)), 0), 9)
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def or_dash(value: float | None, form: str = ",.4g") -> str:
    """A number, or a dash for none."""
    return "–" if value is None else format(value, form)


def utc(at: float, *, thousandths: bool = False) -> str:
    """A time as text, to the second, or to a thousandth of it."""
    text = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}"
    return text[:-3] if thousandths else text[:-7]


def at_round(story: Story) -> str:
    """The round, of how many."""
    return "over" if story.over else f"{story.round} of {story.rounds}"


@dataclass(frozen=True)
class Tile:
    """A figure on top of a page, and what it is of; `state` is the monitor's, for its colour."""

    label: str
    figure: str
    what: str
    state: str = ""


def tiles(story: Story) -> tuple[Tile, ...]:
    """The figures on top of every page: round, value, floor, margin and novelty."""
    figures = [Tile("round", at_round(story), plural(story.rounds, "deployment"))]
    margin = None
    if story.first is not None:
        first, last = story.first.outcomes[0], story.first.observed[-1]
        several = f", {story.first.promise.name}" if len(story.promises) > 1 else ""
        of = f"round {last.round}" if last.round else "of pi0, before"
        figures.append(Tile("mean reward", or_dash(last.mean, ".4g"), of + several))
        ratio = story.first.promise.floor.ratio
        of = "declared" if ratio is None else f"{percent(ratio)} of pi0's value"
        figures.append(Tile("floor", f"{first.need:.4g}", of))
        margin = story.first.margin
    of = "nothing observed yet" if margin is None else "above the floor, observed"
    figures.append(Tile("margin", or_dash(margin, "+,.0f"), of))
    novelty = 0.0 if story.deployed is None else story.deployed.novelty
    figures.append(Tile("novelty", f"{novelty:.1%}", "of decisions, by what is deployed"))
    return tuple(figures)


def promise_table(
    story: Story, history: PromiseHistory
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Headings and cells of one promise's table of rounds."""
    rows = []
    for past, outcome in zip(story.history, history.outcomes, strict=True):
        test = past.verdict or "–"
        if past.attempt is not None and past.attempt > 1:
            test += f" (attempt {past.attempt})"
        mean = "–"
        if outcome.mean is not None:
            mean = plus_minus(outcome.mean, 2 * (outcome.error or 0.0))
        certified = "–" if outcome.certified is None else f"≥ {outcome.certified:.4f}"
        rows.append((
            str(past.round),
            test,
            or_dash(past.certified, ".1%"),
            certified,
            past.served or "–",
            or_dash(outcome.rows or None, ",d"),
            or_dash(past.novelty, ".1%"),
            mean,
            f"{outcome.need:.4f}",
            or_dash(outcome.margin, "+,.1f"),
        ))  # fmt: skip
    return ROUND_HEADINGS, tuple(rows)


def journal_lines(story: Story) -> tuple[tuple[str, ...], ...]:
    """The journal, oldest first: when, who, round, what, of what."""
    return tuple(_journal_line(story, entry) for entry in story.journal)


def _journal_line(story: Story, entry: JournalEntry) -> tuple[str, ...]:
    what = DOING.get(entry.what, entry.what)
    key = (entry.what, entry.round, entry.detail)
    policies = [
        policy for policy in story.deployments if (policy.kind, policy.round, policy.policy) == key
    ]
    if policies:
        policy = policies[-1]
        what += " to" if policy.kind == "rollback" else ""
        what += " pi0" if policy.what == "pi0" else f" the {policy.what} policy"
        what += f", novelty {percent(policy.novelty)}" if policy.novelty > 0 else ""
    detail = entry.detail[:12] if len(entry.detail) == 64 else entry.detail
    if entry.what == "campaign":
        detail = counted(story.rounds, "round")
    round = "" if entry.round is None else str(entry.round)
    return f"{entry.at:%Y-%m-%d %H:%M:%S}", entry.by, round, what, detail


def _promise(promise: Promise) -> str:
    """What is promised, and of whom."""
    floor = promise.floor
    least = f"a mean reward of {floor}"
    if floor.ratio is not None:
        least = f"{percent(floor.ratio)} of what the current policy (pi0) earns"
    about = "" if promise.reward is None else f", in the column {promise.reward}"
    if promise.segment is not None:
        about += f", where {promise.segment[0]} is {promise.segment[1]}"
    return f"{promise.name}: at least {least}{about}"


def _headline(story: Story) -> str:
    """Where the campaign stands."""
    if not story.begun:
        return "The campaign was created; logs of the current policy (pi0) are not taken in yet."
    if story.over:
        k = story.rounds
        every = "its one deployment was" if k == 1 else f"all {k} deployments were"
        return f"The campaign is over: {every} served and observed."
    at = f"Round {story.round} of {story.rounds}"
    deployed = [policy for policy in story.deployments if policy.round == story.round]
    then = f"to start round {story.round + 1}"
    then = "to end the campaign" if story.round == story.rounds else then
    if deployed and deployed[-1].kind == "rollback":
        to = deployed[-1].made_in
        back = "the current policy (pi0)" if to is None else f"the policy of round {to}"
        return f"{at} was rolled back to {back}. Import what it logs {then}."
    if deployed:
        return f"{at} is deployed. Import what it logs {then}."
    tests = story.tests_of(story.round)
    if not tests:
        begun = "nothing is deployed yet" if story.round == 1 else "it has just begun"
        return f"{at}: {begun}."
    return f"{at}: {_state(tests[-1])}."


def _state(test: CandidateTest) -> str:
    if test.state == "passed" and test.certified is not None:
        return f"a candidate passed its test, with novelty {percent(test.certified.novelty)}"
    if test.state == "open" and test.begun_at is not None:
        began = f"{test.begun_by} began at {test.begun_at:%Y-%m-%d %H:%M}"
        return f"a test that {began} has no verdict yet"
    return {
        "failed": "the candidate's test failed, so it is not deployed",
        "abandoned": "the test was given up, which counts as failed",
    }.get(test.state, "a candidate is trained and not tested yet")


def _deployed(story: Story) -> str:
    """What is deployed: the ledger knows no more."""
    deployed = story.deployed
    if deployed is None:
        return "No policy is deployed yet: the current policy (pi0) goes on as before the campaign."
    since = f"since {deployed.at:%Y-%m-%d %H:%M} UTC, by {deployed.by}"
    how = ", after a rollback" if deployed.kind == "rollback" else ""
    if deployed.what == "pi0":
        return f"The current policy (pi0) is deployed{how} ({since}). It shows no new item."
    often = f"to show a new item in {percent(deployed.novelty)} of decisions"
    if deployed.what == "certain":
        evenly = ", evenly among those at hand" * deployed.even
        return (
            f"The current policy (pi0) with a few new items, of round {deployed.made_in}, is "
            f"deployed{how} ({since}). It is meant {often}{evenly}."
        )
    return (
        f"The certified policy of round {deployed.made_in} is deployed{how} ({since}). It is "
        f"certified {often}."
    )


def _outcome(history: PromiseHistory) -> str:
    """How the newest round that was observed came out; "" before there is one."""
    if len(history.observed) < 2:
        return ""
    first, last = history.observed[0], history.observed[-1]
    if last.mean is None or last.error is None or first.mean is None:
        return ""
    relative = f", {percent(round(last.mean / first.mean, 3))} of pi0's" if first.mean > 0 else ""
    together = ""
    if len(history.observed) > 2:
        together = f"; all {last.round} rounds together: {AGAINST[history.together]}"
    return (
        f"In round {last.round} the mean of {history.promise.name} was "
        f"{plus_minus(last.mean, 2 * last.error)}{relative}, against a floor of {last.need:.4g}: "
        f"{AGAINST[last.against]}{together}."
    )


def _item_changes(story: Story) -> str:
    """Which items came and went since the campaign began; "" if none did."""
    arrived = {past.round: past.arrived for past in story.history}
    withdrawn = {past.round: past.withdrawn for past in story.history}
    came, went = (sum(map(len, ids.values())) for ids in (arrived, withdrawn))
    lines = []
    if came:
        lines.append(f"{counted(came, 'new item')} arrived ({_after(arrived)})")
    if went:
        verb = plural(went, "was", "were")
        lines.append(f"{counted(went, 'item')} {verb} withdrawn ({_after(withdrawn)})")
    return f"Since the campaign began, {' and '.join(lines)}." if lines else ""


def _after(changes: Mapping[int, Sequence[str]]) -> str:
    """After which rounds, and which items where there is room to say so."""
    rounds = {k: ids for k, ids in changes.items() if ids}
    if len(rounds) > MOST_NAMED:
        return f"after {len(rounds)} of the rounds, the last time after round {max(rounds)}"
    return "; ".join(f"after round {k}: {_named(ids)}" for k, ids in rounds.items())


def _named(ids: Sequence[str]) -> str:
    named = [id if len(id) <= 40 else f"{id[:37]}..." for id in ids[:MOST_NAMED]]
    return ", ".join([*named, *(["..."] if len(ids) > MOST_NAMED else [])])


@dataclass(frozen=True)
class Guarantee:
    """What the guarantee says, what it does not, and what it rests on: (assumption, rounds)."""

    says: tuple[str, ...]
    says_not: tuple[str, ...]
    rests_on: tuple[tuple[str, str], ...]


def guarantee(story: Story) -> Guarantee:
    """The guarantee of a campaign's certificates, in sentences."""
    return Guarantee(tuple(_says(story)), tuple(_says_not(story)), tuple(_rests_on(story)))


def _says(story: Story) -> list[str]:
    explore = story.settings
    k, delta = story.rounds, percent(explore.delta)
    if explore.per == "campaign":
        each = "its one verdict" if k == 1 else f"each of up to {k} verdicts"
        rate = (
            f"Over the whole campaign, the procedure errs at most {delta} of the time: {each} is "
            f"tested at {percent(explore.delta_of_deployment)}."
        )
    else:
        most = percent(min(k * explore.delta, 1.0))
        rate = f"For each deployment, the procedure errs at most {delta} of the time"
        rate += f"; over {k} deployments at most {most}." if k > 1 else "."
    what = (
        "The promise: every certified deployment by itself is worth at least the floor."
        if explore.safety == "each"
        else "The promise: all deployments so far, taken together, are worth at least the floor. A "
        "later one may lie below it, by what earlier ones earned above."
    )
    again = (
        f"Further attempts were declared: the j-th on the same rows is tested at "
        f"{percent(explore.delta_of_deployment)} x 2^-j."
        if story.retries
        else "A test that failed cannot be repeated on the same rows until it passes."
    )
    reads = sum(test.attempt is not None for test in story.tests)
    lines = [
        what,
        f"{rate} To err is to pass a policy that breaks it.",
        "Until a new item has been shown, it counts as worth nothing; so the promise does not "
        "depend on what unseen items are worth.",
        f"Rows that certify are kept from learning until one verdict has read them. {again} "
        f"Counted in this campaign: {counted(reads, 'read')}.",
    ]
    if any(past.read is not None for past in story.history):
        lines.append(
            "Rewards of finished rounds are means over learn and select rows, which no coming "
            "verdict reads."
        )
    if len(explore.promises) > 1:
        lines.append("All promises must pass, each at the full delta.")
    if explore.certain > 0:
        lines.append(
            f"New items in {percent(explore.certain)} of decisions beside pi0 need no certificate: "
            "the rest of the decisions keeps the floor by itself, as rewards are not negative."
        )
    if explore.units == "first row":
        lines.append(
            "All of this is about the first row of each unit in a round. It says nothing about "
            "later ones."
        )
    if explore.units == "all rows":
        lines.append(
            "Where units have several rows, all of this rests on their number not depending on "
            "what a unit was shown. Every round tests that before a candidate is trained."
        )
    return lines


def _says_not(story: Story) -> list[str]:
    explore = story.settings
    right = percent(1 - explore.delta)
    lines = [
        f"That a policy which passed is safe with probability {right}. Its value is above the "
        f"floor or not; it is the procedure that is right at least {right} of the time.",
        "That a policy which failed is unsafe: the rows may have been too few to tell.",
        "Anything about anticipated values, which come from a model, or about single items, users "
        "and groups that no promise names.",
        "Anything at all if what it rests on does not hold: see below.",
    ]
    if any(promise.floor.ratio is None or promise.floor.ratio > 1 for promise in explore.promises):
        lines.append(
            "That pi0 itself keeps a floor which is not a share of its own value, or is more than "
            "all of it: falling back to pi0 may break the promise."
        )
    return lines


def _rests_on(story: Story) -> list[tuple[str, str]]:
    """Every assumption of the certificates, and of which rounds."""
    rounds: dict[str, list[int]] = {}
    for test in story.tests:
        for assumption in () if test.certificate is None else test.certificate.assumptions:
            of = rounds.setdefault(assumption, [])
            if test.round not in of:
                of.append(test.round)
    return [
        (assumption, f"{plural(len(of), 'round')} {', '.join(str(k) for k in of)}")
        for assumption, of in rounds.items()
    ]
