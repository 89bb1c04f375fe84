"""Sensitivity labels: a level in a chain, times a set of compartments.

Data labelled `L` may flow to a destination cleared for `C` when `L.level <= C.level` and
`L.compartments` is a subset of `C.compartments` (Denning, "A lattice model of secure information
flow", CACM 1976). Nothing here lowers a label: that is what declassifiers are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

UNSCANNED = "unscanned"
"""Compartment of whatever a detector could not read. No remote destination may hold it."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")


@dataclass(frozen=True, slots=True)
class Label:
    """How sensitive a piece of data is. `level` is an index into `Lattice.levels`, 0 the lowest."""

    level: int
    compartments: frozenset[str] = frozenset()

    def join(self, other: Label) -> Label:
        """The least label that covers both."""
        return Label(max(self.level, other.level), self.compartments | other.compartments)

    def flows_to(self, clearance: Clearance) -> bool:
        """The clearance floor: whether data so labelled may be shown to a holder of `clearance`."""
        return self.level <= clearance.level and self.compartments <= clearance.compartments


LOWEST = Label(0)
"""The label that raises no other."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """The most sensitive label that a destination may receive."""

    level: int
    compartments: frozenset[str] = frozenset()

    def meet(self, other: Clearance) -> Clearance:
        """What both allow: a worker's own clearance can narrow its destination's, never widen."""
        return Clearance(min(self.level, other.level), self.compartments & other.compartments)


def join_all(labels: Iterable[Label]) -> Label:
    """Join of at least one label. The join of nothing is an error, not "public"."""
    items = list(labels)
    if not items:
        raise ValueError("the join of no labels is undefined")
    result = items[0]
    for item in items[1:]:
        result = result.join(item)
    return result


@dataclass(frozen=True)
class Lattice:
    """The site's levels in rising order, and its compartments.

    The text form of a label is its level, then its compartments in order: `internal+pii+secret`.
    It is safe in an HTTP header and in a metric label.
    """

    levels: tuple[str, ...]
    compartments: frozenset[str]
    _index: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        names = [*self.levels, *sorted(self.compartments)]
        if not self.levels:
            raise ValueError("a lattice needs at least one level")
        for name in names:
            if not _NAME.match(name):
                raise ValueError(f"{name!r} is no label name: lower case, digits and '-', up to 32")
        if len(set(names)) != len(names):
            raise ValueError("levels and compartments must all have different names")
        if UNSCANNED not in self.compartments:
            raise ValueError(f"the compartment {UNSCANNED!r} must be declared")
        self._index.update((name, i) for i, name in enumerate(self.levels))

    @property
    def top(self) -> Label:
        """The label of what nobody has labelled."""
        return Label(len(self.levels) - 1, self.compartments)

    def level(self, name: str) -> int:
        """Index of a level; raises `KeyError` for an unknown name."""
        return self._index[name]

    def parse(self, text: str) -> Label:
        """Read `level+compartment+...`; raises `ValueError` without repeating the text."""
        level, *compartments = text.strip().split("+")
        if level not in self._index or not self.compartments.issuperset(compartments):
            raise ValueError("not a label of this site: " + self.describe())
        return Label(self._index[level], frozenset(compartments))

    def show(self, label: Label | Clearance) -> str:
        """The text form; `parse` reads it back."""
        return "+".join([self.levels[label.level], *sorted(label.compartments)])

    def describe(self) -> str:
        """One line for error messages: what a label may consist of."""
        compartments = ", ".join(sorted(self.compartments))
        return f"levels {', '.join(self.levels)}; compartments {compartments}"
