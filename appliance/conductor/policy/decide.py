"""May data with this label go to this worker? Pure, total, and closed when in doubt.

Three tiers, none of which a later one can undo: the clearance floor, guardrails, rules. Within a
tier a deny beats every allow, and order only picks which deny is named. What no rule speaks of is
allowed at home and denied abroad (`baseline.local`, `baseline.remote`). A deny applies when its
condition is true or unknown, an allow only when it is true.
"""

from __future__ import annotations

from collections.abc import Iterable

from conductor.core import Scan, Verdict, Worker
from conductor.labels import UNSCANNED, Label, Lattice, join_all
from conductor.policy.document import Policy
from conductor.policy.rules import Rule

FLOOR_LABEL = "floor.label"
FLOOR_CLEARANCE = "floor.clearance"
FLOOR_UNSCANNED = "floor.unscanned"
BASELINE_LOCAL = "baseline.local"
BASELINE_REMOTE = "baseline.remote"
BUILT_IN = "built-in"
"""Position of what stands in no file."""


def decide(policy: Policy, label: Label, worker: Worker) -> Verdict:
    """The verdict for one worker. Never raises; takes a few microseconds."""
    return (
        _floor(policy.lattice, label, worker)
        or _deny(policy.guardrails, label, worker)
        or _deny(policy.rules, label, worker)
        or _allow_or_baseline(policy.rules, label, worker)
    )


def decide_all(policy: Policy, label: Label, workers: Iterable[Worker]) -> dict[str, Verdict]:
    """The verdict for every worker, by its id."""
    return {worker.id: decide(policy, label, worker) for worker in workers}


def rule_ids(policy: Policy) -> tuple[str, ...]:
    """Every name that `Verdict.rule` can have under this policy."""
    built_in = (FLOOR_LABEL, FLOOR_CLEARANCE, FLOOR_UNSCANNED, BASELINE_LOCAL, BASELINE_REMOTE)
    return (*built_in, *(rule.id for rule in policy.guardrails + policy.rules))


def classify(policy: Policy, scan: Scan, base: Label) -> Label:
    """`base`, raised by what a scan found. Never lowered.

    A finding that the policy has no classifier for raises to the top of the lattice: nobody has
    said that it is harmless.
    """
    raised = [base]
    counts: dict[str, int] = {}
    for finding in scan.findings:
        counts[finding.detector] = counts.get(finding.detector, 0) + max(1, finding.count)
    for detector, count in counts.items():
        own = [item for item in policy.classifiers if item.detector == detector]
        raised += [item.raises for item in own if count >= item.min_count]
        if not own:
            raised.append(policy.lattice.top)
    if scan.unscanned:
        raised.append(Label(0, frozenset({UNSCANNED})))
    return join_all(raised)


def _floor(lattice: Lattice, label: Label, worker: Worker) -> Verdict | None:
    """What no rule can change."""
    position = worker.destination.position
    known = 0 <= label.level < len(lattice.levels) and label.compartments <= lattice.compartments
    if not known:
        reason = "the label is none of this site's; label the data anew"
        return Verdict(False, FLOOR_LABEL, position, reason, error=True)
    clearance = worker.clearance.meet(worker.destination.clearance)
    if not label.flows_to(clearance):
        reason = f"data labelled {lattice.show(label)} is above the worker's clearance"
        return Verdict(False, FLOOR_CLEARANCE, position, reason)
    if worker.remote and UNSCANNED in label.compartments:
        reason = "what no detector could read stays on this machine"
        return Verdict(False, FLOOR_UNSCANNED, position, reason)
    return None


def _deny(rules: tuple[Rule, ...], label: Label, worker: Worker) -> Verdict | None:
    for rule in rules:
        if rule.effect != "deny":
            continue
        applies = rule.applies(label, worker.destination)
        if applies is None:
            reason = f"{rule.id} asks for a fact that {worker.destination.id} does not state"
            return Verdict(False, rule.id, rule.position, reason, error=True)
        if applies:
            return Verdict(False, rule.id, rule.position, f"{rule.id} forbids it")
    return None


def _allow_or_baseline(rules: tuple[Rule, ...], label: Label, worker: Worker) -> Verdict:
    unknown = False
    for rule in rules:
        if rule.effect != "allow":
            continue
        applies = rule.applies(label, worker.destination)
        if applies:
            return Verdict(True, rule.id, rule.position, f"{rule.id} allows it")
        unknown = unknown or applies is None
    # Anything but "local" counts as remote: a new kind must not inherit trust.
    if worker.destination.kind == "local":
        reason = "a local worker within its clearance"
        return Verdict(True, BASELINE_LOCAL, BUILT_IN, reason, error=unknown)
    reason = "no rule allows it, and remote is denied unless allowed"
    return Verdict(False, BASELINE_REMOTE, BUILT_IN, reason, error=unknown)
