"""The plan automaton on the device: a token moves a sequence's state, a state allows tokens.

Everything is read from three int32 tensors (`automaton_layout.py`), so one captured graph serves
whatever requests are in it: `conductor_kernels.devicetables` writes `grammar` and `arena`.

A text that the request leaves no choice in is followed token by token: its run, which the host has
spelled, lies in the arena, and while it lasts the next token alone is allowed.

B sequences, V tokens of the model, W = ceil(V / 32) words of a mask.
"""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED
from conductor_kernels.launch import launch
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton_programs import list_kernel, mask_kernel, step_kernel
from conductor_kernels.ops.automaton_reference import Lanes, Machine
from conductor_kernels.ops.automaton_reference import after as after_in_torch
from conductor_kernels.ops.automaton_reference import run_after as run_in_torch

MOST_ROWS = 4096
"""Allowed tokens that are listed. Whoever may write text has tens of thousands, heads and fixed
texts some hundreds at most; 4,096 rows of a head are read in a tenth of the time of all."""
_STEP_LANES = 32
"""One warp: a single token needs one lane."""
_MASK_LANES = 256
"""Tokens of one program, 8 words: two in each of 128 threads, which walk their bytes in registers.
Four are spilled on sm_120."""
_LIST_LANES = 1024
"""Candidates looked at in one go."""


def automaton_step_reference(state: Tensor, token: Tensor, grammar: Tensor, arena: Tensor) -> None:
    """What `automaton_step` does, in torch."""
    machine = Machine(grammar, arena)
    for row, one in zip(state, token.long(), strict=True):
        numbers = row.tolist()
        if numbers[at.ENDED]:
            continue
        lane = after_in_torch(machine, numbers, one[None])
        moved = [int(number) for number in vars(lane).values()]
        if moved[at.PLACE] < 0:
            row[at.ENDED] = at.REFUSED
            continue
        forced = numbers[at.RUN] > 0
        run = machine.cell(numbers[at.RUN] + 1) if forced else run_in_torch(machine, moved)
        written = numbers[at.WRITTEN] + 1
        over = moved[at.PLACE] == machine.number(at.PLACES) or written >= numbers[at.MOST]
        numbers[: at.RUN + 1] = [*moved, int(run)]
        numbers[at.ENDED], numbers[at.WRITTEN] = at.OVER if over else 0, written
        numbers[at.DRAWN] += not forced
        numbers[at.FORCED] = int(forced)
        row.copy_(torch.tensor(numbers))


def automaton_mask_reference(
    state: Tensor, grammar: Tensor, arena: Tensor, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What `automaton_mask` does, in torch."""
    machine = Machine(grammar, arena)
    masks = torch.stack([_allowed(machine, row.tolist(), vocabulary) for row in state])
    rows = torch.zeros(len(state), MOST_ROWS, dtype=torch.int32)
    count = masks.sum(1).int()
    for one, (numbers, mask) in enumerate(zip(state.tolist(), masks, strict=True)):
        if _any_text(machine, numbers) or count[one] > MOST_ROWS:
            count[one] = -1
        else:
            rows[one, : count[one]] = mask.nonzero()[:, 0]
    return _packed(masks), rows, count


def _allowed(machine: Machine, state: list[int], vocabulary: int) -> Tensor:
    mask = torch.zeros(vocabulary, dtype=torch.bool)
    if state[at.ENDED]:
        return mask
    if state[at.RUN]:
        mask[machine.cell(state[at.RUN])] = True
        return mask
    return after_in_torch(machine, state, torch.arange(vocabulary)).place >= 0


def _any_text(machine: Machine, state: list[int]) -> bool:
    """Whether the planner's own words may come next: too many tokens for a list."""
    if state[at.ENDED] or state[at.RUN] or not state[at.ROW]:
        return False
    lane = Lanes.of(state, 1)
    in_text = state[at.PLACE] >= machine.number(at.HEAD)
    return bool(machine.worded(lane)) and (in_text or bool(machine.complete(lane)))


def _packed(masks: Tensor) -> Tensor:
    words = torch.nn.functional.pad(masks, (0, -masks.shape[1] % 32)).unflatten(1, (-1, 32))
    bits = (words.long() << torch.arange(32)).sum(2)
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).int()


_POINTERS = {"state": "*i32", "grammar": "*i32", "arena": "*i32"}
_STEP = Kernel(
    "automaton_step",
    step_kernel,
    {"state": "*i32", "token": "*i32", "grammar": "*i32", "arena": "*i32"},
    {"LANES": _STEP_LANES},
    frozenset(_POINTERS),
    warps=1,
)
_MASK = Kernel(
    "automaton_mask",
    mask_kernel,
    {"bits": "*i32", **_POINTERS, "vocabulary": "i32", "words": "i32"},
    {"LANES": _MASK_LANES},
    frozenset({"bits", *_POINTERS}),
    warps=4,
)
_LIST = Kernel(
    "automaton_list",
    list_kernel,
    {"rows": "*i32", "count": "*i32", "bits": "*i32", **_POINTERS, "vocabulary": "i32",
     "words": "i32"},
    {"MOST": MOST_ROWS, "LANES": _LIST_LANES},
    frozenset({"rows", "count", "bits", *_POINTERS}),
    warps=4,
)  # fmt: skip
KERNELS = (_STEP, _MASK, _LIST)


@torch.library.custom_op("conductor::automaton_step", mutates_args=("state",))
def automaton_step(state: Tensor, token: Tensor, grammar: Tensor, arena: Tensor) -> None:
    """Let every sequence that has not ended take its token.

    `state` int32 [B, STATE] is changed in place, `token` is int32 [B]; `grammar` and `arena` are
    int32. A token that is not allowed, such as -1, ends its sequence as `REFUSED`; an end token or
    the last that it may write as `OVER`.
    """
    if not (state.is_cuda or INTERPRETED):
        automaton_step_reference(state, token, grammar, arena)
    else:
        launch(_STEP, (len(state),), (state, token, grammar, arena))


@automaton_step.register_fake
def _(state: Tensor, token: Tensor, grammar: Tensor, arena: Tensor) -> None:
    return None


@torch.library.custom_op("conductor::automaton_mask", mutates_args=())
def automaton_mask(
    state: Tensor, grammar: Tensor, arena: Tensor, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What each sequence may take next, of the model's `vocabulary`.

    `bits` int32 [B, W]: token i is bit i % 32 of word i // 32; `rows` int32 [B, MOST_ROWS]: the ids
    that may come, rising, then zeros, where they are few; `count` int32 [B]: how many those are, -1
    where they are not listed. An ended sequence may take none.
    """
    if not (state.is_cuda or INTERPRETED):
        return automaton_mask_reference(state, grammar, arena, vocabulary)
    bits, rows, count = _mask_like(state, vocabulary)
    words = bits.shape[1]
    programs = -(-vocabulary // _MASK_LANES)
    of = (state, grammar, arena, vocabulary, words)
    launch(_MASK, (len(state), programs), (bits, *of))
    launch(_LIST, (len(state),), (rows, count, bits, *of))
    return bits, rows, count


@automaton_mask.register_fake
def _(
    state: Tensor, grammar: Tensor, arena: Tensor, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor]:
    return _mask_like(state, vocabulary)


def _mask_like(state: Tensor, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    batch = state.shape[0]
    return (
        state.new_empty(batch, -(-vocabulary // 32)),
        state.new_empty(batch, MOST_ROWS),
        state.new_empty(batch),
    )
