"""The books are closed: what clients were told is held against the store and against the export.

Every rule is a function that yields a sentence for each break. A rule states what the service
promises, so an empty list is what a user may rely on.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, Mask
from depsue.data.requests import Requests
from depsue.serving.brought import unpacked
from depsue.serving.served import ServedPolicy
from depsue_research.soak.book import (
    Acknowledged,
    Ask,
    Books,
    Fault,
    Health,
    Intervened,
    NotAnswered,
    RewardSent,
)

LEVEL = 1e-6
"""How often a test of chance may refuse a service that draws as it says."""
NOTICE = 1.0
"""Seconds within which a service notices that its store was cut off."""
HEARD = 5.0
"""Seconds within which another service on the same store hears of a stop, all being well."""
WELL = 25.0
"""Seconds after a fault within which a service reaches its store and empties its journal."""
EXAMPLES = 3
EXPECTED = (0, 429, 503)
"""Statuses that a client must live with: no answer, too many, not now."""


@dataclass(frozen=True)
class Kept:
    """What is there when everything is up again.

    Args:
        decisions, rewards: the rows of the store's two tables, by column.
        exported: the rows of the exported logs, by column.
        served: what served, for the probabilities that it must have drawn with.
        holdout: the share of traffic that stays on pi0.
        wait: seconds in which rewards count.
        combine: the rule for several rewards.
    """

    decisions: list[dict[str, Any]]
    rewards: list[dict[str, Any]]
    exported: list[dict[str, Any]]
    served: ServedPolicy
    holdout: float
    wait: float
    combine: str


@dataclass(frozen=True)
class Break:
    """A rule that did not hold.

    Args:
        rule: in words.
        count: how often.
        examples: the first of them.
    """

    rule: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"not so {self.count:,} times: {self.rule}",
                *(f"    {text}" for text in self.examples),
            ]
        )


class Closing:
    """The books of one part, with what they are held against.

    Args:
        books: of all actors.
        kept: store and export.
    """

    def __init__(self, books: Books, kept: Kept) -> None:
        self.books, self.kept = books, kept
        self.asks = {ask.request: ask for ask in books.of(Ask)}
        self.answers = books.of(Acknowledged)
        self.rows = {row["id"]: row for row in kept.decisions}
        self.first: dict[str, Acknowledged] = {}
        """The first answer with each decision."""
        for answer in sorted(self.answers, key=lambda answer: answer.ended):
            self.first.setdefault(answer.decision, answer)
        self.outages = [books.outages(k, NOTICE) for k in range(books.services)]
        self._unkeyed = {_text(ask.context): ask for ask in self.asks.values() if not ask.keyed}

    def breaks(self) -> list[Break]:
        """The rules that did not hold."""
        found = []
        for rule, check in RULES.items():
            examples = list(check(self))
            if examples:
                found.append(Break(rule, len(examples), tuple(examples[:EXAMPLES])))
        return found

    @property
    def twins(self) -> list[dict[str, Any]]:
        """Rows that are marked as twins."""
        return [row for row in self.kept.decisions if row.get("twin")]

    def in_outage(self, answer: Acknowledged) -> bool:
        """Whether the store may have been out of reach while this was answered."""
        return any(
            outage.began <= answer.ended and answer.began <= outage.ended
            for outage in self.outages[answer.service]
        )

    def ask_of(self, row: Mapping[str, Any]) -> Ask | None:
        """The request that a row belongs to; without a key, by its context."""
        ask = self.asks.get(row["key"]) if row["key"] is not None else None
        return ask or self._unkeyed.get(_text(json.loads(row["context"])))


def _stored(books: Closing) -> Iterator[str]:
    ids = books.kept.served.ids
    lost = [answer for id, answer in books.first.items() if id not in books.rows]
    for answer in sorted(lost, key=books.in_outage):  # the worst first
        when = "in an outage" if books.in_outage(answer) else "with the store at hand"
        yield f"{answer.decision} of {answer.request}, answered {when} by service {answer.service}"
    if len(books.rows) != len(books.kept.decisions):
        yield "an id is in the store twice"
    for answer in books.answers:
        row = books.rows.get(answer.decision)
        if row is None:
            continue
        ask = books.asks[answer.request]
        pairs = {
            "item": (answer.action, ids[row["action"]]),
            **{
                name: (getattr(answer, name), row[name])
                for name in ("propensity", "policy", "round", "decided_by")
            },
            **({"key": (answer.request, row["key"])} if ask.keyed else {}),
            "context": (ask.context, json.loads(row["context"])),
        }
        for name, (told, there) in pairs.items():
            if told != there:
                yield f"{answer.decision}: {name} answered {told}, stored {there}"


def _one_per_key(books: Closing) -> Iterator[str]:
    by_key = defaultdict(list)
    for row in books.kept.decisions:
        if row["key"] is not None and not row.get("twin"):
            by_key[row["key"]].append(row["id"])
    yield from (f"{key}: {', '.join(ids)}" for key, ids in by_key.items() if len(ids) > 1)
    for row in books.twins:
        if row["key"] not in by_key:
            yield f"{row['id']} is a twin, and {row['key']} has no first decision"


def _equal(books: Closing) -> Iterator[str]:
    """Answers that differ are of an outage; while the store answers, nobody gets a twin."""
    ids: dict[str, dict[str, Acknowledged]] = defaultdict(dict)
    for id, answer in books.first.items():
        if books.asks[answer.request].keyed:
            ids[answer.request][id] = answer
    for request, firsts in ids.items():
        if len(firsts) > 1 and not any(map(books.in_outage, firsts.values())):
            yield f"{request} was answered {' and '.join(firsts)}, and the store was at hand"
    for answer in books.answers:
        row = books.rows.get(answer.decision)
        if row is not None and row.get("twin") and not books.in_outage(answer):
            yield f"{answer.request} was answered with the twin {answer.decision}"


def _journal_known(books: Closing) -> Iterator[str]:
    """What a service put into its journal it knows, also after a restart, while it is there.

    What went into the journal is told by its reason. A stop is another reason for pi0: then the
    first decision may be in the store, which a service that was killed cannot ask. But in one life
    it remembers either.
    """
    faults = books.books.of(Fault)
    for service, outages in enumerate(books.outages):
        kills = [each.began for each in faults if each.kind == "killed" and each.service == service]
        for outage in outages:
            journalled, in_life = defaultdict(set), defaultdict(set)
            for id, answer in books.first.items():
                asked = books.asks[answer.request]
                within = outage.began < asked.at and answer.ended < outage.ended
                if not within or not asked.keyed or answer.sent_to != [service]:
                    continue
                if "store of decisions is gone" in books.rows.get(id, {}).get("why", ""):
                    journalled[answer.request].add(id)
                if not any(asked.at <= at <= answer.ended for at in kills):
                    in_life[answer.request].add(id)
            for request in journalled.keys() | in_life.keys():
                both = max(journalled[request], in_life[request], key=len)
                if len(both) > 1:
                    yield f"{request} was answered {' and '.join(sorted(both))} in one outage"


def _asked_for(books: Closing) -> Iterator[str]:
    seen: set[str] = set()
    for row in books.kept.decisions:
        ask = books.ask_of(row)
        if ask is None and row["id"] not in books.first:
            yield f"{row['id']} has key {row['key']} and context {row['context']}"
        elif ask is not None and not ask.keyed:
            if ask.request in seen:
                yield f"{ask.request} was sent once, without a key, and decided twice"
            seen.add(ask.request)


def _sent(books: Closing) -> dict[tuple[str, str], list[RewardSent]]:
    """Rewards by (decision, event) as the store tells them apart, in the order of sending."""
    by_event = defaultdict(list)
    for reward in sorted(books.books.of(RewardSent), key=lambda reward: reward.began):
        event = "" if books.kept.combine == "first" else reward.event
        by_event[reward.decision, event].append(reward)
    return by_event


def _may_stay(sent: Sequence[RewardSent]) -> list[RewardSent]:
    """Those that may be the first: none that was sent after another had been acknowledged."""
    known = min((reward.ended for reward in sent if reward.acknowledged), default=math.inf)
    return [reward for reward in sent if reward.began <= known]


def _rewards_stored(books: Closing) -> Iterator[str]:
    stored = defaultdict(list)
    for row in books.kept.rewards:
        stored[row["decision"], row["event"]].append(row["value"])
    sent = _sent(books)
    for key, values in stored.items():
        if len(values) > 1:
            yield f"{key} has {len(values)} rewards"
        if key not in sent:
            yield f"{key} has a reward that nobody sent"
    for key, rewards in sent.items():
        acknowledged = [reward for reward in rewards if reward.acknowledged]
        if acknowledged and key not in stored:
            yield f"{key}: {acknowledged[0].value:g} was acknowledged, and nothing is stored"
        allowed = {reward.value for reward in _may_stay(rewards)}
        if key in stored and stored[key][0] not in allowed:
            first = acknowledged[0].value if acknowledged else None
            yield f"{key}: {stored[key][0]:g} is stored, {first} was acknowledged first"


def _exported(books: Closing) -> Iterator[str]:
    kept = books.kept
    rows = {row["decision"]: row for row in kept.exported}
    if len(rows) != len(kept.exported):
        yield "a decision is in the export twice"
    expected = {
        id: answer
        for id, answer in books.first.items()
        if answer.decided_by in ("policy", "holdout")
        and books.asks[answer.request].candidates is None
        and not books.rows.get(id, {}).get("twin")
    }
    sent: dict[str, dict[str, list[RewardSent]]] = defaultdict(dict)
    for (decision, event), rewards in _sent(books).items():
        sent[decision][event] = rewards
    for id, answer in expected.items():
        row = rows.get(id)
        if row is None:
            yield f"{id} of {answer.request} is missing"
            continue
        ask = books.asks[answer.request]
        told: dict[str, Any] = {"action": answer.action, **ask.context}
        stored = books.rows.get(id)
        if stored is not None:  # the policy and its holdout are exported as one mixture
            h = stored["holdout"]
            drawn = (1 - h) * stored["p_policy"] + h * stored["p_pi0"]
            if not math.isclose(row["propensity"], drawn, rel_tol=1e-12):
                yield f"{id}: drawn with {drawn}, exported {row['propensity']}"
        for name, value in told.items():
            if row[name] != value:
                yield f"{id}: {name} answered {value}, exported {row[name]}"
        allowed = _possible(sent.get(id, {}), ask, answer, kept)
        if not any(math.isclose(row["reward"], value, abs_tol=1e-9) for value in allowed):
            yield f"{id}: reward {row['reward']:g} exported, sent were {sorted(allowed)}"
    for id in rows.keys() - expected.keys():
        known = books.rows.get(id)
        if known is None or books.ask_of(known) is None or id in books.first or known.get("twin"):
            yield f"{id} is exported, and nobody was answered it as the policy's"


def _possible(
    sent: Mapping[str, Sequence[RewardSent]], ask: Ask, answer: Acknowledged, kept: Kept
) -> set[float]:
    """What a decision may have earned, by the client's book: times are known within limits only."""
    options: list[set[float | None]] = []
    for rewards in sent.values():
        acknowledged = any(reward.acknowledged for reward in rewards)
        values: set[float | None] = set() if acknowledged else {None}
        for reward in _may_stay(rewards):
            if reward.began - answer.ended <= kept.wait:  # perhaps in time
                values.add(reward.value)
            if not reward.acknowledged or reward.ended - ask.at > kept.wait:  # perhaps too late
                values.add(None)
        options.append(values)
    possible = set()
    for choice in itertools.product(*options):
        values_in_time = [value for value in choice if value is not None]
        combined = sum(values_in_time) if kept.combine == "sum" else max(values_in_time, default=0)
        possible.add(float(combined))
    return possible


