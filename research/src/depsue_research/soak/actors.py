"""Clients of a soak: they ask, repeat, reward early, late and twice, and write everything down.

A client sends raw HTTP/1.1 on connections of its own, so that it can have three requests with one
key under way at once. It never corrects a book: what was answered stays written.
"""

from __future__ import annotations

import heapq
import http.client
import itertools
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from depsue_research.soak.book import Acknowledged, Ask, Book, NotAnswered, RewardSent, now

CONTEXTS = 40
"""Users who come back."""
LARGE = 400
"""Requests of a large batch."""
BURST = 0.06
"""Seconds within which a key is sent three times."""
TIMEOUT = 4.0
"""Seconds that a client waits for an answer."""
USUAL = {"single": 35, "burst": 30, "batch": 2, "old": 14, "unanswered": 12, "unkeyed": 7}
BULK = USUAL | {"batch": 30}
"""How often a client does what; every third sends mostly batches."""
MOST_REWARDED, MOST_DRAINED = 10, 50
"""Decisions of one answer that get rewards, and requests with rewards that are sent at the end."""
BROUGHT = ("candidates", "probabilities", "chosen", "chosen_probability")
"""What a caller may bring beside the context. A repeat with other stock brings all of it anew."""
VALUES = (0.0, 0.1, 0.2, 0.3)
"""Rewards; three of them add up to less than r_max."""


@dataclass(frozen=True)
class Surroundings:
    """What clients know of the campaign.

    Args:
        ports: of the services.
        columns: of a context.
        items: their ids.
        new: those of them that pi0 never shows.
        wait: seconds in which rewards count.
        events: whether one decision may have several rewards.
    """

    ports: tuple[int, ...]
    columns: tuple[str, ...]
    items: tuple[int, ...]
    new: frozenset[int]
    wait: float
    events: bool


