"""The scanning process: reads questions, writes answers. `pool.py` is the other side.

Started as `python -m conductor.detect.worker MAX_TEXT_BYTES [NAMES_MODEL]`. Ends when its input
does. The model for names is loaded for the first policy that wants it, and left out if it cannot.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import orjson
import structlog

from conductor.detect.naming import Names
from conductor.detect.pool import READY, Question, pack, pack_spans, unscanned
from conductor.detect.rules import MAX_CANDIDATES
from conductor.detect.scan import scan_spans, scan_value
from conductor.errors import StartError
from conductor.logs import configure

if TYPE_CHECKING:
    from conductor.detect.names import NameFinder

_MAX_MEMORY_BYTES = 4 << 30
"""A 32 MiB body of prose takes 240 MiB. One that takes more than this ends the process, no more."""

_TO_ANSWER_S = 0.5
"""Left for all that comes after the names have been read."""

log = structlog.get_logger()


def main() -> None:
    """Serve until the input ends. An interrupt at the terminal is for the parent to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    configure()  # to standard error: the output is for scans alone
    max_text_bytes = int(sys.argv[1])
    model = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    scan_value({"warm": "up: DE89 3704 0044 0532 0130 00, +49 89 636-48018"}, max_text_bytes)
    sink.write(READY)
    sink.flush()
    while (head := _frame(source)) is not None and (body := _frame(source)) is not None:
        answer = _answer(Question.unpack(head), body, max_text_bytes, model)
        del body
        sink.write(len(answer).to_bytes(8, "big") + answer)
        sink.flush()


def _frame(source: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the input."""
    size = source.read(8)
    return source.read(int.from_bytes(size, "big")) if len(size) == 8 else None


def _answer(question: Question, body: bytes, max_text_bytes: int, model: Path | None) -> bytes:
    names = _names(question, model)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return pack(unscanned("not-json"))
    if question.types is not None:
        return pack_spans(scan_spans(value, frozenset(question.types), question.profile, names))
    return pack(scan_value(value, max_text_bytes, MAX_CANDIDATES, question.profile, names))


def _names(question: Question, model: Path | None) -> Names | None:
    """What reads names for this question; None when none are wanted, or there is no model."""
    if not question.profile.names or model is None:
        return None
    finder = _finder(model)
    return Names(finder, question.deadline - _TO_ANSWER_S) if finder else None


@cache
def _finder(model: Path) -> NameFinder | None:
    from conductor.detect.names import NameFinder

    try:
        return NameFinder.open(model)
    except StartError as error:
        log.error("names_not_loaded", error=str(error))
        return None


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the parent is gone, and with it whoever wanted the answer
        os._exit(0)
