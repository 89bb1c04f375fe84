"""Server-sent events, framed on bytes, so that no split of the stream can break a character.

Source: the WHATWG HTML standard, section 9.2. Of its fields only `data` is read; comments and the
others are dropped. Lines end with LF or CRLF, mixed as they may be; an event ends at a blank line.
What stands before no blank line is no event: the standard discards it, and so does this.
"""

from __future__ import annotations

DONE = b"[DONE]"
"""What the OpenAI API sends as a stream's last event."""

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""A chunk of a chat completion has a few hundred bytes; one with a long tool argument, 100 kB."""


def framed(data: bytes) -> bytes:
    """An event that holds `data`, which has no line break."""
    return b"data: " + data + b"\n\n"


class EventTooLarge(Exception):
    """The peer sends an event, or a line, without an end."""


class EventDecoder:
    """Gives the data of each whole event, once its blank line has come."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._size = 0
        self._line = bytearray()
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, in order. Raises `EventTooLarge`."""
        events: list[bytes] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._extend(piece)
            self._end_line(events)
        self._extend(rest)
        return events

    def _extend(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            raise EventTooLarge
        self._line += piece

    def _end_line(self, events: list[bytes]) -> None:
        length = len(self._line)
        line = bytes(self._line).removesuffix(b"\r")
        self._line.clear()
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
            self._data.clear()
            self._size = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        else:
            self._size -= length
