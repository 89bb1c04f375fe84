"""Attesting to the isolation of `serve`, at its start and every few minutes, on record.

On a machine that was declared air-gapped a verdict other than `secure` closes the door: requests
are refused until a later attestation is good (decision 26, `docs/decisions/`). So does a verdict
that is too old, since then nobody looks any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from conductor.active import Active
from conductor.audit.log import AuditLog
from conductor.box.attestation import Evidence, gathered
from conductor.config import Site
from conductor.core import RemoteEndpoint
from conductor.errors import AuditError
from conductor.run.weakened import weakened

PERIOD_S = 300.0
"""Between two attestations."""
AGAIN_S = 30.0
"""After one that was not `secure`: what was repaired need not wait."""
STALE_S = 2 * PERIOD_S + AGAIN_S

log = structlog.get_logger()

Look = Callable[[Site], Evidence]


def look_around(site: Site) -> Evidence:
    """The evidence for a site, from inside this process. Blocks for moments."""
    remote = [w.destination.id for w in site.workers if isinstance(w.endpoint, RemoteEndpoint)]
    return gathered(
        site.declared,
        site.directory,
        destinations=sorted(set(remote)),
        policy_revision=site.policy.revision,
        weakened=weakened(site),
    )


class Attester:
    """Holds the latest evidence, and puts it on record."""

    def __init__(self, active: Active, audit: AuditLog, look: Look | None = None) -> None:
        self._active = active
        self._audit = audit
        self._look = look or look_around
        self._at_s = 0.0
        self.latest: Evidence | None = None

    @property
    def open_gap(self) -> tuple[str, ...]:
        """Why requests are refused; empty when they are not."""
        if not self._active.site.declared.air_gapped:
            return ()
        if self.latest is None or time.monotonic() - self._at_s > STALE_S:
            return ("not-attested",)
        return self.latest.reasons

    async def attest(self) -> Evidence:
        """Look, and record what was found. An open gap counts at once, a closed one once it is on
        record. Raises `AuditError` when it cannot be recorded."""
        evidence = await asyncio.to_thread(self._look, self._active.site)
        at_s = time.monotonic()
        if evidence.reasons:
            self.latest, self._at_s = evidence, at_s
        if self.open_gap and evidence.reasons:
            log.error("air_gap_open", reasons=list(evidence.reasons), do="conductor doctor")
        await self._audit.append("attestation", **evidence.record())
        self.latest, self._at_s = evidence, at_s
        return evidence

    @asynccontextmanager
    async def attesting(self) -> AsyncIterator[None]:
        """Attest now, then again and again while the context lasts. Raises `AuditError`."""
        await self._switched()
        await self.attest()
        task = asyncio.create_task(self._again_and_again())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _switched(self) -> None:
        """Record the latest switch of mode: what it says, and by whom. Its number tells, over
        several starts, whether one is missing."""
        site = self._active.site
        marker = site.declared.marker
        if marker.mode == "never" and not site.declared.by_unit:
            return
        if site.set_aside:
            log.warning("air_gapped", set_aside=list(site.set_aside))
        await self._audit.append(
            "mode",
            switch=marker.mode,
            by_unit=site.declared.by_unit,
            effective="air-gapped" if site.declared.air_gapped else site.appliance.mode,
            number=marker.number,
            switched_at=marker.at,
            uid=marker.uid,
            damaged=marker.damaged,
            set_aside=list(site.set_aside)[:64],
        )

    async def _again_and_again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_S if self.open_gap else PERIOD_S)
            try:
                await self.attest()
            except AuditError:  # its health is told by the log itself, and refuses requests
                log.error("attestation_not_recorded")
            except (OSError, RuntimeError) as error:  # no thread to be had: the next may do better
                log.error("attestation_failed", error=type(error).__name__)
