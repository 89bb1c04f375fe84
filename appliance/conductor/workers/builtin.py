"""Steps that the appliance runs itself, without a model."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

SHORT_CHARS = 80
"""Up to that length an answer is compared as it stands; a longer one by what it concludes with."""

_BOXED = re.compile(r"\\boxed\s*\{([^{}]{1,200})\}")
_MARKS = " \t\r\n.,:;!?*_`'\"“”‘’«»()[]{}$€£"
_NUMBER = r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_WHOLE_NUMBER = re.compile(rf"{_NUMBER}\Z")
_LAST_NUMBER = re.compile(rf"(?<![\w.,]){_NUMBER}(?![\w])")
_MAX_DIGITS = 60


def vote(answers: Sequence[str]) -> int:
    """Index of the answer that most others agree with; of equally many, the earliest.

    Answers agree when their keys are equal: upper and lower case, spacing, quotes and closing
    punctuation aside, and numbers by value (`1,000`, `1000.0`). A long answer's key is its last
    `\\boxed{...}`, else its last number, else all of it. An empty answer has no vote.
    Raises `ValueError` when there are no answers.
    """
    if not answers:
        raise ValueError("a vote needs at least one answer")
    keys = [_key(answer) for answer in answers]
    counts = Counter(key for key in keys if key)
    return max(range(len(keys)), key=lambda index: (counts[keys[index]], -index))


def _key(answer: str) -> str:
    boxed = _BOXED.findall(answer)
    if boxed:
        return _plain(boxed[-1])
    if len(answer.strip()) > SHORT_CHARS:
        numbers = _LAST_NUMBER.findall(answer)
        if numbers:
            return _number(numbers[-1])
    return _plain(answer)


def _plain(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_MARKS)
    return _number(folded) if _WHOLE_NUMBER.match(folded) else folded


def _number(text: str) -> str:
    """One spelling for each value. Past `_MAX_DIGITS` the text is compared as it stands."""
    digits = text.replace(",", "").replace("−", "-")
    if len(digits) > _MAX_DIGITS:
        return digits
    value = Decimal(digits)
    return format(value.normalize(), "f") if value else "0"
