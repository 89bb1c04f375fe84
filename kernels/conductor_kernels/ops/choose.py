"""The next token of each sequence, with its log-probability: head, mask and draw in one op.

A sequence whose allowed tokens are listed has only their rows of the head read
(`choose_rows.py`), the others share one pass over all of it (`choose_all.py`); two small kernels
join the partial choices in their order. Which way a sequence goes is read on the device.

Draws are Gumbel-max with numbers keyed by the sequence's seed, its count of draws and the token
(`philox.py`), so that they depend on nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.kernelspec import Kernel
from conductor_kernels.language import INTERPRETED, jit, tl
from conductor_kernels.launch import launch
from conductor_kernels.matrix import dense
from conductor_kernels.ops import choose_all, choose_rows, packed
from conductor_kernels.ops.choose_fold import FOLDING, NUMBERS, join, keep
from conductor_kernels.ops.philox import log_exponential_reference
from conductor_kernels.ops.tiles import units

_LANES = 1024
"""Partial choices joined by one program: eight in each of 128 threads."""
_GROUPS = 64
"""Groups of them at most: 524,288 tokens, in blocks of 8."""


def choose_reference(
    hidden: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bits: Tensor,
    rows: Tensor,
    count: Tensor,
    temperature: Tensor,
    seed: Tensor,
    drawn: Tensor,
) -> tuple[Tensor, Tensor]:
    """What `choose` gives, in plain torch, one sequence after the other."""
    wide = torch.arange(values.shape[0], device=values.device)
    made = []
    for one in range(len(hidden)):
        listed = int(count[one])
        tokens = rows[one, :listed].long() if listed >= 0 else wide[_unpacked(bits[one])[wide]]
        made.append(_choice(hidden[one], values, scale, zero, group, tokens, temperature[one],
                            seed[one], drawn[one]))  # fmt: skip
    chosen, log_probs = zip(*made, strict=True)
    return torch.stack(chosen).int(), torch.stack(log_probs)


def _unpacked(words: Tensor) -> Tensor:
    return (words[:, None] >> torch.arange(32, device=words.device) & 1).flatten().bool()


def _choice(
    hidden: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    tokens: Tensor,
    temperature: Tensor,
    seed: Tensor,
    drawn: Tensor,
) -> tuple[Tensor, Tensor]:
    """Of one sequence, among these tokens."""
    none = torch.full_like(seed, -1)
    if not len(tokens):
        return none, torch.full_like(temperature, -torch.inf)
    logits = _logits(hidden.float(), values, scale, zero, group, tokens) / temperature
    scores = logits
    if seed >= 0:
        scores = logits - log_exponential_reference(seed, drawn, tokens)
    best = scores.argmax()
    log_prob = logits.log_softmax(0)[best]
    return torch.where(log_prob.isnan(), none, tokens[best]), log_prob


def _logits(
    hidden: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    tokens: Tensor,
) -> Tensor:
    """Of those tokens. Where they are many, copying their rows takes ten times the product's time
    (205 ms against 19 ms for 49,152 x 576 on one thread)."""
    if 4 * len(tokens) > len(values):
        return (dense(values, scale, zero, group).float() @ hidden)[tokens]
    return (
        dense(values[tokens], _taken(scale, tokens), _taken(zero, tokens), group).float() @ hidden
    )


def _taken(part: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if part is None else part[rows]


@jit
def _share(count, first_part, all_parts, ROWS: tl.constexpr):
    """Where a sequence's partial choices begin among its own, and how many there are."""
    begin = first_part
    made = all_parts
    if count >= 0:
        begin = 0
        made = tl.cdiv(count, ROWS)
    return begin, made


