"""Conditions of rules: three values, so that a missing fact is never taken for a no.

True, False, and None for unknown; `and`, `or`, `not` as in Kleene's strong logic (Kleene,
"Introduction to Metamathematics", 1952, section 64). A condition asks either about a destination or
about a label, never about both: so a rule's two halves can be answered apart (`bitmasks.py`). About
a destination it is unknown when the destination does not state the fact, or states one of another
type. Conditions are values: they compare, hash and print.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from conductor.core import Destination
from conductor.labels import Label

Truth = bool | None
"""None: unknown."""
Quantity = Literal["any", "all", "none"]
S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class Condition(Protocol[S_contra]):
    """A question about one destination, or about one label."""

    def holds(self, subject: S_contra, /) -> Truth:
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
class All(Generic[S]):
    parts: tuple[Condition[S], ...] = ()

    def holds(self, subject: S, /) -> Truth:
        return conjunction(part.holds(subject) for part in self.parts)


@dataclass(frozen=True)
class Any(Generic[S]):
    parts: tuple[Condition[S], ...]

    def holds(self, subject: S, /) -> Truth:
        return disjunction(part.holds(subject) for part in self.parts)


@dataclass(frozen=True)
class Not(Generic[S]):
    part: Condition[S]

    def holds(self, subject: S, /) -> Truth:
        return negation(self.part.holds(subject))


@dataclass(frozen=True)
class Fact:
    """Whether the destination's fact is one of `values`, which are all texts or all flags."""

    name: str
    values: frozenset[str | bool]

    def holds(self, to: Destination, /) -> Truth:
        own = fact(to, self.name)
        if own is None or not any(type(value) is type(own) for value in self.values):
            return None
        return own in self.values


@dataclass(frozen=True)
class Level:
    """Whether the label's level is within `low` and `high`, both included."""

    low: int
    high: int

    def holds(self, label: Label, /) -> bool:
        return self.low <= label.level <= self.high


@dataclass(frozen=True)
class Compartments:
    """Whether the label has `any`, `all` or `none` of the compartments `names`."""

    quantity: Quantity
    names: frozenset[str]

    def holds(self, label: Label, /) -> bool:
        if self.quantity == "all":
            return self.names <= label.compartments
        return self.names.isdisjoint(label.compartments) == (self.quantity == "none")


def conjuncts(condition: Condition[S]) -> tuple[Condition[S], ...]:
    """Conditions that hold all together exactly when this one holds, as small as can be, so that
    different conditions share many."""
    if isinstance(condition, All):
        return tuple(part for whole in condition.parts for part in conjuncts(whole))
    if isinstance(condition, Compartments) and condition.quantity != "any":
        names = sorted(condition.names)
        return tuple(Compartments(condition.quantity, frozenset({name})) for name in names)
    return (condition,)


def fact(destination: Destination, name: str) -> str | bool | None:
    """One fact of a destination, None when it is not stated."""
    if name == "id":
        return destination.id
    if name == "kind":
        return destination.kind
    return destination.facts.get(name)
