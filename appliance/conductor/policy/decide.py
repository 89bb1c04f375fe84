"""May data with this label go to this worker? Pure, total, and closed when in doubt.

Three tiers, none of which a later one can undo: the clearance floor, guardrails, rules. Within a
tier a deny beats every allow, and order only picks which rule is named. What no rule speaks of is
allowed at home and denied abroad (`baseline.local`, `baseline.remote`). A deny applies when its
condition is true or unknown, an allow only when it is true.

An allow with obligations is a promise. It is asked of the label that the data had at first, its
`origin`: pseudonyms do not make another rule of it. The obligations of all allows that apply, or
may apply, are united, also beside a plain allow: a fact that is missing must not free data of one.
While some are not carried out nothing goes; but if all else would allow the data with the label
that it would have after them, the verdict says so in `promise`, and the executor, having carried
them out, asks again. A shadow rule is asked like any other, and its answer only noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conductor.core import Obligation, Scan, Shadow, Verdict, Worker
from conductor.labels import UNSCANNED, Label
from conductor.policy.bitmasks import RuleMasks, Speaking
from conductor.policy.builtins import (
    BASELINE_LOCAL,
    BASELINE_REMOTE,
    BUILT_IN,
    BUILT_IN_RULES,
    FLOOR_CLEARANCE,
    FLOOR_LABEL,
    FLOOR_UNSCANNED,
)
from conductor.policy.classifiers import classified
from conductor.policy.document import Policy
from conductor.policy.memo import Row
from conductor.policy.rules import Rule

NOTHING_DONE: frozenset[Obligation] = frozenset()


def decide(
    policy: Policy,
    label: Label,
    worker: Worker,
    *,
    origin: Label | None = None,
    discharged: frozenset[Obligation] = NOTHING_DONE,
) -> Verdict:
    """The verdict for one worker. Never raises; takes a few microseconds.

    `label` is the data's now, `origin` what it was before declassifiers lowered it, `discharged`
    the obligations that were carried out for exactly these bytes.
    """
    return _verdict(policy, _row(policy, label, origin or label, discharged), worker)


def decide_all(
    policy: Policy,
    label: Label,
    workers: Iterable[Worker],
    *,
    origin: Label | None = None,
    discharged: frozenset[Obligation] = NOTHING_DONE,
) -> dict[str, Verdict]:
    """The verdict for every worker, by its id."""
    row = _row(policy, label, origin or label, discharged)
    return {worker.id: _verdict(policy, row, worker) for worker in workers}


def rule_ids(policy: Policy) -> tuple[str, ...]:
    """Every name that `Verdict.rule` can have under this policy."""
    rules = policy.guardrails + policy.rules
    return (*BUILT_IN_RULES, *(rule.id for rule in rules if rule.mode == "enforce"))


def applying(
    policy: Policy, label: Label, worker: Worker, *, origin: Label | None = None
) -> tuple[str, ...]:
    """Ids of the guardrails and rules in force that apply, though the floor may decide before them:
    denies that hold or may hold, allows that hold."""
    masks, row = policy.masks, _row(policy, label, origin or label, NOTHING_DONE)
    speaking = masks.of_destination(worker.destination)
    denies = masks.deny & row.now & (speaking.surely | speaking.perhaps)
    return tuple(rule.id for rule in masks.each(denies | _allows(masks, row) & speaking.surely))


def classify(
    policy: Policy,
    scan: Scan,
    base: Label,
    *,
    caller: str | None = None,
    declared: Label | None = None,
) -> Label:
    """`base`, raised by what a scan found and what the caller declared. See `classifiers.py`."""
    return classified(
        policy.lattice, policy.classifiers, scan, base, caller=caller, declared=declared
    )


def _row(policy: Policy, label: Label, origin: Label, discharged: frozenset[Obligation]) -> Row:
    question = (label, origin, discharged)
    row = policy.memo.find(question)
    if row is None:
        known = policy.known(label) and policy.known(origin)
        shown = policy.lattice.show(label) if known else ""
        now = policy.masks.of_label(label)
        before = now if origin == label else policy.masks.of_label(origin)
        row = Row(label, origin, discharged, known, shown, now, before)
        policy.memo.keep(question, row)
    return row


def _verdict(policy: Policy, row: Row, worker: Worker) -> Verdict:
    verdict = row.recall(worker.id, worker.destination, worker.clearance)
    if verdict is None:
        speaking = policy.masks.of_destination(worker.destination)
        verdict = _decided(policy, row, worker, speaking)
        if policy.masks.shadow:
            verdict = _with_shadows(policy.masks, row, speaking, verdict)
        row.keep(worker.id, worker.destination, worker.clearance, verdict)
    return verdict


def _decided(policy: Policy, row: Row, worker: Worker, speaking: Speaking) -> Verdict:
    """The verdict, whether or not obligations are left."""
    masks = policy.masks
    bound = masks.bound & row.before & (speaking.surely | speaking.perhaps)
    if not bound:
        return _outcome(masks, row, worker, speaking)
    duties = frozenset(duty for rule in masks.each(bound) for duty in rule.obligations)
    now = _outcome(masks, row, worker, speaking)
    granted = bound & speaking.surely
    if duties <= row.discharged:
        return _kept(masks.first(granted), now) if now.allow and granted else now
    after = _row(policy, policy.lowered(row.label, duties), row.origin, duties | row.discharged)
    then = _outcome(masks, after, worker, speaking)
    if then.allow and (granted or now.allow):
        rule = masks.first(granted or bound)
        promise = tuple(sorted(duties))
        reason = f"{rule.id} asks first for {', '.join(map(str, promise))}"
        unsure = bool(bound & speaking.perhaps)
        return Verdict(False, rule.id, rule.position, reason, unsure, promise)
    return then if now.allow else now


def _kept(rule: Rule, verdict: Verdict) -> Verdict:
    """The verdict by the rule whose obligations were carried out, though another one may let pass
    what they made of the data: whoever asks what a promise let out must find it under its name."""
    return replace(verdict, rule=rule.id, position=rule.position, reason=f"{rule.id} was kept")


def _outcome(masks: RuleMasks, row: Row, worker: Worker, speaking: Speaking) -> Verdict:
    """The verdict as if every obligation had been carried out."""
    floor = _floor(row, worker)
    if floor is not None:
        return floor
    denies = masks.deny & row.now & (speaking.surely | speaking.perhaps)
    if denies:
        return _denied(masks, denies, speaking)
    allows = _allows(masks, row)
    if allows & speaking.surely:
        rule = masks.first(allows & speaking.surely)
        return Verdict(True, rule.id, rule.position, f"{rule.id} allows it")
    unknown = bool(allows & speaking.perhaps)
    # Anything but "local" counts as remote: a new kind must not inherit trust.
    if worker.destination.kind == "local":
        reason = "a local worker within its clearance"
        return Verdict(True, BASELINE_LOCAL, BUILT_IN, reason, error=unknown)
    reason = "no rule allows it, and remote is denied unless allowed"
    return Verdict(False, BASELINE_REMOTE, BUILT_IN, reason, error=unknown)


def _floor(row: Row, worker: Worker) -> Verdict | None:
    """What no rule can change."""
    destination, label = worker.destination, row.label
    if not row.known:
        reason = "the label is none of this site's; label the data anew"
        return Verdict(False, FLOOR_LABEL, destination.position, reason, error=True)
    if not (label.flows_to(worker.clearance) and label.flows_to(destination.clearance)):
        reason = f"data labelled {row.shown} is above the worker's clearance"
        return Verdict(False, FLOOR_CLEARANCE, destination.position, reason)
    if UNSCANNED in label.compartments and destination.kind != "local":
        reason = "what no detector could read stays on this machine"
        return Verdict(False, FLOOR_UNSCANNED, destination.position, reason)
    return None


def _denied(masks: RuleMasks, denies: int, speaking: Speaking) -> Verdict:
    rule = masks.first(denies)
    if denies & -denies & speaking.surely:
        return Verdict(False, rule.id, rule.position, f"{rule.id} forbids it")
    reason = f"{rule.id} asks for a fact that {speaking.destination.id} does not state"
    return Verdict(False, rule.id, rule.position, reason, error=True)


def _allows(masks: RuleMasks, row: Row) -> int:
    """The allows that speak of the data: plain ones of its label now, others of its first one."""
    return masks.plain & row.now | masks.bound & row.before


def _with_shadows(masks: RuleMasks, row: Row, speaking: Speaking, verdict: Verdict) -> Verdict:
    """The verdict, with the shadow rules that would have applied."""
    would = tuple(
        Shadow(rule.id, rule.position, rule.effect)
        for rule in masks.each(_shadows(masks, row, speaking))
    )
    return replace(verdict, shadow=would) if would else verdict


def _shadows(masks: RuleMasks, row: Row, speaking: Speaking) -> int:
    denies = masks.shadow & masks.denying & row.now & (speaking.surely | speaking.perhaps)
    allows = masks.shadow & ~masks.denying & speaking.surely
    return denies | allows & (row.now & ~masks.binding | row.before & masks.binding)
