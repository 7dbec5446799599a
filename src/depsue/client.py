"""A client of `depsue serve`: decisions, rewards, and where the service stands.

::

    ServiceError           the service did not do what was asked
    ├── Refused            it said why: a rule, what was found, a cure (4xx)
    └── Unavailable        it did not answer, or could not, after all tries (no answer, 5xx)

Only the standard library is needed. Every decision is asked for with a key of its own, so that a
request repeated after a broken connection, or when the service was too busy, is decided once.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from depsue.errors import ConfigError, DepsueError, require, require_positive, short

TOO_MANY = 429
"""Status of more than a token may send."""
AGAIN = (502, 503, 504)
"""Statuses after which a request is sent again, with its key."""
LONGEST = 10.0
"""Seconds that are waited between two tries, at most, whatever Retry-After says."""
_NUMBER = "seconds, such as 5.0"


class ServiceError(DepsueError):
    """The service did not do what was asked.

    Args:
        rule: which was broken.
        found: what was found.
        cure: what to do.
        status: of HTTP; 0 where there was no answer.
    """

    def __init__(self, rule: str, *, found: str = "", cure: str = "", status: int = 0) -> None:
        super().__init__(rule, found=found, cure=cure)
        self.status = status


class Refused(ServiceError):
    """The service refused, and said why; the same request would be refused again."""


class Unavailable(ServiceError):
    """The service did not answer, or could not, after all tries; later it may."""


@dataclass(frozen=True)
class Decided:
    """A decision.

    Args:
        decision: its id, which rewards name.
        action: the id of the item to show.
        propensity: the probability it was drawn with, among the candidates.
        policy: SHA-256 of the policy that serves.
        round: of the campaign.
        decided_by: who decided: the policy, pi0 for the holdout, or pi0 as the fallback; "caller"
            where the service did not answer in time, and pi0's own choice is to be shown.
        key: of the request.
    """

    decision: str
    action: int | str
    propensity: float
    policy: str
    round: int
    decided_by: str
    key: str = ""


MOST_UNREPORTED = 100_000
"""Choices of the caller's own that wait to be reported, and rewards of them; the oldest go first.
"""
CALLER = "caller"


class Client:
    """Asks a service; may be used by many threads, each of which keeps a connection open.

    It can fail open: with `within`, a request that brings pi0's own choice gets that choice where
    no answer comes in time. Such choices are kept, with their rewards, until `report` tells the
    service, which counts them as pi0's.

    Args:
        url: of the service, such as http://127.0.0.1:8470; https where it has a certificate.
        decide_token: for decisions; None where no token is asked for.
        reward_token: for rewards.
        admin_token: for `status`, `stop`, `resume` and `share`.
        timeout: seconds to wait for one answer.
        tries: how often a request is sent at most.
        tls: settings of https; None takes the system's certificates.
    """

    def __init__(
        self,
        url: str,
        decide_token: str | None = None,
        reward_token: str | None = None,
        timeout: float = 5.0,
        *,
        admin_token: str | None = None,
        tries: int = 4,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._secure, self._host, self._port, self._path = _address(url)
        require_positive(timeout, "timeout", _NUMBER)
        require(1 <= tries <= 100, "tries: 1 to 100", found=short(tries))
        self._timeout, self._tries = float(timeout), tries
        self._tls = ssl.create_default_context() if tls is None and self._secure else tls
        self._tokens = {
            "decide": _checked(decide_token),
            "reward": _checked(reward_token),
            "admin": _checked(admin_token),
        }
        self._mine = threading.local()
        self._unreported: deque[tuple[dict[str, Any], list[dict[str, Any]]]] = deque(
            maxlen=MOST_UNREPORTED
        )
        self._all: weakref.WeakSet[_Connection] = weakref.WeakSet()

    def __repr__(self) -> str:
        scheme = "https" if self._secure else "http"
        port = "" if self._port is None else f":{self._port}"
        return f"Client('{scheme}://{self._host}{port}{self._path}')"

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a client is not pickled: it holds tokens and connections")

    def decide(
        self,
        context: Mapping[str, Any],
        candidates: Sequence[int | str] | None = None,
        unit: int | str | None = None,
        key: str | None = None,
        *,
        probabilities: Sequence[float] | None = None,
        chosen: int | str | None = None,
        chosen_probability: float | None = None,
        version: str | None = None,
        within: float | None = None,
    ) -> Decided:
        """A decision; durable when it is returned, unless the caller decided.

        Args:
            context: the columns of the campaign's mapping, by name.
            candidates: ids of the items to choose among; None is all.
            unit: the user, where logs have units.
            key: a request repeated with its key gets the same decision; None makes one.
            probabilities: pi0's, of the candidates in their order.
            chosen: the item that pi0 itself chose for this request.
            chosen_probability: with which probability pi0 chose it.
            version: of pi0, as the logs name it.
            within: seconds after which pi0's own choice is shown; None waits for an answer.
        """
        body = _request(
            {
                **{"context": context, "candidates": candidates, "unit": unit, "key": key},
                **{"probabilities": probabilities, "chosen": chosen, "version": version},
                "chosen_probability": chosen_probability,
            }
        )
        if within is None:
            return _decided(self._send("POST", "/v1/decide", "decide", body), body["key"])
        require_positive(within, "within", _NUMBER)
        if chosen is None or chosen_probability is None:
            raise ConfigError(
                "who is not answered in time shows pi0's own choice, so a request brings it",
                found="within without chosen and chosen_probability",
                cure="chosen=the item that your ranker drew, chosen_probability=its probability",
            )
        try:
            return _decided(self._send("POST", "/v1/decide", "decide", body, within), body["key"])
        except ServiceError as problem:
            if not isinstance(problem, Unavailable) and problem.status != TOO_MANY:
                raise  # the same request would be refused again: whoever sends it must know
        self._unreported.append((body | {"shown": True}, []))
        share = float(chosen_probability)
        return Decided("", chosen, share, "", 0, CALLER, body["key"])

    @property
    def unreported(self) -> int:
        """Choices of the caller's own that `report` has not told the service yet."""
        return len(self._unreported)

    def report(self) -> int:
        """Tell the service what was shown without an answer of it; how many it knows now.

        What it does not take now stays for the next call; an `Unavailable` says that it is away.
        """
        told = 0
        while self._unreported:
            few = [self._unreported.popleft() for _ in range(min(100, len(self._unreported)))]
            try:
                body = {"decisions": [request for request, _ in few]}
                answer = self._send("POST", "/v1/decide/batch", "decide", body)["decisions"]
                earned = [
                    reward | {"decision": made["decision"]}
                    for made, (_, rewards) in zip(answer, few, strict=True)
                    for reward in rewards
                ]
                if earned:
                    self._send("POST", "/v1/reward/batch", "reward", {"rewards": earned})
            except ServiceError:
                self._unreported.extendleft(reversed(few))
                raise
            told += len(few)
        return told

    def decide_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[Decided]:
        """Several decisions, all or none, in the order of the requests.

        Args:
            requests: each with the arguments of `decide` by name.
        """
        body = {"decisions": [_request(arguments) for arguments in requests]}
        answer = self._send("POST", "/v1/decide/batch", "decide", body)
        keys = [request["key"] for request in body["decisions"]]
        pairs = zip(answer["decisions"], keys, strict=True)
        return [_decided(values, key) for values, key in pairs]

    def reward(
        self,
        decision: str | Decided,
        value: float,
        *,
        name: str | None = None,
        event: str | None = None,
        action: int | str | None = None,
    ) -> None:
        """Tell what a decision earned; durable on return, and sent twice it counts once.

        Args:
            decision: the decision, or its id.
            value: in the units of the logs' column.
            name: another reward column of the mapping; None is the reward.
            event: tells several rewards of one decision apart.
            action: the id of the item that was really shown.
        """
        body = _reward(
            {"decision": decision, "value": value, "name": name, "event": event, "action": action}
        )
        if isinstance(decision, Decided) and decision.decided_by == CALLER:
            for request, rewards in self._unreported:
                if request["key"] == decision.key:
                    rewards.append(body)
            return  # one that was reported already is pi0's, without a row in the next logs
        self._send("POST", "/v1/reward", "reward", body)

    def reward_batch(self, rewards: Sequence[Mapping[str, Any]]) -> int:
        """Tell what several decisions earned; how many are on disk now.

        Args:
            rewards: each with the arguments of `reward` by name.
        """
        body = {"rewards": [_reward(arguments) for arguments in rewards]}
        return int(self._send("POST", "/v1/reward/batch", "reward", body)["accepted"])

    def status(self) -> dict[str, Any]:
        """What serves, and what the monitor says; needs a token of the role admin."""
        status: dict[str, Any] = self._send("GET", "/v1/status", "admin", None)
        return status

    def stop(self, reason: str, by: str = "admin") -> dict[str, Any]:
        """Let pi0 decide from now on; the status. Needs a token of the role admin.

        Args:
            reason: in words, for the record.
            by: who.
        """
        body = {"reason": reason, "by": by}
        status: dict[str, Any] = self._send("POST", "/v1/policy/stop", "admin", body)
        return status

    def resume(self, stops: Sequence[str], reason: str, by: str = "admin") -> dict[str, Any]:
        """Let the policy decide again, if no other stop stands; the status.

        Args:
            stops: ids of the stops that you saw: `[stop["id"] for stop in status()["stops"]]`.
            reason: in words, for the record.
            by: who.
        """
        body = {"stops": list(stops), "reason": reason, "by": by}
        status: dict[str, Any] = self._send("POST", "/v1/policy/resume", "admin", body)
        return status

    def share(self, share: float, reason: str, by: str = "admin") -> dict[str, Any]:
        """Put another share of traffic on the policy; the status. Needs a token of the role admin.

        Args:
            share: on the policy, in [0, 1]; the rest is the holdout, on pi0. 0 makes a shadow.
            reason: in words, for the record.
            by: who.
        """
        body = {"share": share, "reason": reason, "by": by}
        status: dict[str, Any] = self._send("POST", "/v1/policy/share", "admin", body)
        return status

    def close(self) -> None:
        """Close the connections of all threads."""
        for owned in list(self._all):
            owned.connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(
        self, method: str, path: str, role: str, value: Any, within: float | None = None
    ) -> Any:
        """The answer's values; sent again, as it is, where that may help and there is time."""
        end = None if within is None else time.monotonic() + within
        headers = {"accept": "application/json"}
        body = None
        if value is not None:
            body = _encoded(value)
            headers["content-type"] = "application/json"
        if self._tokens[role] is not None:
            headers["authorization"] = f"Bearer {self._tokens[role]}"
        problem = Unavailable("the service must answer")
        for attempt in range(self._tries):
            pause = min(0.05 * 2**attempt, LONGEST) * random.uniform(0.5, 1.0)
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            try:
                status, later, answer = self._once(method, self._path + path, body, headers, left)
            except (OSError, http.client.HTTPException) as cause:
                problem = Unavailable(
                    "the service must answer",
                    found=f"{type(cause).__name__} from {self._host}",
                    cure="start depsue serve, or mend the address",
                )
                problem.__cause__ = cause
                pause = pause if attempt else 0.0  # the service may have closed it meanwhile
            else:
                if status == 200:
                    return _values(answer, status)
                refusal = _refusal(status, answer)
                if not isinstance(refusal, Unavailable) or status not in AGAIN:
                    raise refusal
                problem, pause = refusal, max(pause, min(later, LONGEST))
            if end is not None and time.monotonic() + pause >= end:
                break
            if attempt + 1 < self._tries:
                time.sleep(pause)
        raise problem

    def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        left: float | None,
    ) -> tuple[int, float, bytes]:
        """(status, seconds of Retry-After, body) of one try, which takes `left` seconds at most."""
        connection = self._connection()
        connection.timeout = self._timeout if left is None else min(self._timeout, left)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()  # what comes later on it would belong to this request
            raise
        later = answer.headers.get("retry-after", "")
        return answer.status, float(later) if later.isdecimal() else 0.0, content

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's own; a process that was forked makes its own, too."""
        owned: _Connection | None = getattr(self._mine, "owned", None)
        if owned is not None and owned.process == os.getpid():
            return owned.connection
        connection: http.client.HTTPConnection
        if self._secure:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        self._mine.owned = _Connection(connection)
        self._all.add(self._mine.owned)
        return connection


