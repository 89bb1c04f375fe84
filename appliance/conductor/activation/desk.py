"""Where a policy is put in force: check, record, keep on disk, swap in, in that order.

A refused candidate changes nothing but the audit log. An accepted one is recorded before it is
kept, and kept before it counts, so that nothing ever decides unrecorded, and a crash in between
leaves the policy before. Requests under way keep the policy that they began with.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import structlog

from conductor.activation.apart import read_apart
from conductor.activation.approvals import Approval
from conductor.activation.question import Question
from conductor.activation.report import Problem, Report
from conductor.activation.revision import renumbered
from conductor.activation.store import Store, Writer
from conductor.config import POLICY, Site
from conductor.errors import AuditError, ConductorError, StartError
from conductor.policy.document import Policy

How = Literal["apply", "rollback", "emergency", "first"]
Check = Callable[[Question], Awaitable[Report]]
Swap = Callable[[Site], Awaitable[None]]

_MOST_REASONS = 20

log = structlog.get_logger()


class Recorder(Protocol):
    """An audit log."""

    async def append(self, event: str, **fields: object) -> None:
        """Return once the record is durable. Raises `AuditError`."""


class Active(Protocol):
    """Who holds the current site: `conductor.active.Active`."""

    @property
    def site(self) -> Site: ...


@dataclass(frozen=True)
class Who:
    """Who asked: the user id of the peer, as the kernel tells it, and whether the daemon was
    asked (`socket`) or bypassed while it was down (`offline`)."""

    uid: int
    way: Literal["socket", "offline", "start"] = "socket"


@dataclass(frozen=True)
class Wish:
    """What somebody wants in force."""

    policy: bytes
    approvals: tuple[Approval, ...] = ()
    emergency: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a wish."""

    in_force: bool
    report: Report

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        verdict = "active" if self.in_force else "refused"
        return {"object": "conductor.policy.verdict", "verdict": verdict, **self.report.facts()}


class NoSuchRevision(ConductorError):
    """There is nothing to go back to."""


