"""One plan being written: where its automaton stands, and what the model has yet to read.

A sequence always has tokens `pending`: first its prompt, then what was chosen or forced last. Once
the model has read all of them, the next token is chosen. Forced tokens are read in one go with the
chosen one before them, so that text without a choice costs no step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from conductor.planner.lm_runner import Token, Wanted
from conductor_kernels.runner.cache import Table, blocks_for
from conductor_kernels.runner.prefixes import Prefix, shared_part
from conductor_kernels.runner.step import Share


def tokens_needed(wanted: Wanted) -> int:
    """Most tokens that the cache will hold of it."""
    return len(wanted.prefix) + len(wanted.rest) + wanted.max_tokens


def own_blocks(wanted: Wanted) -> int:
    """Blocks that it needs beside those of its prefix: for the longest plan that it may write, so
    that no sequence that has begun ever waits for room."""
    return blocks_for(tokens_needed(wanted)) - blocks_for(len(shared_part(wanted.prefix)))


@dataclass(eq=False)
class Sequence:
    """Mutable, and of the thread that runs the model."""

    wanted: Wanted
    prefix: Prefix
    own: tuple[int, ...]
    """Blocks of its own."""
    ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        wanted, shared = self.wanted, len(self.prefix.tokens)
        self._table = Table((*self.prefix.table.blocks, *self.own))
        self._length = shared
        self._pending = [*wanted.prefix[shared:], *wanted.rest]
        self._state = wanted.automaton.start()
        self._written = 0
        self._random: torch.Generator | None = None
        if wanted.seed is not None:
            self._random = torch.Generator().manual_seed(wanted.seed)

    def begin(self) -> list[Token]:
        """What is forced before any choice. Call once, first."""
        return list(self._forced())

    def share(self, most: int) -> Share:
        """What it brings to the next step: at most so many tokens."""
        return Share(self._pending[:most], self._length, self._table)

    def read(self, share: Share) -> bool:
        """The model has read them. Whether that was all, so that a token is to be chosen."""
        self._length += len(share.tokens)
        del self._pending[: len(share.tokens)]
        return not self._pending

    def mask(self, vocabulary: int) -> Tensor:
        """What may be chosen: [V] bool."""
        packed = torch.frombuffer(
            bytearray(self.wanted.automaton.allowed(self._state)), dtype=torch.uint8
        )
        bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten().bool()
        mask = torch.zeros(vocabulary, dtype=torch.bool)
        count = min(vocabulary, len(bits))
        mask[:count] = bits[:count]
        return mask

    def numbers(self, vocabulary: int) -> Tensor | None:
        """To draw with, see `ops.choose`: hang on the seed and how many were drawn, on no other
        sequence. None: the likeliest."""
        if self._random is None:
            return None
        return torch.empty(vocabulary).exponential_(generator=self._random)

    def take(self, chosen: int, log_prob: float) -> list[Token]:
        """The chosen token and all that is forced after it. Raises `PlanError` when it is not
        allowed."""
        return [self._add(chosen, log_prob, forced=False), *self._forced()]

    def _forced(self) -> Iterator[Token]:
        if not self.ended:
            for token in self.wanted.automaton.forced(self._state):
                if self.ended:
                    return
                yield self._add(token, 0.0, forced=True)

    def _add(self, token: int, log_prob: float, *, forced: bool) -> Token:
        self._state = self.wanted.automaton.advance(self._state, token)
        self._pending.append(token)
        self._written += 1
        over = not any(self.wanted.automaton.allowed(self._state))
        self.ended = over or self._written >= self.wanted.max_tokens
        return Token(token, log_prob, forced)
