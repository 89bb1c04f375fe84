"""What a scalar may look like: YAML's guesses at numbers, booleans and dates are refused.

A plain scalar is text only when no YAML reader takes it for anything else; a number is plain
decimal digits; what escapes can write is held to what a file may hold.
"""

from __future__ import annotations

import re
from typing import Any

STRING_TAG = "tag:yaml.org,2002:str"
INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
NUMBER = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?")

# Plain words that PyYAML leaves alone and other YAML readers take for a boolean or a number.
_GUESSED = re.compile(r"[yYnN]|[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|0o[0-7]+")
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def quoted(node: Any) -> bool:
    """Whether a scalar node stands in quotes, or in a block, and so is a string to every reader."""
    return bool(node.style)


def text_problem(node: Any) -> tuple[str, str] | None:
    """Why a scalar node is no line of text, as a fault's code and message; None when it is one."""
    text = node.value
    if not quoted(node) and (node.tag != STRING_TAG or _GUESSED.fullmatch(text)):
        return "quote-it", "reads as no string in YAML: put it in quotes"
    if not text or _UNPRINTABLE.search(text):
        return "bad-value", "must be one line of visible text"
    return None
