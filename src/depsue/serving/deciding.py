"""Draws actions and their propensities, many decisions at a time.

`decide` turns requests into decisions; nothing is written yet. It is a function of what is asked,
of what serves and of the campaign's secret: whether a request is in the holdout, which action is
drawn and the id of the decision are keyed hashes of the request's key. So a retry, or a second
service, nearly always decides the same. (Not always: the probabilities of a context may differ in
the last digit from batch to batch, and candidates, or a team's own pi0, from minute to minute.)

Where pi0 decides in place of the policy, a team's own pi0 is asked first if it has an address
(`Endpoint`), and the saved pi0 decides where that fails: on fallback, and for contexts that the
table of the saved one does not have.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np

from depsue.campaigns.secret import Secret
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.requests import Candidates, Requests
from depsue.errors import ConfigError, DataError, DepsueError, PolicyError, short
from depsue.serving.brought import check_brought, known_part, packed, packed_shares, sets_of
from depsue.serving.kinds import LEAST_CHOSEN, as_text, check_kinds
from depsue.serving.messages import MOST_CANDIDATES, Decide, DecidedBy, Id
from depsue.serving.schema import Decision
from depsue.serving.served import (
    ARRIVED,
    BY_CALLER,
    BY_ITSELF,
    OTHER_VERSION,
    OUTSIDE,
    ServedPolicy,
)

log = logging.getLogger(__name__)
TIMEOUT = 0.5
"""Seconds that one answer of an endpoint may take."""
REST = 5.0
"""Seconds for which an endpoint that failed is not asked again."""
AT_ONCE = 16
"""Requests to an endpoint at once."""
MOST_ENTRIES = 1 << 20
"""Probabilities that are drawn from at once, where requests bring candidates."""
MOST_ANSWER = 1 << 16
"""Bytes of an answer."""
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True)
class Epoch:
    """In which a key is decided alike: a new epoch draws anew.

    Args:
        campaign: its name.
        round, policy: what serves, the policy by its hash.
        decider: the policy (with its holdout), or pi0 in place of it.
        secret: of the campaign.
    """

    campaign: str
    round: int
    policy: str
    decider: Literal["policy", "pi0"]
    secret: Secret

    def uniforms(self, purpose: str, names: Sequence[str]) -> FloatArray:
        """(m,) numbers in [0, 1), one for each name; those of another purpose tell nothing."""
        hashes = self._hashes(purpose, 8, (name.encode() for name in names))
        numbers = np.frombuffer(b"".join(hashes), dtype="<u8")
        return np.asarray((numbers >> np.uint64(11)) * 2.0**-53)

    def ids(self, drawn: Iterable[tuple[object, ...]]) -> list[str]:
        """The ids of decisions, from (name, context, unit, who decided, action, propensity).

        What was asked and drawn is part of it. Two services that are both cut off from the store
        may draw differently for one key and answer; then both decisions must have a place in the
        store.
        """
        return [each.hex() for each in self._hashes("id", 16, (_encode(parts) for parts in drawn))]

    def _hashes(self, purpose: str, size: int, texts: Iterable[bytes]) -> Iterator[bytes]:
        start = hashlib.blake2b(
            _encode([self.campaign, self.round, self.policy, self.decider, self.secret.version]),
            key=self.secret.value,
            person=purpose.encode(),
            digest_size=size,
        )
        for text in texts:
            hashed = start.copy()
            hashed.update(text)
            yield hashed.digest()


@dataclass(frozen=True)
class Drawn:
    """What became of requests, by name.

    Args:
        decisions: those that were decided.
        problems: why the others cannot be.
    """

    decisions: dict[str, Decision]
    problems: dict[str, DepsueError]

    def __or__(self, other: Drawn) -> Drawn:
        return Drawn(self.decisions | other.decisions, self.problems | other.problems)


@dataclass(frozen=True)
class Decider:
    """How a service decides, whatever serves.

    Args:
        campaign: its name.
        secret: of the campaign.
        holdout: says which share of traffic stays on pi0, now.
        own_pi0: is asked first where pi0 decides in place of the policy.
        clock: seconds since 1970.
    """

    campaign: str
    secret: Secret
    holdout: Callable[[], float]
    own_pi0: Endpoint | None = None
    clock: Callable[[], float] = time.time

    def draw(
        self, calls: Sequence[Mapping[str, Decide]], served: ServedPolicy, fallback: str = ""
    ) -> Drawn:
        """Decide for several calls at once; one that a policy cannot answer harms no other.

        Args:
            calls: checked requests of each, by name.
            served, fallback: as for `decide`.
        """
        try:
            together = {name: request for call in calls for name, request in call.items()}
            return Drawn(self.decide(together, served, fallback), {})
        except PolicyError as problem:  # a context that the policy cannot answer about
            if len(calls) == 1:
                return Drawn({}, dict.fromkeys(calls[0], problem))
        drawn = Drawn({}, {})
        for call in calls:
            drawn |= self.draw([call], served, fallback)
        return drawn

    def decide(
        self, requests: Mapping[str, Decide], served: ServedPolicy, fallback: str = ""
    ) -> dict[str, Decision]:
        """One decision for each request, by name; nothing is written yet.

        Args:
            requests: checked ones, by their key or, without one, by a name that nobody else has.
            served: what serves.
            fallback: why pi0 decides in place of the policy; "" if it does not.
        """
        if not requests:
            return {}
        names, holdout = list(requests), self.holdout()
        parts = [known_part(request, served) for request in requests.values()]
        asked, arrived = [part for part, _ in parts], [lost for _, lost in parts]
        epoch = Epoch(
            self.campaign, served.round, served.hash, "pi0" if fallback else "policy", self.secret
        )
        held: Mask = epoch.uniforms("holdout", names) < holdout
        uniforms = epoch.uniforms("action", names)
        arms = epoch.uniforms("arm", names) if served.pi0_is == "chosen" else uniforms
        drawn = _Draws.empty(len(asked))
        brought: list[_Brought] = [_NOTHING] * len(asked)
        for k in _groups(asked, served, arrived):
            few = [asked[place] for place in k]
            chances = _Chances(held[k], uniforms[k], arms[k])
            contexts = served.reader.contexts([request.context for request in few])
            sets = None
            if few[0].candidates is not None:
                sets = sets_of(few, served, with_pi0=few[0].probabilities is not None)
                for place, one in zip(k, _packed(few, sets, served), strict=True):
                    brought[place] = one
            known, new = served.knows(few[0].version), arrived[k[0]]
            by = served.only_pi0 if new else served if known else served.for_any_pi0
            drawn[k] = _drawn(few, contexts, sets, chances, by, fallback)
            why = ARRIVED if new else "" if known or served.is_pi0 else OTHER_VERSION
            for place in k.tolist() if why else ():
                drawn.why[place] = drawn.why[place] or why
        for place, request in enumerate(asked):
            if request.shown:
                chosen, p0 = served.places[request.chosen], request.chosen_probability
                drawn.take_choice(place, chosen, p0 or 1.0)
                drawn.would[place], drawn.why[place] = -1, BY_ITSELF
        drawn.require_probabilities()
        own_choice = [
            place
            for place, why in enumerate(drawn.why)
            if (fallback or why) and why not in (BY_ITSELF, OTHER_VERSION)
        ]
        self._ask_pi0(own_choice if served.pi0_is != "chosen" else [], asked, drawn, served)
        reasons = [why if why == BY_ITSELF else fallback or why for why in drawn.why]
        pi0_served = served.is_pi0  # then there is nobody to hold out
        certain = served.certain is not None  # decides for other versions of pi0
        deciders: list[DecidedBy] = [
            "pi0"
            if why and not (certain and why == OTHER_VERSION)
            else "holdout"
            if h and not pi0_served
            else "policy"
            for why, h in zip(reasons, held.tolist(), strict=True)
        ]
        actions, would = drawn.action.tolist(), drawn.would.tolist()
        propensities, p_owns, p_bases, p_would = (
            np.minimum(each, 1.0).tolist()  # rounding
            for each in (drawn.p, drawn.p_own, drawn.p_base, drawn.p_would)
        )
        texts = [_encode(request.context).decode() for request in asked]
        units = [_unit(request) for request in asked]
        ids = epoch.ids(zip(names, texts, units, deciders, actions, propensities, strict=True))
        now = self.clock()
        return {
            name: Decision(
                id=ids[k],
                at=now + 1e-6 * k,  # in the order of the batch, so that none are of one time
                round=served.round,
                policy=served.hash,
                decided_by=deciders[k],
                why=reasons[k],
                action=actions[k],
                propensity=propensities[k],
                p_policy=p_owns[k],
                p_pi0=p_bases[k],
                holdout=0.0 if reasons[k] or served.is_pi0 else holdout,
                context=texts[k],
                unit=units[k],
                key=request.name,
                candidates=brought[k].candidates,
                pi0=brought[k].pi0,
                chosen=None if request.chosen is None else served.places[request.chosen],
                p_chosen=request.chosen_probability,
                version=request.version,
                would=None if would[k] < 0 else would[k],
                p_would=None if would[k] < 0 else p_would[k],
            )
            for k, (name, request) in enumerate(requests.items())
        }

    def _ask_pi0(
        self,
        places: Sequence[int],
        asked: Sequence[Decide],
        drawn: _Draws,
        served: ServedPolicy,
    ) -> None:
        """Where pi0 decides in place of the policy, let it say itself what it shows, if it can.

        What it chose for this request comes with the request, or its address is asked.
        """
        left = []
        for k in places:
            request = asked[k]
            if request.chosen is not None and request.chosen_probability is not None:
                drawn.take_choice(k, served.places[request.chosen], request.chosen_probability)
                drawn.why[k] = drawn.why[k] and BY_CALLER
            elif request.probabilities is None:
                left.append(k)
        if self.own_pi0 is None or not left:
            return
        for k, answer in zip(left, self.own_pi0.ask([asked[k] for k in left]), strict=True):
            place = None if answer is None else served.places.get(answer.action)
            if answer is not None and place is not None:
                drawn.take_choice(k, place, answer.propensity)


class _Brought(NamedTuple):
    """What a request brought, as it is stored."""

    candidates: str | None
    pi0: str | None


_NOTHING = _Brought(None, None)


class _Chances(NamedTuple):
    """(m,) what the draws of m requests hang on.

    Args:
        held: whether the holdout decides.
        action, arm: numbers in [0, 1).
    """

    held: Mask
    action: FloatArray
    arm: FloatArray


@dataclass
class _Draws:
    """(m,) what was drawn for m requests.

    Args:
        action: the place of the item.
        p: with which probability whoever decides shows it.
        p_own, p_base: the policy's and pi0's probability of it. Where pi0 is known by what it chose
            alone, of this item drawn by the same one of both: pi0's own choice, or g.
        would, p_would: what the policy would have shown in place of the holdout, -1 for nothing.
        why: the certificate does not speak of it; "" if it does.
    """

    action: IntArray
    p: FloatArray
    p_own: FloatArray
    p_base: FloatArray
    would: IntArray
    p_would: FloatArray
    why: list[str]

    @classmethod
    def empty(cls, m: int) -> _Draws:
        """Of m requests that are not drawn yet."""
        place, zero = np.full(m, -1, dtype=np.int64), np.zeros(m)
        return cls(place, zero, zero.copy(), zero.copy(), place.copy(), zero.copy(), [""] * m)

    def __setitem__(self, places: IntArray, some: _Draws) -> None:
        for name in ("action", "p", "p_own", "p_base", "would", "p_would"):
            getattr(self, name)[places] = getattr(some, name)
        for place, why in zip(places.tolist(), some.why, strict=True):
            self.why[place] = why

    def require_probabilities(self) -> None:
        """Refuse what the policy or pi0 gave no probability of."""
        each = (self.p, self.p_own, self.p_base, self.p_would)
        known = np.isfinite(each).all(axis=0) & (self.p > 0)
        if not known.all():
            k = int(known.argmin())
            raise PolicyError(
                "the policy and pi0 must give each item that is shown a probability above 0",
                found=", ".join(f"{p[k]:g}" for p in each[:3]),
                cure="send a context like those of the logs; if it is one, look at the model",
            )

    def take_choice(self, place: int, action: int, p: float) -> None:
        """Show what pi0 chose itself."""
        if action != self.action[place]:
            self.p_own[place] = 0.0  # nobody asked the policy about it
        self.action[place], self.p[place], self.p_base[place] = action, p, p


def _groups(
    asked: Sequence[Decide], served: ServedPolicy, arrived: Sequence[bool]
) -> list[IntArray]:
    """Places of requests that are alike in what they bring, few enough to be drawn at once."""
    kinds: dict[tuple[bool, bool, bool, bool], list[int]] = {}
    for place, request in enumerate(asked):
        brings = request.candidates is not None, request.probabilities is not None
        kind = (*brings, served.knows(request.version), arrived[place])
        kinds.setdefault(kind, []).append(place)
    groups = [np.array(places) for kind, places in kinds.items() if not kind[0]]
    for kind, places in kinds.items():
        if kind[0]:
            sizes = [len(asked[place].candidates or ()) for place in places]
            sets = Candidates(np.concatenate([[0], np.cumsum(sizes)]), np.zeros(0, np.int32))
            pieces = Requests(np.zeros((len(places), 0)), sets).chunks(0, MOST_ENTRIES)
            groups += [np.array(places[piece]) for piece in pieces]
    return groups


def _packed(
    requests: Sequence[Decide], sets: Candidates, served: ServedPolicy
) -> Iterable[_Brought]:
    texts = packed(sets, len(served.catalogue))
    return map(_Brought, texts, packed_shares(sets))


def _drawn(
    requests: Sequence[Decide],
    contexts: FloatArray,
    sets: Candidates | None,
    chances: _Chances,
    served: ServedPolicy,
    fallback: str,
) -> _Draws:
    """Draws for (m,) requests that bring the same."""
    m = len(requests)
    asked = Requests(contexts, "all" if sets is None else sets)
    if served.pi0_is == "chosen":
        drawn = _drawn_beside(requests, asked, chances, served, fallback)
    else:
        if sets is None:
            (own, base), outside = served.cached(contexts), served.outside(contexts)
            why = [OUTSIDE if each else "" for each in outside.tolist()]
        else:
            own, base, why = served.over(asked)
            if sets.pi0 is not None and served.pi0_is == "called":
                own, base, why = _by_caller(own, base, why, asked)
        alone = np.array([bool(each) for each in why])
        from_pi0 = np.ones(m, dtype=bool) if fallback or served.is_pi0 else chances.held | alone
        action = draw(np.where(from_pi0[:, None], base, own), chances.action)
        rows = np.arange(m)
        p_own, p_base = own[rows, action], base[rows, action]
        p = np.where(from_pi0, p_base, p_own)
        would, p_would = np.full(m, -1, dtype=np.int64), np.zeros(m)
        shadowed = np.flatnonzero(chances.held & ~alone)
        if len(shadowed) and not fallback and not served.is_pi0:
            would[shadowed] = draw(own[shadowed], chances.action[shadowed])
            p_would[shadowed] = own[shadowed, would[shadowed]]
        drawn = _Draws(action, p, p_own, p_base, would, p_would, why)
    if sets is not None:
        first = sets.starts[:-1]
        drawn.action = sets.items[first + drawn.action].astype(np.int64)
        seen = drawn.would >= 0
        drawn.would[seen] = sets.items[first[seen] + drawn.would[seen]]
    return drawn


def _by_caller(
    own: FloatArray, base: FloatArray, why: list[str], asked: Requests
) -> tuple[FloatArray, FloatArray, list[str]]:
    """Where pi0 has no answer of its own, its probabilities as the caller brought them."""
    silent = np.array([bool(each) for each in why])
    if not silent.any() or asked.sets is None or asked.sets.pi0 is None:
        return own, base, why
    own, base = np.array(own), np.array(base)
    own[silent] = base[silent] = asked.table(asked.sets.pi0, 0)[silent]
    return own, base, [BY_CALLER if each else "" for each in why]


def _drawn_beside(
    requests: Sequence[Decide],
    asked: Requests,
    chances: _Chances,
    served: ServedPolicy,
    fallback: str,
) -> _Draws:
    """Draws where pi0 is known by what it chose: with probability lambda that is shown, else g's.

    Probabilities are those of (who drew, item): lambda p0 for pi0's choice, (1 - lambda) g else.
    """
    m = len(requests)
    rows = np.arange(m)
    chosen = np.array([served.places[request.chosen] for request in requests])
    p0 = np.array([request.chosen_probability for request in requests], dtype=np.float64)
    choice = asked.place(chosen, rows)
    share, beside = served.beside(asked)
    only = beside.sum(axis=1) <= 0
    of_pi0 = np.ones(m, dtype=bool) if fallback else (chances.arm < share) | only
    by_g = draw(beside, chances.action)
    would = np.where(of_pi0, choice, by_g)
    p_would = np.where(of_pi0, share * p0, beside[rows, by_g])
    shows_choice = of_pi0 | chances.held
    action = np.where(shows_choice, choice, by_g)
    p_own = np.where(shows_choice, share * p0, beside[rows, by_g])
    p_base = np.where(shows_choice, p0, 0.0)
    from_pi0 = np.ones(m, dtype=bool) if fallback else chances.held
    p = np.where(from_pi0, p_base, p_own)
    shadowed = chances.held & (not fallback and not served.is_pi0)
    would = np.where(shadowed, would, -1)
    return _Draws(action, p, p_own, p_base, would, np.where(shadowed, p_would, 0.0), [""] * m)


def draw(probabilities: FloatArray, uniforms: FloatArray) -> IntArray:
    """(m,) one action from each of m distributions, never one of probability 0.

    Args:
        probabilities: (m, A).
        uniforms: (m,) in [0, 1); each picks by the inverse of the cumulated probabilities.
    """
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    beyond = cumulative > uniforms[:, None] * cumulative[:, -1:]
    drawn = beyond.argmax(axis=1)
    rounded = ~beyond[:, -1]
    if rounded.any():  # up to the whole sum: the last that is shown
        shown = probabilities[rounded, ::-1] > 0
        drawn[rounded] = probabilities.shape[1] - 1 - shown.argmax(axis=1)
    return np.asarray(drawn)


def check_request(request: Decide, served: ServedPolicy, most: int = MOST_CANDIDATES) -> None:
    """Refuse what cannot be decided, before anything is drawn.

    Args:
        request: what is asked.
        served: what serves.
        most: candidates at most.
    """
    served.reader.check(request.context)
    check_brought(request, served, most)
    if served.mapping.unit is not None and request.unit is None:
        raise DataError(
            "a decision names its unit: the campaign's logs have units",
            column="unit",
            found="none",
            cure=f"unit: the value of {served.mapping.unit}",
        )
    check_kinds(request.context, request.unit, served.mapping, served.kinds)


def answers(decision: Decision, request: Decide) -> bool:
    """Whether a decision of before is what a request with its key asks for.

    Candidates may differ: by the time of a retry something may be out of stock. 1 and 1.0 are one
    number in JSON, and 7 and "7" one unit.
    """
    if decision.context == _encode(request.context).decode() and decision.unit == _unit(request):
        return True
    unit = None if decision.unit is None else msgspec.json.decode(decision.unit)
    return is_retry(Decide(msgspec.json.decode(decision.context or "{}"), unit=unit), request)


def is_retry(request: Decide, other: Decide) -> bool:
    """Whether two requests with one key are one request; candidates may differ in a retry."""
    units = (request.unit, other.unit)
    same_unit = units[0] == units[1] or None not in units and as_text(units[0]) == as_text(units[1])
    return same_unit and request.context == other.context


def another_request(request: Decide) -> ConfigError:
    """A key was used for another request."""
    return ConfigError(
        "a key belongs to one request",
        found=f"key {short(request.key)} with another context or unit",
        cure="a new key for a new request",
    )


def _unit(request: Decide) -> str | None:
    return None if request.unit is None else _encode(request.unit).decode()


class EndpointAnswer(msgspec.Struct):
    """What an endpoint answers: the item to show, and the probability it was drawn with."""

    action: Id
    propensity: float


class Endpoint:
    """A team's own pi0, asked with POST: {"context": ..., "candidates": ..., "unit": ...}.

    Where it does not answer in time, or not as it must, the saved pi0 decides, and the address is
    left alone for a while.

    Args:
        url: http or https.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._pool = ThreadPoolExecutor(AT_ONCE, "depsue-pi0")
        self._rests_until = 0.0

    def ask(self, requests: Sequence[Decide]) -> list[EndpointAnswer | None]:
        """An answer for each request; None where the saved pi0 must decide."""
        if time.monotonic() < self._rests_until:
            return [None] * len(requests)
        return list(self._pool.map(self._ask, requests))

    def _ask(self, request: Decide) -> EndpointAnswer | None:
        if time.monotonic() < self._rests_until:
            return None
        asked: dict[str, Any] = {"context": request.context, "unit": request.unit}
        if request.candidates is not None:
            asked["candidates"] = request.candidates
        try:
            body = self._post(msgspec.json.encode(asked))
            answer = msgspec.json.decode(body, type=EndpointAnswer)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError) as problem:
            self._rests_until = time.monotonic() + REST
            log.warning("pi0's address failed", exc_info=problem)
            return None
        usable = LEAST_CHOSEN <= answer.propensity <= 1
        usable = usable and answer.action in (request.candidates or [answer.action])
        return answer if usable else None

    def _post(self, body: bytes) -> bytes:
        url = self._url
        kinds: dict[str, Any] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        connection = kinds[url.scheme](url.hostname, url.port, timeout=TIMEOUT)
        try:
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            content: bytes = answer.read(MOST_ANSWER)
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            return content
        finally:
            connection.close()
