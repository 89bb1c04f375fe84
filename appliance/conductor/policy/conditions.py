"""Conditions of rules: three values, so that a missing fact is never taken for a no.

True, False, and None for unknown; `and`, `or`, `not` as in Kleene's strong logic (Kleene,
"Introduction to Metamathematics", 1952, section 64). A leaf is unknown when the destination does
not state the fact, or states one of another type. Conditions are values: they compare and print.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from conductor.core import Destination
from conductor.labels import Label

Truth = bool | None
"""None: unknown."""
Quantity = Literal["any", "all", "none"]


class Condition(Protocol):
    """A question about one label on its way to one destination."""

    def holds(self, label: Label, to: Destination) -> Truth:
        """Pure and total: never raises."""


def negation(truth: Truth) -> Truth:
    return None if truth is None else not truth


def conjunction(truths: Iterable[Truth]) -> Truth:
    """False wins over unknown; of nothing: true."""
    result: Truth = True
    for truth in truths:
        if truth is False:
            return False
        if truth is None:
            result = None
    return result


def disjunction(truths: Iterable[Truth]) -> Truth:
    """True wins over unknown; of nothing: false."""
    return negation(conjunction(negation(truth) for truth in truths))


@dataclass(frozen=True)
class All:
    parts: tuple[Condition, ...]

    def holds(self, label: Label, to: Destination) -> Truth:
        return conjunction(part.holds(label, to) for part in self.parts)


@dataclass(frozen=True)
class Any:
    parts: tuple[Condition, ...]

    def holds(self, label: Label, to: Destination) -> Truth:
        return disjunction(part.holds(label, to) for part in self.parts)


@dataclass(frozen=True)
class Not:
    part: Condition

    def holds(self, label: Label, to: Destination) -> Truth:
        return negation(self.part.holds(label, to))


ALWAYS = All(())


@dataclass(frozen=True)
class Fact:
    """Whether the destination's fact is one of `values`, which are all texts or all flags."""

    name: str
    values: frozenset[str | bool]

    def holds(self, label: Label, to: Destination) -> Truth:
        own = fact(to, self.name)
        if own is None or not any(type(value) is type(own) for value in self.values):
            return None
        return own in self.values


@dataclass(frozen=True)
class Level:
    """Whether the label's level is within `low` and `high`, both included."""

    low: int
    high: int

    def holds(self, label: Label, to: Destination) -> Truth:
        return self.low <= label.level <= self.high


@dataclass(frozen=True)
class Compartments:
    """Whether the label has `any`, `all` or `none` of the compartments `names`."""

    quantity: Quantity
    names: frozenset[str]

    def holds(self, label: Label, to: Destination) -> Truth:
        if self.quantity == "all":
            return self.names <= label.compartments
        return bool(self.names & label.compartments) == (self.quantity == "any")


def fact(destination: Destination, name: str) -> str | bool | None:
    """One fact of a destination, None when it is not stated."""
    if name == "id":
        return destination.id
    if name == "kind":
        return destination.kind
    return destination.facts.get(name)
