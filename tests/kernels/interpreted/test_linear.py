"""`linear` in Triton's interpreter: every kind and batch against float64, and planted bugs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conductor.errors import StartError
from conductor_kernels.matrix import Matrix
from conductor_kernels.ops import linear as module
from conductor_kernels.ops.linear import linear, linear_reference, splits_for
from support.packed_matrices import KINDS, drawn, off, parts
from support.planted_kernels import planted

# The interpreter takes numbers out of arrays in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

EXACT = 1e-5
"""Float32 sums of packed weights against float64 ones of the same weights."""


def inputs_of(matrix: Matrix, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    noise = torch.Generator().manual_seed(1)
    return (
        torch.randn(batch, matrix.inputs, generator=noise),
        torch.randn(matrix.rows, generator=noise),
        torch.randn(batch, matrix.rows, generator=noise),
    )


def error(op: Any, matrix: Matrix, batch: int) -> float:
    x, bias, residual = inputs_of(matrix, batch)
    wanted = x.double() @ matrix.dense().double().T + bias.double() + residual.double()
    return off(op(x, *parts(matrix), bias, residual), wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 2, 5, 16, 17])
@pytest.mark.parametrize(("rows", "inputs", "group"), [(9, 192, 128)])
def test_products_are_as_exact_as_float32(
    kind: str, batch: int, rows: int, inputs: int, group: int
) -> None:
    matrix = drawn(kind, rows, inputs, group)
    assert error(linear, matrix, batch) < EXACT
    assert error(linear_reference, matrix, batch) < EXACT


@pytest.mark.parametrize(("group", "batch"), [(32, 1), (32, 2), (64, 3), (256, 2)])
def test_a_tile_may_have_many_groups_or_a_part_of_one(group: int, batch: int) -> None:
    assert error(linear, drawn("int4", 9, 320, group), batch) < EXACT


@pytest.mark.parametrize("kind", ["dense", "int8"])
@pytest.mark.parametrize(("batch", "inputs"), [(1, 5184), (3, 704)])
def test_columns_that_are_split_are_joined(kind: str, batch: int, inputs: int) -> None:
    assert splits_for(1, inputs // (64 if batch > 1 else 1024)) > 1
    assert error(linear, drawn(kind, 9, inputs), batch) < EXACT


@pytest.mark.parametrize("kind", ["dense", "int4"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16])
def test_short_activations_lose_no_more_than_their_last_place(
    kind: str, batch: int, kept: torch.dtype
) -> None:
    matrix = drawn(kind, 9, 192, 64)
    x, bias, residual = (term.to(kept) for term in inputs_of(matrix, batch))
    if kind == "dense":
        matrix = Matrix(matrix.values.to(kept))
    wanted = x.double() @ matrix.dense().double().T + bias.double() + residual.double()
    found = linear(x, *parts(matrix), bias, residual)
    assert found.dtype == kept
    assert off(found, wanted) < 2.0**-8


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_cores_multiply_short_numbers_without_loss(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, which does not widen them first; in float16, which the interpreter can."""
    monkeypatch.setattr(module.packed, "INTERPRETED", False)
    monkeypatch.setattr(module, "_specialised", module._specialised.__wrapped__)
    matrix = drawn(kind, 9, 192, 64)
    if kind == "dense":
        matrix = Matrix(matrix.values.half())
    x = inputs_of(matrix, 3)[0].half()
    found = linear(x, *parts(matrix), None, None)
    assert off(found, x.double() @ matrix.dense().double().T) < 2.0**-11


def test_bias_and_residual_may_be_none_and_so_may_zero_points() -> None:
    matrix = drawn("int4", 9, 64, 32)
    plain = Matrix(matrix.values, matrix.scale, None, 32)
    x, bias, residual = inputs_of(plain, 1)
    product = x.double() @ plain.dense().double().T
    assert off(linear(x, *parts(plain), None, None), product) < EXACT
    assert off(linear(x, *parts(plain), bias, None), product + bias) < EXACT
    assert off(linear(x, *parts(plain), None, residual), product + residual) < EXACT


