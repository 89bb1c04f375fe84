"""The fused norm, product, rotation and cache write in Triton's interpreter, against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from conductor.errors import StartError
from conductor_kernels.matrix import Matrix
from conductor_kernels.ops import packed, qkv_kernels
from conductor_kernels.ops import qkv as ops
from conductor_kernels.runner import ops as today
from conductor_kernels.runner.cache import Cache, Table
from conductor_kernels.runner.rope import rotations
from conductor_kernels.runner.shape import Rope, Shape
from conductor_kernels.runner.step import Share, lay_out
from conductor_kernels.runner.weights import Layer
from support.planted_faults import Plant, planted

# The interpreter takes numbers out of arrays in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

EPS, SLOTS, POSITIONS = 1e-5, 24, 40
ROPE = Rope(10_000.0, "default", 1.0, POSITIONS, 1.0, 1.0, None)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter takes its time by the program, not by its rows. What kernels are listed is
    not kept from one test to the next."""
    monkeypatch.setattr(ops, "_VECTOR_ROWS", 64)
    monkeypatch.setattr(ops, "_BATCH_ROWS", 64)
    yield
    for made in (ops._vector, ops._batch, ops._norm):
        made.cache_clear()


@dataclass(frozen=True, eq=False)
class Case:
    x: Tensor
    delta: Tensor | None
    norm: Tensor
    matrix: Matrix
    bias: Tensor | None
    cosines: Tensor
    sines: Tensor
    positions: Tensor
    slots: Tensor
    keys: Tensor
    values: Tensor

    def arguments(self) -> tuple[Any, ...]:
        """Of the op, with caches of its own."""
        of = self.matrix
        return (
            *(
                self.x,
                self.delta,
                self.norm,
                EPS,
                of.values,
                of.scale,
                of.zero,
                of.group,
                self.bias,
            ),
            *(self.cosines, self.sines, self.positions, self.slots),
            *(self.keys.clone(), self.values.clone()),
        )

    def run(self, op: Callable[..., tuple[Tensor, Tensor]] = ops.qkv) -> tuple[Tensor, ...]:
        """Query, sum, keys and values."""
        arguments = self.arguments()
        return (*op(*arguments), *arguments[-2:])


