"""Draws actions and their propensities, many decisions at a time.

`decide` turns requests into decisions; nothing is written yet. On fallback a team's own pi0 is
asked first, where it has an address (`Endpoint`), and the saved pi0 decides where that fails.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.errors import ConfigError, DataError, require, short
from depsue.serving.messages import Decide, DecidedBy, Id
from depsue.serving.served import OUTSIDE, ServedPolicy
from depsue.serving.store import Decision, new_ids

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


def decide(
    requests: Sequence[Decide],
    served: ServedPolicy,
    rng: np.random.Generator,
    *,
    now: float,
    holdout: float,
    fallback: str = "",
    own_pi0: Endpoint | None = None,
) -> list[Decision]:
    """One decision for each request; nothing is written yet.

    Args:
        requests: checked ones.
        served: what serves.
        rng: draws.
        now: seconds since 1970.
        holdout: the share of traffic that stays on pi0.
        fallback: why pi0 decides in place of the policy; "" if it does not.
        own_pi0: is asked first on fallback.
    """
    contexts = served.reader.contexts([request.context for request in requests])
    own, base = served.cached(contexts)
    restricted = {
        k: _places(request.candidates, served)
        for k, request in enumerate(requests)
        if request.candidates is not None
    }
    if restricted:
        own, base = np.array(own), np.array(base)  # the cache's rows are shared
        for k, places in restricted.items():
            own[k], base[k] = _among(own[k], places), _among(base[k], places)
    held: Mask = rng.random(len(requests)) < holdout
    outside = served.outside(contexts)
    from_pi0 = np.ones_like(held) if fallback or served.is_pi0 else held | outside
    drawn = draw(np.where(from_pi0[:, None], base, own), rng)
    rows = np.arange(len(requests))
    p_own, p_base = own[rows, drawn], base[rows, drawn]
    p = np.where(from_pi0, p_base, p_own)
    for k, answer in enumerate(own_pi0.ask(requests) if fallback and own_pi0 else ()):
        place = None if answer is None else served.places.get(answer.action)
        if answer is not None and place is not None:
            drawn[k], p[k], p_base[k] = place, answer.propensity, answer.propensity
            p_own[k] = own[k, place]
    ids = new_ids(len(requests), now)
    decisions = []
    for k, request in enumerate(requests):
        decided_by: DecidedBy = "policy"
        why = fallback or (OUTSIDE if outside[k] else "")
        if why:
            decided_by = "pi0"
        elif held[k] and not served.is_pi0:
            decided_by = "holdout"
        candidates = None
        if k in restricted:
            candidates = _encode(restricted[k].tolist()).decode()
        decisions.append(
            Decision(
                id=ids[k],
                at=now,
                round=served.round,
                policy=served.hash,
                decided_by=decided_by,
                why=why,
                action=int(drawn[k]),
                propensity=min(float(p[k]), 1.0),  # rounding may leave a sum just above 1
                p_policy=min(float(p_own[k]), 1.0),
                p_pi0=min(float(p_base[k]), 1.0),
                holdout=0.0 if why or served.is_pi0 else holdout,
                context=_encode(request.context).decode(),
                unit=None if request.unit is None else _encode(request.unit).decode(),
                key=request.key,
                asked=None if request.key is None else digest(request),
                candidates=candidates,
            )
        )
    return decisions


def draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """(m,) one action from each of m distributions, never one of probability 0."""
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    target = rng.random(len(cumulative))[:, None] * cumulative[:, -1:]
    drawn = (cumulative <= target).sum(axis=1)
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


def digest(request: Decide) -> str:
    """Of what a request asks; the same key with another is a mistake."""
    asked = [request.context, request.candidates, request.unit]
    return hashlib.blake2b(_encode(asked), digest_size=16).hexdigest()


def require_same_request(request: Decide, asked: str | None) -> None:
    """Refuse a key that another request had."""
    require(
        asked == digest(request),
        "a key belongs to one request",
        found=f"key {short(request.key)} with another context, unit or candidates",
        cure="a new key for a new request",
        error=ConfigError,
    )


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
