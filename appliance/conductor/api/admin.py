"""The administrators' door: a Unix socket that only the appliance's own user can open.

    POST /v1/policy             a candidate: YAML as it is, or JSON {policy, approvals, emergency}
    POST /v1/policy/rollback    JSON {revision}, or nothing for the policy before
    POST /v1/policy/explain     JSON {request, key, declared}
    GET  /v1/policy             what is in force
    GET  /v1/policy/history     what was
    /v1/approvals               see `approvals.py`
    GET  /healthz               the loop runs: asked by the watchdog

A refused candidate is no error of the request: the answer is 422 with the whole verdict. Who asked
is taken from the kernel (SO_PEERCRED), never from what they say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson
from aiohttp import web

from conductor.activation.approvals import Approval, of_facts
from conductor.activation.desk import NoSuchRevision, Outcome, Who, Wish
from conductor.api.envelope import json_response
from conductor.api.middleware import open_edge
from conductor.api.peer import uid_of
from conductor.errors import AuditError, AuditUnavailable, BadRequest, ConfigError, NotFound
from conductor.process.unixserver import Where, serving_app

MAX_BODY_BYTES = 4 << 20
"""A policy has at most 256 KiB; a request to explain may be longer."""
DRAIN_S = 5.0

_REFUSED = 422


class PolicyLife(Protocol):
    """What puts policies in force: `activation.desk.Desk`."""

    async def apply(self, wish: Wish, who: Who) -> Outcome: ...

    async def rollback(self, revision: int | None, who: Who) -> Outcome: ...

    def status(self) -> dict[str, Any]: ...

    def history(self) -> list[dict[str, Any]]: ...


Explain = Callable[[bytes, str | None, str | None], Awaitable[dict[str, Any]]]
"""Explains a request, asked for by a key, with a declared label; raises `ApiError`."""


class Approvals(Protocol):
    """What waits for a person: `api.approvals.ApprovalsHandler`."""

    async def list(self, request: web.Request) -> web.Response: ...

    async def body(self, request: web.Request) -> web.Response: ...

    async def accept(self, request: web.Request) -> web.Response: ...


def policy_app(
    life: PolicyLife, explain: Explain, approvals: Approvals | None = None
) -> web.Application:
    """The application behind the socket."""
    handler = _Handler(life, explain)
    app = web.Application(middlewares=[open_edge], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/policy", handler.apply)
    app.router.add_post("/v1/policy/rollback", handler.rollback)
    app.router.add_post("/v1/policy/explain", handler.explain)
    app.router.add_get("/v1/policy", handler.status)
    app.router.add_get("/v1/policy/history", handler.history)
    app.router.add_get("/healthz", _lives)
    if approvals is not None:
        app.router.add_get("/v1/approvals", approvals.list)
        app.router.add_get("/v1/approvals/{id}", approvals.body)
        app.router.add_post("/v1/approvals", approvals.accept)
    return app


@asynccontextmanager
async def administered(
    where: Where, life: PolicyLife, explain: Explain, approvals: Approvals | None = None
) -> AsyncIterator[None]:
    """Serve administrators there while the context is open. Raises `StartError`."""
    async with serving_app(where, policy_app(life, explain, approvals), drain_s=DRAIN_S):
        yield


async def _lives(request: web.Request) -> web.Response:
    return json_response(request, {"status": "ok"})


class _Handler:
    def __init__(self, life: PolicyLife, explain: Explain) -> None:
        self._life = life
        self._explain = explain

    async def apply(self, request: web.Request) -> web.Response:
        wish = _wish(await _body(request), request.content_type)
        return _told(request, await _recorded(self._life.apply(wish, Who(uid_of(request)))))

    async def rollback(self, request: web.Request) -> web.Response:
        revision = _object(await _body(request) or b"{}").get("revision")
        if revision is not None and type(revision) is not int:
            raise BadRequest("revision must be a whole number.", param="revision")
        try:
            outcome = await _recorded(self._life.rollback(revision, Who(uid_of(request))))
        except NoSuchRevision as error:
            raise NotFound(str(error)) from None
        return _told(request, outcome)

    async def explain(self, request: web.Request) -> web.Response:
        asked = _object(await _body(request))
        raw = orjson.dumps(asked.get("request"))
        key, declared = _text(asked, "key"), _text(asked, "declared")
        return json_response(request, await self._explain(raw, key, declared))

    async def status(self, request: web.Request) -> web.Response:
        return json_response(request, self._life.status())

    async def history(self, request: web.Request) -> web.Response:
        return json_response(request, {"object": "list", "data": self._life.history()})


def _told(request: web.Request, outcome: Outcome) -> web.Response:
    status = 200 if outcome.in_force else _REFUSED
    return json_response(request, outcome.facts(), status=status)


async def _recorded(asked: Awaitable[Outcome]) -> Outcome:
    try:
        return await asked
    except AuditError:
        raise AuditUnavailable(
            "The appliance cannot record the change, so that nothing was changed. The operator "
            "must look at the audit log."
        ) from None


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise BadRequest(f"The body is over {MAX_BODY_BYTES} bytes.") from None


def _wish(body: bytes, content_type: str) -> Wish:
    """What is wanted in force. Anything but JSON is the policy itself."""
    if content_type != "application/json":
        return Wish(body)
    asked = _object(body)
    policy, emergency = _text(asked, "policy"), asked.get("emergency", False)
    if policy is None or type(emergency) is not bool:
        raise BadRequest("Send {policy: text, approvals: [...], emergency: true or false}.")
    return Wish(policy.encode(), _approvals(asked.get("approvals", [])), emergency)


def _approvals(items: Any) -> tuple[Approval, ...]:
    try:
        return of_facts(items)
    except ConfigError as error:
        raise BadRequest(str(error), param="approvals") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadRequest("The body is no JSON.") from None
    if not isinstance(asked, dict):
        raise BadRequest("The body must be a JSON object.")
    return asked


def _text(asked: dict[str, Any], key: str) -> str | None:
    value = asked.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{key} must be text.", param=key)
    return value
