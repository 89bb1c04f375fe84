"""Reading the destinations: where data can go, what each is cleared for, and facts about it.

eu-frontier: {kind: remote, vendor: acme, region: eu, dpa: true,
              clearance: {level: internal, compartments: []}}
"""

from __future__ import annotations

import re
from typing import cast, get_args

from conductor.core import Destination, Kind
from conductor.labels import UNSCANNED, Lattice
from conductor.policy.vocabulary import read_clearance
from conductor.strictyaml.faults import Position
from conductor.strictyaml.values import Section

_DESTINATION_ID = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_FACT = re.compile(r"[a-z][a-z0-9_]{0,31}")
_RESERVED = frozenset({"id", "any", "all", "not"})


def read_destinations(section: Section, lattice: Lattice) -> dict[str, Destination]:
    """The section `destinations`, by id."""
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
