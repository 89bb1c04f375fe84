"""How long running streams stand still while a policy of 500 rules is put in force: real processes.

    PYTHONPATH=appliance:tests python tests/bench/bench_policy_streams.py

Twenty streams run, half of them from a local worker and half through egress. Every event carries
the time when it was sent, so that the longest way of one is the stall; first with nothing else
going on, then while a policy is applied and egress reads it for the first permit that names it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from bench_policy_apply import Ticker, many_rules

from conductor.activation.adminclient import ask
from conductor.config import POLICY
from conductor.simulated import answers as wire
from conductor.simulated.answers import read_question
from support.appliance import short_directory
from support.clients import openai_client
from support.configs import KEY, local_worker, remote_worker
from support.policydaemon import NAMELESS
from support.processes import VENDOR_KEY, Api, fixed_ports, site_of, up

STREAMS = 20
PACE_S = 0.05
QUIET_S = 4.0
ROUNDS = 4
NEAR, FAR = "near", "far"
CLASSIFY = {"classify": NAMELESS}


class Worker:
    """Sends an event every `PACE_S` until it is told to stop; a plain question is answered."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head.lower())
                question = read_question(await reader.readexactly(int(length[1] if length else 0)))
                if question is None:
                    writer.write(wire.json_answer(200, {"status": "ok"}))
                elif question.stream:
                    await self._stream(question, writer)
                else:
                    message = {"role": "assistant", "content": "yes"}
                    writer.write(wire.json_answer(200, wire.whole(question, message, "stop", 1)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _stream(self, question: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(wire.stream_head())
        while not self.stopped.is_set():
            delta = {"role": "assistant", "content": f"{time.monotonic():.6f} "}
            first = next(iter(wire.events(question, [delta], "stop")))
            writer.write(wire.framed(first))
            await asyncio.sleep(PACE_S)
        for event in list(wire.events(question, [], "stop"))[-2:]:
            writer.write(wire.framed(event))
        writer.write(wire.framed(wire.DONE) + wire.LAST)


@dataclass
class Watched:
    """The longest way of an event, in milliseconds, since it was last asked; by worker."""

    longest: dict[str, float] = field(default_factory=dict)
    events: int = 0

    def note(self, worker: str, sent: float) -> None:
        late_ms = 1000 * (time.monotonic() - sent)
        self.longest[worker] = max(self.longest.get(worker, 0.0), late_ms)
        self.events += 1

    def taken(self) -> str:
        told = ", ".join(f"{name} {self.longest.get(name, 0):6.1f} ms" for name in (NEAR, FAR))
        self.longest.clear()
        return told


async def follow(client: Any, worker: str, watched: Watched) -> None:
    """Read one stream to its end."""
    messages = [{"role": "user", "content": "count"}]
    stream = await client.chat.completions.create(model=worker, messages=messages, stream=True)
    async for chunk in stream:
        text = chunk.choices[0].delta.content if chunk.choices else None
        if text:
            watched.note(worker, float(text.split()[-1]))


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[tuple[Worker, Any, Api]]:
    """The appliance with its two workers, and a client."""
    ports, far_port = fixed_ports(), fixed_ports()["port"]
    pool = [
        local_worker(NEAR, unix=directory / "w.sock"),
        remote_worker(FAR, f"http://127.0.0.1:{far_port}/v1"),
    ]
    limits = {"max_in_flight": STREAMS + 4}
    site_of(directory, [{**one, "limits": limits} for one in pool], api=ports)
    (directory / POLICY).write_bytes(many_rules(1, **CLASSIFY))
    worker = Worker()
    near = await asyncio.start_unix_server(worker.connected, directory / "w.sock")
    far = await asyncio.start_server(worker.connected, "127.0.0.1", far_port)
    with up(directory, SIMULATED_VENDOR_KEY=VENDOR_KEY):
        async with Api(**ports) as api:
            for name in (NEAR, FAR):
                await api.answers(name)
            client = openai_client(f"http://127.0.0.1:{ports['port']}/v1", KEY)
            yield worker, client, api
            await client.close()
    near.close()
    far.close()


async def measure(directory: Path) -> None:
    async with running(directory) as (worker, client, api):
        watched, own = Watched(), Ticker()
        ticking = asyncio.create_task(own.run())
        streams = [
            asyncio.create_task(follow(client, (NEAR, FAR)[number % 2], watched))
            for number in range(STREAMS)
        ]
        await asyncio.sleep(2.0)  # until all have begun
        watched.taken()
        own.taken()
        await asyncio.sleep(QUIET_S)
        print(f"nothing going on     {watched.taken()}; this process {own.taken():.1f} ms")
        for revision in range(2, 2 + ROUNDS):
            asked = {"policy": many_rules(revision, **CLASSIFY).decode()}
            await asyncio.sleep(0.1)
            watched.taken(), own.taken()
            await api.ask(FAR)
            await asyncio.sleep(0.3)
            print(f"a further question   {watched.taken()}; this process {own.taken():.1f} ms")
            began = time.monotonic()
            told = await asyncio.to_thread(ask, directory / "r", "POST", "/v1/policy", asked)
            took_s = time.monotonic() - began
            print(
                f"apply                {watched.taken()}; this process {own.taken():.1f} ms; "
                f"{told['verdict']} after {took_s:.1f} s"
            )
            answer = await api.ask(FAR)
            await asyncio.sleep(0.3)
            print(
                f"first permit by it   {watched.taken()}; this process {own.taken():.1f} ms; "
                f"status {answer.status_code}"
            )
        worker.stopped.set()
        await asyncio.gather(*streams)
        ticking.cancel()
        print(f"{watched.events} events in {STREAMS} streams")


if __name__ == "__main__":
    with short_directory() as name:
        uvloop.run(measure(name))
