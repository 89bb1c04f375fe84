"""What raises a label: findings of detectors, and labels that a caller declares.

    - {id: iban-strong, when: {detector: iban, min_likelihood: likely, min_count: 2},
       raise: {compartments: [pii]}}
    - {id: dms-header, when: {declared: {from: [header], caller: svc-dms}},
       raise: {from_declared: true}}

Nothing here lowers. A detector that no classifier speaks of raises to the top of the lattice:
nobody has said that its findings are harmless. What stays below every threshold raises nothing;
where none is written, a finding counts from `possible` on, since a detector doubts what is less.

A declared label counts only from a caller who may declare one: its key says `declare_labels`, and,
if the policy has any classifier for declared labels, one of them names the key. The policy can so
narrow what `appliance.yaml` grants, never widen it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from conductor.core import Finding, Likelihood, Scan
from conductor.labels import UNSCANNED, Label, Lattice, join_all
from conductor.policy.customdetectors import read_likelihood
from conductor.policy.detectors import Detectors
from conductor.policy.vocabulary import (
    IDENTIFIER,
    IDENTIFIER_IN_WORDS,
    KEY_ID,
    KEY_ID_IN_WORDS,
    read_compartments,
    read_level,
)
from conductor.strictyaml.values import Section, Unique, Value

MIN_LIKELIHOOD = Likelihood.POSSIBLE
"""What a classifier counts from when it does not say: not what a detector itself doubts."""

SOURCES = ("header",)
"""Where a declared label can come from: the header `x-conductor-label`."""


@dataclass(frozen=True)
class Classifier:
    """What findings of some detectors raise a label by: from `min_count` of them on, all together,
    that are at least as likely as `min_likelihood`."""

    id: str
    detectors: frozenset[str]
    raises: Label
    min_count: int = 1
    min_likelihood: Likelihood = MIN_LIKELIHOOD
    position: str = ""

    def counts(self, finding: Finding) -> int:
        """How much of the finding counts; one that says 0 still is one."""
        counts = finding.detector in self.detectors and finding.likelihood >= self.min_likelihood
        return max(1, finding.count) if counts else 0


@dataclass(frozen=True)
class DeclaredBy:
    """That labels declared by these callers, key ids, count, and raise by `raises` besides."""

    id: str
    callers: tuple[str, ...]
    raises: Label
    position: str = ""


@dataclass(frozen=True)
class Classifiers:
    """The section `classify`."""

    found: tuple[Classifier, ...] = ()
    declared: tuple[DeclaredBy, ...] = ()

    @property
    def mentioned(self) -> frozenset[str]:
        """The detectors that the policy has said anything of."""
        return frozenset(name for item in self.found for name in item.detectors)

    def believes(self, caller: str | None) -> bool:
        """Whether the policy lets this caller declare labels, if its key lets it too."""
        return not self.declared or any(caller in item.callers for item in self.declared)

    def raised_by(self, findings: Iterable[Finding], lattice: Lattice) -> list[Label]:
        """The labels that findings raise to."""
        findings = tuple(findings)
        if not findings:
            return []
        raised = [
            item.raises
            for item in self.found
            if sum(item.counts(finding) for finding in findings) >= item.min_count
        ]
        if any(self._strange(finding) for finding in findings):
            raised.append(lattice.top)
        return raised

    def _strange(self, finding: Finding) -> bool:
        """Whether no classifier speaks of its detector, and it is as sure as one would ask."""
        known = any(finding.detector in item.detectors for item in self.found)
        return finding.likelihood >= MIN_LIKELIHOOD and not known


def classified(
    lattice: Lattice,
    classifiers: Classifiers,
    scan: Scan,
    base: Label,
    *,
    caller: str | None = None,
    declared: Label | None = None,
) -> Label:
    """`base`, raised by what a scan found and by what the caller declared. Never lowered.

    A label declared by whom the policy does not believe raises to the top: what such data may be
    is unknown. Callers are expected to have been refused before (`Classifiers.believes`).
    """
    raised = [base, *classifiers.raised_by(scan.findings, lattice)]
    if scan.unscanned:
        raised.append(Label(0, frozenset({UNSCANNED})))
    if declared is not None:
        raised.append(declared if classifiers.believes(caller) else lattice.top)
        raised += [item.raises for item in classifiers.declared if caller in item.callers]
    return join_all(raised)


def read_classifiers(items: list[Value], lattice: Lattice, detectors: Detectors) -> Classifiers:
    """The section `classify`."""
    ids = Unique()
    found: list[Classifier] = []
    declared: list[DeclaredBy] = []
    for item in items:
        section = item.mapping()
        name = section.text("id", pattern=IDENTIFIER, want=IDENTIFIER_IN_WORDS)
        ids.check(section, "id", name)
        when, raises = section.mapping("when"), section.mapping("raise")
        position = str(section.position)
        if when.exactly_one("detector", "declared") == "declared":
            callers = _callers(when.mapping("declared"))
            own = _raise(raises, lattice, from_declared=True)
            declared.append(DeclaredBy(name, callers, own, position))
        else:
            found.append(_classifier(name, when, _raise(raises, lattice), detectors, position))
        when.done()
        section.done()
    return Classifiers(tuple(found), tuple(declared))


def _classifier(
    name: str, when: Section, raises: Label, detectors: Detectors, position: str
) -> Classifier:
    value = when.find("detector")
    return Classifier(
        id=name,
        detectors=detectors.read(value) if value else frozenset(),
        raises=raises,
        min_count=when.integer("min_count", 1, low=1),
        min_likelihood=read_likelihood(when, "min_likelihood", MIN_LIKELIHOOD),
        position=position,
    )


def _callers(section: Section) -> tuple[str, ...]:
    for item in section.items("from", some=True):
        item.choice(SOURCES)
    value = section.require("caller")
    section.done()
    if value is None:
        return ()
    names = (item.text(KEY_ID, KEY_ID_IN_WORDS) for item in value.one_or_many())
    return tuple(filter(None, names))


def _raise(section: Section, lattice: Lattice, *, from_declared: bool = False) -> Label:
    """By what a label is raised: to a level, by compartments, or both."""
    level, compartments = section.find("level"), section.find("compartments")
    if from_declared:
        value = section.require("from_declared")
        if value is not None and not value.flag():
            value.fault("bad-value", "a declared label raises by itself: true")
    elif level is None and compartments is None:
        section.missing("level")
    section.done()
    return Label(
        read_level(level, lattice) if level else 0,
        read_compartments(compartments, lattice) if compartments else frozenset(),
    )


def unknown_callers(classifiers: Classifiers, known: Collection[str]) -> Iterable[DeclaredBy]:
    """Those that name a caller who may not declare labels: they believe nobody."""
    return (item for item in classifiers.declared if not set(item.callers) <= set(known))
