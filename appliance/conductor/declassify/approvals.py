"""Requests that wait for a person's approval, and approvals that wait to be used.

The book does not know who asks. What is alike, with the same label and for the same destination,
has a bounded share of it, and whatever holds most gives way first: no flood of one kind pushes out
what waits of another.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from conductor.declassify.approved import Approval, ApprovalRefused, digest, verify

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from conductor.policy.activation import Approver

MAX_WAITING = 1_000
MAX_ALIKE = 20
"""That nobody has approved, of one label and for one destination: more than a person reads before
they expire."""
MAX_WAITING_BYTES = 64 << 20
"""Of all bodies that wait."""


def boottime_ns() -> int:
    """Nanoseconds since this machine booted, sleep included: nobody sets this clock back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def keys_of(approvers: Iterable[Approver], ids: Collection[str]) -> dict[str, bytes]:
    """The public keys of those with these ids."""
    return {one.id: one.public_key for one in approvers if one.id in ids}


class Matter(NamedTuple):
    """What an approval is about, whichever request it answers."""

    declassifier: str
    sha256: str
    label: str
    destination: str

    @classmethod
    def of(cls, declassifier: str, body: bytes, label: str, destination: str) -> Matter:
        """Hashes the body: some 20 ms for 32 MB."""
        return cls(declassifier, digest(body), label, destination)


@dataclass(frozen=True)
class Signed:
    """An approval whose signature held, and under which key."""

    approval: Approval
    approver: str
    public_key: bytes


@dataclass
class _Entry:
    approval: Approval
    body: bytes
    expires_ns: int
    shown: bool = False
    approver: str = ""
    """Empty while nobody has approved."""
    public_key: bytes = b""

    @property
    def alike(self) -> tuple[str, str]:
        return self.approval.label, self.approval.destination


class ApprovalBook:
    """What waits. What makes room is what nobody has approved and, of that, first what nobody has
    been shown."""

    def __init__(
        self, clock_ns: Callable[[], int] = boottime_ns, max_waiting: int = MAX_WAITING
    ) -> None:
        self._clock_ns = clock_ns
        self._max_waiting = max_waiting
        self._entries: dict[Matter, _Entry] = {}

    def ask(self, matter: Matter, body: bytes, expires_s: float) -> Approval:
        """The request for this: the one that waits already, or a new one. It and any approval of
        it end `expires_s` after it was first asked for. `body` is what `matter` is about."""
        self._forget_expired()
        entry = self._entries.get(matter)
        if entry is None:
            approval = Approval(request=secrets.token_hex(8), **matter._asdict())
            entry = _Entry(approval, body, self._clock_ns() + int(expires_s * 1e9))
            self._make_room(entry)
            self._entries[matter] = entry
        return entry.approval

    def waiting(self) -> list[Approval]:
        """The requests that nobody has approved yet, oldest first."""
        self._forget_expired()
        return [entry.approval for entry in self._entries.values() if not entry.approver]

    def find(self, request: str) -> Approval | None:
        """What waits under that id, for a person or to be used."""
        self._forget_expired()
        asked = (entry.approval for entry in self._entries.values())
        return next((one for one in asked if one.request == request), None)

    def show(self, approval: Approval) -> bytes | None:
        """The bytes that wait for it; None when nobody has to approve them any more. From now on
        somebody may be reading them."""
        self._forget_expired()
        entry = self._entries.get(_matter(approval))
        if entry is None or entry.approval != approval or entry.approver:
            return None
        entry.shown = True
        return entry.body

    def check(self, token: str, approvers: Mapping[str, Ed25519PublicKey]) -> Signed:
        """The approval in a token, which does not count before it is accepted. `approvers`: the
        keys that the request's declassifier names, by id.

        Raises `ApprovalRefused`; what waits stays as it was. `unknown`: no request for exactly
        this waits, any more or at all.
        """
        approval, approver = verify(token, approvers)
        self._waits(approval)
        return Signed(approval, approver, approvers[approver].public_bytes_raw())

    def accept(self, signed: Signed) -> None:
        """Let it count. Raises `ApprovalRefused`, `unknown`, when it waits no more."""
        entry = self._waits(signed.approval)
        entry.approver, entry.public_key = signed.approver, signed.public_key

    def take(self, matter: Matter, approvers: Mapping[str, bytes]) -> str | None:
        """Use the approval of exactly this: who gave it, once; None when there is none.
        `approvers`: the public keys that count by now, by id. An approval under another one is
        void, and all must be asked anew."""
        self._forget_expired()
        entry = self._entries.get(matter)
        if entry is None or not entry.approver:
            return None
        del self._entries[matter]
        return entry.approver if approvers.get(entry.approver) == entry.public_key else None

    def _waits(self, approval: Approval) -> _Entry:
        self._forget_expired()
        entry = self._entries.get(_matter(approval))
        if entry is None or entry.approval != approval:
            raise ApprovalRefused("unknown")
        return entry

    def _forget_expired(self) -> None:
        now = self._clock_ns()
        for matter in [name for name, one in self._entries.items() if one.expires_ns <= now]:
            del self._entries[matter]

    def _make_room(self, coming: _Entry) -> None:
        alike = [one for one in self._entries.values() if one.alike == coming.alike]
        if sum(not one.approver for one in alike) >= MAX_ALIKE:
            self._drop(alike)
        while self._entries and self._full(len(coming.body)):
            self._drop(self._most_held())

    def _full(self, size: int) -> bool:
        held = sum(len(entry.body) for entry in self._entries.values())
        return len(self._entries) >= self._max_waiting or held + size > MAX_WAITING_BYTES

    def _most_held(self) -> list[_Entry]:
        """What is alike and not approved, and holds the most bytes; all where all is approved."""
        held: Counter[tuple[str, str]] = Counter()
        unapproved = [one for one in self._entries.values() if not one.approver]
        for one in unapproved:
            held[one.alike] += len(one.body)
        most = max(held, key=held.__getitem__, default=None)
        return [one for one in unapproved if one.alike == most] or [*self._entries.values()]

    def _drop(self, entries: list[_Entry]) -> None:
        """The oldest of them that is least wanted."""
        least = min(entries, key=lambda one: (bool(one.approver), one.shown))
        del self._entries[_matter(least.approval)]


def _matter(approval: Approval) -> Matter:
    return Matter(approval.declassifier, approval.sha256, approval.label, approval.destination)
