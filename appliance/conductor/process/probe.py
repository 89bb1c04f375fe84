"""One question to a process of ours: does it answer this path with 200?"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

LIMIT_S = 2.0

Address = Path | tuple[str, int]
"""A Unix socket, or host and port."""


async def answers(address: Address, path: str) -> bool:
    """Whether `GET path` gives 200 within `LIMIT_S`."""
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _status(address, path) == 200
    except (OSError, TimeoutError, ValueError):
        return False


async def _status(address: Address, path: str) -> int:
    if isinstance(address, Path):
        reader, writer = await asyncio.open_unix_connection(str(address))
    else:
        reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: conductor\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        line = await reader.readline()
        return int(line.split(b" ", 2)[1]) if line.startswith(b"HTTP/1.") else 0
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
