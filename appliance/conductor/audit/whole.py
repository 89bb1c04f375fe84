"""Records made whole: what had no room in one stands ahead of it, in records of the event `more`.

`run/recording.py` deals out what is long. Here it is put together again, and counted: a record says
in `more` how many parts it has, and where others are found, some were lost, with a full disk say.
What such a record seems to say is not all it said, and whoever answers from it must tell so.

Pure, over records in the order of the log. Holds at most `MAX_PARTS` parts.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

MORE = "more"
"""The event of a part, and the field in which a record counts its parts."""

MAX_PARTS = 4096
"""Parts whose record is still to come. They stand right ahead of it, and one record has a few
hundred for the largest pools; the rest are left over from crashes."""

MAX_TORN = 10_000
"""Requests that are remembered for a torn record."""

_OF_A_PART = frozenset({"seq", "ts", "event", "prev", "mac", "mono_ns", "boot_id", "request_id",
                        "decision_id", "of"})  # fmt: skip
_Fields = dict[str, Any]
_Ids = tuple[str, str, str]


class Whole(NamedTuple):
    """A record with all that stood ahead of it. `torn`: some of that is missing, or does not
    fit."""

    record: _Fields
    torn: bool


class Parts:
    """Follows the log and keeps parts until their record comes."""

    def __init__(self) -> None:
        self._waiting: dict[_Ids, list[_Fields]] = {}
        self._count = 0

    def take(self, record: _Fields) -> Whole:
        """The record, made whole. A part is told as it stands."""
        event = record["event"]
        if event == MORE:
            self._keep(record)
            return Whole(record, torn=False)
        if event == "start":  # of what came before, nothing will be heard of again
            self._waiting.clear()
            self._count = 0
        parts = self._waiting.pop(_ids(record, event), [])
        self._count -= len(parts)
        if not parts and MORE not in record:
            return Whole(record, torn=False)
        return _joined(record, parts)

    def _keep(self, part: _Fields) -> None:
        fields = {name: value for name, value in part.items() if name not in _OF_A_PART}
        self._waiting.setdefault(_ids(part, part.get("of")), []).append(fields)
        self._count += 1
        if self._count > MAX_PARTS:
            oldest = next(iter(self._waiting))
            self._count -= len(self._waiting.pop(oldest))


class Torn:
    """Counts what is missing from a stretch of the log."""

    def __init__(self) -> None:
        self.inside = 0
        """Torn records of the stretch, and requests that one explains which stands before it."""
        self._before: dict[str, None] = {}

    def note(self, record: _Fields, *, inside: bool, torn: bool) -> None:
        """Follow the log. `inside`: the record belongs to the stretch."""
        request = str(record.get("decision_id"))
        if inside and (torn or request in self._before):
            self.inside += 1
            self._before.pop(request, None)
        elif torn:
            self._before[request] = None
            if len(self._before) > MAX_TORN:
                self._before.pop(next(iter(self._before)))


def _ids(record: _Fields, event: Any) -> _Ids:
    return str(record.get("request_id")), str(record.get("decision_id")), str(event)


def _joined(record: _Fields, parts: list[_Fields]) -> Whole:
    whole, torn = dict(record), record.get(MORE, 0) != len(parts)
    for name in dict.fromkeys(chain.from_iterable(parts)):
        values = [record.get(name), *(part[name] for part in parts if name in part)]
        joined = _join(values)
        torn = torn or joined is None
        whole[name] = record.get(name) if joined is None else joined
    return Whole(whole, torn)


def _join(values: list[Any]) -> list[Any] | _Fields | None:
    """Lists one after the other, mappings as one; None where they are no such parts."""
    if all(isinstance(value, list) for value in values):
        return [*chain.from_iterable(values)]
    if not all(isinstance(value, dict) for value in values):
        return None
    joined = {key: item for value in values for key, item in value.items()}
    return joined if len(joined) == sum(map(len, values)) else None
