"""Whether a policy only tightens another, and whether it touches what is guarded.

Two questions, each answered with sentences, none of them meaning no:

- `guarded_changes`: what needs approvers. Guardrails, approvers and activation themselves; and
  whatever guardrails stand on: facts of destinations, what raises labels, what lowers them.
- `loosenings`: what an emergency change, signed by one, may not do.

Both err on the careful side: a change that is not plainly tighter counts as looser.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from conductor.policy.classifiers import Classifier, Classifiers
from conductor.policy.document import Policy
from conductor.policy.flows import Flow, looser_flows, unguarded_flows

_NAMED = 5
"""Flows that are named; the rest is only counted."""


def guarded_changes(old: Policy, new: Policy) -> tuple[str, ...]:
    """What `new` changes of the guarded parts of `old`."""
    return tuple(_guarded_changes(old, new))


def _guarded_changes(old: Policy, new: Policy) -> Iterator[str]:
    yield from _keepers(old, new)
    if _bare(old.guardrails) != _bare(new.guardrails):
        yield "guardrails are changed"
    if not old.guardrails:
        return
    yield from _named(unguarded_flows(old, new), "no guardrail forbids any more")
    yield from _labelling(old, new)
    yield from _declassifying(old, new)


def loosenings(old: Policy, new: Policy) -> tuple[str, ...]:
    """How `new` is looser than `old`, as far as the two files tell."""
    return tuple(_loosenings(old, new))


def _loosenings(old: Policy, new: Policy) -> Iterator[str]:
    yield from _keepers(old, new)
    if old.lattice != new.lattice:
        yield "labels are changed"
        return
    yield from _kinds(old, new)
    yield from _labelling(old, new)
    yield from _declassifying(old, new)
    yield from _named(looser_flows(old, new), "is let through")


def _keepers(old: Policy, new: Policy) -> Iterator[str]:
    """Who must agree to a change."""
    if _bare(old.approvers) != _bare(new.approvers):
        yield "approvers are changed"
    if old.guardrail_approvals != new.guardrail_approvals:
        yield "activation is changed"


def _kinds(old: Policy, new: Policy) -> Iterator[str]:
    for name, destination in new.destinations.items():
        before = old.destinations.get(name)
        if before is not None and before.kind != destination.kind:
            yield f"destination {name} is {destination.kind} now"


def _labelling(old: Policy, new: Policy) -> Iterator[str]:
    """What makes labels lower than they were."""
    if old.lattice != new.lattice:
        yield "labels are changed"
        return
    if new.default_label.join(old.default_label) != new.default_label:
        yield "the default label is lower"
    yield from _detection(old, new)
    yield from _classification(old.classifiers, new.classifiers)
    yield from _belief(old.classifiers, new.classifiers)


def _detection(old: Policy, new: Policy) -> Iterator[str]:
    was, now = old.profile, new.profile
    if not set(was.custom) <= set(now.custom):
        yield "a detector of the site is changed or gone"
    if not set(was.phone_regions) <= set(now.phone_regions):
        yield "telephone numbers are looked for in fewer regions"
    if was.names and not now.names:
        yield "names and addresses are not looked for any more"


def _classification(old: Classifiers, new: Classifiers) -> Iterator[str]:
    for classifier in old.found:
        # What nobody speaks of raises to the top, which is as high as it gets.
        still = classifier.detectors & new.mentioned
        if still and not any(_covers(other, classifier, still) for other in new.found):
            yield f"what {classifier.id} finds raises less"
    if new.mentioned - old.mentioned:
        yield "a detector that raised to the top is classified now"


def _covers(other: Classifier, old: Classifier, detectors: frozenset[str]) -> bool:
    """Whether `other` raises at least as high, whenever `old` raised for these detectors."""
    return (
        detectors <= other.detectors
        and other.min_count <= old.min_count
        and other.min_likelihood <= old.min_likelihood
        and other.raises.join(old.raises) == other.raises
    )


def _belief(old: Classifiers, new: Classifiers) -> Iterator[str]:
    """Whose declared labels count. Nobody named: whoever's key may declare them."""
    callers = {name for item in new.declared for name in item.callers}
    before = {name for item in old.declared for name in item.callers}
    if old.declared and not (new.declared and callers <= before):
        yield "more callers are believed about labels"
    for item in old.declared:
        for caller in callers.intersection(item.callers):
            raised = [other.raises for other in new.declared if caller in other.callers]
            if not any(one.join(item.raises) == one for one in raised):
                yield f"what {caller} declares raises less"


def _declassifying(old: Policy, new: Policy) -> Iterator[str]:
    before = {item.id: item for item in _bare(old.declassifiers.values())}
    for item in _bare(new.declassifiers.values()):
        if before.get(item.id) != item:
            yield f"declassifier {item.id} is changed or new"
    if new.leak_budget_bits > old.leak_budget_bits:
        yield "the leak budget is larger"


def _bare(items: Iterable[Any]) -> tuple[Any, ...]:
    """Entries without where they stand, in the order of their ids: a moved line is no change."""
    return tuple(sorted((replace(item, position="") for item in items), key=lambda item: item.id))


def _named(flows: Iterable[Flow], what: str) -> Iterator[str]:
    rest = iter(flows)
    for flow in islice(rest, _NAMED):
        yield f"{flow} {what}"
    if more := sum(1 for _ in rest):
        yield f"{more} more such flows"
