"""The last check before a socket opens: may this permit be used for this body, here and now?

Pure but for the ids it remembers. It trusts nothing that `serve` says beyond the signature: worker,
destination and clearance come from its own reading of the policy that the permit names. The order
matters: the signature comes first, so that a stranger can make it remember nothing, and the replay
check last, so that a refused request does not use a permit up.

Left out on purpose: the policy's rules. `serve` decides; this floor holds even when it decides
wrongly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from conductor.core import Worker
from conductor.egress import permit as permits
from conductor.egress.permit import Permit
from conductor.egress.revisions import Clearances
from conductor.errors import PermitRefused
from conductor.labels import UNSCANNED, Lattice

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class PermitGate:
    """Lets each valid permit through once. `epoch` is this run of the egress process.

    `max_ttl_s` bounds how far ahead a permit may expire, and so how long an id is remembered;
    `max_seen` bounds how many are. Not for use from several threads.
    """

    def __init__(
        self,
        public_key: Ed25519PublicKey,
        epoch: str,
        clearances: Clearances,
        *,
        clock: Callable[[], int] = permits.boottime_ns,
        max_ttl_s: float = 60.0,
        max_seen: int = 100_000,
    ) -> None:
        self.epoch = epoch
        self._public_key = public_key
        self._clearances = clearances
        self._clock = clock
        self._max_ttl_ns = int(max_ttl_s * 1e9)
        self._seen = _Seen(max_seen)

    def named_revision(self, token: str) -> int:
        """The policy that a permit names, which is genuine. Raises `PermitRefused`."""
        return permits.read(self._public_key, token).policy_revision

    def check(self, token: str, body: bytes, worker_id: str) -> tuple[Permit, Worker]:
        """The permit, used up, and the worker it opens. Raises `PermitRefused`."""
        permit = permits.read(self._public_key, token)
        now = self._clock()
        if permit.epoch != self.epoch:
            raise PermitRefused(permits.EPOCH)
        if not now < permit.expires_boottime_ns <= now + self._max_ttl_ns:
            raise PermitRefused(permits.EXPIRED)
        cleared = self._clearances.of(permit.policy_revision)
        if cleared is None:
            raise PermitRefused(permits.REVISION)
        worker = cleared.workers.get(worker_id)
        if worker is None or permit.worker != worker_id:
            raise PermitRefused(permits.WORKER)
        if permit.destination != worker.destination.id:
            raise PermitRefused(permits.DESTINATION)
        _check_floor(permit, worker, cleared.lattice)
        if permit.body_sha256 != permits.digest(body):
            raise PermitRefused(permits.BODY)
        self._seen.add(permit.id, permit.expires_boottime_ns, now)
        return permit, worker


def _check_floor(permit: Permit, worker: Worker, lattice: Lattice) -> None:
    try:
        label = lattice.parse(permit.label)
    except ValueError:
        raise PermitRefused(permits.LABEL) from None
    if UNSCANNED in label.compartments or not label.flows_to(worker.clearance):
        raise PermitRefused(permits.CLEARANCE)


class _Seen:
    """Permit ids until they expire. When it is full of live ones, nothing more gets through."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids: set[str] = set()
        self._by_expiry: list[tuple[int, str]] = []

    def add(self, id_: str, expires_ns: int, now_ns: int) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now_ns:
            self._ids.discard(heapq.heappop(self._by_expiry)[1])
        if id_ in self._ids:
            raise PermitRefused(permits.REPLAY)
        if len(self._ids) >= self._limit:
            raise PermitRefused(permits.TOO_MANY)
        self._ids.add(id_)
        heapq.heappush(self._by_expiry, (expires_ns, id_))
