"""Where data of every label could go under a policy, so that two policies can be compared.

The labels tried are all levels times: no compartment, each one, each pair, all but one, and all.
Conditions that hang on three compartments or more at once may slip through this sieve; they are
what the recorded decisions and the file's own tests are compared for as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from conductor.core import Card, Destination, Obligation, UnixEndpoint, Worker
from conductor.labels import Label, Lattice
from conductor.policy.conditions import conjunction
from conductor.policy.decide import decide
from conductor.policy.document import Policy
from conductor.policy.rulings import Ruling, looser, ruling

_NOWHERE = Ruling("deny", "floor.label")


@dataclass(frozen=True)
class Flow:
    """Data of a label, in its text form, on its way to a destination, once `done` was done."""

    label: str
    destination: str
    done: frozenset[str] = frozenset()

    def __str__(self) -> str:
        after = f" after {', '.join(sorted(self.done))}" if self.done else ""
        return f"{self.label} to {self.destination}{after}"


def probe(destination: Destination) -> Worker:
    """A worker at a destination, with all of its clearance. It is never called."""
    card = Card({"general": 0.0}, 1.0, "declared")
    endpoint = UnixEndpoint(Path("/nowhere"))
    return Worker(destination.id, "-", destination, destination.clearance, endpoint, card)


def labels(lattice: Lattice) -> Iterator[Label]:
    """The labels that are tried."""
    names = sorted(lattice.compartments)
    sets = {frozenset(some) for size in (0, 1, 2) for some in combinations(names, size)}
    sets |= {lattice.compartments - {name} for name in names} | {lattice.compartments}
    for level in range(len(lattice.levels)):
        for some in sorted(sets, key=sorted):
            yield Label(level, some)


def looser_flows(old: Policy, new: Policy) -> Iterator[Flow]:
    """Flows that `new` lets happen and `old` did not, over the labels of `old`."""
    done = _discharges(old, new)
    for destination in new.destinations.values():
        before = old.destinations.get(destination.id)
        to_old, to_new = probe(before) if before else None, probe(destination)
        for label in labels(old.lattice):
            text = old.lattice.show(label)
            for some in done:
                was = _ruling(old, text, to_old, some)
                if looser(was, _ruling(new, text, to_new, some)):
                    yield Flow(text, destination.id, frozenset(map(str, some)))


def unguarded_flows(old: Policy, new: Policy) -> Iterator[Flow]:
    """Flows that the guardrails of `old` forbade and those of `new` do not."""
    for destination in new.destinations.values():
        before = old.destinations.get(destination.id)
        if before is None:
            continue
        for label in labels(old.lattice):
            text = old.lattice.show(label)
            if _guarded(old, label, before) and not _guards(new, text, destination):
                yield Flow(text, destination.id)


def _discharges(old: Policy, new: Policy) -> list[frozenset[Obligation]]:
    """What may have been done to data: nothing, each obligation that is asked for, all of them."""
    known = {one for policy in (old, new) for rule in policy.rules for one in rule.obligations}
    sets = {frozenset[Obligation](), frozenset(known), *(frozenset({one}) for one in known)}
    return sorted(sets, key=lambda some: (len(some), sorted(some)))


def _ruling(
    policy: Policy, text: str, worker: Worker | None, done: frozenset[Obligation]
) -> Ruling:
    if worker is None:
        return _NOWHERE
    try:
        origin = policy.lattice.parse(text)
    except ValueError:
        return _NOWHERE
    label = policy.lowered(origin, done)
    return ruling(decide(policy, label, worker, origin=origin, discharged=done))


def _guards(policy: Policy, text: str, destination: Destination) -> bool:
    try:
        return _guarded(policy, policy.lattice.parse(text), destination)
    except ValueError:
        return True  # a label that is none of this policy's goes nowhere


def _guarded(policy: Policy, label: Label, destination: Destination) -> bool:
    """Whether a guardrail forbids it, whatever the clearance."""
    return any(
        conjunction((rule.to.holds(destination), rule.when.holds(label))) is not False
        for rule in policy.guardrails
        if rule.mode == "enforce"
    )
