"""Tiles of packed matrices in Triton's interpreter: every code of every kind is decoded exactly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conductor_kernels.language import jit, tl
from conductor_kernels.matrix import Matrix
from conductor_kernels.ops.linear import linear
from conductor_kernels.ops.tiles import codes, stored, units
from support.packed_matrices import KINDS, drawn, parts

# The interpreter takes numbers out of arrays in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

COLUMNS = 64


@jit
def _codes_kernel(
    out_ptr,
    values_ptr,
    rows_ptr,
    count,
    units,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    at = tl.arange(0, ROWS)
    rows = tl.load(rows_ptr + at, mask=at < count, other=0)
    start = tl.program_id(0) * COLUMNS
    tile = codes(values_ptr, rows, at < count, start, units, KIND, ROWS, COLUMNS)
    columns = start + tl.arange(0, COLUMNS)
    tl.store(out_ptr + at[:, None] * (tl.num_programs(0) * COLUMNS) + columns[None, :], tile)


def decoded(matrix: Matrix, rows: list[int]) -> Tensor:
    found = torch.full((8, matrix.inputs), torch.nan)
    _codes_kernel[(matrix.inputs // COLUMNS,)](
        found,
        stored(matrix.values),
        torch.tensor(rows, dtype=torch.int32),
        len(rows),
        units(matrix.values),
        KIND=matrix.kind,
        ROWS=8,
        COLUMNS=COLUMNS,
    )
    return found


def whole(kind: str) -> Matrix:
    """All 256 bytes in each of eight rows, which start at another one each."""
    matrix = drawn(kind, 8, 512 if kind == "int4" else 256, 32)
    codes = torch.stack([torch.arange(256).roll(row) for row in range(8)]).to(torch.uint8)
    if kind == "fp8":
        codes = codes.where((codes & 0x7F) != 0x7F, 0)
    return Matrix(codes.view(matrix.values.dtype), matrix.scale, matrix.zero, matrix.group)


def unscaled(matrix: Matrix) -> Tensor:
    ones = torch.ones_like(matrix.scale)
    return Matrix(matrix.values, ones, torch.zeros_like(ones), matrix.group).dense()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_each_code_comes_out_as_itself_in_any_place_of_a_word(kind: str) -> None:
    matrix = whole(kind)
    assert torch.equal(decoded(matrix, list(range(8))), unscaled(matrix))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_be_in_any_order_and_what_is_masked_is_nothing(kind: str) -> None:
    matrix = drawn(kind, 11, 128, 64)
    scale = matrix.scale
    wanted = unscaled(matrix) if scale is not None else matrix.values
    found = decoded(matrix, [10, 3, 3, 0, 7])
    assert torch.equal(found[:5], wanted[[10, 3, 3, 0, 7]])
    assert not found[5:].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", [*range(8), 63])
def test_a_vector_that_is_one_in_one_place_gives_that_column(kind: str, column: int) -> None:
    matrix = drawn(kind, 9, 64, 32)
    x = torch.zeros(1, 64)
    x[0, column] = 1.0
    found = linear(x, *parts(matrix), None, None)
    torch.testing.assert_close(found[0], matrix.dense()[:, column], rtol=1e-6, atol=0.0)
