"""The plan automaton: which tokens may come next, and where each of them leads.

Plan language x tokenizer (`tokentables.py`) x pool. A token is allowed exactly when some plan that
fits the pool begins with the text so far and the token's bytes, so no walk ever gets stuck, and
whatever is decoded parses, fits and shows nobody what the labels forbid. `grammar.py` is the oracle
that it is tested against.

Inside a text, which is where nearly all tokens fall, a table decides: place and token class give
the next place, and counters the rest. Inside a head the pool decides, and the few tokens that can
stand there are walked byte by byte, once for each place of a request.

Every spelling of a text in tokens is allowed, as grammar engines do; where only one text can
follow, `forced` gives the tokenizer's own spelling of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from conductor.errors import PlanError
from conductor.plan.byteshape import DEAD, HEAD, LINE
from conductor.plan.fixedtexts import DASH_DONE, DONE
from conductor.plan.forcing import Encode, forced_text, spell
from conductor.plan.openings import Line, first_line
from conductor.plan.sights import Worker
from conductor.plan.tokenrows import SpellingTree, TextKey, bits, ids, rows_of
from conductor.plan.tokentables import Tables, compile
from conductor.plan.validate import PlanPool
from conductor.plan.writing import ENDED, State, next_line, step, walk, within

__all__ = ["Automaton", "State", "Tables", "compile"]

_FEW = 64
"""Sets of at most so many tokens are looked at one by one."""


class Automaton:
    """The automaton of one pool. Cheap to make; all that is costly is kept with the tables."""

    def __init__(self, tables: Tables, pool: PlanPool, encode: Encode | None = None) -> None:
        """`encode` is the tokenizer's own way from text to ids, for `forced`. Without it a text is
        spelled in as few tokens as possible."""
        self._tables, self._rows, self._encode = tables, rows_of(tables), encode
        self._pool, self._start = pool, State(first_line(pool))
        self._eos = frozenset(tables.eos)
        self._head_mask = lru_cache(maxsize=1024)(self._find_head_mask)

    @property
    def tables(self) -> Tables:
        """Of its tokenizer."""
        return self._tables

    @property
    def pool(self) -> PlanPool:
        """Whose plans it lets through."""
        return self._pool

    @property
    def encode(self) -> Encode | None:
        """How forced text is spelled."""
        return self._encode

    def start(self) -> State:
        """Before the first token."""
        return self._start

    def allowed(self, state: State) -> bytes:
        """The tokens that may come next, as a bit mask: id i is bit i % 8 of byte i // 8. Padded
        with zeros to whole words of 32 bits."""
        if state.place < HEAD:
            return self._head_mask(*_head_key(state))
        if state.place == ENDED or self._rows.across:
            return self._rows.mask(self._tokens(state))
        return self._rows.text_mask(self._text_key(state))

    def advance(self, state: State, token: int) -> State:
        """The state after a token. Raises `PlanError` when the token is not allowed."""
        following = self._after(state, token)
        if following is None:
            raise PlanError("this token is not allowed here: choose among the allowed ones")
        return following

    def forced(self, state: State) -> list[int]:
        """The tokens that a writer would be led to without any choice: the tokenizer's spelling of
        the one text that can follow, up to where a longer token might be meant; then the end token,
        if nothing but the end can follow. Empty where there is a choice."""
        text, last = forced_text(state)
        run: list[int] = []
        at, left = state, len(text)
        for token in spell(text, self._encode, self._rows):
            if left < self._tables.longest and self._reaches_beyond(at, left):
                return run
            run.append(token)
            at = self.advance(at, token)
            left -= self._tables.length[token]
        if last.place == LINE and last.line.may_end and not last.line.rows:
            run.append(self._tables.eos[0])
        return run

    # -- one token ----------------------------------------------------------------------------

    def _after(self, state: State, token: int) -> State | None:
        tables = self._tables
        if state.place == ENDED or not 0 <= token < tables.tokens:
            return None
        if token in self._eos:
            ends = state.place == LINE and state.line.may_end
            return State(state.line, ENDED) if ends else None
        place = tables.next[state.place * tables.classes + tables.class_of[token]]
        if place == DEAD:
            return None
        if state.place < HEAD or token in self._rows.across:
            return walk(state, tables.bytes_of(token))
        node, size = self._rows.follow(state.node, token), tables.length[token]
        if place != LINE:
            return within(state, place, size, node)
        if node in (DASH_DONE, DONE):
            return next_line(state, worded=False) if state.may_follow(node) else None
        return next_line(state, worded=True) if state.worded and size - 1 <= state.left else None

    # -- all tokens ---------------------------------------------------------------------------

    def _tokens(self, state: State) -> int:
        if state.place == ENDED:
            return 0
        return self._in_head(state) if state.place < HEAD else self._in_text(state)

    def _find_head_mask(self, line: Line, place: int, who: bytes | Worker, view: int) -> bytes:
        if isinstance(who, bytes):
            return self._rows.mask(self._in_head(State(line, place, who)))
        row = line.rows[str(who).encode()]
        return self._rows.mask(self._in_head(State(line, place, row=row, view=view)))

    def _in_head(self, state: State) -> int:
        found = bits(_walked(self._rows.spellings, state))
        if state.place == LINE and state.line.may_end:
            found |= bits(self._eos)
        if state.complete:
            found |= self._in_text(State(state.line, HEAD, row=state.row, view=state.view))
        return found

    def _in_text(self, state: State) -> int:
        found = self._rows.text(self._text_key(state))
        across = (t for t in self._rows.across if walk(state, self._tables.bytes_of(t)) is not None)
        return found | bits(across) if self._rows.across else found

    def _text_key(self, state: State) -> TextKey:
        """All that decides about the tokens of a text, and nothing else."""
        return self._rows.key(
            state.place, state.left, state.node, state.bare, state.worded, state.to_builtin
        )

    def _reaches_beyond(self, state: State, left: int) -> bool:
        """Whether some token that may come next has more than `left` bytes."""
        tokens = self._tokens(state)
        if tokens.bit_count() <= _FEW:
            return any(self._tables.length[token] > left for token in ids(tokens))
        return bool(tokens & ~self._rows.at_most(left))


def _head_key(state: State) -> tuple[Line, int, bytes | Worker, int]:
    who = state.name if state.row is None else state.row.worker
    return state.line, state.place, who, state.view


def _walked(tree: SpellingTree, state: State) -> Iterable[int]:
    """The tokens below a node of the tree of spellings that the pool lets come next."""
    for byte, below in tree.children.items():
        following = step(state, byte)
        if following is not None:
            yield from below.tokens
            yield from _walked(below, following)
