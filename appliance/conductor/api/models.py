"""`GET /v1/models`: the names that this key may use."""

from __future__ import annotations

from aiohttp import web

from conductor.api.envelope import json_response
from conductor.api.middleware import KEY
from conductor.core import Body
from conductor.selection import CONDUCTOR_MODELS, unknown
from conductor.settings import Key
from conductor.workers.pool import Pool


class ModelsHandler:
    """Lists and looks up models. `created` is when the configuration was loaded, Unix seconds."""

    def __init__(self, pool: Pool, created: int) -> None:
        self._objects = {
            **{name: _model(name, created, "conductor") for name in CONDUCTOR_MODELS},
            **{w.id: _model(w.id, created, w.destination.id) for w in pool.workers},
        }

    async def list(self, request: web.Request) -> web.Response:
        """`GET /v1/models`."""
        names = [name for name in self._objects if _may_use(request[KEY], name)]
        data = [self._objects[name] for name in names]
        return json_response(request, {"object": "list", "data": data})

    async def get(self, request: web.Request) -> web.Response:
        """`GET /v1/models/ID`. Raises `ModelNotFound`, also for one that the key may not use."""
        name = request.match_info["id"].rstrip("/")
        if name not in self._objects or not _may_use(request[KEY], name):
            raise unknown(name)
        return json_response(request, self._objects[name])


def _may_use(key: Key, name: str) -> bool:
    return key.models is None or name in key.models


def _model(name: str, created: int, owner: str) -> Body:
    return {"id": name, "object": "model", "created": created, "owned_by": owner}
