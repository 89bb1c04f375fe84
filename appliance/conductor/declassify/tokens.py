"""What a token looks like: `⟦PERSON:kdfmwx⟧`. Pure syntax, without values or keys.

The id is in consonants. Digits and a few letters more would make it shorter, but then what stands
after `password=` would look like a password to the scan that follows, and vowels make words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OPEN, CLOSE = "⟦", "⟧"
ALPHABET = "bcdfghjkmnpqrstvwxz"
ID_LETTERS = 6
"""19^6 = 47 million: another workflow's token, or a guess, is none of ours."""

MAX_BODY = 30
"""Characters between the brackets of anything that may be a token. With both, 32."""

CANDIDATE = re.compile(rf"{OPEN}([^{OPEN}{CLOSE}]{{1,{MAX_BODY}}}){CLOSE}")
"""Whatever may be a token, whole or mangled; group 1 is its body."""

# A letter more or fewer than a token's body has, on either side of some single separator.
_LIKE = re.compile(r"[A-Z0-9_]{1,21}[^A-Z0-9_][A-Z0-9]{5,7}")
_UNSEEN = re.compile(r"[\s\u00ad\u200b-\u200f\u2060\ufeff]+")


def token(body: str) -> str:
    """The token of a body such as `PERSON:KDFMWX`."""
    kind, _, name = body.partition(":")
    return f"{OPEN}{kind}:{name.lower()}{CLOSE}"


def normal(body: str) -> str:
    """A body as minted, in capitals: what models do to case and spaces is undone."""
    return _UNSEEN.sub("", body).upper()


def is_like(body: str) -> bool:
    """Whether some workflow could take this for a token of its own, mangled or not."""
    return _LIKE.fullmatch(normal(body)) is not None


class Nearby:
    """Bodies by what is left of them with a character taken out.

    Two words that differ by one character, put in, taken out or changed, have such a remainder in
    common, or one is a remainder of the other (the idea of SymSpell). Costs no more for a thousand
    bodies than for one.
    """

    def __init__(self) -> None:
        self._by_rest: dict[str, list[str]] = {}

    def add(self, body: str) -> None:
        """Make a body known."""
        for rest in (body, *set(_rests(body))):
            self._by_rest.setdefault(rest, []).append(body)

    def only(self, body: str) -> str | None:
        """The one known body that is at most one character away; None for none or several."""
        found = self.all(body)
        return found.pop() if len(found) == 1 else None

    def all(self, body: str) -> set[str]:
        """The known bodies at most one character away."""
        near = {known for rest in (body, *_rests(body)) for known in self._by_rest.get(rest, ())}
        return {known for known in near if within_one(body, known)}

    def clear(self) -> None:
        """Forget all bodies."""
        self._by_rest.clear()


def _rests(body: str) -> Iterator[str]:
    return (body[:place] + body[place + 1 :] for place in range(len(body)))


def within_one(one: str, other: str) -> bool:
    """Whether at most one character put in, taken out or changed makes one the other
    (Levenshtein 1966)."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, others = one[start:], other[start:]
    return rest[1:] == others[1:] or rest == others[1:] or rest[1:] == others
