"""Whether anything is left that a declassifier was to take out, and what the label is then.

The judge is a scan of the output by all detectors, made by the caller after the cutting: what was
found behind a disguise, in the seam of two texts, or not read at all, was not cut.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from conductor.core import Finding, Likelihood, Scan
from conductor.detect.spans import sought
from conductor.labels import Label
from conductor.policy.declassifiers import Declassifier

LEAST = Likelihood.POSSIBLE
"""From here on a finding counts as left over."""


@dataclass(frozen=True)
class Residue:
    """Why a text may not count as declassified: kinds and counts, never content."""

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    """Reasons why something was not read, before the cutting or after it."""

    @property
    def clean(self) -> bool:
        return not self.findings and not self.unread


def residue(scan: Scan, types: Collection[str], *, whole: bool = True) -> Residue:
    """What `scan`, made of the output, still shows of `types` (detector ids or their beginnings).

    `whole` False: the search for what to cut out had left something unread or seen something that
    it could not point to (`Spans.complete`, `Spans.hidden`).
    """
    left = tuple(
        finding
        for finding in scan.findings
        if finding.likelihood >= LEAST and sought(finding.detector, types)
    )
    return Residue(left, scan.unscanned if whole else (*scan.unscanned, "not-all-found"))


def lowered(label: Label, declassifier: Declassifier, clean: bool) -> Label:
    """The label after the declassifier; the same as before when anything was left over."""
    return declassifier.removes.from_label(label) if clean else label
