"""What one request keeps to itself from its first step to its end: the values behind its
pseudonyms, and how much it may still tell workers that are not cleared for its data.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field

from conductor.declassify.constrained import LeakBudget
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.labels import Clearance, Label
from conductor.policy.document import Policy


@dataclass
class Workflow:
    """`fixed` is what somebody has said of the request, beside what detectors know by its looks:
    its key's or the site's default, what its caller declared, the markings in it and in its answers
    (`wholetexts.py`), and what was so stated of texts that it repeats. No program lowers a label
    below it, because no program knows what somebody else meant by it; only a person does, and an
    answer of a few bits, which are counted."""

    fixed: Label
    reveals: LeakBudget
    pseudonyms: Pseudonyms = field(default_factory=Pseudonyms)
    masking: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    """Held while pseudonyms are given out, which may be in a thread: steps run side by side."""
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
        out on it: it tells within the workflow what is the same, and later nothing. Raises
        `ValueError` after `end`."""
        if not self.key:
            raise ValueError("this workflow has ended: it names nothing any more")
        return hashlib.blake2b(data, key=self.key, digest_size=16).hexdigest()

    def end(self) -> None:
        """Forget the values, and what the names in the records stood for."""
        self.pseudonyms.wipe()
        self.key = b""


def part_of(stated: Label, label: Label) -> Label:
    """What of `stated` data that is now labelled `label` has: more of it was never meant, or has
    been lowered by somebody who may."""
    return Label(min(stated.level, label.level), stated.compartments & label.compartments)


def towards(label: Label) -> Clearance:
    """The clearance of a sink for which everything up to `label` is meant."""
    return Clearance(label.level, label.compartments)
