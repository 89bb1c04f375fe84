"""The fake upstream: the simulated vendor in a process of its own, on a port and a Unix socket.

python -m bench.upstream PORT SOCKET
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from conductor.simulated.vendor import SimulatedVendor


async def serve(port: int, socket: Path) -> None:
    """Until it is killed."""
    async with SimulatedVendor(keep=False) as vendor:
        await vendor.start_tcp(port=port)
        await vendor.start_unix(socket)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
