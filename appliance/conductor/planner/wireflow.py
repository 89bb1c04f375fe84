"""`core.Flow` as JSON, read strictly: part of `wire.py`.

The fields are those of `Flow`; `sees` holds for each class a list of ordinals. Every class that is
named anywhere must be one of those.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from conductor.core import Flow
from conductor.plan.language import MAX_TOTAL_STEPS
from conductor.plan.mask import MAX_CLASSES
from conductor.planner import fields as read
from conductor.planner.fields import Fields, WireError


def encode(flow: Flow) -> Fields:
    """What goes into the JSON."""
    return {**asdict(flow), "sees": [sorted(ordinals) for ordinals in flow.sees]}


def decode(item: Any, candidates: int) -> Flow:
    """Read it; raises `WireError`. `candidates` is how many the request has."""
    fields = read.as_object(item, "'flow'")
    read.only(fields, Flow.__dataclass_fields__, "'flow'")
    sees = tuple(
        frozenset(read.ordinals({"sees": ordinals}, "sees", candidates))
        for ordinals in read.array(fields, "sees", MAX_CLASSES)
    )
    count = len(sees)
    return Flow(
        question=read.whole(fields, "question", 0, count - 1),
        control=read.whole(fields, "control", 0, count - 1),
        heard=_classes("heard", count, read.array(fields, "heard", MAX_TOTAL_STEPS)),
        joins=tuple(
            _classes("joins", count, _one_each({"joins": row}, "joins", count))
            for row in _one_each(fields, "joins", count)
        ),
        redacted=_classes("redacted", count, _one_each(fields, "redacted", count)),
        sees=sees,
    )


def _one_each(fields: Fields, name: str, count: int) -> list[Any]:
    """A list with one item for each class."""
    items = read.array(fields, name, count)
    if len(items) < count:
        raise WireError(f"{name!r} must have one item for each class")
    return items


def _classes(name: str, count: int, items: list[Any]) -> tuple[int, ...]:
    return tuple(read.whole({name: item}, name, 0, count - 1) for item in items)
