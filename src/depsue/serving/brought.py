"""What requests bring beside their contexts: candidates, and what is known of pi0 on them.

A request may bring candidates with pi0's probabilities of them, or the item that pi0 chose with its
probability. All of it is checked before anything is drawn, and packed for the store: the places of
200 candidates take 800 characters, pi0's probabilities as many (they count in single precision, as
they are stored, so that what is read back is what was drawn from).
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from itertools import chain, compress
from typing import Any

import msgspec
import numpy as np

from depsue.data.checks import IntArray
from depsue.data.requests import SUM_SLACK, Candidates
from depsue.errors import DataError, short
from depsue.serving.kinds import LEAST_CHOSEN
from depsue.serving.messages import Decide
from depsue.serving.served import ServedPolicy

_UNKNOWN = "their ids as the items file has them; an item that arrived since needs an entry in it"
_OWN = "send what pi0 chose as chosen, and with which probability as chosen_probability"


def check_brought(request: Decide, served: ServedPolicy, most: int) -> None:
    """Refuse candidates, probabilities and choices that cannot be decided by.

    Args:
        request: what is asked.
        served: what serves; it says what requests must bring.
        most: candidates at most.
    """
    candidates, known = request.candidates, served.places
    if candidates is None:
        _require_set(request, served)
    else:
        if len(candidates) > most:
            raise DataError(
                f"a request brings {most:,} candidates at most",
                column="candidates",
                found=f"{len(candidates):,}",
                cure="send those that could be shown; serve with another --most-candidates",
            )
        if not any(map(known.__contains__, candidates)):
            raise DataError(
                "some candidates must be items of the campaign",
                column="candidates",
                found=f"{len(candidates)} unknown, such as {short(candidates[0])}",
                cure=_UNKNOWN,
            )
    if request.probabilities is not None:
        _check_probabilities(request.candidates or [], request.probabilities)
        _require_old(request.candidates or [], request.probabilities, served)
    elif served.pi0_is == "brought" and not request.shown:
        raise DataError(
            "every request must bring pi0's probabilities of its candidates",
            column="probabilities",
            found="none",
            cure="send what your ranker would draw by, in the order of the candidates",
        )
    _check_choice(request, served)
    if request.shown and (request.chosen is None or request.key is None):
        raise DataError(
            "what a caller showed without an answer is pi0's choice, reported with the key of the "
            "request",
            column="shown",
            found="no key" if request.key is None else "no chosen item",
            cure="send the request again as it was, with its key, chosen, chosen_probability and "
            "shown: true",
        )


def _require_set(request: Decide, served: ServedPolicy) -> None:
    """Refuse a request without candidates where all requests of the logs have them."""
    if served.brings:
        raise DataError(
            "every request must bring its candidates, as the campaign's logs have them",
            column="candidates",
            found="none",
            cure="send the ids of the items that could be shown",
        )
    if request.probabilities is not None:
        raise DataError(
            "pi0's probabilities are those of the candidates",
            column="probabilities",
            found="no candidates",
            cure="send the candidates that they belong to, in the same order",
        )


def _check_probabilities(candidates: Sequence[Any], probabilities: Sequence[float]) -> None:
    total = sum(probabilities)
    if len(probabilities) != len(candidates):
        found = f"{len(probabilities):,} for {len(candidates):,} candidates"
        cure = "send one for each candidate, 0 for an item that pi0 never shows"
    elif len(set(candidates)) != len(candidates):
        found, cure = "a candidate twice", "list each item once, with the sum of its probabilities"
    elif not abs(total - 1) <= SUM_SLACK:
        found, cure = f"a sum of {total:.6g}", "send all candidates; their probabilities sum to 1"
    else:
        return
    raise DataError(
        "pi0's probabilities must be a distribution over the candidates",
        column="probabilities",
        found=found,
        cure=cure,
    )


def _require_old(
    candidates: Sequence[Any], probabilities: Sequence[float], served: ServedPolicy
) -> None:
    """Refuse a pi0 that shows new items: the rule that `check` holds logs to."""
    if served.new_ids.isdisjoint(candidates):
        return
    pairs = zip(candidates, probabilities, strict=True)
    shown = [(id, p) for id, p in pairs if p > 0 and id in served.new_ids]
    if shown:
        raise DataError(
            "pi0's probability of a new item must be 0",
            column="probabilities",
            found=f"{shown[0][1]:g} of {short(shown[0][0])} ({len(shown)} such)",
            cure="send 0 for items that are new to the campaign; where your ranker shows them by "
            "now, end the round, and begin a campaign with logs in which it does",
        )


def known_part(request: Decide, served: ServedPolicy) -> tuple[Decide, bool]:
    """A checked request without candidates that are no items of the campaign, which nobody can be
    shown; and whether pi0 would have shown some of them.

    Then what is left are not pi0's probabilities of what is left: they are as its own draw would
    have been without the others, and no certificate covers them.
    """
    candidates, shares = request.candidates, request.probabilities
    known = served.places
    if candidates is None or all(map(known.__contains__, candidates)):
        return request, False
    mine = [id in known for id in candidates]
    kept = list(compress(candidates, mine))
    if shares is None:
        return msgspec.structs.replace(request, candidates=kept), False
    left = list(compress(shares, mine))
    total = sum(left)
    lost = any(p > 0 and not m for p, m in zip(shares, mine, strict=True))
    left = [p / total for p in left] if total > 0 else [1 / len(left)] * len(left)
    return msgspec.structs.replace(request, candidates=kept, probabilities=left), lost


def _check_choice(request: Decide, served: ServedPolicy) -> None:
    if request.chosen is None and request.chosen_probability is None:
        if served.pi0_is == "chosen":
            raise DataError(
                "every request must bring what pi0 chose, with its probability",
                column="chosen",
                found="none",
                cure=_OWN,
            )
        return
    if request.chosen is None or request.chosen_probability is None:
        found = "a probability alone" if request.chosen is None else "an item alone"
        raise DataError(
            "pi0's choice is an item with its probability",
            column="chosen",
            found=found,
            cure=_OWN,
        )
    if request.chosen_probability < LEAST_CHOSEN:
        raise DataError(
            f"pi0 chooses with a probability of {LEAST_CHOSEN:g} or more",
            column="chosen_probability",
            found=f"{request.chosen_probability:g}",
            cure="draw from a distribution that gives each item that may be shown so much, and "
            "send what it was drawn with",
        )
    if request.chosen not in served.places:
        raise DataError(
            "what pi0 chose must be an item of the campaign",
            column="chosen",
            found=short(request.chosen),
            cure=_UNKNOWN,
        )
    if request.candidates is not None and request.chosen not in request.candidates:
        raise DataError(
            "what pi0 chose must be one of the candidates",
            column="chosen",
            found=f"{short(request.chosen)}, which is none of {len(request.candidates):,}",
            cure="send all that could be shown, whatever pi0 chose: a list that follows the choice "
            "would tell it",
        )


def sets_of(
    requests: Sequence[Decide], served: ServedPolicy, *, with_pi0: bool = False
) -> Candidates:
    """The candidates of checked requests; an item that is listed twice counts once.

    Args:
        requests: each with candidates.
        served: whose items they are.
        with_pi0: whether each has pi0's probabilities, and they are wanted.
    """
    lists = [request.candidates or () for request in requests]
    sizes = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    flat = map(served.places.__getitem__, chain.from_iterable(lists))
    items = np.fromiter(flat, dtype=np.int32, count=int(sizes.sum()))
    if with_pi0:
        shares = chain.from_iterable(request.probabilities or () for request in requests)
        pi0 = np.fromiter(shares, dtype=np.float32, count=len(items))
        return Candidates.of_flat(sizes, items, pi0)
    request = np.repeat(np.arange(len(sizes)), sizes)
    keys = np.sort((request << 32) | items)
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if len(again):
        keys = np.delete(keys, again)
        sizes = np.bincount(keys >> 32, minlength=len(sizes))
    return Candidates.of_flat(sizes, keys & 0xFFFFFFFF)


def packed(sets: Candidates, n_actions: int) -> list[str]:
    """The places of each request's candidates, as text: their width in bytes, then base64."""
    width = _width(n_actions)
    content = sets.items.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width].tobytes()
    ends = (sets.starts * width).tolist()
    return [
        f"{width}{_text(content[first:last])}" for first, last in zip(ends, ends[1:], strict=False)
    ]


