"""Answers that may still be judged: in memory, by key and request, for a while.

Bounded in bytes and in time: the oldest make room, and none is given out that has waited too long
(it is let go with the next request). Of one that was judged only its name is kept, so that a second
judgement is told apart from an unknown one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from conductor.feedback.record import Answered

_NAME_BYTES = 512
"""What an entry takes once its texts are gone."""

Name = tuple[str, str]


class Gone(StrEnum):
    """Why there is nothing to judge: a closed list, for metrics."""

    UNKNOWN = "unknown"  # never there, of another key, or let go
    AGAIN = "again"  # it was judged, and its texts are gone


@dataclass(frozen=True)
class _Entry:
    """`answered` is None once it was judged."""

    answered: Answered | None
    size: int
    until_s: float


class Waiting:
    """For one event loop. `clock` in seconds, never going back."""

    def __init__(self, max_bytes: int, wait_s: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._clock = clock
        self._entries: OrderedDict[Name, _Entry] = OrderedDict()
        self._held = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """As counted by `Answered.size`."""
        return self._held

    def put(self, answered: Answered) -> None:
        """Keep it, unless it alone is more than may be kept."""
        until_s = self._clock() + self._wait_s
        name = (answered.key_id, answered.request_id)
        if answered.size <= self._max_bytes:
            self._set(name, answered, until_s)
            self._entries.move_to_end(name)
        self._make_room()

    def take(self, key_id: str, request_id: str) -> Answered | Gone:
        """The answer to that key's request, which from now on counts as judged."""
        self._make_room()
        entry = self._entries.get((key_id, request_id))
        if entry is None:
            return Gone.UNKNOWN
        if entry.answered is None:
            return Gone.AGAIN
        self._set((key_id, request_id), None, entry.until_s)
        return entry.answered

    def _set(self, name: Name, answered: Answered | None, until_s: float) -> None:
        old = self._entries.get(name)
        size = _NAME_BYTES if answered is None else answered.size
        self._entries[name] = _Entry(answered, size, until_s)
        self._held += size - (old.size if old else 0)

    def _make_room(self) -> None:
        now = self._clock()
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if self._held <= self._max_bytes and oldest.until_s > now:
                return
            self._held -= self._entries.popitem(last=False)[1].size
