"""Asking the log: what was sent where, by whom, under which rule, carrying which label.

A label asked for is met by every label that is at least as high and holds at least its
compartments; a compartment alone is met by whatever holds it. The order of the levels is not in a
label's text: it comes from the records, or from who asks. Where it is known from neither, a level
that is not the one asked for counts as met, and the answer says so: nothing is left out for want
of knowing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from conductor.audit.sendings import Requests, Sending
from conductor.audit.stretch import Coverage, Gap, Stretch

Levels = tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """A label to look for, as somebody wrote it: `internal`, `pii`, `internal+pii`."""

    first: str
    compartments: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, written: str) -> Wanted:
        """Read it; raises `ValueError` when it is no label's text."""
        first, *others = written.strip().split("+")
        if not all((first, *others)):
            raise ValueError("a label is a level, a compartment, or level+compartment+...")
        return cls(first, frozenset(others))

    @property
    def names(self) -> frozenset[str]:
        return self.compartments | {self.first}

    def met_by(self, label: str, levels: Levels) -> bool | None:
        """Whether `label` is at or above it; None when that hangs on an order of levels that is
        not known."""
        level, *held = label.split("+")
        if not self.compartments <= set(held):
            return False
        if self.first == level or self.first in held:
            return True
        if self.first in levels and level in levels:
            return levels.index(level) >= levels.index(self.first)
        return False if level in levels and self.first not in levels else None


@dataclass(frozen=True)
class Question:
    """What to look for. Empty fields ask for nothing in particular."""

    label: Wanted | None = None
    remote: bool = False
    """Only what left the appliance."""
    destination: str = ""
    rule: str = ""
    key: str = ""
    request_id: str = ""
    lowered: bool = False
    """Also what carried the label until a declassifier lowered it."""

    def concerns(self, sent: Sending) -> bool:
        """Whether all but the label fits."""
        pairs = (
            (self.destination, sent.destination),
            (self.rule, sent.rule),
            (self.key, sent.key),
            (self.request_id, sent.request_id),
        )
        fits = all(wanted in ("", found) for wanted, found in pairs)
        return fits and (sent.where == "remote" or not self.remote)


@dataclass(frozen=True)
class Found:
    """A sending that fits. `certain` is false when it may fit: the order of levels is unknown."""

    sending: Sending
    certain: bool = True

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self.sending)
        del fields["levels"]
        return {**fields, "certain": self.certain}


@dataclass
class Totals:
    """Of everything found, per destination: kept while the rows stream by."""

    sendings: int = 0
    bytes_out: int = 0
    uncertain: int = 0
    first_ts: str = ""
    last_ts: str = ""

    def add(self, found: Found) -> None:
        sent = found.sending
        self.sendings += 1
        self.bytes_out += sent.bytes_out or 0
        self.uncertain += not found.certain
        self.first_ts = min(self.first_ts or sent.ts, sent.ts)
        self.last_ts = max(self.last_ts, sent.ts)


class Answer:
    """The answer to a question: `rows` streams it; totals and coverage are whole after that."""

    def __init__(self, stretch: Stretch, question: Question, levels: Levels = ()) -> None:
        self._stretch = stretch
        self._question = question
        self._requests = Requests(levels)
        self.destinations: dict[tuple[str, str], Totals] = {}
        """By where (`remote`, `inside`) and destination."""
        self.lowered = 0
        """Remote sendings left out, which carried the label until a declassifier lowered it."""

    def rows(self) -> Iterator[Found]:
        """Every sending that fits, in the order in which requests ended.

        Raises:
            AuditError: see `Stretch.entries`.
        """
        for entry in self._stretch.entries():
            for sent in self._requests.take(entry):
                yield from self._fitting(sent)
        for sent in self._requests.rest():
            yield from self._fitting(sent)

    @property
    def coverage(self) -> Coverage:
        """Whether these are all: what the log proves, and what this answer could not tell."""
        coverage = self._stretch.coverage()
        return replace(coverage, gaps=(*coverage.gaps, *self._gaps()))

    def _gaps(self) -> Iterator[Gap]:
        uncertain = sum(totals.uncertain for totals in self.destinations.values())
        if uncertain:
            yield Gap("levels", f"{uncertain} rows may be below the label asked for: the order of "
                      "the levels is not recorded; give --levels")  # fmt: skip
        wanted = self._question.label
        unknown = wanted.names - self._requests.names if wanted else frozenset()
        if unknown:
            yield Gap("name", f"the log knows no level or compartment {', '.join(sorted(unknown))}")

    def _fitting(self, sent: Sending) -> Iterator[Found]:
        found = self._found(sent)
        if found is not None:
            place = (sent.where, sent.destination)
            self.destinations.setdefault(place, Totals()).add(found)
            yield found

    def _found(self, sent: Sending) -> Found | None:
        wanted = self._question.label
        if not self._question.concerns(sent):
            return None
        if wanted is None:
            return Found(sent)
        met = wanted.met_by(sent.label, sent.levels)
        if met is False and wanted.met_by(sent.label_before, sent.levels) is not False:
            if not self._question.lowered:
                self.lowered += 1
                return None
            met = wanted.met_by(sent.label_before, sent.levels)
        return None if met is False else Found(sent, certain=met is True)
