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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from depsue.errors import ConfigError, DepsueError, require, require_positive, short

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
        decided_by: who decided: the policy, pi0 for the holdout, or pi0 as the fallback.
    """

    decision: str
    action: int | str
    propensity: float
    policy: str
    round: int
    decided_by: str


class Client:
    """Asks a service; may be used by many threads, each of which keeps a connection open.

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
    ) -> Decided:
        """A decision; durable when it is returned.

        Args:
            context: the columns of the campaign's mapping, by name.
            candidates: ids of the items to choose among; None is all.
            unit: the user, where logs have units.
            key: a request repeated with its key gets the same decision; None makes one.
        """
        body = _request({"context": context, "candidates": candidates, "unit": unit, "key": key})
        return _decided(self._send("POST", "/v1/decide", "decide", body))

    def decide_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[Decided]:
        """Several decisions, all or none, in the order of the requests.

        Args:
            requests: each with the arguments of `decide` by name.
        """
        body = {"decisions": [_request(arguments) for arguments in requests]}
        answer = self._send("POST", "/v1/decide/batch", "decide", body)
        return [_decided(values) for values in answer["decisions"]]

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

    def _send(self, method: str, path: str, role: str, value: Any) -> Any:
        """The answer's values; sent again, as it is, where that may help."""
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
            try:
                status, later, answer = self._once(method, self._path + path, body, headers)
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
            if attempt + 1 < self._tries:
                time.sleep(pause)
        raise problem

    def _once(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, float, bytes]:
        """(status, seconds of Retry-After, body) of one try."""
        connection = self._connection()
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


_DECIDE = {"context", "candidates", "unit", "key"}
_REWARD = {"decision", "value", "name", "event", "action"}


def _request(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent for one decision, with a key."""
    _require_known(arguments, _DECIDE)
    body = {name: value for name, value in arguments.items() if value is not None}
    body["context"] = dict(body.get("context", {}))
    if "candidates" in body:
        body["candidates"] = list(body["candidates"])
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


def _decided(values: Any) -> Decided:
    try:
        return Decided(**{name: values[name] for name in Decided.__dataclass_fields__})
    except (KeyError, TypeError):
        raise Unavailable(
            "the service must answer as /openapi.json says",
            found="no decision in its answer",
            cure="the url must lead to depsue serve",
            status=200,
        ) from None
