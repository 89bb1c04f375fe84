"""A plan in the making under the mask, token by token: for whoever samples elsewhere.

The same course as in `writing.py`: what must come next comes, without a choice; a plan that has
used up its tokens is ended in the shortest way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conductor.core import PlanRequest
from conductor.plan.automaton import Automaton, Tables
from conductor.plan.closing import closing
from conductor.plan.forcing import spell
from conductor.plan.tokenrows import rows_of
from conductor.plan.validate import PlanPool

SLACK = 64
"""Tokens that ending a plan may take beyond its last one."""


@dataclass(frozen=True)
class Spelling:
    """What a walk needs of a tokenizer."""

    tables: Tables
    encode: Callable[[str], Sequence[int]]
    """The ids of a text, none added."""


class Walk:
    """One plan, from its first token to its end token."""

    def __init__(self, spelling: Spelling, request: PlanRequest, most: int) -> None:
        """`most` tokens are written before the plan is ended."""
        self._spelling, self._most = spelling, most
        pool = PlanPool.of(request)
        self._automaton = Automaton(spelling.tables, pool, lambda text: list(spelling.encode(text)))
        self._state = self._automaton.start()
        self._count = 0
        self._due = self._automaton.forced(self._state)

    def must(self) -> int | None:
        """The token that has to come next; None where there is a choice."""
        if not self._due and self._count >= self._most:
            self._due = self._ending()
        return self._due[0] if self._due else None

    def allowed(self) -> bytes:
        """The tokens to choose from, as a bit mask."""
        return self._automaton.allowed(self._state)

    def take(self, token: int) -> bool:
        """Append a token; whether it had to come. Raises `PlanError` for one that may not."""
        forced = self.must() == token
        self._state = self._automaton.advance(self._state, token)
        self._count += 1
        if forced:
            self._due = self._due[1:]
        elif token not in self._spelling.tables.eos:
            self._due = self._automaton.forced(self._state)
        return forced

    def _ending(self) -> list[int]:
        tables, encode = self._spelling.tables, self._spelling.encode
        run = spell(closing(self._state), lambda text: list(encode(text)), rows_of(tables))
        return [*run, tables.eos[0]]
