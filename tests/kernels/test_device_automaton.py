"""The device's automaton in torch, beside the host's: states, masks, forced runs, ends."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import pytest
import torch

from conductor.core import Flow
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.language import MAX_SUBTASK_BYTES
from conductor.plan.mask import LabelMask
from conductor.plan.validate import PlanPool
from conductor_kernels import deviceblock
from conductor_kernels.devicegrammar import crosses_lines
from conductor_kernels.devicetables import Arena, Block, DeviceTables
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton import automaton_mask, automaton_step
from support.automata import BYTES, EOS, ODD, smollm2
from support.devicewalks import Plan, SideBySide, any_token

VEILED = PlanPool(2, mask=LabelMask(Flow(
    question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
    sees=(frozenset({0, 1}), frozenset({0})),
)))  # fmt: skip
"""Worker 1 may see redacted text and templates only."""
POOLS = [
    PlanPool(12),
    VEILED,
    PlanPool(1, frozenset(), max_steps=1),
    PlanPool(3, max_steps=2, may_stop=True),
    PlanPool(1, max_calls=1),
]
VOCABULARY = (*BYTES, *(text for text in ODD[257:] if text and b"\n" not in text[:-1]), b"x" * 95)
"""Bytes, and tokens across words and characters, but none across lines."""


@functools.cache
def tables() -> Tables:
    return compile(VOCABULARY, [EOS])


def test_the_device_allows_and_does_what_the_host_does() -> None:
    both, chance = SideBySide(tables(), POOLS, VOCABULARY), random.Random(2)
    choose = any_token(chance, VOCABULARY, EOS)
    for number in range(16):
        if not both.going:
            both.begin()
        if number % 4 == 1:
            both.check()
        both.take(choose)


def test_a_text_at_its_most_bytes_goes_on_as_on_the_host() -> None:
    pools = [PlanPool(1, frozenset(), max_steps=1), PlanPool(2)]
    both, used = SideBySide(tables(), pools, VOCABULARY), 0
    preferred = [VOCABULARY.index(text) for text in (b"x" * 300, b"x" * 95, b"x", b" ", b"q", b"0")]

    def choose(plan: Plan) -> int:
        return min(plan.allowed, key=[*preferred, *range(len(VOCABULARY))].index)

    while used < MAX_SUBTASK_BYTES:
        both.take(choose)
        used = both.plans[0].state.used
    both.check()
    assert both.plans[0].run and both.plans[1].run
    both.take(choose)
    both.check()
    both.take(choose)


@pytest.mark.parametrize(
    "text", ["redact q -\n1 0 Write tests", "redact q -\n1 0 W", "redact q -\n1 0 -\n"]
)
@pytest.mark.parametrize("steps", [2, 3])
def test_what_is_forced_ends_where_the_host_has_a_choice(text: str, steps: int) -> None:
    """Two templates begin alike; a text may be followed by the end, or by another line."""
    both = SideBySide(tables(), [replace(VEILED, max_steps=steps)], VOCABULARY)
    plan, written = both.plans[0], b""

    while not plan.ended and (plan.run or len(written) < len(text)):
        both.check()
        wanted = text[len(written) :].encode()
        token = plan.run[0] if plan.run else VOCABULARY.index(wanted[:1])
        both.take(functools.partial(_given, token))
        written += VOCABULARY[token] or b""
    assert written.startswith(text.encode())


def _given(token: int, _: Plan) -> int:
    return token


@pytest.mark.model
def test_over_a_real_tokenizer_runs_are_spelled_as_the_host_spells_them() -> None:
    source = smollm2()
    vocabulary, chance = source.bytes_per_id, random.Random(6)
    both = SideBySide(compile(vocabulary, [source.eos]), [VEILED, PlanPool(7)], vocabulary)
    choose = any_token(chance, vocabulary, source.eos)
    forced = 0
    for number in range(40):
        if not both.going:
            both.begin()
        if number % 13 == 0:
            both.check()
        both.take(choose)
        forced += int(both.state[:, at.FORCED].sum())
    assert forced > 10


def test_requests_with_equal_pools_share_a_block_and_rooms_are_used_again() -> None:
    device, arena = DeviceTables(tables()), Arena(1 << 14, torch.device("cpu"))
    blocks = [_block(device, pool) for pool in (POOLS[0], POOLS[2], PlanPool(12))]
    assert blocks[0] is blocks[2]
    first, second, third = (arena.place(block) for block in blocks)
    assert first == third != second
    arena.leave(blocks[0])
    assert arena.place(blocks[2]) == first
    for _ in range(2):
        arena.leave(blocks[0])
    assert arena.place(_block(device, POOLS[3])) == first
    assert Arena(1 << 10, torch.device("cpu")).place(blocks[0]) is None


def _block(device: DeviceTables, pool: PlanPool) -> Block:
    block = device.block(pool, Automaton(tables(), pool))
    assert block is not None
    return block


def test_what_the_device_cannot_take_is_left_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    across = compile(ODD, [EOS])
    assert crosses_lines(across) and not crosses_lines(tables())
    assert DeviceTables(across).block(POOLS[0], Automaton(across, POOLS[0])) is None
    monkeypatch.setattr(deviceblock, "MOST_LINES", 20)
    device = DeviceTables(tables())
    assert device.block(POOLS[0], Automaton(tables(), POOLS[0])) is None
    assert _block(device, POOLS[2]).lines == 2


def test_a_request_that_is_too_large_is_told_before_all_its_lines_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Automaton(tables(), POOLS[0])
    monkeypatch.setattr(deviceblock, "MOST_CELLS", 100)
    assert DeviceTables(tables()).block(POOLS[0], whole) is None
    assert len(whole.start().line._shelf) < 10, "of more than twenty"


def _alone(pool: PlanPool, most: int = 100) -> tuple[torch.Tensor, DeviceTables, Arena]:
    device, arena = DeviceTables(tables()), Arena(1 << 14, torch.device("cpu"))
    block = _block(device, pool)
    base = arena.place(block)
    assert base is not None
    return torch.tensor([block.state(base, most)], dtype=torch.int32), device, arena


def _step(state: torch.Tensor, token: int, device: DeviceTables, arena: Arena) -> list[int]:
    automaton_step(state, torch.tensor([token], dtype=torch.int32), device.grammar, arena.cells)
    row: list[int] = state[0].tolist()
    return row


@pytest.mark.parametrize("token", [-1, ord("9"), EOS, len(VOCABULARY), 2**31 - 1])
def test_a_token_that_is_not_allowed_ends_the_sequence_as_refused(token: int) -> None:
    state, device, arena = _alone(PlanPool(3))
    row = _step(state, token, device, arena)
    assert row[at.ENDED] == at.REFUSED and row[at.WRITTEN] == 0
    assert _step(state, ord("0"), device, arena) == row
    bits, _, count = automaton_mask(state, device.grammar, arena.cells, len(VOCABULARY))
    assert not bits.any() and count.tolist() == [0]


def test_the_last_token_that_may_be_written_ends_the_sequence_and_draws_are_counted() -> None:
    state, device, arena = _alone(PlanPool(3), most=4)
    rows = [_step(state, token, device, arena) for token in b"reda"]
    assert [row[at.ENDED] for row in rows] == [0, 0, 0, at.OVER]
    assert [row[at.FORCED] for row in rows] == [0, 1, 1, 1]
    assert rows[-1][at.DRAWN] == 1 and rows[-1][at.WRITTEN] == 4


def test_tokens_that_the_model_does_not_know_are_never_allowed() -> None:
    state, device, arena = _alone(PlanPool(3))
    known = ord("1") + 1
    bits, rows, count = automaton_mask(state, device.grammar, arena.cells, known)
    assert bits.shape == (1, 2) and rows[0, : count[0]].tolist() == [ord("0"), ord("1")]
