"""What stands in a value's place is named by its kind; and what makes two spellings one value.

A kind is a coarser word than a detector's id: it is sent to the worker, which needs to know that
someone is a person, and not what a site calls its detectors.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

OTHER = "ITEM"
"""The kind of what only a site's own detectors find."""

LITERAL = "literal"
"""Stands for a detector's id: text that looks like one of our tokens and is none."""

_KINDS = {
    "person": "PERSON",
    "address": "ADDRESS",
    "email": "EMAIL",
    "phone": "PHONE",
    "iban": "IBAN",
    "payment_card": "CARD",
    "ip": "IP",
    "id": "ID",
    # SECRET on a line of its own would read as a document's marking.
    "secret": "CREDENTIAL",
    "marking": "MARKING",
    "literal": "TEXT",
}

KINDS = frozenset({*_KINDS.values(), OTHER})

_DASH = "\\-\u2010-\u2015\u2212"
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_SPACE = re.compile(r"\s+")
_BETWEEN_WORDS = re.compile(rf"[\s{_DASH}]+")
_BETWEEN_DIGITS = re.compile(rf"[\s{_DASH}./()]+")


def kind_of(detector: str) -> str:
    """The kind of what a detector finds: `id.it.codicefiscale` is an ID."""
    return _KINDS.get(detector.partition(".")[0], OTHER)


def canonical(kind: str, value: str) -> str:
    """One spelling for all that mean the same value, and never one for two values.

    People: case, spaces and dashes aside. Addresses: case and spaces. Numbers: case and whatever
    groups them. What a machine compares letter by letter (credentials, a site's own) stays.
    """
    return _CANONICAL.get(kind, _as_it_is)(value) or value


def _as_it_is(value: str) -> str:
    return value


def _plain(value: str) -> str:
    value = unicodedata.normalize("NFKC", _UNSEEN.sub("", value))
    return unicodedata.normalize("NFKC", value.casefold()).strip()


def _name(value: str) -> str:
    return _BETWEEN_WORDS.sub(" ", _plain(value)).strip()


def _number(value: str) -> str:
    return _BETWEEN_DIGITS.sub("", _plain(value))


def _phone(value: str) -> str:
    number = _number(value)
    return "+" + number[2:] if number.startswith("00") else number


_CANONICAL: dict[str, Callable[[str], str]] = {
    "PERSON": _name,
    "ADDRESS": lambda value: _SPACE.sub(" ", _plain(value)),
    "EMAIL": _plain,
    "IP": _plain,
    "PHONE": _phone,
    "IBAN": _number,
    "CARD": _number,
    "ID": _number,
}
