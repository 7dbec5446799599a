"""Draws actions and their propensities, many decisions at a time.

`decide` turns requests into decisions; nothing is written yet. It is a function of what is asked,
of what serves and of the campaign's secret: whether a request is in the holdout, which action is
drawn and the id of the decision are keyed hashes of the request's key. So a retry, or a second
service, nearly always decides the same. (Not always: the probabilities of a context may differ in
the last digit from batch to batch, and candidates, or a team's own pi0, from minute to minute.)

On fallback a team's own pi0 is asked first, where it has an address (`Endpoint`), and the saved pi0
decides where that fails.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import numpy as np

from depsue.campaigns.secret import Secret
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.errors import ConfigError, DataError, DepsueError, PolicyError, short
from depsue.serving.messages import Decide, DecidedBy, Id
from depsue.serving.schema import Decision
from depsue.serving.served import OUTSIDE, ServedPolicy

log = logging.getLogger(__name__)
TIMEOUT = 0.5
"""Seconds that one answer of an endpoint may take."""
REST = 5.0
"""Seconds for which an endpoint that failed is not asked again."""
AT_ONCE = 16
"""Requests to an endpoint at once."""
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
        holdout: the share of traffic that stays on pi0.
        own_pi0: is asked first on fallback.
        clock: seconds since 1970.
    """

    campaign: str
    secret: Secret
    holdout: float
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
        names, asked = list(requests), list(requests.values())
        epoch = Epoch(
            self.campaign, served.round, served.hash, "pi0" if fallback else "policy", self.secret
        )
        contexts = served.reader.contexts([request.context for request in asked])
        own, base = served.cached(contexts)
        restricted = {
            k: _places(request.candidates, served)
            for k, request in enumerate(asked)
            if request.candidates is not None
        }
        if restricted:
            own, base = np.array(own), np.array(base)  # the cache's rows are shared
            for k, places in restricted.items():
                own[k], base[k] = _among(own[k], places), _among(base[k], places)
        held: Mask = epoch.uniforms("holdout", names) < self.holdout
        outside = served.outside(contexts)
        from_pi0 = np.ones_like(held) if fallback or served.is_pi0 else held | outside
        drawn = draw(np.where(from_pi0[:, None], base, own), epoch.uniforms("action", names))
        rows = np.arange(len(asked))
        p_own, p_base = own[rows, drawn], base[rows, drawn]
        p = np.where(from_pi0, p_base, p_own)
        for k, answer in enumerate(self.own_pi0.ask(asked) if fallback and self.own_pi0 else ()):
            place = None if answer is None else served.places.get(answer.action)
            if answer is not None and place is not None:
                drawn[k], p[k], p_base[k] = place, answer.propensity, answer.propensity
                p_own[k] = own[k, place]
        reasons = [fallback or (OUTSIDE if o else "") for o in outside.tolist()]
        pi0_served = served.is_pi0  # then there is nobody to hold out
        deciders: list[DecidedBy] = [
            "pi0" if why else "holdout" if h and not pi0_served else "policy"
            for why, h in zip(reasons, held.tolist(), strict=True)
        ]
        actions, propensities, p_owns, p_bases = (
            drawn.tolist(),
            *(np.minimum(each, 1.0).tolist() for each in (p, p_own, p_base)),  # rounding
        )
        texts = [_encode(request.context).decode() for request in asked]
        units = [_unit(request) for request in asked]
        ids = epoch.ids(zip(names, texts, units, deciders, actions, propensities, strict=True))
        now = self.clock()
        return {
            name: Decision(
                id=ids[k],
                at=now,
                round=served.round,
                policy=served.hash,
                decided_by=deciders[k],
                why=reasons[k],
                action=actions[k],
                propensity=propensities[k],
                p_policy=p_owns[k],
                p_pi0=p_bases[k],
                holdout=0.0 if reasons[k] or served.is_pi0 else self.holdout,
                context=texts[k],
                unit=units[k],
                key=request.key,
                candidates=_encode(restricted[k].tolist()).decode() if k in restricted else None,
            )
            for k, (name, request) in enumerate(requests.items())
        }


def draw(probabilities: FloatArray, uniforms: FloatArray) -> IntArray:
    """(m,) one action from each of m distributions, never one of probability 0.

    Args:
        probabilities: (m, A).
        uniforms: (m,) in [0, 1); each picks by the inverse of the cumulated probabilities.
    """
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    drawn = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(axis=1)
    last = probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(axis=1)
    return np.asarray(np.minimum(drawn, last))  # whatever the rounding


def check_request(request: Decide, served: ServedPolicy) -> None:
    """Refuse what cannot be decided, before anything is drawn."""
    served.reader.check(request.context)
    if request.candidates is not None:
        unknown = [id for id in request.candidates if id not in served.places]
        if unknown:
            raise DataError(
                "candidates must be items of the campaign",
                column="candidates",
                found=f"{len(unknown)} unknown, such as {short(unknown[0])}",
                cure="give ids as they stand in the items file; new items come with the next round",
            )
    if served.mapping.unit is not None and request.unit is None:
        raise DataError(
            "a decision names its unit: the campaign's logs have units",
            column="unit",
            found="none",
            cure=f"unit: the value of {served.mapping.unit}",
        )


def answers(decision: Decision, request: Decide) -> bool:
    """Whether a decision of before is what a request with its key asks for.

    Candidates may differ: by the time of a retry something may be out of stock.
    """
    same_context = decision.context == _encode(request.context).decode()
    return same_context and decision.unit == _unit(request)


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
        usable = 0 < answer.propensity <= 1
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


def _places(candidates: Sequence[int | str], served: ServedPolicy) -> IntArray:
    return np.array(sorted({served.places[id] for id in candidates}), dtype=np.intp)


def _among(probabilities: FloatArray, places: IntArray) -> FloatArray:
    """The distribution restricted to some places; even where it shows none of them."""
    out = np.zeros_like(probabilities)
    restricted = probabilities[places]
    total = float(restricted.sum())
    out[places] = restricted / total if total > 0 else 1.0 / len(places)
    return out
