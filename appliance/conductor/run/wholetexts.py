"""Findings that speak of the whole text around them: markings, and what the site itself looks for.

What other detectors find is sensitive where it stands, and can be cut out there; without it the
text says no more than any other. A banner is not sensitive at all: it says that all the rest is,
also when somebody retells it and leaves the banner away. So no program lowers a label below what
such findings raised it to, unless the policy names them among the types that it may cut out.
"""

from __future__ import annotations

from conductor.core import Scan
from conductor.detect.spans import sought
from conductor.labels import LOWEST, Label
from conductor.policy.decide import classify
from conductor.policy.document import Policy

_MARKINGS = ("marking",)


def of_all(scan: Scan, policy: Policy) -> Scan:
    """The findings that do."""
    own = {detector.id for detector in policy.detectors}
    kept = (f for f in scan.findings if f.detector in own or sought(f.detector, _MARKINGS))
    return Scan(tuple(kept), scan.text_bytes)


def stated_by(scan: Scan, policy: Policy) -> Label:
    """The label that they state, as a person would: without those that may be cut out."""
    cut = frozenset[str]().union(*(one.types for one in policy.declassifiers.values()))
    whole = of_all(scan, policy)
    kept = tuple(finding for finding in whole.findings if not sought(finding.detector, cut))
    return classify(policy, Scan(kept, whole.text_bytes), LOWEST)
