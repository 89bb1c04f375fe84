"""Recipes as frozen records: a field says its default, its bounds or its choices, in one place.

`record` reads a section of YAML into such a record. What may stand in a field follows from its
default: a text is one of the field's choices, a pair a range of two numbers, lowest first; a flag,
a whole number or a number is one.
"""

from __future__ import annotations

from dataclasses import field, fields, replace
from typing import Any, TypeVar, cast

from conductor.strictyaml.values import Section

_R = TypeVar("_R")


def number(default: Any, low: float, high: float) -> Any:
    """A field for a number, or for a range if `default` is a pair; both ends within bounds."""
    return field(default=default, metadata={"low": low, "high": high})


def choices(*names: str) -> dict[str, Any]:
    """The metadata of a field for one of `names`."""
    return {"names": names}


def record(section: Section, default: _R, *, leaving: tuple[str, ...] = ()) -> _R:
    """The record whose fields are the section's keys; what is not there is as in `default`. Fields
    in `leaving` are read elsewhere. The section may hold nothing that was not asked for."""
    values = {
        one.name: _value(section, one.name, getattr(default, one.name), one.metadata)
        for one in fields(cast(Any, default))
        if one.name not in leaving
    }
    section.done()
    return cast(_R, replace(cast(Any, default), **values))


def _value(section: Section, name: str, default: Any, told: Any) -> Any:
    if isinstance(default, bool):
        return section.flag(name, default)
    if isinstance(default, str):
        return section.choice(name, told["names"], default)
    if isinstance(default, tuple):
        return _range(section, name, default, told)
    if isinstance(default, int):
        return section.integer(name, default, low=int(told["low"]), high=int(told["high"]))
    return section.number(name, default, low=told["low"], high=told["high"])


def _range(section: Section, name: str, default: tuple[Any, Any], told: Any) -> tuple[Any, Any]:
    """Lowest and highest, as a list of two."""
    given = section.items(name, None)
    if given is None:
        return default
    if len(given) != 2:
        section.fault("bad-value", f"{name} must be a list of two: lowest and highest", name)
        return default
    low, high = told["low"], told["high"]
    whole = isinstance(default[0], int)
    ends = [one.integer(int(low), int(high)) if whole else one.number(low, high) for one in given]
    if ends[0] > ends[1]:
        section.fault("bad-value", f"{name} must not begin higher than it ends", name)
    return ends[0], ends[1]
