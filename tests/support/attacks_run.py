"""All attacks by kind, in as few appliances as they need, and what came of each kind."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from support import attacks_by_client as client
from support import attacks_by_peers as peers
from support.attacks import ABROAD, Arena, arena, workers
from support.attacks_oracle import Oracle
from support.configs import Tree, local_worker
from support.places import user

Attack = Callable[[Arena], Awaitable[None]]

FAULTS = (
    "status-500",
    "status-503",
    "status-429-retry-1",
    "status-401",
    "context-length",
    "cut-before-head",
    "cut-before-body",
    "cut-mid-stream",
    "end-mid-stream",
    "empty",
    "error-in-band",
    "malformed-json",
    "no-choices",
    "stall",
)

KINDS: Mapping[str, Attack] = {
    "positions and disguises": client.positions_and_disguises,
    "dealt out over parts and messages": client.dealt_out,
    "routing fields and headers": client.routing,
    "plans by way of a redaction": peers.planned_redactions,
    "rounds": peers.rounds,
    "a hostile planner's words": peers.hostile_planner,
    "answers sent back": peers.washed_answers,
    "labelled documents sent back in part": peers.washed_documents,
    "forged and foreign tokens": peers.forged_tokens,
    "a vendor that answers with tokens, cut anywhere": peers.hostile_vendor,
    "tokens handed on between steps": peers.tokens_between_steps,
}
"""Those for which everybody at home is well."""
FAILURES = "failures at home"


@dataclass(frozen=True)
class Outcome:
    """What came of the attacks of one kind."""

    made: int
    arrived: tuple[str, ...]
    """The attacks of which a vendor got something."""
    wrong: tuple[str, ...]
    """Answers that held what their request had not, or had not what they were to hold."""
    received: int
    """Requests that the vendor got meanwhile: those that may leave, and what is left of others."""
    seconds: float


async def outcome(it: Arena, attack: Attack) -> Outcome:
    """Make the attacks of one kind, and judge them. An arena serves one kind after another."""
    it.oracle, it.wrong, it.made = Oracle(), [], 0
    it.engine.script.clear()
    before, began_s = len(it.box.vendor.requests), time.monotonic()
    await attack(it)
    return Outcome(
        it.made,
        tuple(it.arrived(before)),
        tuple(it.wrong),
        len(it.box.vendor.requests) - before,
        time.monotonic() - began_s,
    )


@asynccontextmanager
async def failing() -> AsyncIterator[Arena]:
    """An arena in which everybody at home fails, each in a way of its own."""
    limits = {"first_byte_s": 0.2, "idle_s": 0.2, "context_tokens": 200_000}
    at_home: list[Tree] = [
        local_worker(f"home-{fault}", port=0, model=fault, limits=limits) for fault in FAULTS
    ]
    abroad = [worker for worker in workers() if worker["id"] in ABROAD]
    async with arena(pool=[*at_home, *abroad]) as it:
        yield it


async def lets_through(it: Arena) -> list[str]:
    """Who abroad gets what may leave: without this, nothing would arrive in any case."""
    told = []
    for worker in ABROAD:
        before = len(it.box.vendor.requests)
        await it.send(user("What is the capital of Italy?"), worker)
        sent = it.box.vendor.requests[before:]
        told += [worker] if any(b"capital of Italy" in request.body for request in sent) else []
    return told
