"""Requests that wait for a person's approval, and approvals that wait to be used."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conductor.declassify.approved import (
    Approval,
    ApprovalRefused,
    digest,
    named_request,
    verify,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_WAITING = 1_000
MAX_WAITING_BYTES = 64 << 20
"""Of all bodies that wait."""


def boottime_ns() -> int:
    """Nanoseconds since this machine booted, sleep included: nobody sets this clock back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass
class _Entry:
    approval: Approval
    body: bytes
    expires_ns: int
    approver: str = ""
    """Empty while nobody has approved."""


_Matter = tuple[str, str, str, str]


class ApprovalBook:
    """What waits. When it is full, the oldest that nobody has approved makes room."""

    def __init__(
        self, clock_ns: Callable[[], int] = boottime_ns, max_waiting: int = MAX_WAITING
    ) -> None:
        self._clock_ns = clock_ns
        self._max_waiting = max_waiting
        self._entries: dict[_Matter, _Entry] = {}

    def ask(
        self, declassifier: str, body: bytes, label: str, destination: str, expires_s: float
    ) -> Approval:
        """The request for these bytes: the one that waits already, or a new one. It and any
        approval of it end `expires_s` after it was first asked for."""
        self._forget_expired()
        asked = Approval("", declassifier, digest(body), label, destination)
        entry = self._entries.get(_matter(asked))
        if entry is None:
            self._make_room(len(body))
            approval = replace(asked, request=secrets.token_hex(8))
            entry = _Entry(approval, body, self._clock_ns() + int(expires_s * 1e9))
            self._entries[_matter(asked)] = entry
        return entry.approval

    def waiting(self) -> list[Approval]:
        """The requests that nobody has approved yet, oldest first."""
        self._forget_expired()
        return [entry.approval for entry in self._entries.values() if not entry.approver]

    def body_of(self, request: str) -> bytes | None:
        """The bytes that wait under that id; None when none do."""
        self._forget_expired()
        entries = self._entries.values()
        return next((one.body for one in entries if one.approval.request == request), None)

    def declassifier_of(self, token: str) -> str:
        """Which declassifier a token's request is for, by the book and not by the token; "" when
        nothing such waits. The token is not verified here."""
        waiting = {one.approval.request: one.approval for one in self._entries.values()}
        approval = waiting.get(named_request(token))
        return "" if approval is None else approval.declassifier

    def accept(self, token: str, approvers: Mapping[str, Ed25519PublicKey]) -> Approval:
        """Note an approval. `approvers`: the keys that the request's declassifier names, by id.

        Raises `ApprovalRefused`; what waits stays as it was. `unknown`: no request for exactly
        this waits, any more or at all.
        """
        approval, approver = verify(token, approvers)
        self._forget_expired()
        entry = self._entries.get(_matter(approval))
        if entry is None or entry.approval != approval:
            raise ApprovalRefused("unknown")
        entry.approver = approver
        return approval

    def take(self, declassifier: str, body: bytes, label: str, destination: str) -> str | None:
        """Use the approval of exactly this: who gave it, once; None when there is none."""
        self._forget_expired()
        matter = _matter(Approval("", declassifier, digest(body), label, destination))
        entry = self._entries.get(matter)
        if entry is None or not entry.approver:
            return None
        del self._entries[matter]
        return entry.approver

    def _forget_expired(self) -> None:
        now = self._clock_ns()
        for matter in [name for name, one in self._entries.items() if one.expires_ns <= now]:
            del self._entries[matter]

    def _make_room(self, size: int) -> None:
        while self._entries and self._full(size):
            self._drop_one()

    def _full(self, size: int) -> bool:
        held = sum(len(entry.body) for entry in self._entries.values())
        return len(self._entries) >= self._max_waiting or held + size > MAX_WAITING_BYTES

    def _drop_one(self) -> None:
        oldest = next((name for name, one in self._entries.items() if not one.approver), None)
        self._entries.pop(next(iter(self._entries)) if oldest is None else oldest)


def _matter(approval: Approval) -> _Matter:
    """What an approval is about, whichever request it answers."""
    return approval.declassifier, approval.sha256, approval.label, approval.destination
