"""Routes: the closed set of addresses that the API listener and the admin listener serve."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from conductor.api.chat import ChatHandler
from conductor.api.explain import ExplainHandler
from conductor.api.feedback import FeedbackHandler
from conductor.api.health import HealthHandler
from conductor.api.keys import KeyRing
from conductor.api.middleware import Door, edge, open_edge
from conductor.api.models import ModelsHandler
from conductor.metrics import Metrics


@dataclass(frozen=True)
class Handlers:
    """Everything that the API listener's routes lead to."""

    chat: ChatHandler
    explain: ExplainHandler
    feedback: FeedbackHandler
    models: ModelsHandler
    health: HealthHandler


def api_app(handlers: Handlers, ring: KeyRing, metrics: Metrics, door: Door) -> web.Application:
    """The application behind the API listener. A trailing slash is the same route."""
    app = web.Application(middlewares=[edge(ring, metrics, door)])
    for slash in ("", "/"):
        app.router.add_post(f"/v1/chat/completions{slash}", handlers.chat.__call__)
        app.router.add_post(f"/v1/plan{slash}", handlers.explain.__call__)
        app.router.add_post(f"/v1/feedback{slash}", handlers.feedback.__call__)
        app.router.add_get(f"/v1/models{slash}", handlers.models.list)
        app.router.add_get(f"/healthz{slash}", handlers.health.healthz)
        app.router.add_get(f"/readyz{slash}", handlers.health.readyz)
    app.router.add_get("/v1/models/{id:.+}", handlers.models.get)
    return app


def admin_app(health: HealthHandler) -> web.Application:
    """The application behind the admin listener: loopback only, no keys."""
    app = web.Application(middlewares=[open_edge])
    app.router.add_get("/healthz", health.healthz)
    app.router.add_get("/readyz", health.readyz)
    app.router.add_get("/status", health.status)
    app.router.add_get("/metrics", health.metrics)
    return app
