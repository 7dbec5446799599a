"""The OpenAPI document, from the messages themselves."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from depsue._version import __version__
from depsue.serving.messages import (
    Accepted,
    Decide,
    DecideBatch,
    Decided,
    DecidedBatch,
    Lift,
    Refusal,
    RewardBatch,
    Rewarded,
)

_PATHS: tuple[tuple[str, str, str, str | None, Any, Any], ...] = (
    ("post", "/v1/decide", "Decide what to show; durable before the reply", "decide",
     Decide, Decided),
    ("post", "/v1/decide/batch", "Several decisions, all or none", "decide",
     DecideBatch, DecidedBatch),
    ("post", "/v1/reward", "What a decision earned; before it, late or twice is all right",
     "reward", Rewarded, Accepted),
    ("post", "/v1/reward/batch", "Several rewards", "reward", RewardBatch, Accepted),
    ("get", "/v1/context", "A context that would be read", "decide", None, None),
    ("get", "/v1/status", "What serves, and what the monitor says", "admin", None, None),
    ("post", "/v1/monitor/trip", "Let pi0 decide from now on", "admin", Lift, None),
    ("post", "/v1/monitor/lift", "Let the policy decide again", "admin", Lift, None),
    ("get", "/metrics", "Counts for Prometheus", "admin", None, None),
    ("get", "/healthz", "Whether the process answers", None, None, None),
    ("get", "/readyz", "Whether decisions can be made", None, None, None),
    ("get", "/openapi.json", "This document", None, None, None),
)  # fmt: skip
_TYPES = (
    Decide,
    DecideBatch,
    Decided,
    DecidedBatch,
    Rewarded,
    RewardBatch,
    Accepted,
    Refusal,
    Lift,
)
_PROBLEMS = {
    "400": "The body is not JSON",
    "401": "The token is missing, or of another role",
    "409": "A key that another request had, or nothing to lift",
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
