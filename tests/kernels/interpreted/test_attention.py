"""Split attention in Triton's interpreter, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from conductor.errors import StartError
from conductor_kernels.ops import attention as ops
from support.planted_faults import Plant, planted

# The interpreter takes numbers out of arrays in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

BLOCK = ops.BLOCK_TOKENS
Attention = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Case:
    query: Tensor
    keys: Tensor
    values: Tensor
    blocks: Tensor
    lengths: Tensor

    def run(self, attention: Attention = ops.attention) -> Tensor:
        return attention(
            self.query, self.keys, self.values, self.blocks, self.lengths, block_tokens=BLOCK
        )


def case(
    heads: int,
    kv_heads: int,
    lengths: tuple[int, ...],
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Blocks lie in the cache in no order; what no sequence reads is no number, or no block."""
    wide = torch.Generator().manual_seed(7)
    used = [-(-length // BLOCK) for length in lengths]
    order = torch.randperm(sum(used) + 1, generator=wide).int()
    blocks = torch.full((len(lengths), max(*used, 3)), 2**30, dtype=torch.int32)
    keys = torch.full((len(order) * BLOCK, kv_heads, head_dim), torch.nan)
    values = keys.clone()
    for row, (length, count) in enumerate(zip(lengths, used, strict=True)):
        blocks[row, :count] = order[:count]
        order = order[count:]
        for token in range(length):
            slot = int(blocks[row, token // BLOCK]) * BLOCK + token % BLOCK
            keys[slot] = torch.randn(kv_heads, head_dim, generator=wide)
            values[slot] = torch.randn(kv_heads, head_dim, generator=wide)
    query = 2 * torch.randn(len(lengths), heads, head_dim, generator=wide)
    return Case(
        query.to(dtype), keys.to(dtype), values.to(dtype), blocks, torch.tensor(lengths).int()
    )


def exact(one: Case) -> Tensor:
    """Token by token, in float64."""
    batch, heads, head_dim = one.query.shape
    made = torch.zeros(batch, heads, head_dim, dtype=torch.float64)
    for row, length in enumerate(one.lengths.tolist()):
        slots = [
            int(one.blocks[row, token // BLOCK]) * BLOCK + token % BLOCK for token in range(length)
        ]
        for head in range(heads if length else 0):
            kv_head = head // (heads // one.keys.shape[1])
            key, value = (kept[slots, kv_head].double() for kept in (one.keys, one.values))
            weights = (key @ one.query[row, head].double() / head_dim**0.5).softmax(0)
            made[row, head] = weights @ value
    return made.flatten(1)


def error(found: Tensor, wanted: Tensor) -> float:
    """Greatest difference, over the greatest number."""
    return float((found.double() - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(28, 4, 128), (14, 2, 64), (9, 3, 64), (32, 8, 128)]
)
def test_every_grouping_of_heads_gives_what_float64_gives(
    heads: int, kv_heads: int, head_dim: int
) -> None:
    one = case(heads, kv_heads, (66,), head_dim)
    assert error(one.run(), exact(one)) < 1e-5


def test_every_length_gives_what_float64_gives_and_none_gives_zeros() -> None:
    one = case(4, 2, (1, 0, 31, 32, 33, 64))
    made = one.run()
    assert error(made, exact(one)) < 1e-5
    assert not made[1].any()


def test_a_long_sequence_is_joined_from_all_its_splits() -> None:
    one = case(4, 2, (1500, 1, 700))
    assert error(one.run(), exact(one)) < 1e-5


def test_a_split_of_several_tiles_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_PROGRAMS", 3)
    one = case(2, 1, (333,))
    assert ops.splits_for(1, 1, one.blocks.shape[1] * BLOCK) == 3
    assert error(one.run(), exact(one)) < 1e-5


def test_more_query_heads_than_one_program_holds_are_shared_out() -> None:
    one = case(34, 2, (40,))
    assert error(one.run(), exact(one)) < 1e-5


def test_sixteen_sequences_read_each_its_own_blocks() -> None:
    one = case(2, 1, tuple(range(1, 17)))
    assert error(one.run(), exact(one)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_loses_its_own_rounding_only(dtype: torch.dtype) -> None:
    one = case(7, 1, (70,), dtype=dtype)
    made = one.run()
    assert made.dtype == dtype
    assert error(made, exact(one)) < 2**-8


def test_great_scores_do_not_overflow() -> None:
    one = case(2, 1, (90,))
    one = replace(one, query=one.query * 200)
    assert error(one.run(), exact(one)) < 1e-5


def test_the_same_inputs_give_the_same_bits() -> None:
    one = case(7, 1, (200, 33))
    assert torch.equal(one.run(), one.run())


def test_the_reference_agrees_with_float64() -> None:
    one = case(9, 3, (65, 0, 3))
    assert error(one.run(ops.attention_reference), exact(one)) < 1e-5


def test_the_split_of_the_work_fits_in_one_join_and_leaves_no_processor_idle() -> None:
    assert ops.splits_for(1, 4, 4096) == 32
    assert ops.splits_for(16, 4, 4096) == 8
    assert ops.splits_for(16, 64, 4096) == 1
    assert ops.splits_for(1, 4, 96) == 2


def test_what_no_kernel_reads_is_refused() -> None:
    with pytest.raises(StartError, match="heads of"):
        case(2, 1, (3,), head_dim=32).run()
    one = case(2, 2, (3,))
    with pytest.raises(StartError, match="32 tokens"):
        ops.attention(one.query, one.keys, one.values, one.blocks, one.lengths, 16)
    with pytest.raises(StartError, match="without gaps"):
        replace(one, keys=one.keys.transpose(0, 1)).run()
    with pytest.raises(StartError, match="one floating type"):
        replace(one, query=one.query.half()).run()


def test_torch_can_trace_export_and_compile_it() -> None:
    one = case(2, 1, (40,))
    arguments = (one.query, one.keys.nan_to_num(), one.values.nan_to_num(), one.blocks, one.lengths)
    torch.library.opcheck(ops.attention, (*arguments, BLOCK))

    class Model(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            made: Tensor = ops.attention(*inputs, BLOCK)
            return made

    wanted = one.run()
    assert torch.equal(torch.export.export(Model(), arguments).module()(*arguments), wanted)
    assert torch.equal(torch.compile(Model(), backend="aot_eager")(*arguments), wanted)
    with FakeTensorMode() as mode:
        made = Model()(*(mode.from_tensor(argument) for argument in arguments))
    assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)


@pytest.mark.parametrize(
    "plant",
    [
        Plant("token < length", "token < length - 1"),
        Plant("token < length", "token <= length"),
        Plant("kv_heads + kv_head)", "kv_heads)"),
        Plant("written = split * each < tiles", "written = (split + 1) * each < tiles"),
        Plant("shrink = tl.exp2(most - above)", "shrink = tl.exp2(above - above)"),
        Plant("weight * total", "total"),
        Plant("* BLOCK + token % BLOCK", "* BLOCK + token % BLOCK // 2 * 2"),
        Plant("head_dim**-0.5 * _LOG2_E", "head_dim**-0.5"),
    ],
    ids=str,
)
def test_a_planted_fault_is_found(plant: Plant, tmp_path: Path) -> None:
    wrong = planted(ops, plant, tmp_path)
    wrong._PROGRAMS = 12
    one = case(4, 2, (300, 140))
    assert not error(one.run(wrong.attention), exact(one)) < 1e-4
