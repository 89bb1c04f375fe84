"""Health, status and metrics: for load balancers, systemd and Prometheus. No key, no body."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from conductor.api.envelope import base_headers, json_response
from conductor.core import Body
from conductor.metrics import CONTENT_TYPE, Metrics

Status = Callable[[], Body]
"""What `GET /status` shows; its key `ready` decides `/readyz`."""


class HealthHandler:
    """`/healthz` says the loop runs; `/readyz` that a request would be served."""

    def __init__(self, status: Status, metrics: Metrics) -> None:
        self._status = status
        self._metrics = metrics

    async def healthz(self, request: web.Request) -> web.Response:
        """200 whenever the loop runs."""
        return json_response(request, {"status": "ok"})

    async def readyz(self, request: web.Request) -> web.Response:
        """200 or 503, with the reasons why not."""
        status = self._status()
        body = {"ready": status["ready"], "reasons": status["reasons"]}
        return json_response(request, body, status=200 if status["ready"] else 503)

    async def status(self, request: web.Request) -> web.Response:
        """All of the status, for people and scripts on this machine."""
        return json_response(request, self._status())

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text."""
        headers = {**base_headers(request), "Content-Type": CONTENT_TYPE}
        return web.Response(body=self._metrics.render(), headers=headers)