def _stops_hold(books: Closing) -> Iterator[str]:
    """After a stop is acknowledged the policy decides nothing new until somebody asks to resume."""
    wells = [
        sorted(h.began for h in books.books.of(Health) if h.service == k and h.well)
        for k in range(books.books.services)
    ]
    for began, until, by in _stopped(books.books.of(Intervened)):
        recorded = next((at for at in wells[by] if at > began + NOTICE), math.inf)
        holds = [
            began if k == by else next((at for at in wells[k] if at > recorded + HEARD), math.inf)
            for k in range(books.books.services)
        ]
        for id, answer in books.first.items():
            new = books.asks[answer.request].at > max(holds[k] for k in answer.sent_to)
            if new and answer.ended < until and answer.decided_by != "pi0":
                after = answer.ended - began
                yield (
                    f"{id} by the {answer.decided_by}, of services {answer.sent_to}, "
                    f"{after:.1f} s after service {by} acknowledged a stop"
                )


def _stopped(interventions: Iterable[Intervened]) -> Iterator[tuple[float, float, int]]:
    """(acknowledged, until, by whom) of each stop; `until` is when a resumption named it."""
    each = sorted(interventions, key=lambda each: each.began)
    for stop in each:
        if stop.kind == "stop" and stop.acknowledged:
            named = (
                resume.began
                for resume in each
                if resume.kind == "resume" and set(stop.stops) & set(resume.stops)
            )
            yield stop.ended, next(named, math.inf), stop.service


