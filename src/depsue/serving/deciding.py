"""Draws actions and their propensities, many decisions at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.errors import ConfigError, DataError, require, short
from depsue.serving.endpoint import Endpoint
from depsue.serving.live import Live
from depsue.serving.messages import Decide
from depsue.serving.rows import Decision, new_ids

_encode = msgspec.json.Encoder(order="sorted").encode


def check_request(request: Decide, live: Live) -> None:
    """Refuse what cannot be decided, before anything is drawn."""
    live.reader.check(request.context)
    if request.candidates is not None:
        unknown = [one for one in request.candidates if one not in live.places]
        if unknown:
            raise DataError(
                "candidates must be items of the campaign",
                column="candidates",
                found=f"{len(unknown)} unknown, such as {short(unknown[0])}",
                cure="give ids as they stand in the items file; new items come with the next round",
            )
    if live.mapping.unit is not None and request.unit is None:
        raise DataError(
            "a decision names its unit: the campaign's logs have units",
            column="unit",
            found="none",
            cure=f"unit: the value of {live.mapping.unit}",
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
    live: Live,
    rng: np.random.Generator,
    *,
    holdout: float,
    fallback: str = "",
    own_pi0: Endpoint | None = None,
) -> list[Decision]:
    """One decision for each request; nothing is written yet.

    Args:
        requests: checked ones.
        live: what serves.
        rng: draws.
        holdout: the share of traffic that stays on pi0.
        fallback: why pi0 decides in place of the policy; "" if it does not.
        own_pi0: is asked first on fallback.
    """
    contexts = live.reader.contexts([one.context for one in requests])
    own, base = live.remembered(contexts)
    restricted = [k for k, one in enumerate(requests) if one.candidates is not None]
    if restricted:
        own, base = np.array(own), np.array(base)
        for k in restricted:
            places = _places(requests[k], live)
            own[k], base[k] = _among(own[k], places), _among(base[k], places)
    held: Mask = rng.random(len(requests)) < holdout
    from_pi0 = np.ones_like(held) if fallback or live.is_pi0 else held
    drawn = draw(np.where(from_pi0[:, None], base, own), rng)
    rows = np.arange(len(requests))
    p_own, p_base = own[rows, drawn], base[rows, drawn]
    p = np.where(from_pi0, p_base, p_own)
    for k, answer in enumerate(own_pi0.ask(requests) if fallback and own_pi0 else ()):
        place = None if answer is None else live.places.get(answer.action)
        if answer is not None and place is not None:
            drawn[k], p[k], p_base[k] = place, answer.propensity, answer.propensity
            p_own[k] = own[k, place]
    now = time.time()
    ids = new_ids(len(requests), now)
    found = []
    for k, one in enumerate(requests):
        arm = "pi0" if fallback else "holdout" if held[k] and not live.is_pi0 else "policy"
        chosen = None
        if one.candidates is not None:
            chosen = _encode(sorted(_places(one, live).tolist())).decode()
        found.append(
            Decision(
                id=ids[k],
                at=now,
                round=live.round,
                policy=live.hash,
                arm=arm,  # type: ignore[arg-type]
                why=fallback,
                action=int(drawn[k]),
                propensity=min(float(p[k]), 1.0),
                p_policy=min(float(p_own[k]), 1.0),
                p_pi0=min(float(p_base[k]), 1.0),
                holdout=0.0 if fallback or live.is_pi0 else holdout,
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


def _places(request: Decide, live: Live) -> IntArray:
    return np.array(sorted({live.places[one] for one in request.candidates or ()}), dtype=np.intp)


def _among(probabilities: FloatArray, places: IntArray) -> FloatArray:
    """The distribution held to some places; even where it shows none of them."""
    out = np.zeros_like(probabilities)
    some = probabilities[places]
    total = float(some.sum())
    out[places] = some / total if total > 0 else 1.0 / len(places)
    return out
