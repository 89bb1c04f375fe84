"""Plan language x tokenizer: token classes and a transition table, as flat arrays.

Every token is run through `byteshape` from every place at once; tokens that lead everywhere to the
same places are one class. Running a token means composing its bytes' moves, and few different
compositions exist, so that a vocabulary of 150,000 takes well under a second without numpy.

A token of which some byte may stand in a line's head has a class of its own (with its spellings'
doubles), because where it leads depends on the pool too: these are the `walked` ones.

Left out: pools, and what depends on them (`automaton.py`); the tables as a file (`tablefile.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from conductor.errors import PlanError
from conductor.plan.byteshape import COMPLETE, DEAD, HEAD, NEXT, PLACES
from conductor.plan.fixedtexts import FIXED, NEWLINE, STRAYED, TREE, follow

_Column = tuple[int, ...]
"""Where a token leads from each place."""


@dataclass(frozen=True, eq=False)
class Tables:
    """What decoding needs of a tokenizer. V tokens, C classes, P places, F nodes of fixed texts.

    All arrays are little-endian on disk; int32 unless said otherwise.
    """

    class_of: array[int]
    """[V] the class of each token."""
    next: array[int]
    """[P x C] int16: the place after a token of that class, -1 where it cannot come."""
    length: array[int]
    """[V] bytes of each token; 0 for one that is never allowed inside a plan."""
    fixed_start: array[int]
    """[F + 1] the tokens that go on with a fixed text at node f are those from `fixed_start[f]`
    to before `fixed_start[f + 1]` of the two arrays below, by rising token id."""
    fixed_token: array[int]
    fixed_next: array[int]
    """The node after that token."""
    walked: array[int]
    """Ids of the tokens that a pool decides on, byte by byte."""
    spelling: bytes
    """All tokens' bytes in a row, by `length`."""
    eos: array[int]
    """Ids that end a plan; the first is the one to write."""

    @property
    def tokens(self) -> int:
        """V."""
        return len(self.class_of)

    @property
    def classes(self) -> int:
        """C. Class 0 leads nowhere."""
        return len(self.next) // len(PLACES)

    @cached_property
    def start_of(self) -> array[int]:
        """[V + 1] where each token's bytes begin in `spelling`."""
        starts, at = array("i", [0]), 0
        for length in self.length:
            at += length
            starts.append(at)
        return starts

    def bytes_of(self, token: int) -> bytes:
        """What the token stands for."""
        return self.spelling[self.start_of[token] : self.start_of[token + 1]]

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(self.length, default=0)


def compile(tokenizer_bytes: Sequence[bytes | None], eos_ids: Sequence[int]) -> Tables:
    """The tables of a tokenizer, given as the bytes of each token id (`tokens.of_tokenizer`).

    Raises `PlanError` when no plan could be written or ended with it.
    """
    if not eos_ids or any(not 0 <= i < len(tokenizer_bytes) for i in eos_ids):
        raise PlanError("name at least one end token, each by an id of the vocabulary")
    ends = frozenset(eos_ids)
    spelled = [b"" if i in ends else text or b"" for i, text in enumerate(tokenizer_bytes)]
    _check_complete(frozenset(spelled))
    columns = _columns(spelled)
    walked = array("i", (i for i, text in enumerate(spelled) if _is_walked(text, columns[i])))
    class_of, table = _classes(spelled, columns, frozenset(walked))
    fixed = _fixed_edges(spelled)
    return Tables(
        class_of=class_of,
        next=table,
        length=array("i", map(len, spelled)),
        fixed_start=fixed[0],
        fixed_token=fixed[1],
        fixed_next=fixed[2],
        walked=walked,
        spelling=b"".join(spelled),
        eos=array("i", eos_ids),
    )


def _check_complete(spellings: frozenset[bytes]) -> None:
    """So that no walk gets stuck, whatever begins a head, a fixed text or a character of several
    bytes must be finished byte by byte, if need be."""
    heads = {b for row in NEXT[:HEAD] for b, following in enumerate(row) if following != DEAD}
    needed = heads | set(range(0x80, 0xC0)) | {byte for text in FIXED for byte in text.encode()}
    missing = sum(bytes([byte]) not in spellings for byte in needed)
    if missing:
        raise PlanError(
            f"the tokenizer has no token for {missing} of the bytes that every plan may need: "
            "take one that falls back to bytes"
        )


def _columns(spelled: Sequence[bytes]) -> list[_Column]:
    """Each token's column. Equal columns are one object."""
    columns: list[_Column] = [(DEAD,) * len(PLACES), tuple(range(len(PLACES)))]
    numbers = {column: number for number, column in enumerate(columns)}
    moves: list[dict[int, int]] = [{}, {}]

    def composed(number: int, byte: int) -> int:
        after = tuple(DEAD if at == DEAD else NEXT[at][byte] for at in columns[number])
        if after not in numbers:
            numbers[after] = len(columns)
            columns.append(after)
            moves.append({})
        moves[number][byte] = numbers[after]
        return numbers[after]

    found = []
    for text in spelled:
        number = 1 if text else 0
        for byte in text:
            following = moves[number].get(byte)
            number = composed(number, byte) if following is None else following
        found.append(columns[number])
    return found


def _is_walked(text: bytes, column: _Column) -> bool:
    """Whether a byte of the token may stand in a line's head. The space that ends a head does not
    count, nor the newline that ends a line: what they do, text and pool settle by themselves."""
    inner_newline = NEWLINE in text[:-1]
    return _enters_head(column, range(len(PLACES)) if inner_newline else range(HEAD), text[:1])


@lru_cache(maxsize=1 << 14)
def _enters_head(column: _Column, places: range, first: bytes) -> bool:
    ends_head = first == b" " and len(places) == HEAD
    return any(column[at] != DEAD and not (ends_head and at in COMPLETE) for at in places)


def _classes(
    spelled: Sequence[bytes], columns: Sequence[_Column], walked: frozenset[int]
) -> tuple[array[int], array[int]]:
    """The class of each token, and the table of all classes' columns, place by place."""
    numbers: dict[tuple[_Column, bytes], int] = {((DEAD,) * len(PLACES), b""): 0}
    class_of = array("i")
    for token, column in enumerate(columns):
        key = (column, spelled[token] if token in walked else b"")
        class_of.append(numbers.setdefault(key, len(numbers)))
    table = array("h")
    for place in range(len(PLACES)):
        table.extend(column[place] for column, _ in numbers)
    return class_of, table


def _fixed_edges(spelled: Sequence[bytes]) -> tuple[array[int], array[int], array[int]]:
    """Which tokens go on with a fixed text from where, as rows one after the other."""
    ids: dict[bytes, list[int]] = {}
    for token, text in enumerate(spelled):
        ids.setdefault(text, []).append(token)
    edges = sorted({*_edges(ids, max(map(len, ids)))})
    start, per_node = array("i", [0]), [0] * len(TREE)
    for node, _, _ in edges:
        per_node[node] += 1
    for count in per_node:
        start.append(start[-1] + count)
    return start, array("i", (t for _, t, _ in edges)), array("i", (n for _, _, n in edges))


def _edges(ids: dict[bytes, list[int]], longest: int) -> Iterator[tuple[int, int, int]]:
    for text in map(str.encode, FIXED):
        path = [0]
        for byte in text:
            path.append(follow(path[-1], byte))
        assert STRAYED not in path
        for at in range(len(text)):
            for to in range(at + 1, min(len(text), at + longest) + 1):
                for token in ids.get(text[at:to], ()):
                    yield path[at], token, path[to]
