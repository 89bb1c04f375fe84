"""Plans that the device writes by itself: who has which place, and what a launch wrote for whom.

Places in use are the first ones, so that a launch works on no more than it has to: whoever leaves
is replaced by the last. On a GPU a launch is a captured graph, on a CPU the same steps one by one.
For one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from conductor.plan.automaton import Automaton
from conductor.planner.lm_runner import Token
from conductor_kernels.devicetables import Arena, Block, DeviceTables
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton import automaton_step
from conductor_kernels.runner.blocks import Blocks
from conductor_kernels.runner.cache import blocks_for
from conductor_kernels.runner.decoder import MOST_SEQUENCES, Decoder
from conductor_kernels.runner.devicestate import LOG_PROB, DeviceState
from conductor_kernels.runner.drawing import seed_of
from conductor_kernels.runner.graph import Capture, Graphs
from conductor_kernels.runner.loop import Rules, run_steps
from conductor_kernels.runner.sequence import Sequence

K = TypeVar("K")

ARENA_CELLS = 1 << 22
"""16 MB: a pool of real workers takes some thousand cells, the largest that is taken half a
million. Whoever finds no room is written by the host."""


@dataclass(frozen=True)
class Written:
    """Of one plan, by one launch."""

    tokens: list[Token]
    ended: bool
    broken: bool
    """The model answered with what is no number, so there is no next token."""


class DevicePlans(Generic[K]):
    """At most `MOST_SEQUENCES` plans of one decoder, each known by a `K`, which can
    be hashed."""

    def __init__(
        self,
        decoder: Decoder,
        steps: int,
        capture: Capture | None = None,
        builder: Executor | None = None,
    ) -> None:
        """`steps` tokens a launch. `capture` makes graphs; None: those of CUDA, on a GPU. `builder`
        as in `Blocks`."""
        self._decoder, device = decoder, decoder.device
        self._width, self._steps = blocks_for(decoder.window), steps
        self._state = self._empty()
        self._arena, self._builder = Arena(ARENA_CELLS, device), builder
        self._tokenizer: _Tokenizer | None = None
        self._order: list[K] = []
        """Who has which place."""
        self._admitted: dict[K, tuple[Block, int]] = {}
        self._tables: dict[K, int] = {}
        self._edits: list[Callable[[], None]] = []
        """Of the state, yet to be done: whoever leaves must not be held by a device that broke."""
        self._graphs: Graphs | None = None
        if capture is not None or device.type == "cuda":
            self._graphs = Graphs(self._work, self._warm_up, capture)

    def admit(self, who: K, automaton: Automaton) -> bool:
        """Keep what its automaton needs, until it leaves. False: the host has to write it."""
        if not isinstance(automaton, Automaton) or len(self._admitted) >= MOST_SEQUENCES:
            return False
        tokenizer = self._tokenizer_of(automaton)
        block = None if tokenizer is None else tokenizer.blocks.of(automaton)
        base = None if block is None else self._arena.place(block)
        if block is None or base is None:
            return False
        self._admitted[who] = block, base
        return True

    def start(self, who: K, sequence: Sequence) -> None:
        """All but its last token is in the cache: the device goes on from there."""
        block, base = self._admitted[who]
        self._settle()
        place, wanted, state = len(self._order), sequence.wanted, self._state
        token, position = sequence.last
        self._order.append(who)
        self._tables[who] = len(sequence.blocks)
        state.blocks[place, : len(sequence.blocks)] = torch.tensor(sequence.blocks).int()
        state.tokens[place], state.positions[place] = token, position
        state.temperatures[place] = wanted.temperature
        state.seeds[place] = seed_of(wanted.seed)
        state.automaton[place] = torch.tensor(block.state(base, wanted.max_tokens)).int()
        self._follow(place, sequence.begun)

    def leave(self, who: K) -> None:
        """It is not written any more. Nothing happens to one that is not here."""
        held = self._admitted.pop(who, None)
        if held is not None:
            self._arena.leave(held[0])
        if self._tables.pop(who, None) is None:
            return
        place, last = self._order.index(who), self._order.pop()
        if last is who:
            self._edits.append(partial(self._state.free, place))
        else:
            self._order[place] = last
            self._edits.append(partial(self._state.move, len(self._order), place))

    def holds(self, who: K) -> bool:
        """Whether it was admitted."""
        return who in self._admitted

    def writes(self, who: K) -> bool:
        """Whether it was started."""
        return who in self._tables

    def launch(self) -> dict[K, Written]:
        """As many tokens of each plan as a launch has steps, fewer of those that end. When it
        breaks, all that were started have to leave."""
        if not self._order:
            return {}
        try:
            self._settle()
            self._run()
            told = self._state.told.cpu()
        except BaseException:
            self._edits[:] = [self._state.clear]
            raise
        return {who: _written(told[:, :, place]) for place, who in enumerate(self._order)}

    # -- what a launch does -------------------------------------------------------------------

    def _settle(self) -> None:
        for edit in self._edits:
            edit()
        self._edits.clear()

    def _run(self) -> None:
        if self._graphs is not None:
            self._graphs(len(self._order))
            return
        width = max(self._tables.values())
        run_steps(self._decoder, self._state.first(len(self._order), width), self._rules)

    @property
    def _rules(self) -> Rules:
        assert self._tokenizer is not None, "somebody was admitted"
        return Rules(self._tokenizer.grammar, self._arena.cells)

    def _work(self, places: int) -> None:
        run_steps(self._decoder, self._state.first(places, self._width), self._rules)

    def _warm_up(self, places: int) -> None:
        spare = self._empty().first(places, self._width)
        run_steps(self._decoder, spare, self._rules)

    def _tokenizer_of(self, automaton: Automaton) -> _Tokenizer | None:
        """None while plans with another tokenizer are being written, as when bundles change."""
        known = self._tokenizer
        if known is not None and known.knows(automaton):
            return known
        if self._admitted:
            return None
        if self._graphs is not None:
            self._graphs.forget()
        self._tokenizer = _Tokenizer(automaton, self._decoder.device, self._builder)
        return self._tokenizer

    def _empty(self) -> DeviceState:
        return DeviceState.empty(MOST_SEQUENCES, self._width, self._steps, self._decoder.device)

    def _follow(self, place: int, tokens: Iterable[int]) -> None:
        """The host wrote these already: nothing else could come."""
        rules, row = self._rules, self._state.automaton[place : place + 1]
        for token in tokens:
            automaton_step(row, row.new_tensor([token]), rules.grammar, rules.arena)


class _Tokenizer:
    """What all automata with one tokenizer share."""

    def __init__(
        self, automaton: Automaton, device: torch.device, builder: Executor | None
    ) -> None:
        self._first = automaton
        tables = DeviceTables(automaton.tables)
        self.grammar = tables.grammar.to(device)
        self.blocks = Blocks(tables, builder)

    def knows(self, automaton: Automaton) -> bool:
        """Whether it reads and spells as the first did."""
        first = self._first
        return automaton.tables is first.tables and automaton.encode == first.encode


def _written(told: Tensor) -> Written:
    """`told` [K, 4], of one place."""
    log_probs = told[:, LOG_PROB].contiguous().view(torch.float32).tolist()
    tokens: list[Token] = []
    for (token, _, forced, ended), log_prob in zip(told.tolist(), log_probs, strict=True):
        if token >= 0 and ended != at.REFUSED:
            tokens.append(Token(token, 0.0 if forced else log_prob, bool(forced)))
        if ended:
            return Written(tokens, ended=True, broken=ended == at.REFUSED)
    return Written(tokens, ended=False, broken=False)
