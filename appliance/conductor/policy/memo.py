"""What has been decided already under one policy, so that it need not be decided again.

Bounded: full, it is emptied, which is simple, safe beside other threads, and rare, since a site has
few labels. It belongs to one policy and goes with it, so that it can never be stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from conductor.core import Destination, Obligation, Verdict
from conductor.labels import Clearance, Label

MAX_ROWS = 2048
_MAX_VERDICTS = 1024

Question = tuple[Label, Label, frozenset[Obligation]]
"""The label now, the label before it was lowered, and the obligations carried out."""


@dataclass(frozen=True)
class Row:
    """One question, what rules say to it for any destination, and the verdicts so far.

    `now` and `before` are masks of the rules that speak of the two labels; `known` whether both are
    labels of this site; `shown` is the label's text.
    """

    label: Label
    origin: Label
    discharged: frozenset[Obligation]
    known: bool
    shown: str
    now: int
    before: int
    _verdicts: dict[str, tuple[Destination, Clearance, Verdict]] = field(default_factory=dict)

    def recall(self, worker: str, destination: Destination, clearance: Clearance) -> Verdict | None:
        """The verdict for a worker, if it was this destination and clearance that were judged."""
        entry = self._verdicts.get(worker)
        if entry is None or entry[0] is not destination or entry[1] is not clearance:
            return None
        return entry[2]

    def keep(
        self, worker: str, destination: Destination, clearance: Clearance, verdict: Verdict
    ) -> None:
        if len(self._verdicts) >= _MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[worker] = (destination, clearance, verdict)


class Memo:
    """The rows of a policy, by question."""

    def __init__(self) -> None:
        self._rows: dict[Question, Row] = {}

    def find(self, question: Question) -> Row | None:
        return self._rows.get(question)

    def keep(self, question: Question, row: Row) -> None:
        if len(self._rows) >= MAX_ROWS:
            self._rows = {}
        self._rows[question] = row
