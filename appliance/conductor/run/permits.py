"""The permit desk: mints one permit for one attempt at one remote worker.

`serve` holds the signing key; the egress process holds only the public half. See
`egress/permit.py` for what a permit says and `egress/gate.py` for how it is checked.
"""

from __future__ import annotations

import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.core import Worker
from conductor.egress.client import EgressLink
from conductor.egress.permit import Permit, boottime_ns, digest, mint
from conductor.labels import Label
from conductor.policy.document import Policy
from conductor.run.aside import aside


class PermitDesk:
    """Signs permits. `ttl_s` is how long one may be used; `link` tells egress's current epoch."""

    def __init__(self, key: Ed25519PrivateKey, link: EgressLink, ttl_s: float) -> None:
        self._key = key
        self._link = link
        self._ttl_ns = int(ttl_s * 1e9)

    async def mint(
        self, policy: Policy, worker: Worker, body: bytes, label: Label, decision_id: str
    ) -> tuple[str, str]:
        """A fresh permit for exactly `body`; returns its id and its token.

        Raises `WorkerError(EGRESS_DOWN)` when egress does not answer.
        """
        permit = Permit(
            id=secrets.token_hex(16),
            body_sha256=await aside(len(body), digest, body),
            worker=worker.id,
            destination=worker.destination.id,
            label=policy.lattice.show(label),
            policy_revision=policy.revision,
            decision_id=decision_id,
            epoch=await self._link.epoch(),
            expires_boottime_ns=boottime_ns() + self._ttl_ns,
        )
        return permit.id, mint(self._key, permit)

    def forget_epoch(self) -> None:
        """Ask egress again before the next permit: it has refused one, so it may have restarted."""
        self._link.invalidate()
