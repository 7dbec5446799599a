"""pi0 as an address of the team's: asked on fallback, in place of the saved pi0."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec

from depsue.serving.messages import Decide, Id

TIMEOUT = 0.5
"""Seconds that one answer may take."""
REST = 5.0
"""Seconds for which an address that failed is not asked again."""
AT_ONCE = 16
MOST_ANSWER = 1 << 16


class Chosen(msgspec.Struct):
    """What the address answers: the item to show, and the probability that it was drawn with."""

    action: Id
    propensity: float


class Endpoint:
    """Asks the address with POST: {"context": ..., "candidates": ..., "unit": ...}.

    Where it does not answer in time, or not as it must, the saved pi0 decides, and the address is
    left alone for a while.

    Args:
        url: http or https.
        told: is told when it fails.
    """

    def __init__(self, url: str, told: Callable[..., None]) -> None:
        self._url, self._told = urlsplit(url), told
        self._pool = ThreadPoolExecutor(AT_ONCE, "depsue-pi0")
        self._rests_until = 0.0

    def ask(self, requests: Sequence[Decide]) -> list[Chosen | None]:
        """An answer for each request; None where the saved pi0 must decide."""
        if time.monotonic() < self._rests_until:
            return [None] * len(requests)
        return list(self._pool.map(self._one, requests))

    def _one(self, request: Decide) -> Chosen | None:
        if time.monotonic() < self._rests_until:
            return None
        asked: dict[str, Any] = {"context": request.context, "unit": request.unit}
        if request.candidates is not None:
            asked["candidates"] = request.candidates
        try:
            found = msgspec.json.decode(self._post(msgspec.json.encode(asked)), type=Chosen)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError) as problem:
            self._rests_until = time.monotonic() + REST
            self._told("pi0's address failed", error=f"{type(problem).__name__}: {problem}")
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
