"""Reading guardrails and rules out of `policy.yaml`.

    - id: no-secret-remote
      deny: {to: {kind: remote}, if: {compartments_any: [secret]}}

`to` asks about facts of the destination, `if` about the label; every key in them must hold.
`any: [{...}, {...}]`, `all: [...]` and `not: {...}` nest, in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from conductor.core import Destination, Kind
from conductor.labels import Label, Lattice
from conductor.policy import conditions
from conductor.policy.conditions import Condition, Truth
from conductor.policy.vocabulary import read_compartments, read_level
from conductor.strictyaml.values import Section, Unique, Value

Effect = Literal["allow", "deny"]

RULE_ID = re.compile(r"[a-z][a-z0-9-]{0,63}")
RULE_ID_IN_WORDS = "lower case letters, digits and '-', at most 64, a letter first"
_Leaves = Mapping[str, Callable[[Value], Condition]]
_HIGHEST = 2**31


@dataclass(frozen=True)
class Rule:
    """One guardrail or rule. `position` is `file:line:col` of it."""

    id: str
    effect: Effect
    to: Condition
    when: Condition
    position: str

    def applies(self, label: Label, to: Destination) -> Truth:
        """Whether the rule speaks about this label on its way to this destination."""
        return conditions.conjunction((self.to.holds(label, to), self.when.holds(label, to)))


class RuleReader:
    """Reads rules in the words of one site: its lattice and the facts its destinations state."""

    def __init__(self, lattice: Lattice, destinations: Iterable[Destination]) -> None:
        self._label_leaves = _label_leaves(lattice)
        self._ids = Unique()
        self._destination_leaves = _destination_leaves(list(destinations))

    def read(self, value: Value, effects: tuple[Effect, ...]) -> Rule:
        """One rule with one of the effects allowed here."""
        section = value.mapping()
        name = section.text("id", pattern=RULE_ID, want=RULE_ID_IN_WORDS)
        self._ids.check(section, "id", name)
        stated = section.exactly_one(*effects)
        effect: Effect = "allow" if stated == "allow" else "deny"
        body = section.mapping(effect, optional=True)
        to = _condition(body.mapping("to", optional=True), self._destination_leaves)
        when = _condition(body.mapping("if", optional=True), self._label_leaves)
        if stated == "allow" and to == when == conditions.ALWAYS:
            section.fault("allows-all", "this would allow everything: say where to, or which data")
        body.done()
        section.done()
        return Rule(name, effect, to, when, str(section.position))


def _condition(section: Section, leaves: _Leaves) -> Condition:
    """All keys of a section together; each is asked for by name, so that `done` finds strangers."""
    parts: list[Condition] = []
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


def _nested(value: Value, leaves: _Leaves) -> Condition:
    section = value.mapping()
    if section.empty and value.kind == "mapping":
        value.fault("bad-value", f"{value.name} needs at least one condition")
    return _condition(section, leaves)


def _several(value: Value, leaves: _Leaves) -> tuple[Condition, ...]:
    return tuple(_nested(item, leaves) for item in value.items(some=True))


def _label_leaves(lattice: Lattice) -> _Leaves:
    def compartments(quantity: conditions.Quantity) -> Callable[[Value], Condition]:
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


def _destination_leaves(destinations: list[Destination]) -> _Leaves:
    ids = [destination.id for destination in destinations]

    def among(key: str, names: Collection[str]) -> Callable[[Value], Condition]:
        return lambda value: conditions.Fact(
            key, frozenset(item.choice(names, f"unknown-{key}") for item in value.one_or_many())
        )

    def stated(key: str, kinds: set[type]) -> Callable[[Value], Condition]:
        return lambda value: conditions.Fact(
            key, frozenset(_fact(item, kinds) for item in value.one_or_many())
        )

    facts: dict[str, set[type]] = {}
    for destination in destinations:
        for key, fact in destination.facts.items():
            facts.setdefault(key, set()).add(type(fact))
    leaves = {key: stated(key, kinds) for key, kinds in facts.items()}
    return {**leaves, "id": among("id", ids), "kind": among("kind", get_args(Kind))}


def _fact(value: Value, kinds: set[type]) -> str | bool:
    fact = value.text_or_flag()
    if type(fact) not in kinds and fact != "":
        value.fault("wrong-kind", "no destination states this fact as a value of this kind")
    return fact
