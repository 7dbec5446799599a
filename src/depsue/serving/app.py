"""The service over HTTP: an ASGI application.

`App.routes` says what may be asked, by whom, and what answers; the OpenAPI document is made from
the same table. A request goes through the same doors whatever it asks: the size of its headers, its
origin, its token, the size of its body. All other paths belong to the pages of the dashboard, an
application of Starlette's; the routes here stay plain, for a decision takes microseconds.

`Metrics` holds counts, latencies and values of the moment, in Prometheus' text format.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from depsue._version import __version__
from depsue.database import Unstorable
from depsue.errors import ConfigError, DepsueError, FileError
from depsue.serving.access import Access, TokenLimits, TooMuch
from depsue.serving.http import (
    MOST_HEADERS,
    MOST_SAID,
    Answer,
    GuardedSend,
    Message,
    Receive,
    Request,
    Scope,
    Send,
    TooLarge,
    bearer,
    encode,
    is_foreign,
    later,
    read_body,
    refused,
    send_answer,
    too_large,
)
from depsue.serving.messages import (
    MOST_BATCH,
    Accepted,
    Decide,
    DecideBatch,
    DecisionReply,
    DecisionReplyBatch,
    Intervention,
    NewShare,
    Refusal,
    Resumption,
    RewardBatch,
    RewardReport,
)
from depsue.serving.monitor import MonitorState
from depsue.serving.service import Service
from depsue.serving.store import StoreGone
from depsue.serving.worker import Busy

log = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Answer]]
TOKENS_READ = 2.0
"""Seconds between looks at the file of tokens."""
PROBED = 5.0
"""Seconds for which the answer to "can a decision be made" holds."""
SEE_SCHEMA = "GET /openapi.json says what a body holds"
MOST_RECENT = 100_000
"""Ids of decisions that are remembered: their rewards are not those of unknown decisions."""


@dataclass(frozen=True)
class Operation:
    """One thing that may be asked, as the OpenAPI document tells it.

    Args:
        method, path: what is asked; a part of the path in braces is a parameter.
        role: whose token is needed; None for nobody's.
        summary: in words.
        takes, gives: the messages; None where the document does not describe them.
    """

    method: str
    path: str
    role: str | None
    summary: str
    takes: type | None = None
    gives: type | None = None


@dataclass(frozen=True, kw_only=True)
class Route(Operation):
    """An operation, and what answers."""

    handler: Handler


class Pages(Protocol):
    """What answers for all other paths: the dashboard, an ASGI application."""

    @property
    def operations(self) -> Sequence[Operation]:
        """What programs may ask of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks; the body was read, and is not too large."""


class App:
    """The service as an ASGI application.

    Args:
        service: what answers.
        access: who may.
        pages: the dashboard.
    """

    def __init__(
        self,
        service: Service,
        access: Access,
        *,
        pages: Pages | None = None,
    ) -> None:
        self.service, self.access = service, access
        self.pages = pages
        self.metrics = Metrics()
        settings = service.settings
        self.limits = TokenLimits(settings.rate, settings.unknown, batch=MOST_BATCH)
        self.connections: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Says how many connections are open, and may be."""
        self._probe: tuple[object, str, float] = (None, "", 0.0)
        """What was tried, why it cannot decide, and when that was."""
        self._recent: dict[str, None] = {}
        """Ids of the newest decisions."""
        self._decide = msgspec.json.Decoder(Decide).decode
        self._decide_batch = msgspec.json.Decoder(DecideBatch).decode
        self._reward = msgspec.json.Decoder(RewardReport).decode
        self._reward_batch = msgspec.json.Decoder(RewardBatch).decode
        self._stop = msgspec.json.Decoder(Intervention).decode
        self._share = msgspec.json.Decoder(NewShare).decode
        self._resume = msgspec.json.Decoder(Resumption).decode
        routes = (
            Route("POST", "/v1/decide", "decide", "Decide what to show; durable before the reply",
                  Decide, DecisionReply, handler=self._on_decide),
            Route("POST", "/v1/decide/batch", "decide", "Several decisions, all or none",
                  DecideBatch, DecisionReplyBatch, handler=self._on_decide_batch),
            Route("POST", "/v1/reward", "reward",
                  "What a decision earned; before it, late or twice is all right",
                  RewardReport, Accepted, handler=self._on_reward),
            Route("POST", "/v1/reward/batch", "reward", "Several rewards",
                  RewardBatch, Accepted, handler=self._on_reward_batch),
            Route("GET", "/v1/context", "decide", "A context that would be read",
                  handler=self._on_context),
            Route("GET", "/v1/status", "admin", "What serves, and what the monitor says",
                  handler=self._on_status),
            Route("POST", "/v1/policy/stop", "admin", "Let pi0 decide from now on",
                  Intervention, handler=self._on_stop),
            Route("POST", "/v1/policy/resume", "admin",
                  "Name stops: without any left the policy decides again", Resumption,
                  handler=self._on_resume),
            Route("POST", "/v1/policy/share", "admin",
                  "Put another share of traffic on the policy", NewShare,
                  handler=self._on_share),
            Route("GET", "/metrics", "admin", "Counts for Prometheus", handler=self._on_metrics),
            Route("GET", "/healthz", None, "Whether the process answers",
                  handler=self._on_health),
            Route("GET", "/readyz", None, "Whether decisions can be made",
                  handler=self._on_ready),
            Route("GET", "/openapi.json", None, "This document", handler=self._on_openapi),
        )  # fmt: skip
        self.routes = {(route.method, route.path): route for route in routes}
        """By method and path."""
        self._paths = {route.path for route in routes}
        more = () if pages is None else pages.operations
        self._openapi = encode(openapi([*routes, *more]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # there are none here
            return
        began = time.perf_counter()
        path, guarded = scope["path"], GuardedSend(send, head=scope["method"] == "HEAD")
        try:
            if path in self._paths:
                await send_answer(guarded, await self._answer(scope, receive))
            else:
                await self._page(scope, receive, guarded)
        except ConnectionResetError:
            return
        except Exception:  # nothing of it goes outside
            log.exception("request failed", extra={"path": path})
            if not guarded.status:
                rule = "something went wrong here; the service's log says what"
                await send_answer(guarded, refused(500, rule))
        route = path if path in self._paths else "pages"
        self.metrics.count("requests", route=route, status=str(guarded.status))
        self.metrics.took(route, time.perf_counter() - began)

    def _kept_out(self, method: str, scope: Scope) -> Answer | None:
        """Why a request goes no further, whatever it asks; None if it does."""
        headers = scope["headers"]
        if sum(len(name) + len(value) + 4 for name, value in headers) > MOST_HEADERS:
            return refused(431, "headers must be smaller", cure="at most 64 KiB")
        if self.access.open_to_all and is_foreign(method, headers):
            return refused(
                403,
                "without tokens, pages of other sites may not ask",
                found="an Origin or a Host that is not this machine's",
                cure="use tokens: depsue token add, and serve without --no-auth",
            )
        return None

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        """Of a route of ours."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path = scope["path"]
        kept_out = self._kept_out(method, scope)
        if kept_out is not None:
            return kept_out
        route = self.routes.get((method, path))
        if route is None:
            takes = ", ".join(method for method, other in self.routes if other == path)
            return refused(
                405,
                "the path does not take this method",
                found=method,
                cure=f"it takes {takes}",
                headers=((b"allow", takes.encode()),),
            )
        caller: str | None = ""
        if route.role is not None:  # before the body is read
            caller = self.access.caller(bearer(scope["headers"]), route.role)
        if caller is None:
            return refused(
                401,
                f"this needs a token of the role {route.role}",
                found="none, or another",
                cure="authorization: Bearer TOKEN; depsue token add makes one",
                headers=((b"www-authenticate", b"Bearer"),),
            )
        try:
            body = await read_body(scope, receive)
        except TooLarge:
            return too_large()
        return await self.guarded(route.handler, Request(body, caller))

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Of the pages, once the body is known to be small enough."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer, body = self._kept_out(method, scope), b""
        if answer is None:
            try:
                body = await read_body(scope, receive)
            except TooLarge:
                answer = too_large()
        if answer is None and self.pages is not None:

            async def whole() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            await self.pages(scope, whole, send)
            return
        nothing = refused(404, "there is no such page", cure="GET /openapi.json")
        await send_answer(send, nothing if answer is None else answer)

    async def guarded(self, handler: Handler, request: Request) -> Answer:
        """The handler's answer, or why there is none."""
        try:
            return await handler(request)
        except msgspec.ValidationError as problem:
            rule = "the body must be as /openapi.json says"
            return refused(422, rule, found=str(problem), cure=SEE_SCHEMA)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            found = str(problem)[:200]
            return refused(400, "the body must be JSON", found=found, cure=SEE_SCHEMA)
        except TooMuch as problem:
            return later(problem, problem.seconds, status=429)
        except Busy as problem:
            return later(problem, 1)
        except Unstorable as problem:
            return refused(
                422, problem.rule, cure=problem.cure
            )  # what was found may name an address
        except (StoreGone, FileError) as problem:
            log.warning("refused for now", extra={"found": str(problem)})
            return later(problem, 2)
        except ConfigError as problem:
            return refused(409, problem.rule, found=problem.found, cure=problem.cure)
        except DepsueError as problem:
            return refused(422, problem.rule, found=problem.found, cure=problem.cure)

    async def _on_decide(self, request: Request) -> Answer:
        asked = self._decide(request.body)
        self.limits.spend(request.caller, 1)
        (reply,) = await self.service.worker.decide([asked])
        self.metrics.count("decisions", decided_by=reply.decided_by)
        self._decided((reply,))
        return Answer(200, encode(reply))

    async def _on_decide_batch(self, request: Request) -> Answer:
        asked = self._decide_batch(request.body).decisions
        self.limits.spend(request.caller, len(asked))
        replies = await self.service.worker.decide(asked)
        self._decided(replies)
        for reply in replies:
            self.metrics.count("decisions", decided_by=reply.decided_by)
        return Answer(200, encode(DecisionReplyBatch(replies)))

    async def _on_reward(self, request: Request) -> Answer:
        return await self._rewarded([self._reward(request.body)], request.caller)

    async def _on_reward_batch(self, request: Request) -> Answer:
        return await self._rewarded(self._reward_batch(request.body).rewards, request.caller)

    def _decided(self, replies: Iterable[DecisionReply]) -> None:
        """Remember ids, so that their rewards need no look at the store."""
        recent = self._recent
        for reply in replies:
            recent[reply.decision] = None
        while len(recent) > MOST_RECENT:
            del recent[next(iter(recent))]  # the oldest: dicts keep their order

    async def _rewarded(self, reports: list[RewardReport], caller: str) -> Answer:
        self.limits.spend(caller, len(reports))
        rewards = self.service.rewards(reports)
        ids = {report.decision for report in reports}
        ids = {id for id in ids if id not in self._recent}
        if ids:
            await _in_thread(self._admit, ids, caller)
        count = await self.service.worker.reward(rewards)
        self.metrics.count("rewards", count)
        return Answer(200, encode(Accepted(count)))

    def _admit(self, ids: set[str], caller: str) -> None:
        """Let rewards of decisions that are not known pass, up to a limit."""
        try:
            unknown = ids - self.service.reader.known(sorted(ids))
        except StoreGone:  # rewards are taken while the store is gone, too
            unknown = ids
        if unknown:
            self.limits.admit(caller, unknown, self.service.reader.known)
            self.metrics.count("rewards_of_unknown_decisions", len(unknown))

    async def _on_context(self, request: Request) -> Answer:
        return Answer(200, encode({"context": self.service.served.reader.example}))

    async def _on_status(self, request: Request) -> Answer:
        return Answer(200, encode(self.service.status))

    async def _on_stop(self, request: Request) -> Answer:
        asked = self._stop(request.body)
        await _in_thread(self.service.stop_policy, f"{asked.reason} (by hand)", asked.by)
        return await self._on_status(request)

    async def _on_resume(self, request: Request) -> Answer:
        asked = self._resume(request.body)
        await _in_thread(self.service.resume_policy, asked.stops, asked.reason, asked.by)
        return await self._on_status(request)

    async def _on_share(self, request: Request) -> Answer:
        asked = self._share(request.body)
        await _in_thread(self.service.change_share, asked.share, asked.reason, asked.by)
        return await self._on_status(request)

    async def _on_metrics(self, request: Request) -> Answer:
        count, most = self.connections()
        values = {"connections": float(count), "connections_limit": float(most)}
        text = self.metrics.text(gauges(self.service) | values)
        return Answer(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _on_health(self, request: Request) -> Answer:
        return Answer(200, encode({"alive": True, "version": __version__}))

    async def _on_ready(self, request: Request) -> Answer:
        why_not, status = await self._probed(), self.service.status
        if status.decides.who == "nobody":
            why_not = why_not or status.not_ready
        facts = {
            "ready": not why_not,
            "round": status.round,
            "state": status.state,
            "decides": status.decides.who,
        }
        if why_not:
            facts["why"] = why_not[:MOST_SAID]
        return Answer(503 if why_not else 200, encode(facts))

    async def _probed(self) -> str:
        """Why no decision can be made; tried for every policy, and again every few seconds."""
        served, now = self.service.served, time.monotonic()
        known, why_not, at = self._probe
        if known is served and now - at < PROBED:
            return why_not
        why_not = str(await _in_thread(served.why_not))
        self._probe = served, why_not, now
        return why_not

    async def _on_openapi(self, request: Request) -> Answer:
        return Answer(200, self._openapi)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await _in_thread(self.service.start)
        except DepsueError as problem:
            log.error("not started", extra={"found": str(problem)})
            await send({"type": "lifespan.startup.failed", "message": str(problem)})
            return
        await send({"type": "lifespan.startup.complete"})
        reading = asyncio.create_task(self._tokens())
        await receive()
        reading.cancel()
        await _in_thread(self.service.close)
        log.info("ended")
        await send({"type": "lifespan.shutdown.complete"})

    async def _tokens(self) -> None:
        while True:
            await asyncio.sleep(TOKENS_READ)
            self.access.refresh()


async def _in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def openapi(routes: Iterable[Operation]) -> dict[str, Any]:
    """The routes as an OpenAPI 3.1 document, from the messages themselves."""
    routes = list(routes)
    kinds = {kind for route in routes for kind in (route.takes, route.gives) if kind is not None}
    _, schemas = msgspec.json.schema_components(
        {*kinds, Refusal}, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths["/readyz"]["get"]["responses"]["503"] = {"description": "Not now"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "depsue", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Operation) -> dict[str, Any]:
    words = re.findall(r"\w+", route.path.removeprefix("/v1").removesuffix(".json"))
    done: dict[str, Any] = {"description": "Done"}
    if route.gives is not None:
        done["content"] = _content(route.gives)
    operation: dict[str, Any] = {
        "operationId": "_".join(words),
        "summary": route.summary,
        "responses": {"200": done},
    }
    parameters = re.findall(r"\{(\w+)\}", route.path)
    if parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in parameters
        ]
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.takes)}
    statuses = tuple(_PROBLEMS) if route.takes is not None else ("401",) if route.role else ()
    for status in statuses:
        problem = {"description": _PROBLEMS[status], "content": _content(Refusal)}
        operation["responses"][status] = problem
    if route.role is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Needs a token of the role {route.role}, or admin."
    return operation


def _content(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


_PROBLEMS = {
    "400": "The body is not JSON",
    "401": "The token is missing, or of another role",
    "409": "A key that another request had, or nothing to resume",
    "413": "The body is too large",
    "422": "The body breaks a rule, which the reply names",
    "429": "More than the token may send: try again after the seconds of Retry-After",
    "503": "Not now: try again after the seconds of Retry-After",
}

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and latencies since the start."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._seconds: dict[str, list[float]] = {}
        self._buckets: dict[str, list[int]] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (name, tuple(sorted(labels.items())))
        self._counts[key] = self._counts.get(key, 0) + by

    def took(self, route: str, seconds: float) -> None:
        """Note how long a request took."""
        buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1
        total = self._seconds.setdefault(route, [0.0])
        total[0] += seconds

    def text(self, gauges: dict[str, float]) -> str:
        """In Prometheus' text format, with values of the present moment."""
        return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: dict[str, float]) -> Iterator[str]:
        for name in sorted({name for name, _ in self._counts}):
            yield f"# TYPE depsue_{name}_total counter"
            for (other, labels), value in sorted(self._counts.items()):
                if other == name:
                    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                    yield f"depsue_{name}_total{{{inner}}} {_number(value)}"
        for name, value in gauges.items():
            yield f"# TYPE depsue_{name} gauge"
            yield f"depsue_{name} {_number(value)}"
        yield "# TYPE depsue_request_seconds histogram"
        for route, buckets in sorted(self._buckets.items()):
            so_far = 0
            for limit, count in zip((*BUCKETS, None), buckets, strict=True):
                so_far += count
                le = "+Inf" if limit is None else f"{limit:g}"
                yield f'depsue_request_seconds_bucket{{route="{route}",le="{le}"}} {so_far}'
            yield f'depsue_request_seconds_sum{{route="{route}"}} {self._seconds[route][0]:.6f}'
            yield f'depsue_request_seconds_count{{route="{route}"}} {so_far}'


def _number(value: float) -> str:
    """All its digits: a rate is a difference of counts."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def gauges(service: Service) -> dict[str, float]:
    """Values of the present moment, from the status that pages show."""
    status = service.status
    counts = status.served.counts
    values = {
        "round": float(status.round),
        "waiting": float(status.waiting),
        "store_gone": float(bool(status.store.gone)),
        "journalled": float(status.store.journalled),
        "journal_damaged": float(status.store.damaged),
        "twins": float(status.store.twins),
        "policy_refused": float(bool(status.problem)),
        "monitor_state": float(list(MonitorState).index(status.state)),
        "share": status.share,
        "policy_decides": float(status.decides.who == "policy"),
        "closed_decisions": float(status.monitor.judged),
        "served_decisions": float(counts.all),
    }
    if counts.all:
        values["novelty"] = counts.novelty
    if status.served.limits is not None:
        _, values["value_lower"], values["value_upper"] = status.served.limits
    for promise in status.served.promises[:1]:
        known = {"value": promise.value, "value_lately": promise.recent, "floor": promise.floor,
                 "margin": promise.margin}  # fmt: skip
        values |= {name: value for name, value in known.items() if value is not None}
    return values
