"""Which rules can ever matter: asked of every label that rules tell apart, and every destination.

A compartment that no rule names changes nothing but clearances, which are easiest to meet without
it; so only compartments that rules name are tried, in all combinations. Where these are too many,
nothing is said (`Reach.complete`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

from conductor.core import Destination
from conductor.labels import Label
from conductor.policy.bitmasks import RuleMasks
from conductor.policy.conditions import All, Any, Compartments, Condition, Not
from conductor.policy.document import Policy

MAX_LABELS = 4096


@dataclass
class Reach:
    """Masks of the rules (`RuleMasks`) that have something to say.

    `spoken`: some data and destination meet its conditions. `cleared`, of allows: some such data
    also passes the floor, after their obligations. `reached`: and no deny stops it. `denying` holds
    each different set of denies found to apply to one thing, `allowing` of allows without
    obligations that are reached for a remote destination.
    """

    complete: bool = True
    spoken: int = 0
    cleared: int = 0
    reached: int = 0
    denying: set[int] = field(default_factory=set)
    allowing: set[int] = field(default_factory=set)


def reach(policy: Policy) -> Reach:
    """What the enforced and the shadow rules of a policy can apply to."""
    found = Reach()
    named = sorted(_named(policy))
    if len(policy.lattice.levels) << len(named) > MAX_LABELS:
        found.complete = False
        return found
    spoken = cache(policy.masks.of_label)
    for label in _labels(len(policy.lattice.levels), named):
        for destination in policy.destinations.values():
            _note(found, policy, label, destination, spoken)
    return found


def needless(masks: RuleMasks, sets: set[int], among: int) -> int:
    """Rules of `among` without which, one after the other, none of the sets loses its last one.
    The later of two that say the same is the needless one."""
    left, found = among, 0
    for number in reversed(range(len(masks.rules))):
        bit = 1 << number
        if among & bit and not any(rules & left == bit for rules in sets):
            left &= ~bit
            found |= bit
    return found


def _note(
    found: Reach,
    policy: Policy,
    label: Label,
    destination: Destination,
    spoken: Callable[[Label], int],
) -> None:
    masks = policy.masks
    speaking = masks.of_destination(destination)
    stopping = masks.deny & (speaking.surely | speaking.perhaps)
    denies = masks.denying & spoken(label) & (speaking.surely | speaking.perhaps)
    allows = ~masks.denying & spoken(label) & speaking.surely
    found.spoken |= denies | allows
    found.denying.add(denies & masks.deny)
    plain = allows & ~masks.binding
    if plain and label.flows_to(destination.clearance):
        found.cleared |= plain
        if not denies & masks.deny:
            found.reached |= plain
            if destination.kind != "local":
                found.allowing.add(plain & masks.plain)
    for rule in masks.each(allows & masks.binding):
        after = policy.lowered(label, rule.obligations)
        if after.flows_to(destination.clearance):
            bit = 1 << masks.rules.index(rule)
            found.cleared |= bit
            found.reached |= 0 if spoken(after) & stopping else bit


def _labels(levels: int, names: list[str]) -> Iterator[Label]:
    for size in range(len(names) + 1):
        for some in combinations(names, size):
            for level in range(levels):
                yield Label(level, frozenset(some))


def _named(policy: Policy) -> frozenset[str]:
    rules = policy.guardrails + policy.rules
    return frozenset(name for rule in rules for name in _compartments(rule.when))


def _compartments(condition: Condition[Label]) -> frozenset[str]:
    if isinstance(condition, Compartments):
        return condition.names
    if isinstance(condition, Not):
        return _compartments(condition.part)
    if isinstance(condition, (All, Any)):
        return frozenset[str]().union(*map(_compartments, condition.parts))
    return frozenset()
