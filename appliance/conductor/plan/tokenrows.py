"""Sets of token ids, for the parts of a plan that no pool decides on.

A set is an integer with a bit for each id: unions and differences of 150,000 ids then take a
microsecond or two. Each set is worked out when it is first asked for, and kept with the tables, so
that all requests share it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from conductor.plan.byteshape import DEAD, HEAD, LINE, NEED
from conductor.plan.fixedtexts import DASH_DONE, DONE, NEWLINE, STRAYED
from conductor.plan.tokentables import Tables

_ENDS_LINE = -1
"""In place of what a text still needs: the token's last byte is the newline, which is no text."""


@dataclass(frozen=True, slots=True)
class TextKey:
    """All that decides which tokens may come next in a text."""

    place: int
    left: int
    """Bytes that the text may still get; cut where there is room for every token."""
    node: int
    """Where in the fixed texts it stands; `STRAYED` where that makes no difference."""
    bare: bool
    worded: bool
    to_builtin: bool


@dataclass(slots=True)
class SpellingTree:
    """Tokens by their bytes."""

    tokens: list[int] = field(default_factory=list)
    children: dict[int, SpellingTree] = field(default_factory=dict)

    def add(self, text: bytes, token: int) -> None:
        node = self
        for byte in text:
            node = node.children.setdefault(byte, SpellingTree())
        node.tokens.append(token)


class TokenRows:
    """The sets of one tokenizer."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        walked = {token: tables.bytes_of(token) for token in tables.walked}
        self.spellings = SpellingTree()
        """Of the tokens that may stand in a head."""
        for token, text in walked.items():
            self.spellings.add(text, token)
        self.across = tuple(token for token, text in walked.items() if NEWLINE in text[:-1])
        """Tokens that end one line and begin another: byte by byte wherever they are met."""
        self._excluded = {tables.class_of[token] for token in self.across}
        self._costs: dict[int, dict[int, int]] = {}
        self._at_most: dict[int, int] = {}
        self.longest = tables.longest
        self.bytes_of = tables.bytes_of
        self.text = lru_cache(maxsize=512)(self._text)
        self.text_mask = lru_cache(maxsize=512)(lambda key: self.mask(self.text(key)))

    @cached_property
    def ids_by_spelling(self) -> dict[bytes, int]:
        """The lowest id of every spelling."""
        tokens = range(self._tables.tokens - 1, -1, -1)
        return {self.bytes_of(token): token for token in tokens if self._tables.length[token]}

    def key(
        self, place: int, left: int, node: int, bare: bool, worded: bool, to_builtin: bool
    ) -> TextKey:
        """What to ask for, alike wherever the answer is."""
        left = min(left, self.longest + max(NEED)) if worded else 0
        return TextKey(place, left, STRAYED if bare and worded else node, bare, worded, to_builtin)

    def mask(self, tokens: int) -> bytes:
        """A set as a bit mask of whole 32-bit words."""
        return tokens.to_bytes((self._tables.tokens + 31) // 32 * 4, "little")

    def _text(self, key: TextKey) -> int:
        if not key.worded:
            edges = self.fixed(key.node) if key.bare else ()
            return bits(t for t, node in edges if node <= DASH_DONE or not key.to_builtin)
        found = self._any_text(key.place, key.left)
        return found if key.bare else found & ~self._fixed_endings(key.node)

    def _any_text(self, place: int, left: int) -> int:
        """Tokens that may come next in the planner's own words, the line's end included."""
        costs = self._by_cost(place).items()
        return _union(tokens & self.at_most(left - need) for need, tokens in costs)

    def at_most(self, length: int) -> int:
        """Tokens of at most so many bytes; those without any are among them."""
        length = max(0, min(length, self._tables.longest))
        if length not in self._at_most:
            flags = (b"01"[size <= length] for size in reversed(self._tables.length))
            self._at_most[length] = int(bytes(flags), 2)
        return self._at_most[length]

    def fixed(self, node: int) -> Iterator[tuple[int, int]]:
        """The tokens that go on with a fixed text, by rising id, each with the node after it."""
        if node != STRAYED:
            start, end = self._tables.fixed_start[node : node + 2]
            yield from zip(
                self._tables.fixed_token[start:end], self._tables.fixed_next[start:end], strict=True
            )

    def follow(self, node: int, token: int) -> int:
        """The node after a token, or `STRAYED`."""
        if node == STRAYED:
            return STRAYED
        start, end = self._tables.fixed_start[node : node + 2]
        at = bisect_left(self._tables.fixed_token, token, start, end)
        found = at < end and self._tables.fixed_token[at] == token
        return self._tables.fixed_next[at] if found else STRAYED

    def _fixed_endings(self, node: int) -> int:
        """Tokens with which a line ends as one of the fixed texts."""
        return bits(token for token, after in self.fixed(node) if after in (DASH_DONE, DONE))

    def _by_cost(self, place: int) -> dict[int, int]:
        """The tokens of a place by what the text must still get after them."""
        if place not in self._costs:
            self._costs[place] = dict(self._rows(place))
        return self._costs[place]

    def _rows(self, place: int) -> Iterator[tuple[int, int]]:
        classes = self._tables.classes
        row = self._tables.next[place * classes : (place + 1) * classes]
        costs = [None if c in self._excluded else _cost(after) for c, after in enumerate(row)]
        backwards = self._tables.class_of[::-1]
        for cost in {cost for cost in costs if cost is not None}:
            flags = [b"01"[one == cost] for one in costs]
            yield cost, int(bytes(map(flags.__getitem__, backwards)), 2)


def _cost(after: int) -> int | None:
    if after == LINE:
        return _ENDS_LINE
    return None if after == DEAD or after < HEAD else NEED[after]


def _union(sets: Iterable[int]) -> int:
    union = 0
    for one in sets:
        union |= one
    return union


def bits(tokens: Iterable[int]) -> int:
    """The set of these ids."""
    found = bytearray()
    for token in tokens:
        if token >= 8 * len(found):
            found.extend(bytes(token // 8 + 1 - len(found)))
        found[token // 8] |= 1 << token % 8
    return int.from_bytes(found, "little")


def ids(tokens: int) -> Iterator[int]:
    """The ids in a set, rising."""
    while tokens:
        lowest = tokens & -tokens
        yield lowest.bit_length() - 1
        tokens ^= lowest


@lru_cache(maxsize=4)
def rows_of(tables: Tables) -> TokenRows:
    """The sets of these tables, shared by all who ask."""
    return TokenRows(tables)
