"""Why data may go where, for every destination, and the smallest change that would let it.

Evidence is told as kinds and counts, never as what was found. `would_allow_if` changes one fact at
a time: what a declassifier takes off, a lower level, one compartment less, another value of a fact
of the destination, a higher clearance; those first that people do every day. Only where no single
one is enough, two at a time. It tells what the policy hangs on, which is not always what anybody
should do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from conductor.core import Destination, Scan, Verdict
from conductor.labels import Clearance, Label
from conductor.policy.decide import decide
from conductor.policy.document import Policy
from conductor.policy.flows import probe
from conductor.policy.rulings import Decision, ruling

What = Literal["declassifier", "level", "compartment", "fact", "clearance"]

Variant = tuple[What, str, Label, Destination]
"""What was changed, in one word and in words; the data's label and the destination then."""

_MOST_CHANGES = 6


@dataclass(frozen=True)
class Counterfactual:
    """One change after which data would go. `decision` is then `allow` or `promise`."""

    what: What
    change: str
    decision: Decision
    rule: str

    def facts(self) -> dict[str, str]:
        return {
            "what": self.what,
            "change": self.change,
            "decision": self.decision,
            "rule": self.rule,
        }


@dataclass(frozen=True)
class Explained:
    """The decision for one destination."""

    destination: Destination
    verdict: Verdict
    would_allow_if: tuple[Counterfactual, ...]

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        verdict = self.verdict
        return {
            "destination": self.destination.id,
            "kind": self.destination.kind,
            "decision": ruling(verdict).decision,
            "rule": verdict.rule,
            "position": _place(verdict.position),
            "reason": verdict.reason,
            "error": verdict.error,
            "obligations": [str(obligation) for obligation in verdict.promise],
            "shadow": [
                {"rule": item.rule, "effect": item.effect, "position": _place(item.position)}
                for item in verdict.shadow
            ],
            "would_allow_if": [change.facts() for change in self.would_allow_if],
        }


def explain(policy: Policy, label: Label) -> tuple[Explained, ...]:
    """Every destination of the policy, in its order."""
    policy = replace(policy)  # what is asked below is not worth remembering in the one in force
    return tuple(_explained(policy, label, each) for each in policy.destinations.values())


def evidence(scan: Scan) -> list[dict[str, Any]]:
    """What was found, as kinds and counts."""
    return [
        {
            "detector": finding.detector,
            "count": finding.count,
            "likelihood": finding.likelihood.word,
            "view": finding.view,
        }
        for finding in scan.findings
    ]


def explanation(policy: Policy, scan: Scan, before: Label, label: Label) -> dict[str, Any]:
    """The whole of it, for JSON. `before` is the label that the data came with."""
    return {
        "object": "conductor.policy.explanation",
        "policy": {"revision": policy.revision, "sha256": policy.sha256},
        "label_before": policy.lattice.show(before),
        "label_after": policy.lattice.show(label),
        "because": evidence(scan),
        "unscanned": list(scan.unscanned),
        "destinations": [one.facts() for one in explain(policy, label)],
    }


def _explained(policy: Policy, label: Label, destination: Destination) -> Explained:
    verdict = decide(policy, label, probe(destination))
    found: tuple[Counterfactual, ...] = ()
    if ruling(verdict).decision == "deny":
        found = _enough(policy, _single(policy, label, destination))
        found = found or _enough(policy, _pairs(policy, label, destination))
    return Explained(destination, verdict, found)


def _enough(policy: Policy, variants: Iterator[Variant]) -> tuple[Counterfactual, ...]:
    """The first few variants that would go."""
    return tuple(islice(_going(policy, variants), _MOST_CHANGES))


def _going(policy: Policy, variants: Iterator[Variant]) -> Iterator[Counterfactual]:
    told: set[tuple[What, str]] = set()
    for what, change, label, destination in variants:
        outcome = ruling(decide(policy, label, probe(destination)))
        # The nearest level is enough: every lower one says the same.
        same = (what, change.partition(" and ")[2] if what == "level" else change)
        if outcome.decision != "deny" and same not in told:
            told.add(same)
            yield Counterfactual(what, change, outcome.decision, outcome.rule)


def _single(policy: Policy, label: Label, destination: Destination) -> Iterator[Variant]:
    for what, change, other_label in _label_variants(policy, label):
        yield what, change, other_label, destination
    for what, change, other in _destination_variants(policy, label, destination):
        yield what, change, label, other


def _pairs(policy: Policy, label: Label, destination: Destination) -> Iterator[Variant]:
    """Two changes of the data, or one of each."""
    once = list(_label_variants(policy, label))
    for place, (what, change, lower) in enumerate(once):
        for _, second, lowest in _label_variants(policy, lower):
            if second not in {told for _, told, _ in once[: place + 1]}:
                yield what, f"{change} and {second}", lowest, destination
    for what, change, lower in once:
        for _, second, other in _destination_variants(policy, lower, destination):
            yield what, f"{change} and {second}", lower, other


def _destination_variants(
    policy: Policy, label: Label, destination: Destination
) -> Iterator[tuple[What, str, Destination]]:
    for name, value in _fact_variants(policy.destinations.values(), destination):
        other = replace(destination, facts={**destination.facts, name: value})
        yield "fact", f"its {name} were {_shown(value)}", other
    for change, clearance in _clearance_variants(policy, label, destination.clearance):
        yield "clearance", change, replace(destination, clearance=clearance)


def _label_variants(policy: Policy, label: Label) -> Iterator[tuple[What, str, Label]]:
    lattice = policy.lattice
    for declassifier in policy.declassifiers.values():
        lowered = declassifier.removes.from_label(label)
        if lowered != label:
            change = f"{declassifier.id} made it {lattice.show(lowered)}"
            yield "declassifier", change, lowered
    for level in range(label.level - 1, -1, -1):
        lower = replace(label, level=level)
        yield "level", f"its level were {lattice.levels[level]}", lower
    for name in sorted(label.compartments):
        without = replace(label, compartments=label.compartments - {name})
        yield "compartment", f"it were not {name}", without


def _fact_variants(
    known: Iterable[Destination], own: Destination
) -> Iterator[tuple[str, str | bool]]:
    """Other values of the destination's facts: those that other destinations state, and the
    opposite of a flag. What it is and where it runs are no facts that change."""
    values: dict[str, dict[str | bool, None]] = {}
    for destination in known:
        for name, value in destination.facts.items():
            more = (value, not value) if isinstance(value, bool) else (value,)
            values.setdefault(name, {}).update(dict.fromkeys(more))
    for name in sorted(values.keys() - {"id", "kind"}):
        for value in values[name]:
            if own.facts.get(name) != value or type(own.facts.get(name)) is not type(value):
                yield name, value


def _clearance_variants(
    policy: Policy, label: Label, clearance: Clearance
) -> Iterator[tuple[str, Clearance]]:
    lattice = policy.lattice
    if label.level > clearance.level:
        yield (
            f"it were cleared for {lattice.levels[label.level]}",
            replace(clearance, level=label.level),
        )
    missing = label.compartments - clearance.compartments
    if len(missing) == 1:
        more = clearance.compartments | missing
        yield f"it were cleared for {min(missing)}", replace(clearance, compartments=more)


def _place(position: str) -> str:
    """`file:line:col` without the path, which is this machine's own business."""
    return position.rpartition("/")[2]


def _shown(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