def _drawn(books: Closing) -> tuple[list[dict[str, Any]], FloatArray]:
    """(rows, (n, A) the probabilities that each must have been drawn with), twins left out."""
    served = books.kept.served
    rows = [row for row in books.kept.decisions if not row.get("twin")]
    texts = sorted({row["context"] for row in rows})
    place = {text: k for k, text in enumerate(texts)}
    if not rows:
        return [], np.empty((0, len(served.ids)))
    contexts = served.reader.contexts([json.loads(text) for text in texts])
    own, base = served.distributions(contexts)
    at = np.array([place[row["context"]] for row in rows])
    by_policy = np.array([row["decided_by"] == "policy" for row in rows])
    p = np.where(by_policy[:, None], own[at], base[at]).astype(np.float64)
    few = [k for k, row in enumerate(rows) if row["candidates"] is not None]
    for k, chances in zip(few, _among([rows[k] for k in few], by_policy[few], served), strict=True):
        p[k] = chances
    for k, row in enumerate(rows):
        if _is_callers(row):  # who drew it before asking
            p[k] = 0.0
            p[k, row["chosen"]] = 1.0
    return rows, p


def _is_callers(row: Mapping[str, Any]) -> bool:
    """Whether pi0's own choice was shown, as the caller brought it."""
    return row["decided_by"] == "pi0" and row.get("chosen") is not None


