"""Part `step`: the runner's own decode step, several in one CUDA graph, with and without the plan.

Constrained: in a worker's subtask, where tens of thousands of tokens may follow and the whole head
is read: the dearest place of a plan. Unconstrained: the same step with every token allowed, no mask
made and no automaton moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from conductor.plan.byteshape import HEAD
from conductor.plan.prompt import BLOCK_TOKENS
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton import MOST_ROWS
from conductor_kernels.runner.cache import blocks_for
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.devicestate import DeviceState
from conductor_kernels.runner.drawing import Drawing
from conductor_kernels.runner.graph import by_cuda
from conductor_kernels.runner.loop import Rules, run_steps
from gpubench.clock import Time
from gpubench.floors import step as work_of
from gpubench.model import decoder_of
from gpubench.parts import Bench, Row, milli, ratio
from gpubench.sequences import begun

STEPS = 8
"""Of one launch, as the runner has it on a GPU."""


@dataclass(frozen=True, eq=False)
class _Run:
    """Sequences in the middle of a text, and what puts them back there."""

    decoder: Decoder
    state: DeviceState
    rules: Rules
    begun: tuple[torch.Tensor, torch.Tensor, torch.Tensor]

    @classmethod
    def of(cls, bench: Bench, decoder: Decoder, batch: int) -> _Run:
        """Of a batch with the context of the benchmark behind it."""
        state, rules = begun(bench, batch, STEPS)
        kept = (state.automaton.clone(), state.tokens.clone(), state.positions.clone())
        return cls(decoder, state, rules, kept)

    def again(self) -> None:
        state = self.state
        for now, then in zip((state.automaton, state.tokens, state.positions), self.begun,
                             strict=True):  # fmt: skip
            now.copy_(then)

    @property
    def in_text(self) -> bool:
        """Whether all of them still are in a text after the steps. One that began a new line, or
        ended, read less."""
        now = self.state.automaton
        return bool(((now[:, at.ENDED] == 0) & (now[:, at.PLACE] >= HEAD)).all())

    def constrained(self) -> None:
        run_steps(self.decoder, self.state, self.rules)

    @torch.inference_mode()
    def unconstrained(self) -> None:
        state = self.state
        drawing = _everything(self.decoder.shape.vocabulary, state)
        for step in range(len(state.told)):
            goes_on = state.goes_on()
            token, log_prob = self.decoder.choose(self.decoder.decode(state.singles()), drawing)
            state.tell(step, goes_on, token, log_prob)


def rows(bench: Bench) -> Iterator[Row]:
    """One a kind of weights and batch."""
    for kind in bench.sizes.kinds:
        yield from _of_kind(bench, kind)


def _of_kind(bench: Bench, kind: str) -> Iterator[Row]:
    """A function of its own, so that one model is gone before the next is made."""
    batches = bench.sizes.batches[:1] if bench.quick else bench.sizes.batches
    width = blocks_for(bench.sizes.context + STEPS + 1) * BLOCK_TOKENS
    decoder = decoder_of(bench, kind, max(batches) * width)
    for batch in batches:
        run = _Run.of(bench, decoder, batch)
        held = _timed(bench, run.constrained, run.again)
        told = {"in a text to the end": run.in_text}
        free = _timed(bench, run.unconstrained, run.again)
        yield {**_row(bench, kind, batch, held, free), **told}


def _row(bench: Bench, kind: str, batch: int, held: Time | None, free: Time | None) -> Row:
    sizes, ceilings = bench.sizes, bench.ceilings
    work = work_of(sizes.shape, kind, batch, sizes.context, sizes.group)
    median = None if held is None else held.median
    floor = None
    if ceilings.copy and ceilings.matmul:
        floor = work.floor(ceilings.copy, ceilings.matmul)
    return {
        "kind": kind,
        "batch": batch,
        "context": sizes.context,
        "GB": round(work.bytes / 1e9, 3),
        "constrained ms": milli(held),
        "unconstrained ms": milli(free),
        "constrained / unconstrained": ratio(median, None if free is None else free.median),
        "floor ms": None if floor is None else round(floor * 1e3, 3),
        "of copy bandwidth": ratio(None if median is None else work.bytes / median, ceilings.copy),
        "tokens/s": ratio(batch, median, 1),
    }


def _timed(bench: Bench, work: Callable[[], None], again: Callable[[], None]) -> Time | None:
    """Of one step of the work, which `again` makes possible once more."""
    if not bench.clock.measures:
        again()
        work()
        return None
    for _ in range(2):
        again()
        work()
    again()
    replay = by_cuda(work)

    def once() -> None:
        again()
        replay()

    time = bench.clock.plain(once)
    assert time is not None
    return Time(time.median / STEPS, time.best / STEPS, time.worst / STEPS, time.rounds)


def _everything(vocabulary: int, state: DeviceState) -> Drawing:
    """Every token is allowed."""
    batch, like = len(state.tokens), state.tokens
    words = -(-vocabulary // 32)
    return Drawing(
        like.new_full((batch, words), -1),
        like.new_zeros((batch, MOST_ROWS)),
        like.new_full((batch,), -1),
        state.temperatures,
        state.seeds,
        torch.zeros_like(like),
    )
