"""Reading the words of a site out of YAML: its lattice, and labels and clearances in them.

Other files than `policy.yaml` use these words too: a worker narrows its clearance, a key has a
default label.
"""

from __future__ import annotations

import re

from conductor.labels import UNSCANNED, Clearance, Label, Lattice
from conductor.strictyaml.faults import hint
from conductor.strictyaml.values import Section, Value

IDENTIFIER = re.compile(r"[a-z][a-z0-9-]{0,63}")
"""Of rules, classifiers, declassifiers."""
IDENTIFIER_IN_WORDS = "lower case letters, digits and '-', at most 64, a letter first"
KEY_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Of a key that signs or calls."""
KEY_ID_IN_WORDS = "lower case letters, digits and '._-', at most 64"

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_NAME_IN_WORDS = "lower case letters, digits and '-', at most 32, a letter first"


def read_lattice(section: Section) -> Lattice | None:
    """`labels:` as `{levels: [lowest, ..., highest], compartments: [...]}`.

    None only when no level can be read: nothing else in the file could then be understood.
    """
    levels = list(section.texts("levels", some=True, pattern=_NAME, want=_NAME_IN_WORDS))
    compartments = list(section.texts("compartments", pattern=_NAME, want=_NAME_IN_WORDS))
    section.done()
    if not levels:
        return None
    if len({*levels, *compartments}) < len(levels) + len(compartments):
        section.fault("duplicate-name", "levels and compartments must all have different names")
    if "compartments" in section and UNSCANNED not in compartments:
        message = f"the compartment {UNSCANNED!r} is needed for what no detector could read"
        section.fault("missing-name", message, "compartments")
    unique = tuple(dict.fromkeys(levels))
    return Lattice(unique, frozenset({*compartments, UNSCANNED}) - frozenset(unique))


def read_level(value: Value, lattice: Lattice) -> int:
    """A level by name; a faulty one reads as the lowest."""
    name = value.choice(lattice.levels, "unknown-level")
    return lattice.level(name) if name in lattice.levels else 0


def read_compartments(value: Value, lattice: Lattice, *, some: bool = False) -> frozenset[str]:
    """A list of compartments by name; at least one when `some` are needed."""
    items = value.items(some=some)
    names = (item.choice(lattice.compartments, "unknown-compartment") for item in items)
    return frozenset(filter(None, names)) & lattice.compartments


def read_label(value: Value, lattice: Lattice) -> Label:
    """A label in its text form, `internal+pii`; a faulty one reads as the top."""
    text = value.text()
    try:
        return lattice.parse(text) if text else lattice.top
    except ValueError:
        level, *compartments = text.split("+")
        known = lattice.compartments if level in lattice.levels else lattice.levels
        words = compartments if level in lattice.levels else [level]
        unknown = next((word for word in words if word not in known), "")
        value.fault("unknown-label", f"not a label of this site; {hint(unknown, known)}")
        return lattice.top


def read_clearance(section: Section, lattice: Lattice) -> Clearance:
    """`{level: NAME, compartments: [NAME, ...] | all}`; faulty parts read as the least."""
    level = section.require("level")
    compartments = section.require("compartments")
    section.done()
    return Clearance(
        read_level(level, lattice) if level else 0,
        _cleared_for(compartments, lattice) if compartments else frozenset(),
    )


def _cleared_for(value: Value, lattice: Lattice) -> frozenset[str]:
    if value.kind == "scalar":
        return lattice.compartments if value.choice(["all"]) == "all" else frozenset()
    return read_compartments(value, lattice)
