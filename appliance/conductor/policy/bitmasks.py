"""Rules compiled to bit masks: which of them speak of a label, and of a destination.

A rule's condition is that of its `to` and its `if`, and each asks about one thing alone. So both
are answered once, apart: for a destination when it is first seen, for a label once for all
destinations. Bit i of a mask stands for rule i; what applies to a pair is then one `&`. Conditions
that many rules share are asked once, and so are the parts of a conjunction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from conductor.core import Destination
from conductor.labels import Label
from conductor.policy.conditions import Condition, S, Truth, conjuncts
from conductor.policy.rules import Rule


@dataclass(frozen=True)
class Speaking:
    """The rules whose `to` holds for a destination, and those of which that is unknown."""

    destination: Destination
    surely: int
    perhaps: int


class RuleMasks:
    """Some rules by number, those that are off left out.

    In force are `deny`, `plain` (allows without obligations) and `bound` (allows with some); the
    rest is `shadow`. `denying` and `binding` are all denies and all allows with obligations,
    in force or in shadow.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rule for rule in rules if rule.mode != "off")
        self._all = (1 << len(self.rules)) - 1
        self.shadow = self._those(lambda rule: rule.mode == "shadow")
        self.denying = self._those(lambda rule: rule.effect == "deny")
        self.binding = self._those(lambda rule: bool(rule.obligations))
        enforced = self._all & ~self.shadow
        self.deny = enforced & self.denying
        self.bound = enforced & self.binding
        self.plain = enforced & ~self.denying & ~self.binding
        self._of_label = _shared(rule.when for rule in self.rules)
        self._of_destination = _shared(rule.to for rule in self.rules)
        self._destinations: dict[str, Speaking] = {}

    def of_label(self, label: Label) -> int:
        """The rules whose `if` holds. That is never unknown: a label says all that can be asked."""
        silent = 0
        for condition, bits in self._of_label:
            if not condition(label):
                silent |= bits
        return self._all & ~silent

    def of_destination(self, destination: Destination) -> Speaking:
        """The rules whose `to` holds, or may hold."""
        known = self._destinations.get(destination.id)
        if known is not None and (
            known.destination is destination or known.destination == destination
        ):
            return known
        silent = unknown = 0
        for condition, bits in self._of_destination:
            truth = condition(destination)
            silent |= bits if truth is False else 0
            unknown |= bits if truth is None else 0
        perhaps = unknown & ~silent
        surely = self._all & ~silent & ~unknown
        self._destinations[destination.id] = Speaking(destination, surely, perhaps)
        return self._destinations[destination.id]

    def first(self, mask: int) -> Rule:
        """The first rule of a mask that is not empty."""
        return self.rules[(mask & -mask).bit_length() - 1]

    def _those(self, chosen: Callable[[Rule], bool]) -> int:
        return sum(1 << number for number, rule in enumerate(self.rules) if chosen(rule))

    def each(self, mask: int) -> Iterable[Rule]:
        """The rules of a mask, in order."""
        while mask:
            yield self.first(mask)
            mask &= mask - 1


def _shared(conditions: Iterable[Condition[S]]) -> tuple[tuple[Callable[[S], Truth], int], ...]:
    """Each different part of the rules' conditions, with the mask of the rules that need it."""
    asked: dict[Condition[S], int] = {}
    for number, condition in enumerate(conditions):
        for part in conjuncts(condition):
            asked[part] = asked.get(part, 0) | 1 << number
    return tuple((part.holds, bits) for part, bits in asked.items())