class Desk:
    """Puts policies in force, one at a time. `swap` makes a site count for requests that begin
    from then on, and tells whoever else must know; it must not fail, since by then the policy is
    on disk. `refused` is called for every candidate that was not put in force."""

    def __init__(
        self,
        *,
        active: Active,
        store: Store,
        writer: Writer,
        audit: Recorder,
        check: Check,
        swap: Swap,
        degraded: str = "",
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._active = active
        self._store = store
        self._writer = writer
        self._audit = audit
        self._check = check
        self._swap = swap
        self._refused = refused
        self._one = asyncio.Lock()
        self.degraded = degraded
        """Why nothing remote is reached; "" once a policy was put in force."""
        self.last: Outcome | None = None
        """What became of the latest wish since the start."""

    async def begin(self, site: Site) -> None:
        """Keep the policy of a very first start. Raises `ConductorError`."""
        async with self._one:
            await self._record("first", "accepted", _facts(site.policy), Who(os.getuid(), "start"))
            policy = site.policy
            await asyncio.to_thread(
                self._writer.put, site.files[POLICY], policy.revision, _now(), "first"
            )
            await self._confirm("first", "active", _facts(policy), Who(os.getuid(), "start"))

    async def apply(self, wish: Wish, who: Who, how: How = "apply") -> Outcome:
        """Put a policy in force, or say why not. Raises `AuditError` when that cannot be recorded:
        then nothing is changed."""
        # Shielded: whoever asked may leave between the disk and the swap.
        return await asyncio.shield(asyncio.ensure_future(self._in_turn(wish, who, how)))

    async def rollback(self, revision: int | None, who: Who) -> Outcome:
        """Put an earlier policy in force again, under a new revision: by default the one before.

        Raises `NoSuchRevision` and `AuditError`.
        """
        policy = await asyncio.to_thread(self.reissued, revision)
        return await self.apply(Wish(policy), who, "rollback")

    def reissued(self, revision: int | None) -> bytes:
        """The bytes of an earlier policy under the next free revision. Raises `NoSuchRevision`."""
        return reissued(self._store, revision)

    def status(self) -> dict[str, Any]:
        """What is in force, since when, and what became of the latest wish."""
        held = self._store.held()
        policy = self._active.site.policy
        return {
            "object": "conductor.policy",
            "in_force": _facts(policy),
            "kept": held.copy.facts() if held.copy else None,
            "store": held.condition,
            "highest_revision": held.highest,
            "degraded": self.degraded or None,
            "last": self.last.facts() if self.last else None,
        }

    def summary(self) -> dict[str, Any]:
        """For a status page: what is in force, and why the latest candidate is not, if it is not.
        Looks at no disk, and tells no text of a file."""
        last = self.last
        return {
            **_facts(self._active.site.policy),
            "degraded": self.degraded or None,
            "refused": _report_facts(last.report) if last and not last.in_force else None,
        }

    def history(self) -> list[dict[str, Any]]:
        """Every policy that was in force, the newest first."""
        return [copy.facts() for copy in self._store.history()]

    async def _in_turn(self, wish: Wish, who: Who, how: How) -> Outcome:
        async with self._one:
            self.last = await self._apply(wish, who, "emergency" if wish.emergency else how)
            if not self.last.in_force:
                self._refused()
            return self.last

    async def _apply(self, wish: Wish, who: Who, how: How) -> Outcome:
        report = await self._check(await asyncio.to_thread(self._question, wish))
        facts = _report_facts(report)
        if not report.ok:
            await self._record(how, "refused", facts, who)
            log.warning("policy_refused", revision=report.revision, sha256=report.sha256)
            return Outcome(False, report)
        await self._record(how, "accepted", facts, who)
        site = await asyncio.to_thread(read_apart, self._active.site, wish.policy)
        try:
            await asyncio.to_thread(
                self._writer.put, wish.policy, report.revision, _now(), how, report.approved
            )
        except StartError as error:
            await self._confirm(how, "failed", facts, who)
            return Outcome(False, report.and_problem(Problem("store", "not-kept", str(error))))
        await self._swap(site)
        self.degraded = ""
        log.info("policy_active", revision=report.revision, sha256=report.sha256, how=how)
        await self._confirm(how, "active", {**facts, **_names(site.policy)}, who)
        return Outcome(True, report)

    def _question(self, wish: Wish) -> Question:
        site = self._active.site
        return Question(
            directory=site.directory,
            active={**site.files, POLICY: self._authority()},
            candidate=wish.policy,
            highest=self._store.held().highest,
            approvals=wish.approvals,
            emergency=wish.emergency,
            audit=site.appliance.paths.audit if wish.emergency else None,
        )

    def _authority(self) -> bytes:
        """The policy whose approvers count. While degraded that is the newest that can still be
        read: a file that stands in for a damaged copy must not appoint approvers."""
        kept = self._store.history() if self.degraded else []
        return kept[0].policy if kept else self._active.site.files[POLICY]

    async def _confirm(self, how: How, verdict: str, facts: dict[str, Any], who: Who) -> None:
        """Record what became of an accepted candidate. It is done by then, and the record that it
        was accepted is on disk: failing here would only tell whoever asked the wrong thing."""
        try:
            await self._record(how, verdict, facts, who)
        except AuditError:
            log.error("policy_outcome_not_recorded", revision=facts["revision"], verdict=verdict)

    async def _record(self, how: How, verdict: str, facts: dict[str, Any], who: Who) -> None:
        await self._audit.append(
            "policy", action=how, verdict=verdict, uid=who.uid, way=who.way, **facts
        )


def reissued(store: Store, revision: int | None) -> bytes:
    """The bytes of an earlier policy in `store` under the next free revision: by default the one
    before the newest. Raises `NoSuchRevision`."""
    highest = store.held().highest
    earlier = [copy for copy in store.history() if copy.revision < highest]
    wanted = [copy for copy in earlier if revision in (None, copy.revision)]
    if not wanted:
        which = "earlier policy" if revision is None else f"kept policy of revision {revision}"
        raise NoSuchRevision(f"there is no {which} to go back to: see 'conductor policy history'")
    return renumbered(wanted[0].policy, highest + 1)


def _facts(policy: Policy) -> dict[str, Any]:
    return {"revision": policy.revision, "sha256": policy.sha256}


def _names(policy: Policy) -> dict[str, Any]:
    """Its levels in rising order, and its compartments: without them the labels in later records
    could not be compared."""
    lattice = policy.lattice
    return {"levels": list(lattice.levels), "compartments": sorted(lattice.compartments)}


def _report_facts(report: Report) -> dict[str, Any]:
    """What of a report stands in the audit log: no text of the file."""
    return {
        "revision": report.revision,
        "sha256": report.sha256,
        "approved": list(report.approved),
        "approvals_needed": report.approvals_needed,
        "reasons": [f"{p.stage}:{p.code}" for p in report.problems[:_MOST_REASONS]],
        "warnings": len(report.warnings),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
