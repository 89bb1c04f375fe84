"""Declassifiers: the only things that lower a label. Here is what they may do, not how.

    - {id: redact-pii-v2, kind: redact, types: [person, iban], removes: {compartments: [pii]}}
    - {id: yes-no-v1, kind: constrained, domain: {enum: ["yes", "no"]}, removes: {level: internal}}
    - {id: approved-v1, kind: approved, approvers: [anna-key], removes: {level: internal}}

With `steps: true` a plan may use one that rewrites texts by itself, as its step `redact`; those of
kind `constrained` are for that alone. A label loses the compartments in `removes`, and falls to the
level there at most; a level that is not named stays, since style and context still identify people.
What carries them out stands in the room `declassify/`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from conductor.core import Obligation
from conductor.labels import UNSCANNED, Label, Lattice
from conductor.policy.detectors import Detectors
from conductor.policy.vocabulary import (
    IDENTIFIER,
    IDENTIFIER_IN_WORDS,
    read_compartments,
    read_level,
)
from conductor.strictyaml.values import Section, Unique, Value

DeclassifierKind = Literal["redact", "pseudonymise", "constrained", "approved"]
KINDS: tuple[DeclassifierKind, ...] = get_args(DeclassifierKind)

EXPIRES_S = 3600
_MOST_EXPIRES_S = 7 * 86_400
_MOST_ANSWERS = 1024
_ANSWER = re.compile(r"[^\s].{0,62}[^\s]|[^\s]")


@dataclass(frozen=True)
class Removes:
    """What a declassifier takes off a label. `level` None: the level stays."""

    compartments: frozenset[str]
    level: int | None = None

    def from_label(self, label: Label) -> Label:
        level = label.level if self.level is None else min(label.level, self.level)
        return Label(level, label.compartments - self.compartments)


@dataclass(frozen=True)
class Answers:
    """All that a constrained reveal may say: one of `words`, or a whole number `low` to `high`."""

    words: tuple[str, ...] = ()
    low: int = 0
    high: int = 0

    @property
    def size(self) -> int:
        """How many answers there are."""
        return len(self.words) or self.high - self.low + 1


@dataclass(frozen=True)
class Declassifier:
    """One entry of `declassifiers`. Only what its kind needs is set: `types` (detector ids) for
    `redact` and `pseudonymise`, `domain` for `constrained`, the last two for `approved`."""

    id: str
    kind: DeclassifierKind
    removes: Removes
    position: str
    types: frozenset[str] = frozenset()
    domain: Answers | None = None
    approvers: tuple[str, ...] = ()
    expires_s: int = EXPIRES_S
    steps: bool = False
    """Whether a plan may use it by itself, as the step `redact`, and not only a rule that asks for
    it in return."""


def lowered(
    label: Label, obligations: Collection[Obligation], declassifiers: Mapping[str, Declassifier]
) -> Label:
    """The label once the obligations are carried out and nothing was left over. Those that no
    declassifier carries out, or an unknown one, change nothing."""
    for obligation in obligations:
        if (declassifier := declassifiers.get(obligation.by)) is not None:
            label = declassifier.removes.from_label(label)
    return label


def read_declassifiers(
    items: list[Value], lattice: Lattice, detectors: Detectors, approvers: Collection[str]
) -> dict[str, Declassifier]:
    """The section `declassifiers`, by id. `approvers` are the ids of keys that may approve."""
    ids = Unique()
    found = {}
    for item in items:
        section = item.mapping()
        name = section.text("id", pattern=IDENTIFIER, want=IDENTIFIER_IN_WORDS)
        ids.check(section, "id", name)
        kind = cast(DeclassifierKind, section.choice("kind", KINDS))
        found[name] = Declassifier(
            id=name,
            kind=kind,
            removes=_removes(section, kind, lattice),
            position=str(section.position),
            types=_types(section, detectors) if _rewrites(kind) else frozenset(),
            domain=_domain(section.mapping("domain")) if kind == "constrained" else None,
            approvers=_approvers(section, approvers) if kind == "approved" else (),
            expires_s=_expires_s(section) if kind == "approved" else EXPIRES_S,
            steps=section.flag("steps", False) if _rewrites(kind) else kind == "constrained",
        )
        if kind:
            section.done()
    return found


def _rewrites(kind: DeclassifierKind) -> bool:
    return kind in ("redact", "pseudonymise")


def _removes(whole: Section, kind: DeclassifierKind, lattice: Lattice) -> Removes:
    section = whole.mapping("removes")
    level, compartments = section.find("level"), section.find("compartments")
    if level is None and compartments is None:
        section.missing("compartments")
    section.done()
    removes = Removes(
        read_compartments(compartments, lattice, some=True) if compartments else frozenset(),
        read_level(level, lattice) if level else None,
    )
    if _rewrites(kind) and UNSCANNED in removes.compartments and compartments:
        message = f"what no detector could read cannot be cut out: it stays {UNSCANNED!r}"
        compartments.fault("removes-unscanned", message)
    return removes


def _types(section: Section, detectors: Detectors) -> frozenset[str]:
    value = section.require("types")
    return detectors.read(value) if value else frozenset()


def _domain(section: Section) -> Answers:
    """`{enum: [...]}`, `{bool: true}` or `{integer: [LOW, HIGH]}`."""
    form = section.exactly_one("enum", "bool", "integer")
    value = section.find(form) if form else None
    section.done()
    if value is None:
        return Answers()
    if form == "enum":
        return _enum(value)
    if form == "integer":
        return _integers(value)
    if value.kind != "scalar" or not value.flag():
        value.fault("bad-value", "bool has no other value than true")
    return Answers(("true", "false"))


def _enum(value: Value) -> Answers:
    items = value.items(some=True)
    words = [item.text(_ANSWER, "a word or a few, at most 64 characters") for item in items]
    if len({word.casefold() for word in words}) < len(words):
        value.fault("duplicate-name", "the answers must differ by more than upper and lower case")
    if not 2 <= len(items) <= _MOST_ANSWERS:
        value.fault("bad-value", f"enum needs 2 to {_MOST_ANSWERS} answers")
    return Answers(tuple(words))


def _integers(value: Value) -> Answers:
    numbers = [item.integer() for item in value.items(some=True)]
    if len(numbers) != 2 or numbers[0] >= numbers[1]:
        value.fault("bad-value", "integer needs two numbers, [LOW, HIGH], the lower one first")
        return Answers()
    return Answers(low=numbers[0], high=numbers[1])


def _approvers(section: Section, known: Collection[str]) -> tuple[str, ...]:
    def names() -> Iterator[str]:
        for item in section.items("approvers", some=True):
            yield item.choice(known, "unknown-approver")

    return tuple(dict.fromkeys(filter(None, names())))


def _expires_s(section: Section) -> int:
    return section.integer("expires_s", EXPIRES_S, low=1, high=_MOST_EXPIRES_S)
