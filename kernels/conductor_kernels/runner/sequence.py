"""One plan being written: where its automaton stands, and what the model has yet to read.

A sequence always has tokens `pending`: first its prompt, then what was chosen or forced last. Once
the model has read all of them, the next token is chosen. Forced tokens are read in one go with the
chosen one before them, so that text without a choice costs no step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from conductor.planner.lm_runner import Token, Wanted
from conductor_kernels.runner.cache import Table, blocks_for
from conductor_kernels.runner.drawing import Ask
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
        self._drawn = 0
        self.begun: list[int] = []
        """What `begin` gave."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """All that it may write to, in order, after those of its prefix."""
        return self._table.blocks

    @property
    def last(self) -> tuple[int, int]:
        """The only token that the model has yet to read, and where it stands."""
        (token,) = self._pending
        return token, self._length

    @property
    def nearly_read(self) -> bool:
        """Whether there is only one such token."""
        return len(self._pending) == 1

    def begin(self) -> list[Token]:
        """What is forced before any choice. Call once, first."""
        tokens = list(self._forced())
        self.begun = [token.id for token in tokens]
        return tokens

    def share(self, most: int, *, spare: int = 0) -> Share:
        """What it brings to the next step: at most so many tokens, and not the last `spare`."""
        count = min(most, len(self._pending) - spare)
        return Share(self._pending[:count], self._length, self._table)

    def read(self, share: Share) -> bool:
        """The model has read them. Whether that was all, so that a token is to be chosen."""
        self._length += len(share.tokens)
        del self._pending[: len(share.tokens)]
        return not self._pending

    def ask(self) -> Ask:
        """How its next token is to be chosen."""
        wanted = self.wanted
        allowed = wanted.automaton.allowed(self._state)
        return Ask(allowed, wanted.temperature, wanted.seed, self._drawn)

    def take(self, chosen: int, log_prob: float) -> list[Token]:
        """The chosen token and all that is forced after it. Raises `PlanError` when it is not
        allowed."""
        self._drawn += 1
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
