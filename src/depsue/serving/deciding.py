"""Draws actions and their propensities, many decisions at a time.

pi0 as an address of the team's: asked on fallback, in place of the saved pi0.
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
from depsue.serving.messages import Decide, Id
from depsue.serving.served import ServedPolicy
from depsue.serving.store import Decision, new_ids

log = logging.getLogger(__name__)
TIMEOUT = 0.5
"""Seconds that one answer may take."""
REST = 5.0
"""Seconds for which an address that failed is not asked again."""
AT_ONCE = 16
MOST_ANSWER = 1 << 16


class EndpointAnswer(msgspec.Struct):
    """What the address answers: the item to show, and the probability that it was drawn with."""

    action: Id
    propensity: float


class Endpoint:
    """Asks the address with POST: {"context": ..., "candidates": ..., "unit": ...}.

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
        return list(self._pool.map(self._one, requests))

    def _one(self, request: Decide) -> EndpointAnswer | None:
        if time.monotonic() < self._rests_until:
            return None
        asked: dict[str, Any] = {"context": request.context, "unit": request.unit}
        if request.candidates is not None:
            asked["candidates"] = request.candidates
        try:
            found = msgspec.json.decode(self._post(msgspec.json.encode(asked)), type=EndpointAnswer)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError) as problem:
            self._rests_until = time.monotonic() + REST
            log.warning("pi0's address failed", exc_info=problem)
            return None
        ok = 0 < found.propensity <= 1
        return found if ok and found.action in (request.candidates or [found.action]) else None

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
            found: bytes = answer.read(MOST_ANSWER)
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            return found
        finally:
            connection.close()


_encode = msgspec.json.Encoder(order="sorted").encode


def check_request(request: Decide, served: ServedPolicy) -> None:
    """Refuse what cannot be decided, before anything is drawn."""
    served.reader.check(request.context)
    if request.candidates is not None:
        unknown = [one for one in request.candidates if one not in served.places]
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


def decide(
    requests: Sequence[Decide],
    served: ServedPolicy,
    rng: np.random.Generator,
    *,
    holdout: float,
    fallback: str = "",
    own_pi0: Endpoint | None = None,
) -> list[Decision]:
    """One decision for each request; nothing is written yet.

    Args:
        requests: checked ones.
        served: what serves.
        rng: draws.
        holdout: the share of traffic that stays on pi0.
        fallback: why pi0 decides in place of the policy; "" if it does not.
        own_pi0: is asked first on fallback.
    """
    contexts = served.reader.contexts([one.context for one in requests])
    own, base = served.remembered(contexts)
    restricted = [k for k, one in enumerate(requests) if one.candidates is not None]
    if restricted:
        own, base = np.array(own), np.array(base)
        for k in restricted:
            places = _places(requests[k], served)
            own[k], base[k] = _among(own[k], places), _among(base[k], places)
    held: Mask = rng.random(len(requests)) < holdout
    from_pi0 = np.ones_like(held) if fallback or served.is_pi0 else held
    drawn = draw(np.where(from_pi0[:, None], base, own), rng)
    rows = np.arange(len(requests))
    p_own, p_base = own[rows, drawn], base[rows, drawn]
    p = np.where(from_pi0, p_base, p_own)
    for k, answer in enumerate(own_pi0.ask(requests) if fallback and own_pi0 else ()):
        place = None if answer is None else served.places.get(answer.action)
        if answer is not None and place is not None:
            drawn[k], p[k], p_base[k] = place, answer.propensity, answer.propensity
            p_own[k] = own[k, place]
    now = time.time()
    ids = new_ids(len(requests), now)
    found = []
    for k, one in enumerate(requests):
        decided_by = "pi0" if fallback else "holdout" if held[k] and not served.is_pi0 else "policy"
        chosen = None
        if one.candidates is not None:
            chosen = _encode(sorted(_places(one, served).tolist())).decode()
        found.append(
            Decision(
                id=ids[k],
                at=now,
                round=served.round,
                policy=served.hash,
                decided_by=decided_by,  # type: ignore[arg-type]
                why=fallback,
                action=int(drawn[k]),
                propensity=min(float(p[k]), 1.0),
                p_policy=min(float(p_own[k]), 1.0),
                p_pi0=min(float(p_base[k]), 1.0),
                holdout=0.0 if fallback or served.is_pi0 else holdout,
                context=_encode(one.context).decode(),
                unit=None if one.unit is None else _encode(one.unit).decode(),
                key=one.key,
                asked=None if one.key is None else digest(one),
                candidates=chosen,
            )
        )
    return found


def draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """(m,) one action from each of m distributions, never one of probability 0."""
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    target = rng.random(len(cumulative))[:, None] * cumulative[:, -1:]
    found = (cumulative <= target).sum(axis=1)
    last = probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(axis=1)
    return np.asarray(np.minimum(found, last))  # whatever the rounding


def _places(request: Decide, served: ServedPolicy) -> IntArray:
    return np.array(sorted({served.places[one] for one in request.candidates or ()}), dtype=np.intp)


def _among(probabilities: FloatArray, places: IntArray) -> FloatArray:
    """The distribution held to some places; even where it shows none of them."""
    out = np.zeros_like(probabilities)
    some = probabilities[places]
    total = float(some.sum())
    out[places] = some / total if total > 0 else 1.0 / len(places)
    return out
