"""Answers that may say one of a few things only, and how much they may say together.

A local worker that saw everything is asked a question with a closed set of answers. Whatever it
writes that is none of them, word for word, is refused: an explanation could carry anything.
"""

from __future__ import annotations

import math
import re

from conductor.policy.declassifiers import Answers

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LONGEST = 256
_EPSILON = 1e-9
"""What sums of logarithms may be off by."""


def read(domain: Answers, answer: str) -> str | None:
    """The one answer that is meant, as the domain spells it; None for anything else.

    Space around it and the case of words are forgiven, nothing more.
    """
    if len(answer) > _LONGEST:
        return None
    said = answer.strip()
    if domain.words:
        meant = {word.casefold(): word for word in domain.words}
        return meant.get(said.casefold())
    if _INTEGER.fullmatch(said) is None or not domain.low <= int(said) <= domain.high:
        return None
    return said


def bits(domain: Answers) -> float:
    """What asking may reveal at most: that the answer was refused is one more outcome."""
    return math.log2(domain.size + 1)


class LeakBudget:
    """Bits that one workflow may reveal to workers not cleared for its data."""

    def __init__(self, bits: float) -> None:
        self.limit_bits = bits
        self.spent_bits = 0.0

    def spend(self, bits: float) -> bool:
        """Take `bits` off, before they are revealed. False, and nothing is taken: too many.

        What is no amount (negative, infinite, not a number) is too many.
        """
        if not 0 <= bits < math.inf or self.spent_bits + bits > self.limit_bits + _EPSILON:
            return False
        self.spent_bits += bits
        return True
