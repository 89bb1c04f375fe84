"""Reading the tests that a policy carries: what must come of given data on its way to a place.

    - name: an IBAN stays here
      given: {text: "IT60X0542811101000000123456", to: frontier, key: app}
      expect: {decision: deny, rule: no-pii-remote, label: confidential+pii}

`given` has a text to scan, as a line or a list of lines, or the label itself. Left out: running
them, see `selftest.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, cast, get_args

from conductor.labels import Label, Lattice
from conductor.policy.vocabulary import KEY_ID, KEY_ID_IN_WORDS, read_label
from conductor.strictyaml.values import Section, Unique, Value

Decision = Literal["allow", "deny", "promise"]


@dataclass(frozen=True)
class Given:
    """The data of a test: a text, labelled by detectors, or a label. `to` is a destination's id."""

    to: str
    text: str | None = None
    label: Label | None = None
    key: str | None = None
    declared: Label | None = None


@dataclass(frozen=True)
class Expected:
    """What must come out. `rule` and `shadow` are ids; what is None may be anything."""

    decision: Decision
    rule: str | None = None
    shadow: str | None = None
    label: Label | None = None


@dataclass(frozen=True)
class Case:
    """One test of a policy."""

    name: str
    given: Given
    expected: Expected
    position: str


class CaseReader:
    """Reads tests in the words of one policy."""

    def __init__(
        self,
        lattice: Lattice,
        destinations: Collection[str],
        rules: Collection[str],
        shadows: Collection[str],
    ) -> None:
        self._lattice = lattice
        self._destinations = destinations
        self._rules = rules
        self._shadows = shadows

    def read(self, items: list[Value]) -> tuple[Case, ...]:
        """The section `tests`."""
        names = Unique()
        found = []
        for item in items:
            section = item.mapping()
            name = section.text("name")
            names.check(section, "name", name)
            given = self._given(section.mapping("given"))
            expected = self._expected(section.mapping("expect"))
            section.done()
            found.append(Case(name, given, expected, str(section.position)))
        return tuple(found)

    def _given(self, section: Section) -> Given:
        form = section.exactly_one("text", "label")
        to = section.require("to")
        given = Given(
            to=to.choice(self._destinations, "unknown-destination") if to else "",
            text=_text(section) if form == "text" else None,
            label=self._label(section, "label") if form == "label" else None,
            key=section.text("key", None, pattern=KEY_ID, want=KEY_ID_IN_WORDS),
            declared=self._label(section, "declared"),
        )
        section.done()
        return given

    def _expected(self, section: Section) -> Expected:
        expected = Expected(
            decision=cast(Decision, section.choice("decision", get_args(Decision))),
            rule=_name(section, "rule", self._rules),
            shadow=_name(section, "shadow", self._shadows),
            label=self._label(section, "label"),
        )
        section.done()
        return expected

    def _label(self, section: Section, key: str) -> Label | None:
        value = section.find(key)
        return read_label(value, self._lattice) if value else None


def _text(section: Section) -> str:
    """A line, or a list of lines."""
    value = section.find("text")
    return "\n".join(line.text() for line in value.one_or_many()) if value else ""


def _name(section: Section, key: str, known: Collection[str]) -> str | None:
    value = section.find(key)
    return value.choice(known, "unknown-rule") or None if value else None
