"""What every actor of a soak wrote down: what it asked, what it was answered, what was broken when.

Books only grow. Each actor has its own file of JSON lines and keeps the entries in memory as well;
the file is for whoever looks into a break later. All times are of one monotonic clock.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

Entry = TypeVar("Entry", bound=msgspec.Struct)
FaultKind = Literal["killed", "frozen", "store down", "silent", "cut", "no room"]
STORE_FAULTS: tuple[FaultKind, ...] = ("store down", "silent", "cut", "no room")
"""Faults that may keep a service from its store."""
now = time.monotonic


class Ask(msgspec.Struct, tag="ask"):
    """A request, written down before it is sent for the first time.

    Args:
        request: its name, which is its key where it has one.
        keyed: whether it is sent with a key.
        context, candidates: what is asked.
        at: when.
        probabilities: pi0's, of the candidates, as the caller has them.
        chosen, chosen_probability: what pi0 chose at the caller's.
    """

    request: str
    keyed: bool
    context: dict[str, float]
    candidates: list[int] | None
    at: float
    probabilities: list[float] | None = None
    chosen: int | None = None
    chosen_probability: float | None = None


class Acknowledged(msgspec.Struct, tag="answer"):
    """A decision that a service answered.

    Args:
        request: which.
        service: who answered, by its number.
        sent_to: the services that were asked so far, this time or before; any may have decided.
        began, ended: when it was asked this time, and answered.
        decision, action, propensity, policy, round, decided_by: the answer.
    """

    request: str
    service: int
    sent_to: list[int]
    began: float
    ended: float
    decision: str
    action: int
    propensity: float
    policy: str
    round: int
    decided_by: str


class RewardSent(msgspec.Struct, tag="reward"):
    """A reward that was sent.

    Args:
        decision, event, value: what was sent; an event of "" is none.
        service: to whom.
        began, ended: when it was sent, and answered or given up.
        acknowledged: whether the service accepted it.
    """

    decision: str
    event: str
    value: float
    service: int
    began: float
    ended: float
    acknowledged: bool


class NotAnswered(msgspec.Struct, tag="refused"):
    """An answer other than 200; status 0 where there was none.

    Args:
        service: who.
        path: what was asked.
        status: of HTTP.
        words: the reason.
        at: when.
    """

    service: int
    path: str
    status: int
    words: str
    at: float


class Intervened(msgspec.Struct, tag="intervened"):
    """An admin stopped the policy, or resumed it.

    Args:
        kind: which.
        service: whom the admin asked.
        stops: the id of the stop, if it is known; or the ids that a resumption names.
        began, ended: when it was asked, and answered or given up.
        acknowledged: whether the service said that it did, for good.
    """

    kind: Literal["stop", "resume"]
    service: int
    stops: list[str]
    began: float
    ended: float
    acknowledged: bool


class Fault(msgspec.Struct, tag="fault"):
    """Something that was broken on purpose.

    Args:
        kind: what.
        service: whose; None for all services.
        began: when.
        ended: when it was mended; None if it was not.
    """

    kind: FaultKind
    service: int | None
    began: float
    ended: float | None = None


class Health(msgspec.Struct, tag="health"):
    """What a service said of itself.

    Args:
        service: who.
        began: when it was asked.
        well: whether it reaches its store and nothing waits in its journal.
        stopped: why the policy does not decide; "" if it does.
        damaged: lines of its journal that it could not read.
        memory: bytes that the process holds.
    """

    service: int
    began: float
    well: bool
    stopped: str
    damaged: int
    memory: int


class Book:
    """The book of one actor.

    Args:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._encode = msgspec.json.Encoder().encode
        self._lock = threading.Lock()
        self.entries: list[msgspec.Struct] = []

    def write(self, entry: msgspec.Struct) -> None:
        """Append an entry."""
        with self._lock:
            self.entries.append(entry)
            self._file.write(self._encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Books:
    """All books of a part, to be read together.

    Args:
        books: of all actors.
        services: how many there were.
    """

    def __init__(self, books: Iterable[Book], services: int) -> None:
        self._entries = [entry for book in books for entry in book.entries]
        self.services = services

    def of(self, kind: type[Entry]) -> list[Entry]:
        """All entries of a kind, book by book, in the order in which they were written."""
        return [entry for entry in self._entries if isinstance(entry, kind)]

    def outages(self, service: int, notice: float) -> list[Outage]:
        """When a service was without its store, perhaps.

        An outage begins with a fault, or before a look at which the service says that it is not
        well: it may hold a connection that an earlier fault broke. It ends with the first look at
        which the service is well.

        Args:
            service: its number.
            notice: seconds within which a service notices a fault.
        """
        looks = sorted(
            (look for look in self.of(Health) if look.service == service),
            key=lambda look: look.began,
        )
        well = [look.began for look in looks if look.well]
        spans = []
        for fault in self.of(Fault):
            if fault.kind in STORE_FAULTS and fault.service in (None, service):
                mended = math.inf if fault.ended is None else fault.ended
                spans.append(Outage(fault.kind, fault.began, mended, _next(well, mended + notice)))
        for before, look in zip(looks, looks[1:], strict=False):
            if before.well and not look.well:
                ended = _next(well, look.began)
                spans.append(Outage("by its own account", before.began, look.began, ended))
        return spans


@dataclass(frozen=True)
class Outage:
    """When a service was without its store, perhaps.

    Args:
        cause: a kind of fault, or the service's own account.
        began: when.
        mended: when the cause was.
        ended: when the service said that it is well.
    """

    cause: str
    began: float
    mended: float
    ended: float


def _next(times: list[float], after: float) -> float:
    """The first of sorted times that is not before another; infinity if there is none."""
    place = bisect_left(times, after)
    return times[place] if place < len(times) else math.inf