def case(
    batch: int = 1,
    kind: str = "dense",
    hidden: int = 64,
    heads: int = 2,
    kv_heads: int = 1,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """With bias, delta and, if int4, zero points."""
    torch.manual_seed(5)
    rows = (heads + 2 * kv_heads) * head_dim
    cosines, sines = rotations(ROPE, head_dim, POSITIONS)
    cache = torch.randn(2, SLOTS, kv_heads, head_dim).to(dtype)
    return Case(
        x=torch.randn(batch, hidden).to(dtype),
        delta=torch.randn(batch, hidden).to(dtype),
        norm=torch.rand(hidden).to(dtype) + 0.5,
        matrix=matrix(kind, rows, hidden, dtype),
        bias=torch.randn(rows).to(dtype),
        cosines=cosines.to(dtype),
        sines=sines.to(dtype),
        positions=torch.randint(1, POSITIONS, (batch,)).int(),
        slots=torch.randperm(SLOTS)[:batch].int(),
        keys=cache[0],
        values=cache[1],
    )


def matrix(kind: str, rows: int, inputs: int, dtype: torch.dtype) -> Matrix:
    scale = torch.rand(rows, 1) / 100 + 0.01
    if kind == "dense":
        return Matrix((torch.randn(rows, inputs) / 8).to(dtype))
    if kind == "int8":
        return Matrix(torch.randint(-128, 128, (rows, inputs)).to(torch.int8), scale)
    if kind == "fp8":
        return Matrix(torch.randn(rows, inputs).to(torch.float8_e4m3fn), scale)
    groups = (rows, inputs // 32)
    return Matrix(
        torch.randint(0, 256, (rows, inputs // 2)).to(torch.uint8),
        torch.rand(groups) / 10 + 0.01,
        torch.randint(0, 16, groups).float(),
        32,
    )


def exact(one: Case) -> tuple[Tensor, ...]:
    """As `Case.run`, each number by its formula in float64."""
    kv_heads, head_dim = one.keys.shape[1:]
    added = one.x if one.delta is None else one.x + one.delta
    wide = added.double()
    normed = wide / (wide.square().mean(1, keepdim=True) + EPS).sqrt() * one.norm.double()
    made = normed @ one.matrix.dense().double().T
    made = made if one.bias is None else made + one.bias.double()
    heads = made.view(len(made), -1, head_dim)
    angle = torch.polar(torch.ones(()).double(), angles(one, head_dim))[:, None]
    pairs = torch.complex(heads[..., : head_dim // 2], heads[..., head_dim // 2 :]) * angle
    turned = torch.cat((pairs.real, pairs.imag), dim=-1)
    first = heads.shape[1] - 2 * kv_heads
    keys, values = one.keys.double(), one.values.double()
    for row, slot in enumerate(one.slots.tolist()):
        if slot >= 0:
            keys[slot] = turned[row, first : first + kv_heads]
            values[slot] = heads[row, first + kv_heads :]
    return turned[:, :first], wide, keys, values


def angles(one: Case, head_dim: int) -> Tensor:
    """Of each sequence and pair: by the tables, so that their rounding is no fault of the op."""
    at = one.positions.long()
    half = slice(0, head_dim // 2)
    return torch.atan2(one.sines[at, half].double(), one.cosines[at, half].double())


def error(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    """The worst of all outputs: greatest difference over greatest number."""
    pairs = zip(found, wanted, strict=True)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in pairs)


@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
@pytest.mark.parametrize("batch", [1, 5])
def test_every_kind_of_matrix_gives_what_float64_gives(kind: str, batch: int) -> None:
    one = case(batch, kind, hidden=192)
    assert error(one.run(), exact(one)) < 1e-5


@pytest.mark.parametrize("batch", [2, 16, 17])
def test_every_batch_gives_what_float64_gives(batch: int) -> None:
    one = case(batch)
    assert error(one.run(), exact(one)) < 1e-5


@pytest.mark.parametrize("batch", [1, 2])
def test_wide_heads_in_several_groups_give_what_float64_gives(batch: int) -> None:
    one = case(batch, kv_heads=2, head_dim=128)
    assert error(one.run(), exact(one)) < 1e-5


def test_programs_as_small_as_on_a_gpu_give_what_float64_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ops, "_VECTOR_ROWS", packed.VECTOR_ROWS)
    monkeypatch.setattr(ops, "_BATCH_ROWS", 32)
    for batch in (1, 2):
        one = case(batch, heads=1)
        assert error(one.run(), exact(one)) < 1e-5


def test_an_input_of_several_tiles_is_normed_as_a_whole() -> None:
    for batch in (1, 2):
        one = case(batch, hidden=1088)
        assert error(one.run(), exact(one)) < 1e-5


@pytest.mark.parametrize("batch", [1, 2])
def test_without_delta_bias_or_zero_points_nothing_is_added(batch: int) -> None:
    one = case(batch, "int4")
    one = replace(one, delta=None, bias=None, matrix=replace(one.matrix, zero=None))
    made = one.run()
    assert error(made, exact(one)) < 1e-5
    assert torch.equal(made[1], one.x)
    assert made[1].data_ptr() != one.x.data_ptr()


@pytest.mark.parametrize("batch", [1, 3])
def test_a_negative_slot_writes_nothing_and_other_slots_stay(batch: int) -> None:
    one = case(batch)
    one.slots[0] = -1
    _, _, keys, values = one.run()
    untouched = [slot for slot in range(SLOTS) if slot not in one.slots.tolist()]
    assert len(untouched) == SLOTS - batch + 1
    assert torch.equal(keys[untouched], one.keys[untouched])
    assert torch.equal(values[untouched], one.values[untouched])
    assert error(one.run(), exact(one)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batch", [1, 2])
def test_half_precision_loses_roundings_only(batch: int, dtype: torch.dtype) -> None:
    """The interpreter cuts where it should round to bfloat16, so twice the usual."""
    one = case(batch, dtype=dtype)
    made = one.run()
    assert {part.dtype for part in made} == {dtype}
    assert error(made, exact(one)) < (2**-6 if dtype == torch.bfloat16 else 2**-9)


def test_the_same_inputs_give_the_same_bits() -> None:
    one = case(2, "int8")
    assert all(map(torch.equal, one.run(), one.run()))


def test_the_reference_agrees_with_float64_and_with_a_step_of_the_runner() -> None:
    one = case(3, heads=4, kv_heads=2)
    shape = Shape(7, 64, 8, 1, 4, 2, 64, POSITIONS, EPS, False, ROPE)
    cache = Cache(shape, 96, torch.device("cpu"), torch.float32)
    lengths = one.positions.tolist()
    shares = [Share([0], length, Table((2 - i, 2 - i))) for i, length in enumerate(lengths)]
    step = lay_out(shares, one.cosines, one.sines)
    layer = Layer(one.norm, one.matrix, one.bias, one.matrix, None, one.norm, *[one.matrix] * 2)
    assert one.delta is not None
    query = today.project_queries(one.x + one.delta, layer, 0, step, cache, EPS)
    slots = step.slots.int()
    one = replace(one, slots=slots, keys=torch.zeros(96, 2, 64), values=torch.zeros(96, 2, 64))
    made = one.run(ops.qkv_reference)
    kept = cache.read(0, torch.arange(3), 96)
    assert error(made, exact(one)) < 1e-5
    assert error((made[0], *made[2:]), (query.double(), *(part.double() for part in kept))) < 1e-6


def test_the_reference_writes_nothing_at_a_negative_slot() -> None:
    one = case(3)
    one.slots[1] = -1
    assert error(one.run(ops.qkv_reference), exact(one)) < 1e-5


def test_sizes_without_a_kernel_are_refused() -> None:
    with pytest.raises(StartError, match="heads of"):
        case(head_dim=32).run()
    gaps = torch.zeros(SLOTS, 2, 64)[:, ::2]
    with pytest.raises(StartError, match="without gaps"):
        ops.qkv(*case().arguments()[:-1], gaps)


def test_torch_can_trace_export_and_compile_it() -> None:
    one = case(2)
    torch.library.opcheck(ops.qkv, one.arguments())

    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return ops.qkv(*inputs)

    wanted = one.run()
    exported = torch.export.export(Model(), one.arguments()).module()
    assert all(map(torch.equal, one.run(exported), wanted))
    compiled = torch.compile(Model(), backend="aot_eager")
    assert all(map(torch.equal, one.run(compiled), wanted))
    arguments = one.arguments()
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments]
        made = ops.qkv(*fakes)
    assert [part.shape for part in made] == [part.shape for part in wanted[:2]]


@pytest.mark.parametrize(
    ("plant", "batches"),
    [
        # Both kernels' own parts, then the part that they share.
        (Plant("squares += x * x", "squares += tl.abs(x)"), (1, 2)),
        (Plant("/ inputs + eps", "/ (inputs + 1) + eps"), (1, 2)),
        (Plant("rows, rows >= 0, column", "rows, rows % 64 > 0, column"), (1, 2)),
        (Plant("within & (has_delta != 0)", "within & (has_delta != 1)"), (2,)),
        (Plant("first * cosine - second * sine", "first * cosine + second * sine"), (2,)),
        (Plant("turned = second * cosine", "turned = first * cosine"), (2,)),
        (Plant("mask=there, other=0)[None, :] * D", "mask=there, other=0)[None, :] * D - D"), (2,)),
        (Plant("made += bias", "made += 0 * bias"), (2,)),
        (Plant("kv_heads:\n        at", "0:\n        at"), (2,)),
        (Plant("kept = slot >= 0", "kept = slot >= -1; slot = tl.maximum(slot, 0)"), (2,)),
        (Plant("- heads - kv_heads)", "- heads)"), (2,)),
        (Plant("local % 2 * (D // 2)", "local % 2"), (2,)),
    ],
    ids=str,
)
def test_a_planted_fault_is_found(
    plant: Plant, batches: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = planted(qkv_kernels, plant, tmp_path)
    for name in ("qkv_vector_kernel", "qkv_batch_kernel", "qkv_norm_kernel"):
        monkeypatch.setattr(ops, name, getattr(wrong, name))
    for batch in batches:
        one = case(batch, heads=1)
        one.slots[:] = torch.tensor([-1 if "slot" in plant.right else 1, 5])[:batch]
        assert not error(one.run(), exact(one)) < 1e-4
