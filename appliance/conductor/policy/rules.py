"""Reading guardrails and rules out of `policy.yaml`.

    - id: no-secret-remote
      deny: {to: {kind: remote}, if: {compartments_any: [secret]}}
    - id: eu-with-pseudonyms
      mode: shadow
      since: "2026-01-31"
      allow: {to: {kind: remote, region: [eu], dpa: true}, if: {level_at_most: internal}}
      obligations: [{pseudonymise: {by: pseudonyms-v1}}]

`to` asks about facts of the destination, `if` about the label; every key in them must hold.
`any: [{...}, {...}]`, `all: [...]` and `not: {...}` nest, in both. What an allow with obligations
means stands in `decide.py`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, get_args

from conductor.core import Destination, Kind, Obligation
from conductor.labels import Label, Lattice
from conductor.policy import conditions
from conductor.policy.conditions import Condition, conjuncts
from conductor.policy.declassifiers import Declassifier
from conductor.policy.obligations import read_obligations
from conductor.policy.vocabulary import (
    IDENTIFIER,
    IDENTIFIER_IN_WORDS,
    read_compartments,
    read_level,
)
from conductor.strictyaml.values import Section, Unique, Value

Effect = Literal["allow", "deny"]
Mode = Literal["enforce", "shadow", "off"]
S = TypeVar("S")

_Leaves = Mapping[str, Callable[[Value], Condition[S]]]
_HIGHEST = 2**31
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class Rule:
    """One guardrail or rule. `position` is `file:line:col` of it; `since` is when a shadow rule
    was written."""

    id: str
    effect: Effect
    to: Condition[Destination]
    when: Condition[Label]
    position: str
    mode: Mode = "enforce"
    obligations: tuple[Obligation, ...] = ()
    since: datetime.date | None = None


class RuleReader:
    """Reads rules in the words of one site: its lattice, the facts that its destinations state, and
    its declassifiers."""

    def __init__(
        self,
        lattice: Lattice,
        destinations: Iterable[Destination],
        declassifiers: Mapping[str, Declassifier],
    ) -> None:
        self._ids = Unique()
        self._label_leaves = _label_leaves(lattice)
        self._destination_leaves = _destination_leaves(list(destinations))
        self._declassifiers = declassifiers

    def read(self, value: Value, effects: tuple[Effect, ...]) -> Rule:
        """One rule with one of the effects allowed here."""
        section = value.mapping()
        name = section.text("id", pattern=IDENTIFIER, want=IDENTIFIER_IN_WORDS)
        self._ids.check(section, "id", name)
        stated = section.exactly_one(*effects)
        effect: Effect = "allow" if stated == "allow" else "deny"
        to, when = self._body(section, effect)
        if stated == "allow" and not (len(conjuncts(to)) + len(conjuncts(when))):
            section.fault("allows-all", "this would allow everything: say where to, or which data")
        mode = cast(Mode, section.choice("mode", get_args(Mode), "enforce"))
        since = _since(section) if mode == "shadow" else None
        promised = section.items("obligations", [], some=True) if stated == "allow" else []
        obligations = read_obligations(promised, self._declassifiers)
        section.done()
        return Rule(name, effect, to, when, str(section.position), mode, obligations, since)

    def _body(
        self, section: Section, effect: Effect
    ) -> tuple[Condition[Destination], Condition[Label]]:
        body = section.mapping(effect, optional=True)
        to = _condition(body.mapping("to", optional=True), self._destination_leaves)
        when = _condition(body.mapping("if", optional=True), self._label_leaves)
        body.done()
        return to, when


def _since(section: Section) -> datetime.date | None:
    text = section.text("since", None, pattern=_DAY, want='a day in quotes, such as "2026-01-31"')
    try:
        return datetime.date.fromisoformat(text) if text else None
    except ValueError:
        section.fault("bad-value", "since is no day of the calendar", "since")
        return None


def _condition(section: Section, leaves: _Leaves[S]) -> Condition[S]:
    """All keys of a section together; each is asked for by name, so that `done` finds strangers."""
    parts: list[Condition[S]] = []
    for key, read in leaves.items():
        if (value := section.find(key)) is not None:
            parts.append(read(value))
    if (value := section.find("not")) is not None:
        parts.append(conditions.Not(_nested(value, leaves)))
    if (value := section.find("any")) is not None:
        parts.append(conditions.Any(_several(value, leaves)))
    if (value := section.find("all")) is not None:
        parts.append(conditions.All(_several(value, leaves)))
    section.done()
    return parts[0] if len(parts) == 1 else conditions.All(tuple(parts))


def _nested(value: Value, leaves: _Leaves[S]) -> Condition[S]:
    section = value.mapping()
    if section.empty and value.kind == "mapping":
        value.fault("bad-value", f"{value.name} needs at least one condition")
    return _condition(section, leaves)


def _several(value: Value, leaves: _Leaves[S]) -> tuple[Condition[S], ...]:
    return tuple(_nested(item, leaves) for item in value.items(some=True))


def _label_leaves(lattice: Lattice) -> _Leaves[Label]:
    def compartments(quantity: conditions.Quantity) -> Callable[[Value], Condition[Label]]:
        return lambda value: conditions.Compartments(
            quantity, read_compartments(value, lattice, some=True)
        )

    return {
        "level_at_most": lambda value: conditions.Level(0, read_level(value, lattice)),
        "level_at_least": lambda value: conditions.Level(read_level(value, lattice), _HIGHEST),
        "compartments_any": compartments("any"),
        "compartments_all": compartments("all"),
        "compartments_none": compartments("none"),
    }


def _destination_leaves(destinations: list[Destination]) -> _Leaves[Destination]:
    ids = [destination.id for destination in destinations]

    def among(key: str, names: Collection[str]) -> Callable[[Value], Condition[Destination]]:
        return lambda value: conditions.Fact(
            key, frozenset(item.choice(names, f"unknown-{key}") for item in value.one_or_many())
        )

    def stated(key: str, kinds: set[type]) -> Callable[[Value], Condition[Destination]]:
        return lambda value: conditions.Fact(
            key, frozenset(_fact(item, kinds) for item in value.one_or_many())
        )

    facts: dict[str, set[type]] = {}
    for destination in destinations:
        for key, fact in destination.facts.items():
            facts.setdefault(key, set()).add(type(fact))
    leaves: dict[str, Callable[[Value], Condition[Destination]]] = {
        key: stated(key, kinds) for key, kinds in facts.items()
    }
    return {**leaves, "id": among("id", ids), "kind": among("kind", get_args(Kind))}


def _fact(value: Value, kinds: set[type[Any]]) -> str | bool:
    fact = value.text_or_flag()
    if type(fact) not in kinds and fact != "":
        value.fault("wrong-kind", "no destination states this fact as a value of this kind")
    return fact
