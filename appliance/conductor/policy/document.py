"""`policy.yaml`: the lattice, where data can go, what raises a label, and the rules.

First cut of the file. Left out so far: shadow rules, obligations, declassifiers, tests in the
file, and activation; a key for any of them is refused as unknown, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast, get_args

from conductor.core import Destination, Kind
from conductor.detect.scan import DETECTORS
from conductor.labels import UNSCANNED, Label, Lattice
from conductor.policy.rules import RULE_ID, RULE_ID_IN_WORDS, Rule, RuleReader
from conductor.policy.vocabulary import (
    read_clearance,
    read_compartments,
    read_label,
    read_lattice,
    read_level,
)
from conductor.strictyaml.faults import Position
from conductor.strictyaml.source import Document
from conductor.strictyaml.values import Section, Unique, Value

API_VERSION = "conductor/v1"
KIND = "RoutingPolicy"

_DESTINATION_ID = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_FACT = re.compile(r"[a-z][a-z0-9_]{0,31}")
_RESERVED = frozenset({"id", "any", "all", "not"})


@dataclass(frozen=True)
class Classifier:
    """What a detector's findings raise a label by, from `min_count` of them on."""

    id: str
    detector: str
    min_count: int
    raises: Label


@dataclass(frozen=True)
class Policy:
    """A policy as it is enforced. Guardrails only deny; the order of rules decides nothing."""

    revision: int
    sha256: str
    lattice: Lattice
    default_label: Label
    destinations: Mapping[str, Destination]
    classifiers: tuple[Classifier, ...]
    guardrails: tuple[Rule, ...]
    rules: tuple[Rule, ...]


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
    destinations = _destinations(root.mapping("destinations"), lattice)
    reader = RuleReader(lattice, destinations.values())
    policy = Policy(
        revision=revision,
        sha256=document.sha256,
        lattice=lattice,
        default_label=_default_label(root.require("default_label"), lattice),
        destinations=destinations,
        classifiers=tuple(_classifiers(root.items("classify", []), lattice)),
        guardrails=tuple(reader.read(item, ("deny",)) for item in root.items("guardrails", [])),
        rules=tuple(reader.read(item, ("allow", "deny")) for item in root.items("rules", [])),
    )
    root.done()
    return policy


def _default_label(value: Value | None, lattice: Lattice) -> Label:
    """The label of a request that nobody has labelled."""
    if value is None:
        return lattice.top
    label = read_label(value, lattice)
    if label.level == 0 and len(lattice.levels) > 1:
        value.fault("lowest-default", "what nobody has labelled must not count as the lowest level")
    return label


def _destinations(section: Section, lattice: Lattice) -> dict[str, Destination]:
    found = {}
    for name, position, value in section.entries():
        if not _DESTINATION_ID.fullmatch(name):
            message = "a destination's id is lower case letters, digits and '._-'"
            section.fault("bad-name", message, position)
        found[name] = _destination(name, position, value.mapping(), lattice)
    return found


def _destination(name: str, position: Position, section: Section, lattice: Lattice) -> Destination:
    # A faulty kind stays "": workers must not be blamed for it as well.
    kind = cast(Kind, section.choice("kind", get_args(Kind)))
    clearance = read_clearance(section.mapping("clearance"), lattice)
    if kind == "remote" and UNSCANNED in clearance.compartments:
        message = f"no remote destination may be cleared for {UNSCANNED!r}: name the compartments"
        section.fault("unscanned-remote", message, "clearance")
    facts: dict[str, str | bool] = {"kind": kind}
    for key, at, value in section.entries():
        if _FACT.fullmatch(key) and key not in _RESERVED:
            facts[key] = value.text_or_flag()
        else:
            section.fault("bad-name", "a fact's name is lower case letters, digits and '_'", at)
    return Destination(name, kind, clearance, facts, str(position))


def _classifiers(items: list[Value], lattice: Lattice) -> Iterator[Classifier]:
    ids = Unique()
    for item in items:
        section = item.mapping()
        name = section.text("id", pattern=RULE_ID, want=RULE_ID_IN_WORDS)
        ids.check(section, "id", name)
        when = section.mapping("when")
        detector = when.choice("detector", DETECTORS)
        min_count = when.integer("min_count", 1, low=1)
        when.done()
        raises = _raise(section.mapping("raise"), lattice)
        section.done()
        yield Classifier(name, detector, min_count, raises)


def _raise(section: Section, lattice: Lattice) -> Label:
    """By what a label is raised: to a level, by compartments, or both."""
    level, compartments = section.find("level"), section.find("compartments")
    if level is None and compartments is None:
        section.missing("level")
    section.done()
    return Label(
        read_level(level, lattice) if level else 0,
        read_compartments(compartments, lattice) if compartments else frozenset(),
    )
