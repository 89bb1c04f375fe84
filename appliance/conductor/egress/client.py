"""`serve`'s side of the egress process: which epoch its permits must name.

The calls themselves go through `workers/http.py`.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import orjson

from conductor.core import Failure
from conductor.errors import WorkerError

_TIMEOUT_S = 6.0
"""Its listener outlives it, and holds questions while it is started anew."""
_EPOCH = re.compile(r"[0-9a-f]{32}")
_MAX_ANSWER = 4096


class EgressLink:
    """Asks over the Unix socket at `socket`. Nothing stays open between questions."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._epoch: str | None = None
        self._asking = asyncio.Lock()

    async def epoch(self) -> str:
        """This run of egress, asked once. Raises `WorkerError(EGRESS_DOWN)`."""
        async with self._asking:  # a thousand at once ask one question
            if self._epoch is None:
                self._epoch = await self._ask_epoch()
            return self._epoch

    def invalidate(self) -> None:
        """Ask again next time: a permit was refused, so egress may have been started anew."""
        self._epoch = None

    async def _ask_epoch(self) -> str:
        try:
            answer = orjson.loads(await self._get("/v1/epoch"))
        except orjson.JSONDecodeError:
            raise WorkerError(Failure.EGRESS_DOWN, "no epoch") from None
        epoch = answer.get("epoch") if isinstance(answer, dict) else None
        if not isinstance(epoch, str) or not _EPOCH.fullmatch(epoch):
            raise WorkerError(Failure.EGRESS_DOWN, "no epoch")
        return epoch

    async def _get(self, path: str) -> bytes:
        connector = aiohttp.UnixConnector(str(self._socket))
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                async with session.get(f"http://egress{path}") as answer:
                    if answer.status != 200:
                        raise WorkerError(Failure.EGRESS_DOWN, f"status {answer.status}")
                    return await answer.content.read(_MAX_ANSWER)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise WorkerError(Failure.EGRESS_DOWN, type(error).__name__) from None
