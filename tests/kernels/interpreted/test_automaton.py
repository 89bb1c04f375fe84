"""The automaton's kernels in Triton's interpreter, against torch, which is held to the host."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from conductor.core import Flow
from conductor.plan.automaton import Automaton, compile
from conductor.plan.mask import LabelMask
from conductor.plan.validate import PlanPool
from conductor_kernels.devicetables import Arena, DeviceTables
from conductor_kernels.ops import automaton as ops
from conductor_kernels.ops import automaton_kernels, automaton_programs
from conductor_kernels.ops import automaton_layout as at
from support.planted_faults import Plant, planted

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

_BYTES = (b"\n", *(bytes([one]) for one in (*range(0x20, 0x7F), *range(0x80, 0xC0), 0xC3, 0xE2)))
_WORDS = (b"redact", b" q", b"q,", b",0", b" *", b"1 ", b"q -\n", b"a\n", b" -", b"-\n", b" So",
          b"lve the", b".\n", b"\x80\xa6")  # fmt: skip
VOCABULARY: tuple[bytes | None, ...] = (*_BYTES, *_WORDS, None)
EOS = len(VOCABULARY) - 1
PREFIXES = (b"", b"re", b"redact", b"redact ", b"redact q", b"redact q -", b"1 ", b"1 q", b"1 q ",
            b"1 q S", b"1 q Sol\xc3", b"1 q a\n1 q", b"1 q a\n1 q,", b"1 - -\n1 0 ",
            b"redact q -\n2 0", b"redact q -\n2 0 S", b"0 q x\n0 q x\n0 q x\n")  # fmt: skip
POOL = PlanPool(3, max_steps=3, mask=LabelMask(Flow(
    question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
    sees=(frozenset({0, 1, 2}), frozenset({0, 1})),
)))  # fmt: skip
"""Worker 2 may see redacted text and templates only."""


@cache
def begun() -> tuple[Tensor, Tensor, Tensor]:
    """A state after each prefix and one at a text's most bytes; the grammar and the arena."""
    tables = compile(VOCABULARY, [EOS])
    device, arena = DeviceTables(tables), Arena(1 << 16, torch.device("cpu"))
    block = device.block(POOL, Automaton(tables, POOL))
    assert block is not None
    base = arena.place(block)
    assert base is not None
    states = torch.tensor([block.state(base, 99)] * (len(PREFIXES) + 1), dtype=torch.int32)
    longest = max(map(len, PREFIXES))
    for place in range(longest):
        tokens = [VOCABULARY.index(text[place : place + 1]) if place < len(text) else -1
                  for text in (*PREFIXES, b"1 q Sol")]  # fmt: skip
        going = torch.tensor([token >= 0 for token in tokens])
        some = states[going]
        ops.automaton_step_reference(
            some, torch.tensor(tokens)[going].int(), device.grammar, arena.cells
        )
        states[going] = some
    assert not states[:, at.ENDED].any()
    states[-1, at.USED] = 1000
    # What is forced would hide what is allowed.
    states[::2, at.RUN] = 0
    return states, device.grammar, arena.cells


def masks_agree() -> bool:
    states, grammar, arena = begun()
    found = ops.automaton_mask(states, grammar, arena, len(VOCABULARY))
    wanted = ops.automaton_mask_reference(states, grammar, arena, len(VOCABULARY))
    same = torch.equal(found[0], wanted[0]) and torch.equal(found[2], wanted[2])
    for rows, others, count in zip(found[1], wanted[1], wanted[2].tolist(), strict=True):
        same = same and torch.equal(rows[: max(count, 0)], others[: max(count, 0)])
    return same


def steps_agree() -> bool:
    states, grammar, arena = begun()
    texts = (b"0", b"d", b" q", b"q", b" -", b"\n", b"q -\n", b" -", b"-", b"o", b"\x80", b",",
             b"0", b"-\n", b" So", b"o", None, b"\n")  # fmt: skip
    tokens = torch.tensor([VOCABULARY.index(text) for text in texts]).int()
    found, wanted = states.clone(), states.clone()
    ops.automaton_step(found, tokens, grammar, arena)
    ops.automaton_step_reference(wanted, tokens, grammar, arena)
    assert (wanted[:, at.ENDED] == 0).sum() > 8
    return torch.equal(found, wanted)


def test_masks_and_lists_are_those_of_torch() -> None:
    assert masks_agree()


def test_steps_are_those_of_torch() -> None:
    assert steps_agree()


def test_an_ended_sequence_may_take_nothing_and_stays_as_it_is() -> None:
    states, grammar, arena = begun()
    ended = states[:2].clone()
    ended[:, at.ENDED] = at.OVER
    bits, _, count = ops.automaton_mask(ended, grammar, arena, len(VOCABULARY))
    assert not bits.any() and not count.any()
    before = ended.clone()
    ops.automaton_step(ended, torch.tensor([2, 3]).int(), grammar, arena)
    assert torch.equal(ended, before)


@pytest.mark.parametrize(
    "plant",
    [
        Plant("(view & -view) - 1", "(view & -view)"),
        Plant("from_used + size - 1 <= most", "from_used + size <= most"),
        Plant("low = tl.where(below, middle + 1, low)", "low = tl.where(below, middle, low)"),
    ],
    ids=str,
)
def test_a_fault_in_what_is_allowed_is_found(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(planted(automaton_kernels, plant, tmp_path), monkeypatch)
    assert not masks_agree()


@pytest.mark.parametrize(
    "plant",
    [
        Plant("tl.where(newline, -1, from_used + size)", "tl.where(newline, -1, from_used)"),
        Plant("tl.where(worded, 2, 1) * size", "tl.where(worded, 1, 2) * size"),
        Plant("tl.where(comma, 4, 3)", "tl.where(comma, 3, 3)"),
    ],
    ids=str,
)
def test_a_fault_in_where_a_token_leads_is_found(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(planted(automaton_kernels, plant, tmp_path), monkeypatch)
    assert not steps_agree()


def _use(wrong: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("after", "complete", "run_after"):
        monkeypatch.setattr(automaton_programs, name, getattr(wrong, name))


def test_the_ops_are_what_torch_expects_of_an_op() -> None:
    states, grammar, arena = begun()
    of = (states[:1].clone(), grammar, arena)
    torch.library.opcheck(ops.automaton_mask, (*of, 40))
    token = torch.tensor([VOCABULARY.index(b"2")]).int()
    torch.library.opcheck(ops.automaton_step, (of[0], token, *of[1:]))


def test_the_shapes_are_known_without_a_device() -> None:
    states, grammar, arena = begun()
    with FakeTensorMode() as fake:
        some = [fake.from_tensor(one) for one in (states, grammar, arena)]
        bits, rows, count = ops.automaton_mask(*some, 33)
    assert bits.shape == (len(states), 2) and count.shape == (len(states),)
    assert rows.shape == (len(states), ops.MOST_ROWS)
