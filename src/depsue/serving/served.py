"""What serves now: the newest deployment of the ledger, with its policy, pi0, items and contexts.

A served policy answers for contexts. `ContextReader` makes them from the columns of a request, as
the same numbers that the logs' reader makes of the same columns.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from depsue.campaigns import Campaign
from depsue.certificates import Certificate
from depsue.data.catalogue import Catalogue
from depsue.data.checks import LARGEST, FloatArray, IntArray, Mask
from depsue.data.mapping import LogMapping
from depsue.data.requests import Candidates, Requests
from depsue.errors import DataError, DepsueError, ModelMissing, PolicyError, short
from depsue.exploration.choices import PI0
from depsue.policies import BasePolicy, BroughtPolicy
from depsue.policies.base import held, whole
from depsue.savable import hash_of
from depsue.scores import ScoreTable, tables_in
from depsue.serving.kinds import Kind, as_text, kinds_of

log = logging.getLogger(__name__)
MOST_CACHED = 1 << 23
"""Probabilities of recent contexts that are cached: 64 MiB."""
MOST_TRIED = 10
"""Candidates of the request that is tried, where requests bring candidates."""
MOST_AVERAGED = 10_000
"""Contexts of a table that pi0's average is taken over, at most."""
OUTSIDE = "the context is not in pi0's table: pi0's average decides"
"""Why pi0 decides, where it has no answer of its own; the certificate does not cover it."""
NONE_SHOWN = "none of the candidates is shown by pi0: each is as likely"
"""Why pi0 decides, where it shows nothing that could be shown; the certificate does not cover it.
"""
BY_CALLER = "pi0 does not know the context: what the caller brought decides"
"""Why pi0 decides, where its answer came with the request; the certificate does not cover it."""
BY_ITSELF = "no answer came in time: the caller showed pi0's own choice"
"""Why pi0 decides, as its caller reported afterwards."""
OTHER_VERSION = "another version of pi0 than was certified: what needs no certificate decides"
"""Why the certified policy does not decide; the certificate does not cover it."""
ARRIVED = "pi0 would show items that the campaign does not know yet: pi0 decides among the others"
"""Why pi0 decides, where requests bring such items; the certificate does not cover it."""
NOT_COVERED = (OUTSIDE, NONE_SHOWN, BY_CALLER, OTHER_VERSION, ARRIVED)
WHOLE = (
    "the campaign's logs choose from the whole catalogue, so its certificate does not speak of "
    "requests with candidates: they are decided, and left out of evidence, margin and exports"
)
"""What the log says at the start."""
UNDECLARED = (
    "nothing was declared of units with several rows (campaign create --units first-row, or "
    "all-rows), so of each unit the first decision of a round is exported, and the others left out"
)
"""What the log says at the start, where logs have units."""
Pi0Is = Literal["called", "brought", "chosen"]


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """What serves; it never changes, another takes its place.

    Args:
        round: in which it serves; 0 before the first deployment.
        hash: of the policy.
        what: certified, certain or pi0.
        novelty: its nu.
        policy: over the places of `catalogue`.
        pi0: over the same.
        catalogue: the items.
        mapping: what a request's columns are.
        credits: margin per decision that its certificate spent, by promise.
        made_in: the round that made the policy: an earlier one after a rollback; 0 for pi0.
        brings: whether the requests of the campaign's logs bring candidates of their own, and so
            whether it is requests with candidates that the certificate speaks of.
        versions: of pi0 in the rows that certified the policy; () where they do not say.
        kinds: of the unit and of segments in the logs, by column.
        certain: what needs no certificate, whatever pi0 is; None if nothing does so.
    """

    round: int
    hash: str
    what: str
    novelty: float
    policy: BasePolicy
    pi0: BasePolicy
    catalogue: Catalogue
    mapping: LogMapping
    credits: Mapping[str, float] = field(default_factory=dict)
    made_in: int = 0
    brings: bool = False
    versions: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    certain: BasePolicy | None = None

    @property
    def is_pi0(self) -> bool:
        """Whether pi0 is what was deployed, or nothing was yet."""
        return self.what == "pi0"

    @cached_property
    def pi0_is(self) -> Pi0Is:
        """How pi0 is known."""
        return how_known(self.pi0)

    def covers(self, with_candidates: bool) -> bool:
        """Whether the certificate speaks of requests of a kind: with candidates, or without."""
        return with_candidates == self.brings

    def knows(self, version: str | None) -> bool:
        """Whether the certificate covers what a version of pi0 brings.

        Where the logs name versions, it covers none without a name.
        """
        certified = self.what == "certified" and self.pi0_is != "called"
        return not certified or not self.versions or version in self.versions

    @cached_property
    def for_any_pi0(self) -> ServedPolicy:
        """The same, with what holds for any pi0 in the policy's place."""
        if self.certain is None:
            return self.only_pi0
        return replace(self, what="certain", policy=self.certain)

    @cached_property
    def reader(self) -> ContextReader:
        """Reads contexts."""
        return ContextReader(self.mapping)

    @cached_property
    def ids(self) -> list[Any]:
        """Of the items, by place."""
        return list(self.catalogue.ids.tolist())

    @cached_property
    def new_ids(self) -> frozenset[Any]:
        """Ids of the new items."""
        return frozenset(self.catalogue.ids[self.catalogue.novel].tolist())

    @cached_property
    def only_pi0(self) -> ServedPolicy:
        """The same, with pi0 in the policy's place."""
        return self if self.is_pi0 else replace(self, what="pi0", policy=self.pi0)

    @cached_property
    def places(self) -> dict[Any, int]:
        """Of the items, by id."""
        return {id: place for place, id in enumerate(self.ids)}

    def distributions(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(m, A) of the policy and of pi0; both are pi0's average where it has no answer."""
        outside = self.outside(contexts)
        if outside.any():
            base = np.tile(self.average, (len(contexts), 1))
            own = base.copy()
            if not outside.all():
                own[~outside], base[~outside] = self.distributions(contexts[~outside])
            return own, base
        base = self.pi0.probabilities(contexts)
        return (base if self.is_pi0 else self.policy.probabilities(contexts)), base

    def over(self, requests: Requests) -> tuple[FloatArray, FloatArray, list[str]]:
        """(c, L) of the policy and of pi0 over the candidates; and why the certificate is silent.

        The words are "" where pi0 has an answer of its own. Elsewhere both are what pi0 shows on
        average, or even where that is nothing.
        """
        sets, outside = requests.sets, self.outside(requests.contexts)
        assert sets is not None
        known = np.flatnonzero(~outside)
        asked = requests if len(known) == len(requests) else requests.take(known)
        shape = (len(requests), requests.width(len(self.catalogue)))
        base: FloatArray = np.zeros(shape)
        own = base
        if len(known):
            base = _spread(whole(self.pi0, asked), known, shape)
            own = base if self.is_pi0 else _spread(whole(self.policy, asked), known, shape)
        if outside.any():
            base, own = np.array(base), np.array(own)
            average = held(requests.places(len(self.catalogue)).pick(self.average, 0.0))
            base[outside] = own[outside] = average[outside]
        shown, of_own = base.sum(axis=1), own.sum(axis=1)
        none = (shown <= 0) | (of_own <= 0)
        if none.any() or np.abs(shown - 1).max() > 1e-9 or np.abs(of_own - 1).max() > 1e-9:
            # a part of a mixture may show none of the candidates: the others decide
            base, own = held(np.array(base)), held(np.array(own))
            even = requests.table(1 / np.repeat(sets.sizes, sets.sizes), len(self.catalogue))
            base[shown <= 0] = even[shown <= 0]
            own[none] = base[none]
        marks = zip(outside.tolist(), none.tolist(), strict=True)
        why = [OUTSIDE if lost else NONE_SHOWN if empty else "" for lost, empty in marks]
        return own, base, why

    def beside(self, requests: Requests) -> tuple[FloatArray, FloatArray]:
        """(lambda, g) where pi0 is known by what it chose, (c,) and (c, L); together they sum to 1.

        lambda is the policy's share of pi0's own choice; 1 where g shows none of the candidates.
        """
        if self.is_pi0:
            m = len(requests)
            return np.ones(m), np.zeros((m, requests.width(len(self.catalogue))))
        share = np.asarray(self.policy.pi0_share(requests), dtype=np.float64)
        beside = np.asarray(self.policy.besides_pi0(requests), dtype=np.float64)
        total = share + beside.sum(axis=1)
        alone = total <= 0
        total = np.where(alone, 1.0, total)
        return np.where(alone, 1.0, share / total), beside / total[:, None]

    def outside(self, contexts: FloatArray) -> Mask:
        """(m,) contexts that a table of pi0's does not have: no certificate speaks of them."""
        outside: Mask = np.zeros(len(contexts), dtype=bool)
        for table in self._tables:
            outside |= ~table.knows(contexts)
        return outside

    @cached_property
    def average(self) -> FloatArray:
        """(A,) what pi0 shows on average over the contexts of its tables, each counted once."""
        contexts = self._tables[0].contexts
        contexts = contexts[~self.outside(contexts)]
        if not len(contexts):
            raise PolicyError(
                "a context outside pi0's table is decided by what pi0 shows on average",
                found="no context that all of its tables have",
                cure="give pi0 as one table, or as a model",
            )
        chosen = np.linspace(0, len(contexts) - 1, min(len(contexts), MOST_AVERAGED)).astype(int)
        mean = self.pi0.probabilities(contexts[chosen]).mean(axis=0, dtype=np.float64)
        return np.asarray(mean / mean.sum())

    @cached_property
    def _tables(self) -> list[ScoreTable]:
        return tables_in(self.pi0, self.policy)

    @cached_property
    def missing(self) -> str:
        """Why no decision could be made when it was loaded; "" if one could."""
        return self.why_not()

    def why_not(self) -> str:
        """Why no decision can be made now, tried on an example; "" if one can.

        Such as: a model of the team's is not at hand, or fails.
        """
        try:
            contexts = self.reader.contexts([self.reader.example])
            if self.pi0_is == "called" and not self.brings:
                self.distributions(contexts)
            elif self.pi0_is != "chosen":
                few = np.flatnonzero(~self.catalogue.novel)[:MOST_TRIED]
                even = np.full(len(few), 1 / len(few))
                self.over(Requests(contexts, Candidates.of_flat([len(few)], few, even)))
        except ModelMissing as problem:
            return str(problem)
        except DepsueError:  # about this context alone
            return ""
        except Exception as problem:  # a team's own model may raise anything
            return f"pi0 or the policy fails: {type(problem).__name__}: {short(str(problem))}"
        return ""

    def cached(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same; users come back, so the distributions of recent contexts are cached."""
        cache, keys = self._cache, [row.tobytes() for row in contexts]
        # looked up once: worker and writer share the cache, and either may drop an entry meanwhile
        pairs = [cache.get(key) for key in keys]
        new = [k for k, pair in enumerate(pairs) if pair is None]
        if len(new) == len(keys) and len(keys) >= self._most_cached:
            return self.distributions(contexts)
        if new:
            own, base = self.distributions(contexts[new])
            for place, k in enumerate(new):
                pairs[k] = cache[keys[k]] = own[place], base[place]
        while len(cache) > self._most_cached:
            cache.pop(next(iter(cache)), None)  # the oldest: dicts keep their order
        if len(new) == len(keys):
            return own, base
        known = [pair for pair in pairs if pair is not None]
        return np.stack([own for own, _ in known]), np.stack([base for _, base in known])

    @cached_property
    def _cache(self) -> dict[bytes, tuple[FloatArray, FloatArray]]:
        return {}

    @cached_property
    def _most_cached(self) -> int:
        return max(1, MOST_CACHED // (2 * len(self.catalogue)))


def _spread(table: FloatArray, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
    """The table, its rows where they belong in a larger one."""
    if table.shape == shape:
        return table
    out = np.zeros(shape)
    out[rows, : table.shape[1]] = table
    return out


def how_known(pi0: object) -> Pi0Is:
    """How pi0 is known: called, brought with each request, or by what it chose alone."""
    inner: Any = pi0
    while hasattr(inner, "policy"):  # held to fewer items, or remembered
        inner = inner.policy
    if isinstance(inner, BroughtPolicy):
        return "brought"
    return "chosen" if getattr(inner, "rests_on_choice", False) else "called"


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
    pi0 = campaign.pi0_today(at)
    if hash in (campaign.terms.pi0, hash_of(pi0)):  # needs no certificate, whatever became of one
        policy, choice, made_in = pi0, PI0, 0
    else:
        made_in, choice = campaign.made_in(max(k, 1), hash)
        loaded = campaign.policy(max(k, 1), hash)
        policy = pi0 if choice.what == "pi0" else campaign.widened(loaded, catalogue)
    served = ServedPolicy(
        round=k,
        hash=hash,
        what=choice.what,
        novelty=choice.novelty,
        policy=policy,
        pi0=pi0,
        catalogue=catalogue,
        mapping=campaign.files.mapping(at),
        credits={} if choice.what == "pi0" else _credits(campaign, hash),
        made_in=made_in,
        brings=campaign.files.mapping(at).candidates is not None,
        kinds=kinds_of(campaign),
    )
    if served.what == "certified" and served.pi0_is != "called":
        versions = campaign.summaries()[made_in - 1].versions
        served = replace(served, versions=versions, certain=_certain(campaign, made_in, catalogue))
    if served.missing:  # asked now, so that the first decision does not wait for it
        log.error("not ready", extra={"found": served.missing})
    return served


def _certain(campaign: Campaign, k: int, catalogue: Catalogue) -> BasePolicy | None:
    """What round k may serve without a certificate; None if nothing."""
    for choice in campaign.choices(k):
        if choice.what == "certain":
            policy = campaign.policy(k, campaign.hash_of_choice(k, choice))
            return campaign.widened(policy, catalogue)
    return None


def _credits(campaign: Campaign, hash: str) -> dict[str, float]:
    """Margin per decision that the policy's newest certificate spent, by promise."""
    for attempt in reversed(campaign.ledger.attempts(campaign.name)):
        if attempt.certified == hash and attempt.certificate is not None:
            verdicts = Certificate.from_json(attempt.certificate).verdicts
            return {verdict.promise.name: verdict.credit for verdict in verdicts}
    return {}


class ContextReader:
    """Reads contexts as the mapping says: numbers in order, then 1 or 0 for each declared value.

    Args:
        mapping: of the campaign's logs.
    """

    def __init__(self, mapping: LogMapping) -> None:
        self._numeric = mapping.numeric
        self._places: dict[str, dict[str, int]] = {}
        place = len(self._numeric)
        for name, values in mapping.categorical.items():
            self._places[name] = {value: place + k for k, value in enumerate(values)}
            place += len(values)
        self._width = place
        self._segments = mapping.segments
        self.known = {*self._numeric, *self._places, *self._segments}

    def contexts(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        """(m, d) contexts of rows that were checked."""
        out = np.zeros((len(rows), max(self._width, 1)), dtype=np.float32)
        numeric, n = self._numeric, len(self._numeric)
        if n:
            out[:, :n] = [[row[name] for name in numeric] for row in rows]
        for name, places in self._places.items():
            for k, row in enumerate(rows):
                place = places.get(as_text(row[name]))
                if place is not None:
                    out[k, place] = 1.0
        return out

    def check(self, row: Mapping[str, Any]) -> None:
        """Refuse a row with a column missing, unknown, or of the wrong kind."""
        for name in self._numeric:
            value = row.get(name)
            number = type(value) is float or type(value) is int
            if not number or not -LARGEST <= value <= LARGEST:  # type: ignore[operator]
                large = number and abs(value) < math.inf  # type: ignore[arg-type]
                most = f"must be {LARGEST:g} in size at most"
                rule = most if large else "must be a finite number"
                raise _refused(name, row, rule)
        for name in self._places:
            if name not in row or isinstance(row[name], float) and not math.isfinite(row[name]):
                raise _refused(name, row, "must be given; null where it is not known")
        if len(row) > len(self._numeric) + len(self._places):
            for name in row:
                if name not in self.known:
                    raise _refused(name, row, "is not one of the mapping's")
        for name in self._segments:
            if name not in row:
                raise _refused(name, row, "must be given: it tells segments apart")

    @property
    def example(self) -> dict[str, Any]:
        """A context that would be read."""
        example: dict[str, Any] = {name: 0.0 for name in self._numeric}
        for name, places in self._places.items():
            example[name] = next(iter(places), "")
        return example | {name: "" for name in self._segments if name not in example}


def _refused(name: str, row: Mapping[str, Any], rule: str) -> DataError:
    return DataError(
        f"the context column {name} {rule}",
        column=name,
        found=short(row[name]) if name in row else "it is missing",
        cure="GET /v1/context shows a context that would be read",
    )


class ContextDrift:
    """Whether contexts are still like those of the logs that certified the policy.

    Args:
        mean, deviation: (d,) of the logs' contexts.
        n: how many they are.
    """

    def __init__(self, mean: FloatArray, deviation: FloatArray, n: int) -> None:
        self._mean, self._deviation, self._reference = mean, deviation, n
        self._sum, self.n = np.zeros(len(mean)), 0

    def add(self, contexts: FloatArray) -> None:
        """Take in (n, d) contexts."""
        self._sum += np.asarray(contexts, dtype=np.float64).sum(axis=0)
        self.n += len(contexts)

    @property
    def worst(self) -> tuple[int, float]:
        """(column, standard errors) of the mean that has moved most."""
        if self.n < 100:
            return 0, 0.0
        spread = np.where(self._deviation > 0, self._deviation, np.inf)
        error = spread * math.sqrt(1 / self.n + 1 / self._reference)
        apart = np.abs(self._sum / self.n - self._mean) / error
        return int(apart.argmax()), float(apart.max())

    @property
    def doubtful(self) -> bool:
        """Whether a mean has moved by more than chance explains, looked at again and again."""
        d = len(self._mean)
        looks = math.log(max(self.n, 2)) * d / 0.001
        return self.worst[1] > math.sqrt(2 * math.log(looks))