def _among(
    rows: Sequence[Mapping[str, Any]], by_policy: Mask, served: ServedPolicy
) -> Iterator[FloatArray]:
    """(A,) the probabilities that each decision with candidates must have been drawn with."""
    if not rows:
        return
    contexts = served.reader.contexts([json.loads(row["context"]) for row in rows])
    sets = unpacked([row["candidates"] for row in rows])
    own, base, why = served.over(Requests(contexts, sets))
    for k, table in enumerate(np.where(by_policy[:, None], own, base)):
        chances = np.zeros(len(served.ids))
        items = sets.items[sets.starts[k] : sets.starts[k + 1]]
        chances[items] = table[: len(items)]
        if why[k] and rows[k]["pi0"] is not None:  # pi0 is what the caller brought
            brought = unpacked([rows[k]["candidates"]], [rows[k]["pi0"]])
            chances[items] = 0.0 if brought.pi0 is None else brought.pi0
        yield chances


def _propensities(books: Closing) -> Iterator[str]:
    rows, p = _drawn(books)
    for k, row in enumerate(rows):
        drawn = row["p_chosen"] if _is_callers(row) else p[k, row["action"]]
        if not math.isclose(drawn, row["propensity"], rel_tol=1e-3, abs_tol=1e-6):
            yield f"{row['id']}: {row['propensity']:.6f}, computed {drawn:.6f}"


