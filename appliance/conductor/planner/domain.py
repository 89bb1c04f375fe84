"""What kind of question it is, by cheap marks on its surface: code, math or general.

Distinct words and marks are counted, not their repetitions, in a bounded window at both ends of the
question, so that a book takes no longer than a page. Left out: anything learned; that is what the
conductors are for.
"""

from __future__ import annotations

import re
from typing import Literal

Domain = Literal["code", "math", "general"]

_WINDOW = 1024
"""Characters looked at from each end. Questions put their point first or last."""
_ENOUGH = 2
"""Marks that make a domain: a single one is too often chance ("class", "solve")."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[a-z+#äöüß]+")
_CODE_WORDS = _words(
    "algorithm api async bash bug c# c++ class code codebase compile compiler css debug def docker "
    "exception function git golang html import java javascript json kotlin kubernetes lambda linux "
    "php programm programmiere pytest python quellcode recursion recursive refactor regex rust "
    "script segfault shell sql stacktrace struct swift traceback typescript unittest"
)
_MATH_WORDS = _words(
    "ableitung algebra average berechne compute cosine cube derivative divided divisible equation "
    "equations factorial fraction geometry gleichung integer integers integral logarithm matrix "
    "minus modulo multiplied percent perimeter polynomial prime probability proof prove prozent "
    "quadratic remainder sine solve squared sum summe theorem times triangle vector "
    "wahrscheinlichkeit wurzel"
)
_CODE_MARKS = (
    re.compile(r"```|~~~"),
    re.compile(r"^\s{0,16}(?:def|class|fn|func|import|from|#include|public|package) \S", re.M),
    re.compile(r"[;{]\s{0,4}$|\w\(\w*\)|=>|->|::|==|!=|&&|\|\|", re.M),
    re.compile(r"SELECT .{1,80}FROM |INSERT INTO |CREATE TABLE "),
    re.compile(r"\.(?:py|js|ts|rs|go|java|cpp|c|h|sh|sql|yaml|json)\b"),
)
_MATH_MARKS = (
    re.compile(r"\d(?:\s?[+*^×÷]\s?|\s[-/]\s)\d"),  # not in dates, ranges and telephone numbers
    re.compile(r"\\(?:frac|sum|int|sqrt|cdot|begin)\b|\$[^$\n]{1,80}\$"),
    re.compile(r"\b[a-z]\s?(?:\^\s?\d|=\s?-?\d)"),
    re.compile(r"how m(?:any|uch)\b|wie ?viele?\b"),
    re.compile(r"\d\s?%"),
    re.compile(r"[∑∫√π≤≥≠∈]"),
)


def domain(question: str) -> Domain:
    """The domain with the most marks, if it has enough of them; code wins a draw."""
    code, math = marks(question)
    if max(code, math) < _ENOUGH:
        return "general"
    return "code" if code >= math else "math"


def marks(question: str) -> tuple[int, int]:
    """How many distinct marks of code and of mathematics the question shows."""
    text = question if len(question) <= 2 * _WINDOW else _ends(question)
    lower = text.lower()
    words = set(_WORD.findall(lower))
    code = len(words & _CODE_WORDS) + _matching(_CODE_MARKS, text)
    return code, len(words & _MATH_WORDS) + _matching(_MATH_MARKS, lower)


def _ends(question: str) -> str:
    return f"{question[:_WINDOW]}\n{question[-_WINDOW:]}"


def _matching(patterns: tuple[re.Pattern[str], ...], text: str) -> int:
    return sum(1 for pattern in patterns if pattern.search(text))
