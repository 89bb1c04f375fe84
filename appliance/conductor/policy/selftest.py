"""Running the tests that a policy carries. They gate its activation.

A text is scanned as if it were the question of a chat, and labelled from the default label of its
key, or of the policy. A rule that a test names must apply to the data; it need not be what decides,
so that a guardrail behind the clearance floor can be tested too. A text that was not scanned whole,
for want of the model for names, say, tells nothing of the policy: its test fails, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from conductor.core import Scan, Verdict
from conductor.detect.profile import Profile
from conductor.detect.scan import scan_value
from conductor.labels import Label
from conductor.policy.cases import Case, Decision, Expected
from conductor.policy.decide import applying, classify, decide
from conductor.policy.document import Policy
from conductor.policy.flows import probe
from conductor.policy.rules import Rule
from conductor.settings import Key

Scanning = Callable[[object, Profile], Scan]

_NOT_SCANNED = {
    "names-missing": "names could not be sought: run 'conductor models pull rampart-names'",
    "names-timeout": "names could not be sought in time",
    "scanner-died": "the scanner died of the text",
    "scanner-down": "no scanner could be started",
    "timeout": "the text could not be scanned in time",
    "detector-error": "a detector failed on the text",
}
"""Reasons in `Scan.unscanned` that are no property of the text, in words."""


@dataclass(frozen=True)
class CaseResult:
    """How one test went. `expected` and `got` are one line each, without any text of the test."""

    name: str
    passed: bool
    expected: str
    got: str
    position: str


def scan_without_names(value: object, profile: Profile) -> Scan:
    """Scan by rules alone: persons and addresses take a model, and are not sought."""
    return scan_value(value, profile=Profile(profile.custom, profile.phone_regions, names=False))


def run_tests(
    policy: Policy, keys: Iterable[Key] = (), scanning: Scanning = scan_without_names
) -> tuple[CaseResult, ...]:
    """The result of every test, in the file's order. A test that names a key of none of `keys`
    fails. `scanning` seeks all that a profile asks for, or says in `Scan.unscanned` why it did not;
    by default it goes by rules alone, in milliseconds a text."""
    by_id = {key.id: key for key in keys}
    return tuple(_run(policy, case, by_id, scanning) for case in policy.tests)


def untested(policy: Policy) -> tuple[Rule, ...]:
    """Guardrails and rules that no test names, save those that are off."""
    tested = {case.expected.rule for case in policy.tests}
    tested |= {case.expected.shadow for case in policy.tests}
    rules = policy.guardrails + policy.rules
    return tuple(rule for rule in rules if rule.mode != "off" and rule.id not in tested)


def _run(policy: Policy, case: Case, keys: Mapping[str, Key], scanning: Scanning) -> CaseResult:
    expected = _told(policy, case.expected)
    if case.given.key is not None and case.given.key not in keys:
        got = "appliance.yaml has no key of this id"
        return CaseResult(case.name, False, expected, got, case.position)
    scan = _scan(policy, case, scanning)
    if reasons := [_NOT_SCANNED[why] for why in scan.unscanned if why in _NOT_SCANNED]:
        return CaseResult(case.name, False, expected, "; ".join(reasons), case.position)
    key = keys.get(case.given.key or "")
    label = labelled(policy, key, scan, given=case.given.label, declared=case.given.declared)
    worker = probe(policy.destinations[case.given.to])
    verdict = decide(policy, label, worker)
    rules = {verdict.rule, *applying(policy, label, worker)}
    passed = (
        case.expected.decision == decision_of(verdict)
        and case.expected.rule in {None, *rules}
        and case.expected.shadow in {None, *(shadow.rule for shadow in verdict.shadow)}
        and case.expected.label in {None, label}
    )
    shadows = tuple(shadow.rule for shadow in verdict.shadow)
    got = _line(decision_of(verdict), verdict.rule, policy.lattice.show(label), *shadows)
    return CaseResult(case.name, passed, expected, got, case.position)


def decision_of(verdict: Verdict) -> Decision:
    """The word for it in a test."""
    if verdict.allow:
        return "allow"
    return "promise" if verdict.promise else "deny"


def _scan(policy: Policy, case: Case, scanning: Scanning) -> Scan:
    if case.given.text is None:
        return Scan((), 0)
    return scanning({"messages": [{"role": "user", "content": case.given.text}]}, policy.profile)


def labelled(
    policy: Policy,
    key: Key | None,
    scan: Scan,
    *,
    given: Label | None = None,
    declared: Label | None = None,
) -> Label:
    """The label that data would get, or, from `given`, has already. A declared label from a key
    that may declare none raises to the top: the request itself would be refused."""
    if declared is not None and not (key and key.declare_labels):
        declared = policy.lattice.top
    base = (key.default_label if key else None) or policy.default_label
    caller = key.id if key else None
    label = base if given is None else given
    return classify(policy, scan, label, caller=caller, declared=declared)


def _told(policy: Policy, expected: Expected) -> str:
    label = policy.lattice.show(expected.label) if expected.label is not None else None
    return _line(expected.decision, expected.rule, label, expected.shadow)


def _line(decision: str, rule: str | None, label: str | None, *shadows: str | None) -> str:
    parts = [decision, rule and f"rule {rule}", label and f"label {label}"]
    parts += [shadow and f"shadow {shadow}" for shadow in shadows]
    return ", ".join(filter(None, parts))
