"""What is suspicious in a policy that can be read: `file:line:col: code: message`.

Unknown names, duplicate ids, patterns that RE2 refuses are faults of reading, and no policy comes
of them; here is what a policy does not mean. An error refuses activation, a warning is told.

    never-applies      no label and destination at all that the rule speaks of
    no-clearance       an allow for data that no destination it speaks of is cleared for
    covered            a deny that others make needless, an allow that others do, or a deny stops
    never-approved     an allow that asks for pseudonyms and for approval of the exact bytes (error)
    retention-unsaid   an allow that asks for zero retention where nobody states it (error)
    obliges-local      an allow with obligations that also binds workers on this machine
    untested           a guardrail or rule that no test names (error)
    nobody-declares    a caller who may not declare labels (error)
    old-shadow         a rule that has been in shadow for more than 90 days
    unused             a declassifier that nothing can use
    too-many-labels    rules name too many compartments for the first three to be looked for
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from conductor.policy.bitmasks import RuleMasks
from conductor.policy.classifiers import unknown_callers
from conductor.policy.document import Policy
from conductor.policy.reach import Reach, needless, reach
from conductor.policy.rules import Rule
from conductor.policy.selftest import untested
from conductor.settings import Appliance

Severity = Literal["error", "warning"]
OLD_SHADOW_DAYS = 90


class Surroundings(Protocol):
    """What a policy stands beside, such as a `config.Site`."""

    @property
    def appliance(self) -> Appliance: ...


@dataclass(frozen=True)
class LintFinding:
    """One suspicion. `position` is `file:line:col`."""

    position: str
    code: str
    message: str
    severity: Severity = "warning"

    def __str__(self) -> str:
        return f"{self.position}: {self.code}: {self.message}"

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column, which count from 1."""
        file, line, column = self.position.rsplit(":", 2)
        return file, int(line), int(column)


def lint(
    policy: Policy, site: Surroundings | None = None, today: datetime.date | None = None
) -> list[LintFinding]:
    """Everything suspicious, in the file's order. Without a site, callers are not looked up."""
    today = today or datetime.datetime.now(datetime.UTC).date()
    found = [
        *_unreachable(policy),
        *_binding_local(policy),
        *_never_approved(policy),
        *_retention_unsaid(policy),
        *_untested(policy),
        *_old_shadows(policy, today),
        *_unused(policy),
    ]
    if site is not None:
        found += _undeclared(policy, site.appliance)
    return sorted(found, key=lambda item: (*item.place, item.code))


def _unreachable(policy: Policy) -> Iterator[LintFinding]:
    found, masks = reach(policy), policy.masks
    if not found.complete:
        message = "rules name too many compartments to see which rules can never apply"
        rule = policy.masks.rules[0]
        yield LintFinding(rule.position, "too-many-labels", message)
        return
    silent = ~found.spoken
    uncleared = found.spoken & ~found.cleared & ~masks.denying
    for number, rule in enumerate(masks.rules):
        bit = 1 << number
        if bit & silent:
            yield _silent(policy, rule)
        elif bit & uncleared:
            message = "no destination that it speaks of is cleared for the data it allows"
            yield LintFinding(rule.position, "no-clearance", message)
    for rule in masks.each(_covered(masks, found) & found.spoken & ~uncleared):
        message = "other rules, or the baseline, make this one needless"
        yield LintFinding(rule.position, "covered", message)


def _covered(masks: RuleMasks, found: Reach) -> int:
    """Rules in force that change nothing. An allow that asks for something is not needless beside
    one that does not, only when denies stop all that it speaks of."""
    denies = needless(masks, found.denying, masks.deny)
    allows = needless(masks, found.allowing, masks.plain)
    return denies | allows | masks.bound & ~found.reached


def _silent(policy: Policy, rule: Rule) -> LintFinding:
    holds = (rule.to.holds(destination) for destination in policy.destinations.values())
    matching = (None, True) if rule.effect == "deny" else (True,)
    message = "no data can meet its conditions"
    if not any(truth in matching for truth in holds):
        message = "it speaks of no destination of this policy"
    return LintFinding(rule.position, "never-applies", message)


def _binding_local(policy: Policy) -> Iterator[LintFinding]:
    local = [item for item in policy.destinations.values() if item.kind == "local"]
    for rule in policy.rules:
        bound = [item.id for item in local if rule.to.holds(item) is not False]
        if rule.mode == "enforce" and rule.obligations and bound:
            message = f"its obligations bind {', '.join(bound)} too: say kind: remote if not meant"
            yield LintFinding(rule.position, "obliges-local", message)


def _never_approved(policy: Policy) -> Iterator[LintFinding]:
    """Pseudonyms differ from request to request, so that the bytes somebody approved never come
    again. Whether two allows ask for these together is not looked for."""
    for rule in policy.rules:
        if rule.mode != "off" and {"pseudonymise", "approve"} <= {o.kind for o in rule.obligations}:
            message = "pseudonyms are new in each request: what is approved never comes again"
            yield LintFinding(rule.position, "never-approved", message, "error")


def _retention_unsaid(policy: Policy) -> Iterator[LintFinding]:
    """The obligation is met by the destination's own fact alone: without it the allow is void."""
    for rule in policy.rules:
        if rule.mode == "off" or "zero_retention" not in {o.kind for o in rule.obligations}:
            continue
        places = [one for one in policy.destinations.values() if rule.to.holds(one) is not False]
        if not any(place.facts.get("zero_retention") is True for place in places):
            message = "no destination that it speaks of states zero_retention: true"
            yield LintFinding(rule.position, "retention-unsaid", message, "error")


def _untested(policy: Policy) -> Iterator[LintFinding]:
    for rule in untested(policy):
        key = "shadow" if rule.mode == "shadow" else "rule"
        message = f"no test expects '{key}: {rule.id}'"
        yield LintFinding(rule.position, "untested", message, "error")


def _old_shadows(policy: Policy, today: datetime.date) -> Iterator[LintFinding]:
    for rule in policy.guardrails + policy.rules:
        if rule.since is not None and (today - rule.since).days > OLD_SHADOW_DAYS:
            message = f"in shadow for over {OLD_SHADOW_DAYS} days: enforce it or take it out"
            yield LintFinding(rule.position, "old-shadow", message)


def _unused(policy: Policy) -> Iterable[LintFinding]:
    """Some are used by plans, the others by obligations."""
    used = {one.by for rule in policy.rules if rule.mode != "off" for one in rule.obligations}
    unused = (
        item for item in policy.declassifiers.values() if item.id not in used and not item.steps
    )
    message = "no allow asks for this declassifier, and no plan may use it (steps: true)"
    return [LintFinding(item.position, "unused", message) for item in unused]


def _undeclared(policy: Policy, appliance: Appliance) -> Iterable[LintFinding]:
    known: Sequence[str] = [key.id for key in appliance.keys if key.declare_labels]
    message = "it names a caller without a key in appliance.yaml that says declare_labels: true"
    return [
        LintFinding(item.position, "nobody-declares", message, "error")
        for item in unknown_callers(policy.classifiers, known)
    ]
