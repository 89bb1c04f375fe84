"""Normal forms: two answers agree when their normal forms are equal, and none is empty.

The forms of mathematics, numbers and Python literals are those of the recorded outcomes that the
shipped conductor was trained on; a table derived again from the same public records is the same.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings

from conductor.plan.agreement import key

MAX_FORM_CHARS = 200
"""Longer forms are cut: what is longer is prose, and no two models write the same."""

MAX_LITERAL_CHARS = 4096
"""Longer text is not parsed as a literal: the parser's time and depth grow with it."""

_NOISE = re.compile(r"\s|[$%°]|\\left(?![a-z])|\\right(?![a-z])|\^\{?\\circ\}?|\\[!,;]")
_WRAPPED = re.compile(r"\\(?:text|mathrm|mbox|boxed)\{([^{}]*)\}")
_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\{[^{}]*\}\Z")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(-?\d+)\}\{(\d+)\}\Z|(-?)(-?[\d.]+)/([\d.]+)\Z")
_WITH_UNIT = re.compile(r"(-?\d+(?:\.\d+)?)[a-z]+\Z")
_NUMBER = re.compile(r"(?<![\d.])-?(?:\d+(?:\.\d+)?|\.\d+)")


def mathematics(value: object) -> str:
    """Numbers to six digits, fractions evaluated; anything else in lower case without spaces."""
    text = _bare(value)
    found = _evaluated(text)
    return (text if found is None else f"{found:g}")[:MAX_FORM_CHARS]


def number(value: object) -> str:
    """The number that an answer comes to, to six digits; empty where it comes to none."""
    found = amount(value)
    return "" if found is None else f"{found:g}"


def amount(value: object) -> float | None:
    """The number that an answer comes to: as in `mathematics`, else the last one in the text."""
    text = _bare(value)
    whole = _evaluated(text)
    if whole is not None:
        return whole
    found = _NUMBER.findall(text[:MAX_FORM_CHARS])
    return _float(found[-1]) if found else None


def literal(value: object) -> str:
    """A Python literal as Python prints it; text that is none, as the string it is."""
    if not isinstance(value, str):
        return _printed(value)[:MAX_FORM_CHARS]
    if len(value) > MAX_LITERAL_CHARS:
        return repr(value)[:MAX_FORM_CHARS]
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
        try:
            return _printed(ast.literal_eval(value))[:MAX_FORM_CHARS]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return repr(value)[:MAX_FORM_CHARS]  # not a literal: the string itself


def _printed(value: object) -> str:
    """`repr`, but a set's elements in order: `repr` prints them differently from run to run."""
    if isinstance(value, set) and value:
        return "{" + ", ".join(sorted(map(_printed, value))) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_printed, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_printed, value)) + (",)" if len(value) == 1 else ")")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_printed(k)}: {_printed(v)}" for k, v in value.items()) + "}"
    return repr(value)


def same_literal(form: str, gold: str) -> bool:
    """Whether two literals are equal, quotes around them aside: `123` passes for `'123'`."""
    return bool(form) and (form == gold or form.strip("'\"") == gold.strip("'\""))


def conclusion(answer: str) -> str:
    """What an answer concludes with, as the daemon compares answers; prose agrees word for word.

    Of prose only a hash is kept: a table holds no more of anybody's answers than it needs.
    """
    words = " ".join(answer.split()).casefold()
    if not words:
        return ""
    digest = hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()
    return key(answer)[:MAX_FORM_CHARS] or f"~{digest[:16]}"


def _bare(value: object) -> str:
    """Without what says nothing of the number: spaces, signs of money, units, commas."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _NOISE.sub("", text).lower()
    text = _WRAPPED.sub(r"\1", _UNIT.sub("", text)).rstrip(".")
    text = re.sub(r"\A[a-z]=", "", text)
    text = _THOUSANDS.sub("", text)
    unit = _WITH_UNIT.match(text)
    return unit[1] if unit else text


def _evaluated(text: str) -> float | None:
    found = _fraction(text)
    return _float(text) if found is None else found


def _float(text: str) -> float | None:
    """It takes what `float` takes: infinity, and 1_000 too."""
    try:
        return float(text)
    except ValueError:
        return None


def _fraction(text: str) -> float | None:
    match = _FRACTION.match(text)
    if not match:
        return None
    sign, above, below = (match[1], match[2], match[3]) if match[3] else match.groups()[3:]
    try:
        value = float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        return None
    return -value if sign else value
