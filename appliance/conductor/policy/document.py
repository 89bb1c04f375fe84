"""`policy.yaml`: the lattice, where data can go, what raises and lowers a label, and the rules.

Each section is read by a module of its own in this room; here they come together. The vocabulary is
closed: a key or a name that nobody knows is a fault with its position, never ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from conductor.core import Destination, Obligation
from conductor.detect.detectors import DETECTORS
from conductor.detect.profile import Custom, Profile
from conductor.labels import Label, Lattice
from conductor.policy.activation import Approver, read_approvers, read_guardrail_approvals
from conductor.policy.bitmasks import RuleMasks
from conductor.policy.builtins import BUILT_IN_RULES
from conductor.policy.cases import Case, CaseReader
from conductor.policy.classifiers import Classifiers, read_classifiers
from conductor.policy.customdetectors import (
    profile_of,
    read_custom_detectors,
    read_phone_regions,
)
from conductor.policy.declassifiers import Declassifier, lowered, read_declassifiers
from conductor.policy.destinations import read_destinations
from conductor.policy.detectors import Detectors
from conductor.policy.memo import Memo
from conductor.policy.rules import Rule, RuleReader
from conductor.policy.vocabulary import read_label, read_lattice
from conductor.strictyaml.source import Document
from conductor.strictyaml.values import Section, Value

API_VERSION = "conductor/v1"
KIND = "RoutingPolicy"
LEAK_BUDGET_BITS = 64.0


@dataclass(frozen=True)
class Policy:
    """A policy as it is enforced. Guardrails only deny; the order of rules decides nothing."""

    revision: int
    sha256: str
    lattice: Lattice
    default_label: Label
    destinations: Mapping[str, Destination]
    classifiers: Classifiers
    guardrails: tuple[Rule, ...]
    rules: tuple[Rule, ...]
    declassifiers: Mapping[str, Declassifier] = field(default_factory=dict)
    detectors: tuple[Custom, ...] = ()
    phone_regions: tuple[str, ...] = ()
    leak_budget_bits: float = LEAK_BUDGET_BITS
    """What constrained reveals and choices made by a plan may tell of hidden data, per workflow."""
    approvers: tuple[Approver, ...] = ()
    guardrail_approvals: int = 0
    """How many approvers must sign a change of guardrails, of approvers, or of this number."""
    tests: tuple[Case, ...] = ()

    @cached_property
    def masks(self) -> RuleMasks:
        """Guardrails and rules, compiled once."""
        return RuleMasks(self.guardrails + self.rules)

    @cached_property
    def memo(self) -> Memo:
        """Verdicts of this policy that are known already."""
        return Memo()

    @cached_property
    def profile(self) -> Profile:
        """What the scanner must seek for this policy."""
        types = (item.types for item in self.declassifiers.values())
        mentioned = self.classifiers.mentioned.union(*types)
        return profile_of(self.detectors, self.phone_regions, mentioned)

    def lowered(self, label: Label, obligations: Collection[Obligation]) -> Label:
        """The label once these obligations are carried out and nothing was left over."""
        return lowered(label, obligations, self.declassifiers)

    def known(self, label: Label) -> bool:
        """Whether it is a label of this site at all."""
        in_levels = 0 <= label.level < len(self.lattice.levels)
        return in_levels and label.compartments <= self.lattice.compartments


def read_policy(document: Document) -> Policy | None:
    """Read `policy.yaml`; what is wrong goes to the document's faults.

    None when its levels cannot be read, since no other name in the site would have a meaning.
    """
    root = document.root
    root.choice("apiVersion", [API_VERSION])
    root.choice("kind", [KIND])
    revision = root.integer("revision", low=1)
    lattice = read_lattice(root.mapping("labels"))
    if lattice is None:
        return None
    policy = _policy(root, lattice, revision, document.sha256)
    root.done()
    return policy


def _policy(root: Section, lattice: Lattice, revision: int, sha256: str) -> Policy:
    approvers = read_approvers(root.items("approvers", []))
    custom = read_custom_detectors(root.items("detectors", []))
    detectors = Detectors({*DETECTORS, *(detector.id for detector in custom if detector.id)})
    declassifiers = read_declassifiers(
        root.items("declassifiers", []), lattice, detectors, [item.id for item in approvers]
    )
    destinations = read_destinations(root.mapping("destinations"), lattice)
    reader = RuleReader(lattice, destinations.values(), declassifiers)
    guardrails = tuple(reader.read(item, ("deny",)) for item in root.items("guardrails", []))
    rules = tuple(reader.read(item, ("allow", "deny")) for item in root.items("rules", []))
    return Policy(
        revision=revision,
        sha256=sha256,
        lattice=lattice,
        default_label=_default_label(root.require("default_label"), lattice),
        destinations=destinations,
        classifiers=read_classifiers(root.items("classify", []), lattice, detectors),
        guardrails=guardrails,
        rules=rules,
        declassifiers=declassifiers,
        detectors=custom,
        phone_regions=read_phone_regions(root.items("phone_regions", [])),
        leak_budget_bits=root.number("leak_budget_bits", LEAK_BUDGET_BITS, high=1e6),
        approvers=approvers,
        guardrail_approvals=read_guardrail_approvals(
            root.mapping("activation", optional=True), approvers
        ),
        tests=_tests(root, lattice, destinations, guardrails + rules),
    )


def _tests(
    root: Section, lattice: Lattice, destinations: Collection[str], rules: tuple[Rule, ...]
) -> tuple[Case, ...]:
    enforced = {rule.id for rule in rules if rule.mode == "enforce"}
    shadows = {rule.id for rule in rules if rule.mode == "shadow"}
    reader = CaseReader(lattice, destinations, {*BUILT_IN_RULES, *enforced}, shadows)
    return reader.read(root.items("tests", []))


def _default_label(value: Value | None, lattice: Lattice) -> Label:
    """The label of a request that nobody has labelled."""
    if value is None:
        return lattice.top
    label = read_label(value, lattice)
    if label.level == 0 and len(lattice.levels) > 1:
        value.fault("lowest-default", "what nobody has labelled must not count as the lowest level")
    return label