class _Connection:
    """A connection, closed with the thread that owns it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection, self.process = connection, os.getpid()

    def __del__(self) -> None:
        self.connection.close()


def _address(url: str) -> tuple[bool, str, int | None, str]:
    """(whether it is https, host, port, path) of a url."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        ok = parts.scheme in ("http", "https") and bool(host)
        more = (parts.query, parts.fragment, parts.username, parts.password)
    except ValueError:
        ok, more = False, ("", "", None, None)
    if not ok or any(more):  # a password may be in what was given
        raise ConfigError(
            "the url is http://host:port or https://host:port",
            found="another kind of address",
            cure="tokens are arguments of their own",
        )
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


_DECIDE = {
    *("context", "candidates", "unit", "key"),
    *("probabilities", "chosen", "chosen_probability", "version"),
}
_REWARD = {"decision", "value", "name", "event", "action"}


def _request(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent for one decision, with a key."""
    _require_known(arguments, _DECIDE)
    body = {name: value for name, value in arguments.items() if value is not None}
    body["context"] = dict(body.get("context", {}))
    for name in ("candidates", "probabilities"):
        if name in body:
            body[name] = list(body[name])
    body.setdefault("key", secrets.token_hex(16))
    return body


def _reward(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent for one reward."""
    _require_known(arguments, _REWARD)
    body = {name: value for name, value in arguments.items() if value is not None}
    if "value" in body:
        body["reward"] = body.pop("value")
    if isinstance(body.get("decision"), Decided):
        body["decision"] = body["decision"].decision
    return body


def _require_known(arguments: Mapping[str, Any], names: set[str]) -> None:
    unknown = sorted(set(arguments) - names)
    require(
        not unknown,
        f"a request has {', '.join(sorted(names))}, and nothing else",
        found=short(unknown),
    )


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, default=_plain).encode()
    except (ValueError, TypeError, RecursionError) as problem:
        raise ConfigError(
            "a request has text, finite numbers, true, false and null",
            found=short(str(problem)),
            cure="null where a value is not known",
        ) from None


