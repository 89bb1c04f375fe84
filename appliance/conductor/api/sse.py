"""Server-sent events as chat clients expect them: one JSON line a piece, and `[DONE]` at the end.

A stream that failed ends after its error event, without `DONE`: clients would take that for a
whole answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import orjson

from conductor.core import Body
from conductor.errors import ApiError
from conductor.workers import sse
from conductor.workers.sse import framed

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache",
        # Or else a reverse proxy collects the stream before it passes it on.
        "X-Accel-Buffering": "no",
    }
)

DONE = framed(sse.DONE)

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it, and their read timers start anew."""


def event(chunk: Body) -> bytes:
    """One chunk as an event. JSON from orjson has no line break, so it is a single line."""
    return framed(orjson.dumps(chunk))


def error_event(error: ApiError) -> bytes:
    """A failure after the headers have gone out. Send it, then close."""
    return event(error.envelope())
