"""What policy is told of a piece of data: its label, and what was done to get it there.

A label alone does not say whether an allow with obligations holds: a text without personal data
that was redacted may go where one that merely looks clean may not (`policy/decide.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from conductor.core import Obligation
from conductor.labels import LOWEST, Label


@dataclass(frozen=True, slots=True)
class Standing:
    """`origin` is what the label was before declassifiers lowered it; `discharged` are the
    obligations that were carried out for all of it."""

    label: Label
    origin: Label
    discharged: frozenset[Obligation] = frozenset()

    @classmethod
    def of(cls, label: Label) -> Standing:
        """Of data that nothing was done to."""
        return cls(label, label)

    def join(self, other: Standing) -> Standing:
        """Of what was made from both: only what was done to each was done to it."""
        return Standing(
            self.label.join(other.label),
            self.origin.join(other.origin),
            self.discharged & other.discharged,
        )

    def raised(self, label: Label) -> Standing:
        """With what a detector found in it. Whatever was done did not take that away, so that it
        must be done again before it counts."""
        if label == LOWEST:
            return self
        return Standing(self.label.join(label), self.origin.join(label))

    def lowered(self, label: Label, by: Obligation) -> Standing:
        """Once a declassifier has carried out an obligation and found nothing left over."""
        return replace(self, label=label, discharged=self.discharged | {by})

    def restored(self) -> Standing:
        """Once values were put back into it: that undoes what was done."""
        return replace(self, discharged=frozenset())

    def answered(self) -> Standing:
        """Of an answer to it. What was taken out of a text is in no answer to that text; but a
        person who approved bytes approved no others, and how data is sent is promised each time."""
        kept = frozenset(one for one in self.discharged if one.kind in ("redact", "pseudonymise"))
        return replace(self, discharged=kept)
