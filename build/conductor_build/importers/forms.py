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
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _NOISE.sub("", text).lower()
    text = _WRAPPED.sub(r"\1", _UNIT.sub("", text)).rstrip(".")
    text = re.sub(r"\A[a-z]=", "", text)
    text = _THOUSANDS.sub("", text)
    if unit := _WITH_UNIT.match(text):
        text = unit[1]
    return (_fraction(text) or _decimal(text) or text)[:MAX_FORM_CHARS]


def number(value: object) -> str:
    """The number that an answer comes to: as in `mathematics`, else the last one in the text."""
    form = mathematics(value)
    if _decimal(form):
        return form
    found = _NUMBER.findall(form)
    return _decimal(found[-1]) if found else ""


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


def _decimal(text: str) -> str:
    """`text` to six digits, or empty. It takes what `float` takes: infinity, and 1_000 too."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return ""


def _fraction(text: str) -> str:
    match = _FRACTION.match(text)
    if not match:
        return ""
    sign, above, below = (match[1], match[2], match[3]) if match[3] else match.groups()[3:]
    try:
        value = float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        return ""
    return f"{-value if sign else value:g}"
