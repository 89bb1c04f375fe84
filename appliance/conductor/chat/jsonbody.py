"""Read a JSON object from a client who may be hostile.

Whatever passes is safe for everything behind it: valid Unicode without NUL, no number that changed
by being read, no name given twice (two readers might each believe another one), nesting that
recursion survives, and no more values than memory allows for. Whatever does not pass is a 400.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from conductor.core import Body
from conductor.errors import BadRequest

MAX_DEPTH = 128
"""Levels of nesting, the object itself being the first."""

MAX_VALUES = 250_000
"""Strings, numbers, lists and objects in one body. 32 MiB of `[],` would fill half a gigabyte."""

_UINT64 = (1 << 64) - 1
_INT64 = -(1 << 63)

# Integers long enough that they may not fit 64 bits, in a body without its strings.
_LONG_INTEGER = re.compile(rb"(?<![\w.+-])-?\d{19,}(?![\d.eE])")

_MARKS = (
    (b"\xef\xbb\xbf", "starts with a byte order mark"),
    (b"\xff\xfe", "is UTF-16"),
    (b"\xfe\xff", "is UTF-16"),
    (b"\0", "is UTF-16 or UTF-32"),
)


def read_object(raw: bytes) -> Body:
    """Decode and check `raw`.

    Raises:
        BadRequest: it is no JSON object, or one that must not pass. Never repeats what it holds.
    """
    keys = _checked_outline(raw)
    body = _decoded(raw)
    if not isinstance(body, dict):
        raise BadRequest('The body must be a JSON object, for example {"model": …}.')
    if _walk(body) != keys:
        raise BadRequest("An object in the body names a field twice: send each name once.")
    return body


def _decoded(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
    for mark, what in _MARKS:
        if raw.startswith(mark):
            raise BadRequest(f"The body {what}: send JSON as plain UTF-8.")
    if not raw.strip():
        raise BadRequest("The body is empty: send a JSON object.")
    raise BadRequest(
        f"The body is not valid JSON (near {where}): it must be UTF-8, without NaN, infinity, "
        "numbers beyond double precision, lone surrogates, or more than "
        f"{MAX_DEPTH} levels of nesting."
    )


def _checked_outline(raw: bytes) -> int:
    """Check what can be told before decoding, at the speed of `memchr`; returns how many names
    the objects hold. For text that is no JSON the result means nothing, and decoding refuses it.
    """
    # Escapes stand in strings only, and a run of backslashes pairs up from its left end.
    bare = raw.replace(b"\\\\", b"")
    if b"\\u0000" in bare:
        raise BadRequest("A string in the body holds a NUL character: remove it.")
    bare = bare.replace(b'\\"', b"")
    if bare.count(b'"') > 4 * MAX_VALUES:
        raise _too_many_values()
    outline = b"s".join(bare.split(b'"')[::2])
    if sum(map(outline.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise _too_many_values()
    for match in _LONG_INTEGER.finditer(outline):
        if len(match[0]) > 20 or not _INT64 <= int(match[0]) <= _UINT64:
            raise BadRequest("An integer in the body does not fit 64 bits.")
    return outline.count(b":")


def _walk(body: Body) -> int:
    """Check the depth; returns how many names the objects hold now. Without recursion."""
    names = 0
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                names += len(value)
                below.extend(item for item in value.values() if isinstance(item, dict | list))
            else:
                below.extend(item for item in value if isinstance(item, dict | list))
        if not below:
            return names
        level = below
    raise BadRequest(f"The body nests more than {MAX_DEPTH} levels deep: flatten it.")


def _too_many_values() -> BadRequest:
    return BadRequest(f"The body holds more than {MAX_VALUES} JSON values: send fewer.")
