"""A tokenizer's vocabulary of any size, made up, since nothing can be downloaded on such a box.

All single bytes, then words as a byte-level BPE has them: with a space before, a capital, or
punctuation behind. What counts for speed is how many tokens there are, how long they are and
how many of them may stand in a text; about as many as of Qwen2.5's are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

_SYLLABLES = [f"{first}{then}" for first, then in product("tnsrhldcmfwp", "aeiou")]
_FORMS = ("{}", " {}", "{}.", " {},", " {}.", " {}:", "{}-")
"""None ends a line: a model of random weights would end its plan at once."""


def spellings(tokens: int) -> tuple[list[bytes | None], int]:
    """So many tokens' bytes, all different, and the id of the end token, which is the last."""
    made: list[bytes | None] = [bytes([byte]) for byte in range(256)]
    words = _words()
    made += [next(words) for _ in range(tokens - 1 - len(made))]
    return [*made, None], tokens - 1


def _words() -> Iterator[bytes]:
    """Words of one, two and more syllables, each in every form and capital."""
    for length in count(1):
        for parts in product(_SYLLABLES, repeat=length):
            word = "".join(parts)
            for form in _FORMS:
                yield form.format(word).encode()
            yield word.capitalize().encode()
