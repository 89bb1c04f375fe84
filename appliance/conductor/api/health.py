"""Health, status and metrics: for load balancers, systemd and Prometheus. No key, no body."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from aiohttp import web

from conductor.core import Body
from conductor.metrics import Metrics

Status = Callable[[], Body]
"""What `GET /status` shows; its key `ready` decides `/readyz`."""


class HealthHandler:
    """`/healthz` says the loop runs; `/readyz` that a request would be served."""

    def __init__(self, status: Status, metrics: Metrics) -> None:
        self._status = status
        self._metrics = metrics

    async def healthz(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def readyz(self, _: web.Request) -> web.Response:
        status = self._status()
        body = {"ready": status["ready"], "reasons": status["reasons"]}
        return _json(body, 200 if status["ready"] else 503)

    async def status(self, _: web.Request) -> web.Response:
        return _json(self._status())

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def _json(body: Body, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
