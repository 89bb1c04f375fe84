"""The scanning process: reads bodies from its input, writes scans to its output. See `pool.py`.

Started as `python -m conductor.detect.worker MAX_TEXT_BYTES`. Ends when its input does.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

import orjson

from conductor.core import Scan
from conductor.detect.pool import READY, pack, unscanned
from conductor.detect.scan import scan_value
from conductor.logs import configure

_MAX_MEMORY_BYTES = 4 << 30
"""A 32 MiB body of prose takes 240 MiB. One that takes more than this ends the process, no more."""


def main() -> None:
    """Serve until the input ends. An interrupt at the terminal is for the parent to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    configure()  # to standard error: the output is for scans alone
    max_text_bytes = int(sys.argv[1])
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    scan_value({"warm": "up: DE89 3704 0044 0532 0130 00"}, max_text_bytes)
    sink.write(READY)
    sink.flush()
    while len(head := source.read(8)) == 8:
        body = source.read(int.from_bytes(head, "big"))
        answer = pack(_scan(body, max_text_bytes))
        del body
        sink.write(len(answer).to_bytes(8, "big") + answer)
        sink.flush()


def _scan(body: bytes, max_text_bytes: int) -> Scan:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return unscanned("not-json")
    return scan_value(value, max_text_bytes)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the parent is gone, and with it whoever wanted the answer
        os._exit(0)
