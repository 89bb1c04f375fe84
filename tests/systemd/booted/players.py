"""Whom the appliance calls in these tests: a model of the site's on a Unix socket, and a vendor on
loopback. Each body they are sent is one line of their log.

    players.py SOCKET PORT LOG
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from conductor.process.manager import notify
from conductor.simulated.vendor import Received, SimulatedVendor


async def play(socket: Path, port: int, log: Path) -> None:
    """Serve both until killed."""
    with log.open("ab", buffering=0) as file:

        def note(asked: Received) -> None:
            file.write(asked.body + b"\n")

        own, vendor = SimulatedVendor(), SimulatedVendor(on_request=note)
        os.umask(0o117)
        await own.start_unix(socket)
        await vendor.start_tcp(port=port)
        notify(READY=1)
        await asyncio.Event().wait()


if __name__ == "__main__":
    Path(sys.argv[1]).unlink(missing_ok=True)
    asyncio.run(play(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