def packed_shares(sets: Candidates) -> list[str | None]:
    """pi0's probabilities of each request's candidates, as text; None where they are not known."""
    if sets.pi0 is None:
        return [None] * len(sets)
    content = sets.pi0.astype("<f4").tobytes()
    ends = (sets.starts * 4).tolist()
    return [_text(content[first:last]) for first, last in zip(ends, ends[1:], strict=False)]


def unpacked(texts: Sequence[str], shares: Sequence[str | None] | None = None) -> Candidates:
    """The candidates of requests as they were stored, by `packed` or, before it, as JSON.

    Args:
        texts: of the places.
        shares: of pi0's probabilities; they are left out unless all requests have them.
    """
    items = [_places(text) for text in texts]
    sizes = [len(each) for each in items]
    flat = np.concatenate([np.zeros(0, np.int32), *items])
    if shares is None or any(text is None for text in shares) or not len(texts):
        return Candidates.of_flat(sizes, flat)
    content = b"".join(binascii.a2b_base64(text or "") for text in shares)
    return Candidates.of_flat(sizes, flat, np.frombuffer(content, dtype="<f4"))


def _places(text: str) -> IntArray:
    if text.startswith("["):
        return np.array(msgspec.json.decode(text), dtype=np.int32)
    width = int(text[0])
    bytes_ = np.frombuffer(binascii.a2b_base64(text[1:]), dtype=np.uint8).reshape(-1, width)
    whole = np.zeros((len(bytes_), 4), dtype=np.uint8)
    whole[:, :width] = bytes_
    return whole.view("<u4").reshape(-1).astype(np.int32)


def _width(n_actions: int) -> int:
    """Bytes that a place takes."""
    return next(width for width in (1, 2, 3, 4) if n_actions <= 1 << 8 * width)


def _text(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode()
