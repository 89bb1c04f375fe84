"""What the policy that a permit names cleared whom for: egress's own reading of it.

`serve` says which revision; what it holds is read here, from the store of policies that were put in
force. A new one counts as soon as a permit names it. The one before goes on for as long as a
request that began under it may last, and then no more: an old policy may have allowed more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from conductor.config import Site
from conductor.core import Worker
from conductor.errors import ConductorError
from conductor.labels import Lattice
from conductor.logs import error_name

_POLL_S = 0.5
"""To look costs some file names in a folder."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Cleared:
    """One revision, for egress: its remote workers with their clearances, and its words."""

    workers: Mapping[str, Worker]
    lattice: Lattice

    @classmethod
    def under(cls, site: Site) -> Cleared:
        """What a site's policy clears."""
        remote = {worker.id: worker for worker in site.workers if worker.remote}
        return cls(remote, site.policy.lattice)


class Clearances(Protocol):
    """What a gate asks."""

    def of(self, revision: int) -> Cleared | None:
        """What a revision clears; None when no permit may name it."""


class Revisions:
    """Follows the store. `read` gives the site under a revision that was put in force, and raises
    `ConductorError` when there is none; it may block, and is called in a thread. `grace_s` is how
    long a policy that another one has followed still counts. With `above` the site's own policy
    does not count, as where the kept one is damaged: only one with a revision above that will."""

    def __init__(
        self,
        site: Site,
        read: Callable[[int], Site],
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        above: int | None = None,
    ) -> None:
        self._read = read
        self._grace_s = grace_s
        self._clock = clock
        self._known = {} if above is not None else {site.policy.revision: Cleared.under(site)}
        self._above = above or 0
        self._followed: dict[int, float] = {}
        """When each earlier revision was seen to be followed."""
        self._one = asyncio.Lock()

    @property
    def highest(self) -> int:
        """The newest revision that is known."""
        return max([self._above, *self._known])

    def of(self, revision: int) -> Cleared | None:
        since = self._followed.get(revision)
        if since is not None and self._clock() - since > self._grace_s:
            return None
        return self._known.get(revision)

    async def learn(self, revision: int) -> None:
        """Read a revision that is newer than all that are known, if it was put in force."""
        if revision <= self.highest:
            return
        async with self._one:
            if revision <= self.highest:
                return
            try:
                site = await asyncio.to_thread(self._read, revision)
            except ConductorError as error:
                log.error("policy_not_read", revision=revision, error=error_name(error))
                return
            self._follow(revision, Cleared.under(site))

    @asynccontextmanager
    async def following(self, newest: Callable[[], int]) -> AsyncIterator[None]:
        """Learn of a new policy as soon as it is in the store, before a permit must wait for it.
        `newest` gives the highest revision there; it may block."""
        task = asyncio.create_task(self._poll(newest))
        try:
            yield
        finally:
            task.cancel()

    async def _poll(self, newest: Callable[[], int]) -> None:
        seen = 0
        while True:
            await asyncio.sleep(_POLL_S)
            revision = await asyncio.to_thread(newest)
            if revision != seen:  # one that cannot be read is tried, and told, once
                seen = revision
                await self.learn(revision)

    def _follow(self, revision: int, cleared: Cleared) -> None:
        now = self._clock()
        for earlier in self._known:
            self._followed.setdefault(earlier, now)
        kept = {known for known in self._known if self.of(known) is not None}
        self._known = {known: self._known[known] for known in kept} | {revision: cleared}
        self._followed = {known: self._followed[known] for known in kept}
        log.info("policy_followed", revision=revision)
