"""What the surface of a question shows, as a few numbers between 0 and 1 for the pocket conductor.

The sentence encoder tells what a question is about; it hardly sees how long it is, how large its
numbers are, or that it offers four choices. Length is that of the whole text; everything else is
looked up at its two ends, so that a book takes no longer than a page.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from conductor.planner.domain import marks

FEATURES = (
    "length",
    "lines",
    "word_length",
    "digits",
    "capitals",
    "other_scripts",
    "numbers",
    "largest_number",
    "decimals",
    "operators",
    "latex",
    "code",
    "mathematics",
    "brackets",
    "quotes",
    "question_marks",
    "choices",
    "gap",
    "how_many",
    "asks_a_fact",
    "money",
    "percent",
    "loops",
    "branches",
    "methods",
    "mutations",
    "indexing",
    "comparisons",
    "geometry",
    "roots",
    "remainders",
    "chances",
)
"""Names of what `lexical` returns, in its order. A trained bundle depends on both."""

_WINDOW = 2048
"""Characters looked at from each end."""

_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"[0-9][0-9,]{0,30}(?:\.[0-9]+)?")
_DECIMAL = re.compile(r"[0-9]\.[0-9]|[0-9]/[0-9]|\\d?frac")
_OPERATOR = re.compile(r"[-+*/=^<>×÷·≤≥]")
_LATEX = re.compile(r"\\[a-zA-Z]+")
_BRACKET = re.compile(r"[()\[\]{}]")
_QUOTE = re.compile(r"[\"'`“”‘’«»]")
_CHOICE = re.compile(r"(?:^|[\s(])\(?([A-H])[).:]\s")
_GAP = re.compile(r"_{2,}|\.{3}|…|\[blank\]")
_HOW_MANY = re.compile(r"\bhow (?:many|much|long|far|old|often)\b|\bwie ?viele?\b", re.I)
_FACT = re.compile(r"\s*(?:who|whom|whose|what|when|where|which|in which|wer|was|wann|wo)\b", re.I)
_MONEY = re.compile(  # but $5$ is a formula
    r"[€£¥]\s?[0-9]|\$\s?[0-9][0-9,.]{0,20}(?=[\s;:?!)]|$)|\b(?:dollars?|cents?|euros?|usd|eur)\b",
    re.I,
)
_PERCENT = re.compile(r"%|\bper ?cent|\bprozent", re.I)
_LOOP = re.compile(r"\b(?:for|while|foreach|map|filter)\b[^.\n]{0,80}(?::|\{|\bin\b)")
_BRANCH = re.compile(r"\b(?:if|elif|else|switch|case|try|except|catch)\b[^\n]{0,120}(?::|\{)")
_METHOD = re.compile(r"\.[a-z_]{2,30}\(")
_MUTATION = re.compile(
    r"\.(?:append|extend|insert|pop|remove|update|sort|reverse|clear|push|add|setdefault)\(|[-+*/]=|\bdel\b"
)
_INDEX = re.compile(r"\w\[[^\]\n]{1,40}\]")
_COMPARISON = re.compile(r"[<>!=]=|\b(?:and|or|not|at least|at most|more than|less than)\b")
_GEOMETRY = re.compile(
    r"\b(?:triangle|circle|angle|square|rectangle|radius|area|volume|perimeter|polygon|line|plane)s?\b"
    r"|\\angle|\\triangle",
    re.I,
)
_ROOT = re.compile(
    r"\\sqrt|\b(?:root|polynomial|quadratic|cubic|logarithm|log|exponent)s?\b|\^", re.I
)
_REMAINDER = re.compile(
    r"\b(?:mod|modulo|divisible|divisors?|remainders?|prime|gcd|lcm)\b|%|//|\\pmod", re.I
)
_CHANCE = re.compile(
    r"\b(?:probability|chance|random|dice|coins?|choose|ways|permutations?)\b", re.I
)
_COUNTED = (
    _LOOP, _BRANCH, _METHOD, _MUTATION, _INDEX, _COMPARISON, _GEOMETRY, _ROOT, _REMAINDER, _CHANCE
)  # fmt: skip
"""What makes code hard to follow and mathematics hard to solve: how often, up to a dozen times."""


def lexical(text: str) -> NDArray[np.float32]:
    """The features of any text, [len(FEATURES)], each from 0 to 1, in the order of `FEATURES`."""
    seen = text if len(text) <= 2 * _WINDOW else f"{text[:_WINDOW]}\n{text[-_WINDOW:]}"
    words = _WORD.findall(seen)
    code, mathematics = marks(seen)
    values = (
        _grown(len(text), 100_000),
        _grown(text.count("\n"), 1_000),
        _part(sum(map(len, words)), 10 * len(words)),
        _part(sum(map(str.isdigit, seen)), len(seen)),
        _part(sum(map(str.isupper, seen)), len(seen)),
        _part(sum(character > "\u024f" for character in seen), len(seen)),
        _grown(len(_NUMBER.findall(seen)), 100),
        _grown(_largest(seen), 1e12),
        _grown(len(_DECIMAL.findall(seen)), 30),
        _grown(len(_OPERATOR.findall(seen)), 100),
        _grown(len(_LATEX.findall(seen)), 30),
        _grown(code, 10),
        _grown(mathematics, 10),
        _grown(len(_BRACKET.findall(seen)), 100),
        _grown(len(_QUOTE.findall(seen)), 100),
        _grown(seen.count("?"), 10),
        _part(len(set(_CHOICE.findall(seen))), 4),
        _any(_GAP, seen),
        _any(_HOW_MANY, seen),
        float(_FACT.match(seen) is not None),
        _any(_MONEY, seen),
        _any(_PERCENT, seen),
        *(_grown(len(pattern.findall(seen)), 12) for pattern in _COUNTED),
    )
    return np.array(values, dtype=np.float32)


def _grown(count: float, most: float) -> float:
    """A count on a logarithmic scale, 1 at `most`."""
    return min(1.0, math.log1p(count) / math.log1p(most))


def _part(count: float, whole: float) -> float:
    return min(1.0, count / whole) if whole else 0.0


def _largest(text: str) -> float:
    return max((float(found.replace(",", "")) for found in _NUMBER.findall(text)), default=0.0)


def _any(pattern: re.Pattern[str], text: str) -> float:
    return float(pattern.search(text) is not None)
