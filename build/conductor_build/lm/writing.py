"""Plans being written, all at once: one row each, from the prompt to the end token.

Where the automaton leaves no choice the run is appended and read together with the token that
follows from it. Rows that have ended leave. A row that has used up its tokens is ended in the
shortest way that the automaton knows, without the model: so every constrained row is a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from conductor.errors import PlanError
from conductor.plan.automaton import Automaton, State
from conductor.plan.closing import closing
from conductor.plan.forcing import spell
from conductor.plan.language import Plan, parse
from conductor.plan.tokenrows import rows_of
from conductor.plan.validate import PlanPool, validate
from conductor_build.lm.sampling import Masks, draw, log_probs
from conductor_build.lm.shared import OwnKeys, Reader, Stretch
from conductor_build.lm.tokens import Ask, Writer, ids_of

_DENSE = 0.75
"""Keys are compacted once fewer than this share of the rows are left."""


@dataclass(frozen=True)
class Written:
    """One plan as it was written."""

    tokens: tuple[int, ...]
    """The end token included, where there is one."""
    log_probs: tuple[float, ...]
    """Of each choice, under mask and temperature; 0.0 where there was none."""
    forced: tuple[bool, ...]
    """Tokens that nobody chose: the only ones possible, or an ending for lack of room."""
    text: str
    plan: Plan | None
    """None when the text is no plan that fits the request, which happens only without a mask."""
    ended: bool
    """Whether the end token was written."""


@dataclass(frozen=True)
class Terms:
    """How all rows are written."""

    constrained: bool
    temperature: float
    max_tokens: int


@dataclass
class Row:
    """One plan in the making."""

    ask: Ask
    group: int
    automaton: Automaton | None
    state: State | None
    hidden: Tensor
    """[hidden] after its last token."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    unread: int = 0
    """How many of its tokens the model has not read yet."""
    ended: bool = False

    def take(self, token: int, log_prob: float, *, forced: bool) -> None:
        """Append one token."""
        if self.automaton is not None and self.state is not None:
            self.state = self.automaton.advance(self.state, token)
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        self.forced.append(forced)
        self.unread += 1

    @property
    def pending(self) -> list[int]:
        """Tokens for the model to read."""
        return self.tokens[len(self.tokens) - self.unread :]


class Desk:
    """Writes the rows of one call."""

    def __init__(self, reader: Reader, writer: Writer, masks: Masks, terms: Terms) -> None:
        self._reader, self._writer, self._masks, self._terms = reader, writer, masks, terms

    def write(
        self,
        prefix: Stretch,
        asks: Sequence[Ask],
        group: int,
        generator: torch.Generator | None,
    ) -> list[list[Written]]:
        """`group` plans for each ask, in their order."""
        rests = [self._reader.read(ask.rest, prefix) for ask in asks]
        rows = [
            row
            for number, (ask, (_, hidden)) in enumerate(zip(asks, rests, strict=True))
            for row in self._begun(ask, number, group, hidden[0])
        ]
        self._finish(rows, prefix, [rest for rest, _ in rests], generator)
        done = [self._written(row) for row in rows]
        return [done[at : at + group] for at in range(0, len(done), group)]

    def _begun(self, ask: Ask, number: int, group: int, hidden: Tensor) -> Iterator[Row]:
        automaton = self._writer.automaton(ask) if self._terms.constrained else None
        state = None if automaton is None else automaton.start()
        for _ in range(group):
            yield Row(ask, number, automaton, state, hidden)

    def _finish(
        self,
        rows: list[Row],
        prefix: Stretch,
        rests: Sequence[Stretch],
        generator: torch.Generator | None,
    ) -> None:
        own, held = OwnKeys(len(rows)), rows
        while True:
            for row in held:
                self._without_choice(row)
            live = [place for place, row in enumerate(held) if not row.ended]
            if not live:
                return
            if len(live) < _DENSE * len(held):
                own.keep(live)
                held, live = [held[place] for place in live], list(range(len(live)))
            self._read(held, prefix, rests, own)
            self._choose([held[place] for place in live], generator)

    def _without_choice(self, row: Row) -> None:
        """Append what must come next; end the row where its room is used up."""
        if row.ended:
            return
        if row.automaton is not None and row.state is not None:
            for token in row.automaton.forced(row.state):
                row.take(token, 0.0, forced=True)
            if not self._is_end(row) and len(row.tokens) >= self._terms.max_tokens:
                for token in self._ending(row.state):
                    row.take(token, 0.0, forced=True)
        row.ended = self._is_end(row) or len(row.tokens) >= self._terms.max_tokens

    def _ending(self, state: State) -> list[int]:
        tables = self._writer.tables
        text = closing(state)
        run = spell(text, lambda one: ids_of(self._writer.tokenizer, one), rows_of(tables))
        return [*run, tables.eos[0]]

    def _is_end(self, row: Row) -> bool:
        return bool(row.tokens) and row.tokens[-1] in self._writer.tables.eos

    def _read(
        self, rows: list[Row], prefix: Stretch, rests: Sequence[Stretch], own: OwnKeys
    ) -> None:
        """Bring every live row's hidden state up to its last token. Rows that have ended have
        nothing to be read."""
        tokens = [[] if row.ended else row.pending for row in rows]
        if not any(tokens):
            return
        seen = [(prefix, 0, len(rows)), *_groups(rows, rests)]
        starts = [rests[row.group].end for row in rows]
        hidden, _ = self._reader.run(tokens, starts, seen, own)
        at = 0
        for row, new in zip(rows, tokens, strict=True):
            at += len(new)
            if new:
                row.hidden, row.unread = hidden[at - 1], 0

    def _choose(self, rows: list[Row], generator: torch.Generator | None) -> None:
        logits = self._reader.logits(torch.stack([row.hidden for row in rows]))
        allowed = None
        if self._terms.constrained:
            asked = ((row.automaton, row.state) for row in rows)
            allowed = self._masks.stacked([a.allowed(s) for a, s in asked if a and s])
        log = log_probs(logits, allowed, self._terms.temperature)
        token = draw(log, generator)
        taken = log.gather(1, token[:, None])[:, 0].tolist()
        for row, one, value in zip(rows, token.tolist(), taken, strict=True):
            row.take(one, value, forced=False)

    def _written(self, row: Row) -> Written:
        tokens = tuple(row.tokens)
        ended, text = self._is_end(row), self._writer.text(tokens)
        whole = ended and self._writer.plain(tokens)
        plan = _plan(text, PlanPool.of(row.ask.request)) if whole else None
        return Written(tokens, tuple(row.log_probs), tuple(row.forced), text, plan, ended)


def _groups(rows: Sequence[Row], rests: Sequence[Stretch]) -> Iterator[tuple[Stretch, int, int]]:
    """Each ask's stretch, and the rows that see it: they stand side by side."""
    start = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place].group != rows[start].group:
            yield rests[rows[start].group], start, place
            start = place


def _plan(text: str, pool: PlanPool) -> Plan | None:
    try:
        plan = parse(text, pool.first)
        validate(plan, pool)
    except PlanError:
        return None
    return plan