def _frequencies(books: Closing) -> Iterator[str]:
    """Of every item, by who decided: how often it was shown, against its probabilities."""
    rows, p = _drawn(books)
    shown = np.zeros_like(p)
    shown[np.arange(len(rows)), [row["action"] for row in rows]] = 1.0
    deciders = np.array([row["decided_by"] for row in rows])
    for decider in sorted(set(deciders.tolist())):
        of = deciders == decider
        for item, id in enumerate(books.kept.served.ids):
            if (chance := _chance(shown[of, item], p[of, item])) < LEVEL / (3 * p.shape[1]):
                yield (
                    f"item {id} by {decider}: {shown[of, item].sum():.0f} times in {of.sum()}, "
                    f"expected {p[of, item].sum():.1f}, chance {chance:.1e}"
                )


def _holdout(books: Closing) -> Iterator[str]:
    deciders = [row["decided_by"] for row in books.kept.decisions if not row.get("twin")]
    held = np.array([decider == "holdout" for decider in deciders if decider != "pi0"], dtype=float)
    chance = _chance(held, np.full(len(held), books.kept.holdout))
    if chance < LEVEL:
        yield f"{held.sum():.0f} of {len(held)} at {books.kept.holdout:g}, chance {chance:.1e}"


def _chance(shown: FloatArray, p: FloatArray) -> float:
    """At most how likely it is to be as far from the expected number (Freedman's inequality).

    Draws may depend on all that came before, as those of a service do.

    Args:
        shown: (n,) 1 or 0.
        p: (n,) the probability of 1.
    """
    distance = abs(float((shown - p).sum()))
    variance = float((p * (1 - p)).sum())
    return 2 * math.exp(-(distance**2) / (2 * (variance + distance / 3) + 1e-12))


def _refusals(books: Closing) -> Iterator[str]:
    for refused in books.books.of(NotAnswered):
        if refused.status not in EXPECTED:
            yield f"{refused.path}: {refused.status} {refused.words}"


def _mended(books: Closing) -> Iterator[str]:
    """Counted from the last fault: while things break, nobody need be well."""
    for service, outages in enumerate(books.outages):
        faults = [each for each in books.books.of(Fault) if each.service in (None, service)]
        for outage in outages:
            mended = [each.ended or math.inf for each in faults if each.began < outage.ended]
            late = outage.ended - max([outage.mended, *mended])
            if not late < WELL:
                yield f"service {service}, {late:.0f} s after the last fault; {outage.cause}"


def _undamaged(books: Closing) -> Iterator[str]:
    for look in books.books.of(Health):
        if look.damaged:
            yield f"service {look.service} set {look.damaged} lines aside"


def _monitor_quiet(books: Closing) -> Iterator[str]:
    """All items earn the same here, so whatever stops the policy by itself errs."""
    reasons = Counter(health.stopped for health in books.books.of(Health) if health.stopped)
    for reason, count in reasons.items():
        if not all("by hand" in part for part in reason.split("; ")):
            yield f"{reason} ({count} looks)"


def _text(context: Mapping[str, Any]) -> str:
    return json.dumps(context, sort_keys=True)


RULES: dict[str, Callable[[Closing], Iterator[str]]] = {
    "every acknowledged decision is in the store once, as it was answered": _stored,
    "a key has one decision, and others are marked twins": _one_per_key,
    "a repeated key is answered equal whenever the store answers": _equal,
    "a service knows the keys in its own journal": _journal_known,
    "every stored decision was asked for": _asked_for,
    "a reward is stored once, and the first acknowledged stays": _rewards_stored,
    "the export equals the clients' book": _exported,
    "a stop holds until somebody resumes": _stops_hold,
    "propensities are those of the policy that served": _propensities,
    "items are shown as often as their propensities say": _frequencies,
    "the holdout has its share": _holdout,
    "a request is answered, or refused with 503": _refusals,
    "a service is well again after a fault": _mended,
    "a kill damages no line of a journal": _undamaged,
    "the monitor does not stop a policy that keeps its promise": _monitor_quiet,
}
"""What is promised, and what looks for breaks of it."""
