"""Text that must come next, and how a tokenizer spells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from conductor.plan.tokenrows import TokenRows
from conductor.plan.writing import State, only_byte, step

Encode = Callable[[str], Sequence[int]]
"""A tokenizer's way from text to ids, special tokens left out."""


def forced_text(state: State) -> tuple[bytes, State]:
    """What must be written before there is a choice, and the state after it."""
    text = bytearray()
    while (byte := only_byte(state)) is not None:
        following = step(state, byte)
        assert following is not None
        state = following
        text.append(byte)
    return bytes(text), state


def spell(text: bytes, encode: Encode | None, rows: TokenRows) -> list[int]:
    """The ids of a text: the tokenizer's own, unless those spell something else (SentencePiece puts
    a space before); then as few tokens as possible."""
    if not text:
        return []
    if encode is not None:
        own = list(encode(text.decode(errors="replace")))
        if b"".join(map(rows.bytes_of, own)) == text:
            return own
    return fewest(text, rows.ids_by_spelling, rows.longest)


def fewest(text: bytes, ids: Mapping[bytes, int], longest: int) -> list[int]:
    """A spelling in as few tokens as possible; of several, the one that begins with longer ones.
    `ids` must hold every byte of the text."""
    counts = [0] * (len(text) + 1)
    chosen = [b""] * len(text)
    for at in range(len(text) - 1, -1, -1):
        pieces = (text[at:to] for to in range(min(len(text), at + longest), at, -1))
        known = [piece for piece in pieces if piece in ids]
        chosen[at] = min(known, key=lambda piece: counts[at + len(piece)])
        counts[at] = counts[at + len(chosen[at])] + 1
    run, at = [], 0
    while at < len(text):
        run.append(ids[chosen[at]])
        at += len(chosen[at])
    return run
