"""What one request keeps to itself from its first step to its end: the values behind its
pseudonyms, and how much it may still tell workers that are not cleared for its data.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

from conductor.declassify.constrained import LeakBudget
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.labels import Clearance, Label
from conductor.policy.document import Policy


@dataclass
class Workflow:
    """`fixed` is what the request was labelled by itself, before any detector: its key's or the
    site's default, and what its caller declared. No program lowers a label below it, because no
    program knows what somebody else meant by it."""

    fixed: Label
    reveals: LeakBudget
    pseudonyms: Pseudonyms = field(default_factory=Pseudonyms)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @classmethod
    def under(cls, policy: Policy, fixed: Label) -> Workflow:
        """A fresh one, with the leak budget of a policy."""
        return cls(fixed, LeakBudget(policy.leak_budget_bits))

    @property
    def masked(self) -> bool:
        """Whether any answer may hold tokens to restore."""
        return self.pseudonyms.counts.minted > 0

    def digest(self, data: bytes) -> str:
        """A name for some data in records (BLAKE2b, RFC 7693), keyed so that nobody can try texts
        out on it: it tells within the workflow what is the same, and later nothing."""
        return hashlib.blake2b(data, key=self.key, digest_size=16).hexdigest()

    def end(self) -> None:
        """Forget the values, and what the names in the records stood for."""
        self.pseudonyms.wipe()
        self.key = b""


def towards(label: Label) -> Clearance:
    """The clearance of a sink for which everything up to `label` is meant."""
    return Clearance(label.level, label.compartments)
