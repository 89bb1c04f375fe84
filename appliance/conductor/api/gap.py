"""No request is served on an air-gapped machine whose gap is open, or not known to be closed."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from conductor.api.middleware import OPEN_PATHS, Handler
from conductor.errors import Overloaded

CODE = "air_gap_open"
RETRY_AFTER_S = 30


class Watch(Protocol):
    """Who attests: `run.attesting.Attester`."""

    @property
    def open_gap(self) -> tuple[str, ...]: ...


def gap_watch(watch: Watch) -> Middleware:
    """The middleware, to stand behind the one that knows the caller."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.rstrip("/") not in OPEN_PATHS and watch.open_gap:
            raise Overloaded(
                "This appliance is declared air-gapped and cannot show that it is: nothing is "
                "answered until it can. The operator must run 'conductor doctor --air-gap'.",
                code=CODE,
                retry_after_s=RETRY_AFTER_S,
            )
        return await handler(request)

    return middleware
