"""A desk over a folder, with an audit log that only remembers and a check in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conductor.activation.check import check
from conductor.activation.desk import Desk, Outcome, Who, Wish
from conductor.activation.question import Question
from conductor.activation.report import Report
from conductor.activation.startup import starting
from conductor.activation.store import Store
from conductor.active import Active
from conductor.config import Site
from conductor.errors import AuditError

WHO = Who(1000)


@dataclass
class Memory:
    """An audit log. Full, it takes nothing."""

    records: list[dict[str, Any]] = field(default_factory=list)
    full: bool = False
    full_after: int | None = None
    """Takes so many records, and then nothing."""

    async def append(self, event: str, **fields: object) -> None:
        if self.full or len(self.records) == self.full_after:
            raise AuditError("full")
        self.records.append({"event": event, **fields})

    @property
    def told(self) -> list[tuple[Any, Any, Any]]:
        return [(one["action"], one["verdict"], one["revision"]) for one in self.records]


@dataclass
class Office:
    """A desk and all that is around it."""

    desk: Desk
    active: Active
    store: Store
    audit: Memory
    swapped: list[int]
    refused: int = 0

    @property
    def in_force(self) -> int:
        return self.active.site.policy.revision

    async def apply(self, policy: bytes, *approvals: Any, emergency: bool = False) -> Outcome:
        return await self.desk.apply(Wish(policy, approvals, emergency), WHO)


async def check_here(question: Question) -> Report:
    return await asyncio.to_thread(check, question)


@contextmanager
def office(folder: Path, check: Any = check_here) -> Iterator[Office]:
    """As `conductor serve` would set it up after a start from `folder`."""
    start = starting(folder)
    active, store, audit = Active(start.site), Store(folder / "s"), Memory()
    swapped: list[int] = []

    async def swap(site: Site) -> None:
        swapped.append(site.policy.revision)
        active.swap(site)

    def refuse() -> None:
        made.refused += 1

    with store.writing() as writer:
        desk = Desk(
            active=active,
            store=store,
            writer=writer,
            audit=audit,
            check=check,
            swap=swap,
            degraded=start.degraded,
            refused=refuse,
        )
        if start.first:
            asyncio.run(desk.begin(start.site))
            audit.records.clear()
        made = Office(desk, active, store, audit, swapped)
        yield made
