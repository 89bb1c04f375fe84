"""How mixed a value is: what was drawn at random differs from what was written."""

from __future__ import annotations

import math
from collections import Counter


def entropy(value: bytes) -> float:
    """Shannon entropy of the bytes, in bits a byte (Shannon 1948)."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())
