"""Requests: what a decision is made on.

A request is a context x and the candidates that could be shown for it. Distinct requests are
kept once and rows point at them, so that a policy answers u requests instead of n rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from depsue.data.checks import FloatArray


@dataclass(frozen=True, eq=False)
class Requests:
    """u requests.

    Args:
        contexts: (u, d) the context of each request.
        candidates: the actions that could be shown; "all" is the whole catalogue, for every
            request, which is the dense case: a distribution then has A entries.
    """

    contexts: FloatArray
    candidates: Literal["all"] = "all"

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, piece: slice) -> Requests:
        """Some of the requests."""
        return Requests(self.contexts[piece], self.candidates)


def as_requests(requests: Requests | FloatArray) -> Requests:
    """Requests as they are; a plain (u, d) array of contexts with the whole catalogue for each."""
    return requests if isinstance(requests, Requests) else Requests(requests)