@jit
def _gather_kernel(
    gathered_ptr,
    gathered_chosen_ptr,
    numbers_ptr,
    chosen_ptr,
    count_ptr,
    parts,
    first_part,
    all_parts,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    LOWEST: tl.constexpr,
    NO_TOKEN: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """LANES partial choices become one: grid (most parts by LANES, sequences)."""
    one = tl.program_id(1)
    begin, made = _share(tl.load(count_ptr + one), first_part, all_parts, ROWS)
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    if tl.program_id(0) * LANES < made:
        largest, total, best, logit, chosen = join(
            numbers_ptr,
            chosen_ptr,
            one * parts + begin + at,
            at < made,
            LOWEST,
            NO_TOKEN,
            NUMBERS,
        )
        place = one * tl.num_programs(0) + tl.program_id(0)
        keep(
            gathered_ptr,
            gathered_chosen_ptr,
            place,
            largest,
            total,
            best,
            logit,
            chosen,
            place >= 0,
            NUMBERS,
        )


@jit
def _choose_kernel(
    token_ptr,
    log_prob_ptr,
    gathered_ptr,
    gathered_chosen_ptr,
    count_ptr,
    groups,
    first_part,
    all_parts,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    GROUPS: tl.constexpr,
    LOWEST: tl.constexpr,
    NO_TOKEN: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """The choice from what was gathered: grid (sequences)."""
    one = tl.program_id(0)
    _, made = _share(tl.load(count_ptr + one), first_part, all_parts, ROWS)
    at = tl.arange(0, GROUPS)
    largest, total, _, logit, chosen = join(
        gathered_ptr,
        gathered_chosen_ptr,
        one * groups + at,
        at * LANES < made,
        LOWEST,
        NO_TOKEN,
        NUMBERS,
    )
    log_prob = logit - largest - tl.log(total)
    fails = (log_prob != log_prob) | (chosen == NO_TOKEN)
    tl.store(token_ptr + one, tl.where(fails, -1, chosen))
    tl.store(log_prob_ptr + one, tl.where(total == 0, float("-inf"), log_prob))


_CONSTANTS = {"ROWS": packed.VECTOR_ROWS, "LANES": _LANES, **FOLDING}
_GATHER = Kernel(
    name="choose_gather",
    function=_gather_kernel,
    signature={"gathered_ptr": "*fp32", "gathered_chosen_ptr": "*i32", "numbers_ptr": "*fp32",
               "chosen_ptr": "*i32", "count_ptr": "*i32", "parts": "i32", "first_part": "i32",
               "all_parts": "i32"},
    constants=_CONSTANTS,
    divisible=frozenset({"gathered_ptr", "gathered_chosen_ptr", "numbers_ptr", "chosen_ptr"}),
)  # fmt: skip
_CHOOSE = Kernel(
    name="choose",
    function=_choose_kernel,
    signature={"token_ptr": "*i32", "log_prob_ptr": "*fp32", "gathered_ptr": "*fp32",
               "gathered_chosen_ptr": "*i32", "count_ptr": "*i32", "groups": "i32",
               "first_part": "i32", "all_parts": "i32"},
    constants={**_CONSTANTS, "GROUPS": _GROUPS},
    divisible=frozenset({"gathered_ptr", "gathered_chosen_ptr"}),
    warps=1,
)  # fmt: skip
KERNELS: tuple[Kernel, ...] = (*choose_rows.KERNELS, *choose_all.KERNELS, _GATHER, _CHOOSE)


@torch.library.custom_op("conductor::choose", mutates_args=())
def choose(
    hidden: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bits: Tensor,
    rows: Tensor,
    count: Tensor,
    temperature: Tensor,
    seed: Tensor,
    drawn: Tensor,
) -> tuple[Tensor, Tensor]:
    """Choose for B sequences: `token` int32 [B] and `log_prob` float32 [B], the natural logarithm
    of its chance among the allowed tokens at the temperature.

    `hidden` [B, H] is normed; `values`, `scale`, `zero` and `group` are the head [V, H] as
    `matrix.py` has it; `bits` [B, ceil(V / 32)], `rows` [B, R] and `count` [B] are int32 as
    `automaton_mask` gives them; `temperature` float32 [B] is above 0; `seed` int64 [B] below 0
    takes the likeliest token, of equal ones the lowest id; `drawn` int32 [B], which may be a column
    of a wider tensor, counts the draws that a sequence has made.

    Nothing allowed gives token -1 and -inf, logits that are no numbers give -1 and NaN. Raises
    `StartError` for a head that no kernel can read.
    """
    run = _launch if hidden.is_cuda or INTERPRETED else choose_reference
    return run(hidden, values, scale, zero, group, bits, rows, count, temperature, seed, drawn)


@choose.register_fake
def _(
    hidden: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bits: Tensor,
    rows: Tensor,
    count: Tensor,
    temperature: Tensor,
    seed: Tensor,
    drawn: Tensor,
) -> tuple[Tensor, Tensor]:
    batch = hidden.shape[0]
    return count.new_empty(batch), temperature.new_empty(batch)


def _launch(
    hidden: Tensor,
    values: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    group: int,
    bits: Tensor,
    rows: Tensor,
    count: Tensor,
    temperature: Tensor,
    seed: Tensor,
    drawn: Tensor,
) -> tuple[Tensor, Tensor]:
    (batch, inputs), outputs = hidden.shape, values.shape[0]
    kind = packed.specialise(hidden, values, group)
    listing, whole = choose_rows.rows_kernel(*kind), choose_all.all_kernel(*kind, batch == 1)
    first = -(-rows.shape[1] // packed.VECTOR_ROWS)
    programs = -(-outputs // int(whole.constants["ROWS"]))
    parts, groups = first + programs, -(-max(first, programs) // _LANES)
    if groups > _GROUPS:
        raise StartError(f"the kernels choose among at most {_GROUPS * _LANES * 8:,} tokens")
    numbers, chosen = _partial(temperature, count, batch, parts)
    gathered = _partial(temperature, count, batch, groups)
    matrix = packed.matrix_arguments(values, scale, zero, numbers)
    head = (numbers, chosen, hidden.contiguous(), *matrix)
    draws = (count, temperature, seed, drawn, drawn.stride(0), parts)
    sizes = (inputs, units(values))
    launch(listing, (first, batch), (*head, rows, *draws, *sizes, rows.shape[1]))
    grid = (programs,) if batch == 1 else (programs, -(-batch // packed.PADDED))
    launch(whole, grid, (*head, bits, *draws, first, batch, outputs, *sizes, bits.shape[1]))
    launch(_GATHER, (groups, batch), (*gathered, numbers, chosen, count, parts, first, programs))
    token, log_prob = count.new_empty(batch), temperature.new_empty(batch)
    launch(_CHOOSE, (batch,), (token, log_prob, *gathered, count, groups, first, programs))
    return token, log_prob


def _partial(temperature: Tensor, count: Tensor, batch: int, parts: int) -> tuple[Tensor, Tensor]:
    """Room for partial choices: their numbers and their tokens."""
    return temperature.new_empty(batch, parts, NUMBERS), count.new_empty(batch, parts)
