"""Keys and values of prompts' fixed parts: computed once, used by every sequence that begins so.

Only whole blocks are shared; what a prefix has beyond them is computed with the rest of each
prompt. The prompts of a bundle have one prefix, in whole blocks; a second is there while bundles
change. For one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from conductor.plan.prompt import BLOCK_TOKENS
from conductor_kernels.runner.cache import Table
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.step import Share


@dataclass
class Prefix:
    """One prefix in the cache."""

    tokens: tuple[int, ...]
    """Whole blocks of them."""
    table: Table
    users: int = 0
    """Sequences whose tables hold its blocks. Only without any can it go."""


def shared_part(prefix: Sequence[int]) -> tuple[int, ...]:
    """What of a prefix fills whole blocks."""
    return tuple(prefix[: len(prefix) // BLOCK_TOKENS * BLOCK_TOKENS])


class Prefixes:
    """All that are kept; the one that was used longest ago goes first when room is needed."""

    def __init__(self, decoder: Decoder, chunk: int) -> None:
        """`chunk` is the most tokens that go through the model at once."""
        self._decoder, self._chunk = decoder, chunk
        self._kept: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def missing(self, tokens: tuple[int, ...]) -> int:
        """Blocks that it takes to have this one."""
        return 0 if tokens in self._kept else len(tokens) // BLOCK_TOKENS

    def make_room(self, blocks: int, spare: tuple[int, ...]) -> bool:
        """Drop what nobody uses until so many blocks are free; `spare` stays. Whether they are."""
        cache = self._decoder.cache
        for prefix in list(self._kept.values()):
            if cache.free >= blocks:
                break
            if not prefix.users and prefix.tokens != spare:
                cache.give_back(self._kept.pop(prefix.tokens).table.blocks)
        return cache.free >= blocks

    def use(self, tokens: tuple[int, ...]) -> Prefix:
        """This prefix, computed if need be, with one user more. `make_room` was asked before."""
        prefix = self._kept.pop(tokens, None) or self._computed(tokens)
        self._kept[tokens] = prefix
        prefix.users += 1
        return prefix

    def _computed(self, tokens: tuple[int, ...]) -> Prefix:
        cache = self._decoder.cache
        table = Table(cache.take(len(tokens) // BLOCK_TOKENS))
        try:
            for at in range(0, len(tokens), self._chunk):
                self._decoder.forward([Share(tokens[at : at + self._chunk], at, table)])
        except BaseException:
            cache.give_back(table.blocks)
            raise
        return Prefix(tokens, table)