class _Line:
    """A connection to one service, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)

    def send(self, path: str, body: Any) -> None:
        try:
            self._connection.request("POST", path, json.dumps(body))
        except BaseException:
            self._connection.close()
            raise

    def receive(self) -> tuple[int, Any]:
        try:
            answer = self._connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()


class SoakClient(threading.Thread):
    """One client.

    Args:
        number: of the client; its keys begin with it.
        around: what it knows.
        folder: where its book goes.
        seed: of all that it does.
        pause: seconds between two of its turns, on average.
    """

    def __init__(
        self, number: int, around: Surroundings, folder: Path, seed: int, pause: float
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._number, self._around, self._pause = number, around, pause
        self._rng = random.Random(f"client {seed} {number}")
        self.book = Book(folder / f"client-{number}.jsonl")
        self._lines = [[_Line(port) for _ in range(3)] for port in around.ports]
        self._home = number % len(around.ports)
        self._habits = BULK if number % 3 == 2 else USUAL
        self._asks: list[Ask] = []
        self._unanswered: dict[str, Ask] = {}
        self._sent_to: dict[str, set[int]] = defaultdict(set)
        self._due: list[tuple[float, int, str, float, str]] = []
        self._ending = threading.Event()
        self.problem: BaseException | None = None
        """What ended it, if that was no part of the soak."""
        pool = random.Random(f"contexts {seed}")
        self._contexts = [
            {name: round(pool.uniform(-1.5, 1.5), 3) for name in around.columns}
            for _ in range(CONTEXTS)
        ]

    def end(self) -> None:
        """Ask it to end after its turn."""
        self._ending.set()

    def run(self) -> None:
        """Take turns until it is asked to end."""
        try:
            while not self._ending.is_set():
                self._turn()
                self._ending.wait(self._rng.expovariate(1 / self._pause))
        except BaseException as problem:
            self.problem = problem
            raise

    def close(self) -> None:
        """Close its connections."""
        for line in itertools.chain.from_iterable(self._lines):
            line.close()

    def ask_all_again(self, most: int) -> None:
        """Repeat what was never answered, and some of all the rest: everything is up again."""
        again = [ask for ask in self._asks if ask.keyed]
        chosen = self._rng.sample(again, min(most, len(again)))
        chosen += [ask for ask in self._unanswered.values() if ask.keyed]
        for start in range(0, len(chosen), LARGE):
            self._decide(chosen[start : start + LARGE], batch=True)
        for _ in range(MOST_DRAINED):  # what is then left over is never sent
            if self._due:
                self._send_rewards()

    def _turn(self) -> None:
        rng = self._rng
        self._send_due()
        kind = rng.choices(list(self._habits), list(self._habits.values()))[0]
        if kind == "single":
            ask = self._new()
            self._decide([ask])
            if rng.random() < 0.2:
                self._decide([ask])
        elif kind == "burst":
            self._burst(self._new())
        elif kind == "batch":
            size = LARGE if self._habits is BULK else rng.randrange(2, 60)
            fresh = [self._new() for _ in range(size)]
            known = [ask for ask in rng.choices(self._asks, k=size // 10) if ask.keyed]
            self._decide(list({ask.request: ask for ask in fresh + known}.values()), batch=True)
        elif kind == "old" and self._asks:  # of a moment ago, or of the beginning
            ask = rng.choice(self._asks)
            if ask.candidates is not None and rng.random() < 0.5:  # the stock has changed
                ask = with_other_stock(ask, rng, self._around.items, self._around.new)
            if ask.keyed:
                self._decide([ask])
        elif kind == "unanswered" and self._unanswered:
            asks = rng.sample(list(self._unanswered.values()), min(20, len(self._unanswered)))
            self._decide(asks, batch=True)
        elif kind == "unkeyed":
            self._decide([self._new(keyed=False)])

    def _new(self, keyed: bool = True) -> Ask:
        rng, around = self._rng, self._around
        context = dict(rng.choice(self._contexts))
        if not keyed:  # known again by its context, which no other request has
            context[around.columns[0]] = rng.uniform(-1.5, 1.5)
        with_candidates = rng.random() < 0.15
        more = {"candidates": None}
        if with_candidates:
            more = brought(rng, around.items, around.new)
        name = f"{self._number}-{len(self._asks)}"
        ask = Ask(name, keyed, context, at=now(), **more)
        self.book.write(ask)
        self._asks.append(ask)
        if keyed:
            self._unanswered[name] = ask
        return ask

    def _service(self) -> int:
        """Mostly the same one; now and then another, which did not decide what is repeated."""
        if self._rng.random() < 0.3:
            return self._rng.randrange(len(self._lines))
        return self._home

    def _decide(self, asks: Sequence[Ask], batch: bool = False) -> None:
        service, began = self._service(), now()
        body: Any = [_body(ask) for ask in asks]
        path, body = ("/v1/decide/batch", {"decisions": body}) if batch else ("/v1/decide", body[0])
        line = self._lines[service][0]
        for ask in asks:
            self._sent_to[ask.request].add(service)
        try:
            line.send(path, body)
        except (OSError, http.client.HTTPException) as problem:
            self._lost(service, path, problem)
            return
        self._take(service, line, asks, path, began)

    def _burst(self, ask: Ask) -> None:
        """The same key three times within a moment, on three connections."""
        sent = []
        for place in range(3):
            service = self._rng.randrange(len(self._lines))
            line, began = self._lines[service][place], now()
            self._sent_to[ask.request].add(service)
            try:
                line.send("/v1/decide", _body(ask))
                sent.append((service, line, began))
            except (OSError, http.client.HTTPException) as problem:
                self._lost(service, "/v1/decide", problem)
            time.sleep(self._rng.random() * BURST / 2)
        for service, line, began in sent:
            self._take(service, line, [ask], "/v1/decide", began)

    def _take(
        self, service: int, line: _Line, asks: Sequence[Ask], path: str, began: float
    ) -> None:
        """Read the answer, and write it down."""
        try:
            status, values = line.receive()
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._lost(service, path, problem)
            return
        if status != 200:
            self.book.write(NotAnswered(service, path, status, str(values)[:300], now()))
            return
        replies = values["decisions"] if "decisions" in values else [values]
        if len(replies) != len(asks):
            found = f"{len(replies)} decisions for {len(asks)} requests"
            self.book.write(NotAnswered(service, path, 500, found, now()))
            return
        ended, rewarded = now(), 0
        for ask, reply in zip(asks, replies, strict=True):
            sent_to = sorted(self._sent_to[ask.request])
            self.book.write(Acknowledged(ask.request, service, sent_to, began, ended, **reply))
            new = self._unanswered.pop(ask.request, None) is not None or not ask.keyed
            if new and rewarded < MOST_REWARDED:
                self._plan_rewards(reply["decision"])
                rewarded += 1

    def _lost(self, service: int, path: str, problem: Exception) -> None:
        self.book.write(NotAnswered(service, path, 0, type(problem).__name__, now()))
        if isinstance(problem, ConnectionRefusedError):
            time.sleep(0.02)

    def _plan_rewards(self, decision: str) -> None:
        """Rewards of a decision: none, one at once, one later, one too late, or several."""
        rng, wait = self._rng, self._around.wait
        if rng.random() < 0.4:
            return
        events = rng.sample(("", "click", "order"), rng.choice((1, 1, 2, 3)))
        for event in events if self._around.events else events[:1]:
            delay = rng.choice((0.0, 0.0, rng.random() * wait / 3, wait * (1.5 + rng.random())))
            times = rng.choice((1, 1, 1, 2, 3))
            for value in rng.sample(VALUES, times):  # the first that is acknowledged stays
                item = (now() + delay, len(self.book.entries), decision, value, event)
                heapq.heappush(self._due, item)
                delay += rng.choice((0.0, rng.random() * wait))

    def _send_due(self) -> None:
        if self._due and self._due[0][0] <= now():
            self._send_rewards()

    def _send_rewards(self) -> None:
        """Send what is due, one or several at once; what is not accepted is sent again later."""
        size = 1 if self._rng.random() < 0.5 else self._rng.randrange(2, 50)
        chosen: dict[tuple[str, str], tuple[float, int, str, float, str]] = {}
        while self._due and len(chosen) < size:
            item = heapq.heappop(self._due)
            if (item[2], item[4]) in chosen:  # two of one decision are sent one after the other
                heapq.heappush(self._due, (item[0] + 0.001, *item[1:]))
                break
            chosen[item[2], item[4]] = item
        rewards = [
            {"decision": decision, "reward": value} | ({"event": event} if event else {})
            for _, _, decision, value, event in chosen.values()
        ]
        single = len(rewards) == 1 and self._rng.random() < 0.7
        path = "/v1/reward" if single else "/v1/reward/batch"
        service, began = self._service(), now()
        line = self._lines[service][0]
        status = 0
        try:
            line.send(path, rewards[0] if single else {"rewards": rewards})
            status, values = line.receive()
            if status != 200:
                self.book.write(NotAnswered(service, path, status, str(values)[:300], now()))
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._lost(service, path, problem)
        for item in chosen.values():
            _, _, decision, value, event = item
            ended = now()
            entry = RewardSent(decision, event, value, service, began, ended, status == 200)
            self.book.write(entry)
            if status != 200 and self._rng.random() < 0.8:
                heapq.heappush(self._due, (ended + 0.2, *item[1:]))


def brought(rng: random.Random, items: Sequence[int], new: Collection[int]) -> dict[str, Any]:
    """Candidates, one of them old at least, and sometimes what pi0 is on them, or what it chose."""
    candidates = rng.sample(items, rng.randrange(1, len(items)))
    if set(candidates) <= set(new):
        candidates.append(rng.choice([item for item in items if item not in new]))
    weights = [0.0 if item in new else rng.random() + 0.01 for item in candidates]
    shares = [weight / sum(weights) for weight in weights]
    fields: dict[str, Any] = dict.fromkeys(BROUGHT) | {"candidates": candidates}
    kind = rng.random()
    if kind < 0.6:
        fields["probabilities"] = shares
    if kind < 0.3 or kind > 0.8:
        (place,) = rng.choices(range(len(shares)), shares)
        fields |= {"chosen": candidates[place], "chosen_probability": shares[place]}
    return fields


def with_other_stock(
    ask: Ask, rng: random.Random, items: Sequence[int], new: Collection[int]
) -> Ask:
    """The same request after the stock has changed, with all that belongs to it."""
    return msgspec.structs.replace(ask, **brought(rng, items, new))


def _body(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {"context": ask.context}
    if ask.keyed:
        body["key"] = ask.request
    for name in BROUGHT:
        if getattr(ask, name) is not None:
            body[name] = getattr(ask, name)
    return body
