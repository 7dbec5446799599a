"""The service over HTTP: an ASGI application.

The OpenAPI document, from the messages themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from depsue._version import __version__
from depsue.errors import ConfigError, DepsueError, FileError
from depsue.serving.access import Access
from depsue.serving.http import (
    MOST_BODY,
    MOST_HEADERS,
    Answer,
    Receive,
    Request,
    Scope,
    Send,
    TooLarge,
    bearer,
    is_foreign,
    read_body,
    send_answer,
)
from depsue.serving.messages import (
    Accepted,
    Decide,
    DecideBatch,
    DecisionReply,
    DecisionReplyBatch,
    Intervention,
    Refusal,
    RewardBatch,
    RewardReport,
)
from depsue.serving.metrics import Metrics
from depsue.serving.service import Service
from depsue.serving.store import StoreGone
from depsue.serving.worker import Busy

log = logging.getLogger(__name__)
_PATHS: tuple[tuple[str, str, str, str | None, Any, Any], ...] = (
    ("post", "/v1/decide", "Decide what to show; durable before the reply", "decide",
     Decide, DecisionReply),
    ("post", "/v1/decide/batch", "Several decisions, all or none", "decide",
     DecideBatch, DecisionReplyBatch),
    ("post", "/v1/reward", "What a decision earned; before it, late or twice is all right",
     "reward", RewardReport, Accepted),
    ("post", "/v1/reward/batch", "Several rewards", "reward", RewardBatch, Accepted),
    ("get", "/v1/context", "A context that would be read", "decide", None, None),
    ("get", "/v1/status", "What serves, and what the monitor says", "admin", None, None),
    ("post", "/v1/policy/stop", "Let pi0 decide from now on", "admin", Intervention, None),
    ("post", "/v1/policy/resume", "Let the policy decide again", "admin", Intervention, None),
    ("get", "/metrics", "Counts for Prometheus", "admin", None, None),
    ("get", "/healthz", "Whether the process answers", None, None, None),
    ("get", "/readyz", "Whether decisions can be made", None, None, None),
    ("get", "/openapi.json", "This document", None, None, None),
)  # fmt: skip
_TYPES = (
    Decide,
    DecideBatch,
    DecisionReply,
    DecisionReplyBatch,
    RewardReport,
    RewardBatch,
    Accepted,
    Refusal,
    Intervention,
)
_PROBLEMS = {
    "400": "The body is not JSON",
    "401": "The token is missing, or of another role",
    "409": "A key that another request had, or nothing to resume",
    "413": "The body is too large",
    "422": "The body breaks a rule, which the reply names",
    "503": "Not now: try again after the seconds of Retry-After",
}


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """As OpenAPI 3.1 has it."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for method, path, summary, role, takes, gives in _PATHS:
        operation = _operation(summary, role, takes, gives)
        words = path.removeprefix("/v1").strip("/").removesuffix(".json").split("/")
        paths.setdefault(path, {})[method] = {"operationId": "_".join(words), **operation}
    paths["/readyz"]["get"]["responses"]["503"] = {"description": "Not now"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "depsue", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(summary: str, role: str | None, takes: Any, gives: Any) -> dict[str, Any]:
    ok: dict[str, Any] = {"description": "Done"}
    if gives is not None:
        ok["content"] = _json(gives)
    found: dict[str, Any] = {"summary": summary, "responses": {"200": ok}}
    if takes is not None:
        found["requestBody"] = {"required": True, "content": _json(takes)}
    wrong = _PROBLEMS if takes is not None else {k: _PROBLEMS[k] for k in ("401",) if role}
    for status, words in wrong.items():
        found["responses"][status] = {"description": words, "content": _json(Refusal)}
    if role is not None:
        found["security"] = [{"token": []}]
        found["description"] = f"Needs a token of the role {role}, or admin."
    return found


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


Handler = Callable[[Request], Awaitable[Answer]]
encode = msgspec.json.Encoder().encode
TOKENS_READ = 2.0
"""Seconds between looks at the file of tokens."""
MOST_SAID = 500
"""Characters of a rule, of what was found, of a cure."""


class Route(NamedTuple):
    """Who may, and what is done."""

    role: str | None
    handler: Handler


class Pages:
    """What answers for all other paths: the dashboard, or nothing."""

    async def answer(self, request: Request) -> Answer | None:
        """The answer; None if there is no such page."""
        return None


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
        self._service, self._access = service, access
        self._pages = Pages() if pages is None else pages
        self.metrics = Metrics()
        self._decide = msgspec.json.Decoder(Decide).decode
        self._decide_batch = msgspec.json.Decoder(DecideBatch).decode
        self._reward = msgspec.json.Decoder(RewardReport).decode
        self._reward_batch = msgspec.json.Decoder(RewardBatch).decode
        self._intervention = msgspec.json.Decoder(Intervention).decode
        self._routes: dict[tuple[str, str], Route] = {
            ("POST", "/v1/decide"): Route("decide", self._on_decide),
            ("POST", "/v1/decide/batch"): Route("decide", self._on_decide_batch),
            ("POST", "/v1/reward"): Route("reward", self._on_reward),
            ("POST", "/v1/reward/batch"): Route("reward", self._on_reward_batch),
            ("GET", "/v1/context"): Route("decide", self._on_context),
            ("GET", "/v1/status"): Route("admin", self._on_status),
            ("POST", "/v1/policy/stop"): Route("admin", self._on_stop),
            ("POST", "/v1/policy/resume"): Route("admin", self._on_resume),
            ("GET", "/metrics"): Route("admin", self._on_metrics),
            ("GET", "/healthz"): Route(None, self._on_health),
            ("GET", "/readyz"): Route(None, self._on_ready),
            ("GET", "/openapi.json"): Route(None, self._on_openapi),
        }
        self._paths = {path for _, path in self._routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # there are none here
            return
        began = time.perf_counter()
        path = scope["path"]
        try:
            answer = await self._answer(scope, receive)
        except ConnectionResetError:
            return
        except Exception:  # nothing of it goes outside
            log.exception("request failed", extra={"path": path})
            answer = refused(500, "something went wrong here; the service's log says what")
        route = path if path in self._paths else "pages"
        self.metrics.count("requests", route=route, status=str(answer.status))
        self.metrics.took(route, time.perf_counter() - began)
        await send_answer(send, answer, head=scope["method"] == "HEAD")

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path, headers = scope["path"], scope["headers"]
        if sum(len(name) + len(value) + 4 for name, value in headers) > MOST_HEADERS:
            return refused(431, "headers must be smaller", cure="at most 64 KiB")
        if self._access.open_to_all and is_foreign(method, headers):
            return refused(
                403,
                "without tokens, pages of other sites may not ask",
                found="an Origin or a Host that is not this machine's",
                cure="use tokens: depsue token add, and serve without --no-auth",
            )
        route = self._routes.get((method, path))
        if route is None and path in self._paths:
            takes = ", ".join(takes for takes, other in self._routes if other == path)
            return refused(
                405,
                "the path does not take this method",
                found=method,
                cure=f"it takes {takes}",
                headers=((b"allow", takes.encode()),),
            )
        if route is not None and route.role is not None:  # before the body is read
            if not self._access.allows(bearer(headers), route.role):
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
            return refused(
                413, "a body must be smaller", cure=f"at most {MOST_BODY >> 20} MiB: fewer at once"
            )
        request = Request(method, path, dict(headers), body, scope["query_string"])
        if route is None:
            answer = await self._pages.answer(request)
            return answer or refused(404, "there is no such page", cure="GET /openapi.json")
        return await self.guarded(route.handler, request)

    async def guarded(self, handler: Handler, request: Request) -> Answer:
        """The handler's answer, or why there is none."""
        try:
            return await handler(request)
        except msgspec.ValidationError as problem:
            return refused(422, "the body must be as /openapi.json says", found=str(problem))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            return refused(400, "the body must be JSON", found=str(problem)[:200])
        except Busy as problem:
            return _later(problem, 1)
        except (StoreGone, FileError) as problem:
            log.warning("refused for now", extra={"found": str(problem)})
            return _later(problem, 2)
        except ConfigError as problem:
            return refused(409, problem.rule, found=problem.found, cure=problem.cure)
        except DepsueError as problem:
            return refused(422, problem.rule, found=problem.found, cure=problem.cure)

    async def _on_decide(self, request: Request) -> Answer:
        made = await self._service.worker.decide([self._decide(request.body)])
        self.metrics.count("decisions", decided_by=made[0].decided_by)
        return Answer(200, encode(made[0]))

    async def _on_decide_batch(self, request: Request) -> Answer:
        made = await self._service.worker.decide(self._decide_batch(request.body).decisions)
        for one in made:
            self.metrics.count("decisions", decided_by=one.decided_by)
        return Answer(200, encode(DecisionReplyBatch(made)))

    async def _on_reward(self, request: Request) -> Answer:
        return await self._rewarded([self._reward(request.body)])

    async def _on_reward_batch(self, request: Request) -> Answer:
        return await self._rewarded(self._reward_batch(request.body).rewards)

    async def _rewarded(self, given: list[RewardReport]) -> Answer:
        count = await self._service.worker.reward(self._service.rewards(given))
        self.metrics.count("rewards", count)
        return Answer(200, encode(Accepted(count)))

    async def _on_context(self, request: Request) -> Answer:
        return Answer(200, encode({"context": self._service.served.reader.example}))

    async def _on_status(self, request: Request) -> Answer:
        return Answer(200, encode(status(self._service)))

    async def _on_stop(self, request: Request) -> Answer:
        asked = self._intervention(request.body)
        await _in_thread(self._service.stop_policy, f"{asked.reason} (by hand)", asked.by)
        return await self._on_status(request)

    async def _on_resume(self, request: Request) -> Answer:
        asked = self._intervention(request.body)
        await _in_thread(self._service.resume_policy, asked.reason, asked.by)
        return await self._on_status(request)

    async def _on_metrics(self, request: Request) -> Answer:
        text = self.metrics.text(gauges(self._service))
        return Answer(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _on_health(self, request: Request) -> Answer:
        return Answer(200, encode({"alive": True, "version": __version__}))

    async def _on_ready(self, request: Request) -> Answer:
        service = self._service
        ready = not service.worker.gone or service.settings.on_gone == "pi0"
        found = {"ready": ready, "round": service.served.round, "monitor": service.state}
        return Answer(200 if ready else 503, encode(found))

    async def _on_openapi(self, request: Request) -> Answer:
        return Answer(200, encode(document()))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await _in_thread(self._service.start)
        except DepsueError as problem:
            log.error("not started", extra={"found": str(problem)})
            await send({"type": "lifespan.startup.failed", "message": str(problem)})
            return
        await send({"type": "lifespan.startup.complete"})
        reading = asyncio.create_task(self._tokens())
        await receive()
        reading.cancel()
        await _in_thread(self._service.close)
        log.info("ended")
        await send({"type": "lifespan.shutdown.complete"})

    async def _tokens(self) -> None:
        while True:
            await asyncio.sleep(TOKENS_READ)
            self._access.refresh()


def status(service: Service) -> dict[str, Any]:
    """Where the service stands, as JSON values."""
    served = service.served
    return {
        "campaign": service.campaign.name,
        "round": served.round,
        "policy": served.hash,
        "what": served.what,
        "novelty": served.novelty,
        "holdout": service.settings.holdout,
        "monitor": {
            "state": service.state,
            "stopped": service.stopped,
            "tests": [
                {"name": one.name, "state": one.state, "words": one.words, "share": one.share}
                for one in service.findings()
            ],
        },
        "store": {"gone": service.worker.gone, "spooled": service.spool.waiting},
        "problem": service.problem,
        "waiting": service.worker.waiting,
    }


def gauges(service: Service) -> dict[str, float]:
    """Values of the present moment."""
    watching = service.watching
    point = watching.points[-1] if watching is not None and watching.points else None
    found = {
        "round": float(service.served.round),
        "waiting": float(service.worker.waiting),
        "store_gone": float(bool(service.worker.gone)),
        "spooled": float(service.spool.waiting),
        "policy_refused": float(bool(service.problem)),
        "monitor_state": float(("healthy", "watch", "stopped").index(service.state)),
    }
    if point is not None:
        mean, low, high = point.policy
        found |= {"value": mean, "value_lower": low, "value_upper": high, "novelty": point.novelty}
        found["closed_decisions"] = float(point.n)
    return found


def refused(
    status: int,
    rule: str,
    *,
    found: str = "",
    cure: str = "",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Answer:
    """An answer that says why not; what was sent is not sent back whole."""
    said = Refusal(*(part[:MOST_SAID] for part in (rule, found, cure)))
    return Answer(status, encode(said), headers=headers)


def _later(problem: DepsueError, seconds: int) -> Answer:
    return refused(
        503,
        problem.rule,
        cure=problem.cure,
        headers=((b"retry-after", str(seconds).encode()),),
    )


async def _in_thread(call: Callable[..., Any], *given: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *given)