def _plain(value: Any) -> Any:
    """Numbers of numpy and others as Python's own."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return value.item()
    raise TypeError(f"{type(value).__name__} is none of these")


def _checked(token: str | None) -> str | None:
    ok = token is None or (token.isascii() and token.isprintable() and " " not in token)
    require(ok, "a token is printable text", cure="as depsue token add printed it")
    return token


def _values(body: bytes, status: int) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise Unavailable(
            "the service must answer in JSON",
            found=f"{len(body)} other bytes",
            cure="the url must lead to depsue serve",
            status=status,
        ) from None


def _refusal(status: int, body: bytes) -> ServiceError:
    """The error that an answer tells of."""
    try:
        refusal = json.loads(body)
        rule, found, cure = (str(refusal.get(name, "")) for name in ("error", "found", "cure"))
    except (ValueError, AttributeError):
        rule, found, cure = "", "", ""
    kind = Refused if 400 <= status < 500 else Unavailable
    return kind(
        rule or "the service must answer as /openapi.json says",
        found=found or f"status {status}",
        cure=cure,
        status=status,
    )


def _decided(values: Any, key: str) -> Decided:
    names = [name for name in Decided.__dataclass_fields__ if name != "key"]
    try:
        return Decided(**{name: values[name] for name in names}, key=key)
    except (KeyError, TypeError):
        raise Unavailable(
            "the service must answer as /openapi.json says",
            found="no decision in its answer",
            cure="the url must lead to depsue serve",
            status=200,
        ) from None
