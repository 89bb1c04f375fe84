"""A random text that a simple pattern matches: literals, classes, counts, alternatives, groups."""

from __future__ import annotations

import random
import string
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_ALPHABET = string.ascii_letters + string.digits + "_-+/=.%?&"


def text_of(pattern: str, source: random.Random) -> str:
    """A text matching `pattern`, with every count as low as it may be, but at least twenty."""
    return "".join(_of(item, source) for item in parser.parse(pattern))


def _of(item: tuple[Any, Any], source: random.Random) -> str:
    kind, value = item
    match str(kind):
        case "LITERAL":
            return chr(value)
        case "IN":
            return source.choice([c for c in _ALPHABET if _holds(value, c)])
        case "MAX_REPEAT":
            low, high, inner = value
            count = min(max(low, 20), int(high))
            return "".join(_of(part, source) for _ in range(count) for part in inner)
        case "SUBPATTERN":
            return "".join(_of(part, source) for part in value[-1])
        case "BRANCH":
            return "".join(_of(part, source) for part in source.choice(value[1]))
    raise AssertionError(f"a pattern of tokens does not need {kind}")


def _holds(members: list[tuple[Any, Any]], character: str) -> bool:
    for kind, value in members:
        if str(kind) == "LITERAL" and chr(value) == character:
            return True
        if str(kind) == "RANGE" and value[0] <= ord(character) <= value[1]:
            return True
    return False