def test_what_no_kernel_can_read_is_refused_with_a_remedy() -> None:
    x = torch.randn(1, 96)
    with pytest.raises(StartError, match="on the CPU"):
        linear(x, *parts(drawn("int8", 4, 96)), None, None)
    with pytest.raises(StartError, match="--group 128"):
        linear(torch.randn(1, 192), *parts(drawn("int4", 4, 192, 48)), None, None)


@pytest.mark.parametrize(
    ("programs", "steps", "splits"),
    [(448, 19, 1), (112, 5, 2), (112, 76, 3), (1, 76, 8), (1, 3, 1), (1, 1, 1)],
)
def test_columns_are_split_where_rows_are_few(programs: int, steps: int, splits: int) -> None:
    assert splits_for(programs, steps) == splits


def test_kernels_for_every_matrix_that_is_exported_are_listed() -> None:
    names = {kernel.name for kernel in module.KERNELS}
    assert {"linear_dense_b1", "linear_int8_b16", "linear_fp8_b1", "linear_int4_g128_b1"} <= names


ORDER = "tl.join(tl.join(first, third), tl.join(second, fourth))"
BATCH_ORDER = "tl.join(tl.join(a, c), tl.join(b, d))"
TAIL = "first + steps, tl.cdiv(inputs, COLUMNS)"
BUGS = [
    ("int4", 1, 64, {ORDER: "tl.join(tl.join(first, second), tl.join(third, fourth))"}),
    ("int4", 2, 64, {BATCH_ORDER: "tl.join(tl.join(a, b), tl.join(c, d))"}),
    ("int4", 1, 128, {"group = start // GROUP +": "group = 1 - start // GROUP -"}),
    ("int4", 2, 128, {"start // GROUP + tl.arange": "start // GROUP ^ 1 ^ tl.arange"}),
    ("int4", 2, 256, {"start // GROUP +": "start // GROUP * 0 +"}),
    ("int4", 1, 64, {"- zero * total": "- 8.0 * total"}),
    ("int4", 2, 64, {"(zero + 16.0)": "(8.0 + 16.0)"}),
    ("int8", 1, 64, {"words ^ -0x7F7F7F80": "words"}),
    ("fp8", 1, 64, {"& -0x78100000": "& 0x07F00000"}),
    ("dense", 1, 576, {TAIL: "first + steps, inputs // COLUMNS"}),
    ("dense", 1, 2048, {"in range(splits)": "in range(splits - 1)"}),
    ("dense", 2, 256, {"first = tl.program_id(1) * steps": "first = 0 * steps"}),
    ("int8", 1, 64, {"y + bias.to(tl.float32) +": "y +"}),
    ("dense", 2, 64, {" + residual.to(tl.float32)": ""}),
]


@pytest.mark.parametrize(("kind", "batch", "inputs", "change"), BUGS)
def test_a_planted_bug_is_caught(
    kind: str,
    batch: int,
    inputs: int,
    change: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = planted(monkeypatch, tmp_path, "linear", change)
    matrix = drawn(kind, 9, inputs, 32)
    assert error(linear, matrix, batch) < EXACT
    assert error(wrong.linear, matrix, batch) > 100 * EXACT


def test_a_missing_mask_of_the_tail_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = planted(
        monkeypatch,
        tmp_path,
        "linear",
        {
            "mask=row_mask[:, None] & (at < length)[None, :]": "mask=row_mask[:, None]",
            "x_ptr + at, mask=at < inputs": "x_ptr + at, mask=at < 512",
        },
    )
    # Both lie in more memory, so that what is read beyond them is there.
    matrix = Matrix(drawn("dense", 20, 64).values[:9])
    x = torch.ones(1, 1024)[:, :64]
    wanted = x.double() @ matrix.values.double().T
    assert off(linear(x, *parts(matrix), None, None), wanted) < EXACT
    monkeypatch.setattr(torch.Tensor, "contiguous", lambda self: self)
    assert off(wrong.linear(x, *parts(matrix), None, None), wanted) > 100 * EXACT
