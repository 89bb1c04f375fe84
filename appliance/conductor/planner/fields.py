"""Reading the fields of a JSON object from another process: types, ranges, nothing unknown.

Messages name the field and what it must be, never what it held.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import orjson

Fields = dict[str, Any]


class WireError(ValueError):
    """A message that cannot be read; says which field, never what it held."""


def read_object(raw: bytes) -> Fields:
    """The JSON object that is the whole of `raw`."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise WireError("the body is not JSON") from None
    return as_object(value, "the body")


def as_object(value: Any, what: str) -> Fields:
    """`value`, if it is an object."""
    if type(value) is not dict:
        raise WireError(f"{what} must be an object")
    return value


def only(fields: Fields, known: Collection[str], what: str) -> None:
    """All fields of `known` and no other are there; the readers below count on it."""
    if set(fields) != set(known):
        raise WireError(f"{what} has exactly these fields: {', '.join(known)}")


def array(fields: Fields, name: str, longest: int) -> list[Any]:
    """A list of at most `longest` items, of any kind."""
    value = fields[name]
    if type(value) is not list or len(value) > longest:
        raise WireError(f"{name!r} must be a list of at most {longest}")
    return value


def text(fields: Fields, name: str, longest: int) -> str:
    """A string of at most `longest` characters."""
    value = fields[name]
    if type(value) is not str or len(value) > longest:
        raise WireError(f"{name!r} must be a string of at most {longest} characters")
    return value


def one_of(fields: Fields, name: str, words: Collection[str]) -> str:
    """One of a closed list of words."""
    value = fields[name]
    if type(value) is not str or value not in words:
        raise WireError(f"{name!r} must be one of {', '.join(words)}")
    return value


def flag(fields: Fields, name: str) -> bool:
    """True or false, and not 1 or 0."""
    value = fields[name]
    if type(value) is not bool:
        raise WireError(f"{name!r} must be true or false")
    return value


def whole(fields: Fields, name: str, lowest: int, highest: int) -> int:
    """A whole number within bounds, both included."""
    return _whole(fields[name], name, lowest, highest)


def amount(
    fields: Fields, name: str, *, shown: str = "", lowest: float = 0.0, highest: float = 1e12
) -> float:
    """A finite number within bounds, both included; `shown` stands for its name in the message."""
    return _amount(fields[name], shown or name, highest, lowest)


def chances(fields: Fields, name: str, longest: int) -> tuple[float, ...]:
    """Numbers from 0 to 1."""
    return tuple(_amount(value, name, 1.0) for value in array(fields, name, longest))


def ordinals(fields: Fields, name: str, count: int) -> tuple[int, ...]:
    """Ordinals below `count`, none of them twice."""
    values = tuple(_whole(value, name, 0, count - 1) for value in array(fields, name, count))
    if len(set(values)) < len(values):
        raise WireError(f"{name!r} names an ordinal twice")
    return values


def _whole(value: Any, name: str, lowest: int, highest: int) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise WireError(f"{name!r} must hold whole numbers from {lowest} to {highest} only")
    return value


def _amount(value: Any, name: str, highest: float, lowest: float = 0.0) -> float:
    fits = type(value) in (int, float) and math.isfinite(value) and lowest <= value <= highest
    if not fits:
        raise WireError(f"{name!r} must hold numbers from {lowest:g} to {highest:g} only")
    return float(value)
