"""`gate_up` in Triton's interpreter: every kind and batch against float64, and planted bugs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conductor_kernels.matrix import Matrix
from conductor_kernels.ops import gate_up as module
from conductor_kernels.ops.gate_up import KERNELS, gate_up, gate_up_reference
from support.packed_matrices import KINDS, drawn, off, parts
from support.planted_kernels import planted

# The interpreter takes numbers out of arrays in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

EXACT = 1e-5
EPS = 0.5
"""Large, so that its absence would show."""


def wanted(x: Tensor, norm: Tensor, matrix: Matrix) -> Tensor:
    wide = x.double()
    normed = wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * norm.double()
    gate, up = (normed @ matrix.dense().double().T).chunk(2, -1)
    return gate * gate.sigmoid() * up


def inputs_of(matrix: Matrix, batch: int) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(1)
    x = torch.randn(batch, matrix.inputs, generator=noise)
    return x, torch.rand(matrix.inputs, generator=noise) / 8


def error(op: Any, matrix: Matrix, batch: int) -> float:
    x, norm = inputs_of(matrix, batch)
    return off(op(x, norm, EPS, *parts(matrix)), wanted(x, norm, matrix))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 2, 5, 16])
@pytest.mark.parametrize(("rows", "inputs", "group"), [(18, 192, 128)])
def test_both_products_and_the_norm_are_as_exact_as_float32(
    kind: str, batch: int, rows: int, inputs: int, group: int
) -> None:
    matrix = drawn(kind, rows, inputs, group)
    assert error(gate_up, matrix, batch) < EXACT
    assert error(gate_up_reference, matrix, batch) < EXACT


@pytest.mark.parametrize("kind", ["dense", "int4"])
@pytest.mark.parametrize(("batch", "most"), [(1, 2.0**-7), (3, 2.0**-6)])
def test_bfloat16_loses_no_more_than_its_last_place(kind: str, batch: int, most: float) -> None:
    """All of that place, where a GPU loses half: the interpreter cuts numbers off. Those of a batch
    are cut off when they are normed too."""
    matrix = drawn(kind, 18, 192, 64)
    if kind == "dense":
        matrix = Matrix(matrix.values.bfloat16())
    x, norm = (term.bfloat16() for term in inputs_of(matrix, batch))
    found = gate_up(x, norm, EPS, *parts(matrix))
    assert found.dtype == torch.bfloat16
    assert off(found, wanted(x, norm, matrix)) < most


def test_tensor_cores_multiply_short_numbers_without_more_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, which does not widen them first; in float16, which the interpreter can."""
    monkeypatch.setattr(module.packed, "INTERPRETED", False)
    monkeypatch.setattr(module, "_specialised", module._specialised.__wrapped__)
    matrix = drawn("int4", 18, 192, 64)
    x, norm = (term.half() for term in inputs_of(matrix, 3))
    assert off(gate_up(x, norm, EPS, *parts(matrix)), wanted(x, norm, matrix)) < 2.0**-10


def test_a_gate_far_from_zero_overflows_nothing() -> None:
    matrix = Matrix(torch.tensor([[-1.0] * 64, [1.0] * 64, [2.0] * 64, [2.0] * 64]))
    x, norm = torch.ones(1, 64), torch.full((64,), 8.0)
    found = gate_up(x, norm, 0.0, *parts(matrix))
    torch.testing.assert_close(found, torch.tensor([[0.0, 512.0 * 1024.0]]))


def test_kernels_for_every_matrix_that_is_exported_are_listed() -> None:
    names = {kernel.name for kernel in KERNELS}
    assert {
        "gate_up_dense_b1",
        "gate_up_int8_b16",
        "gate_up_fp8_b1",
        "gate_up_int4_g64_b1",
    } <= names


UP = "return row + local // HALF * outputs"
PARTS = "[2, ROWS // 2, PADDED]), [1, 2, 0]"
ROOT = "squares, 0) / inputs + eps)\n    gate, up"
SCALED = "both = finished(tl.sum(sums, 1), scale_ptr, rows"
BATCH_SCALED = "both = batch_finished(sums, scale_ptr, rows"
BUGS = [
    ("dense", 1, {UP: "return row"}),
    ("int8", 1, {SCALED: SCALED + " % outputs"}),
    ("dense", 1, {"x = x * norm\n": "\n"}),
    ("dense", 1, {ROOT: ROOT.replace(" + eps", "")}),
    ("dense", 1, {"tl.where(gate < 0.0, small, 1.0)": "1.0"}),
    ("dense", 2, {"x * scale * weight": "x * scale"}),
    ("fp8", 2, {BATCH_SCALED: BATCH_SCALED + " % outputs"}),
    ("int4", 2, {PARTS: "[ROWS // 2, 2, PADDED]), [0, 2, 1]"}),
]


@pytest.mark.parametrize(("kind", "batch", "change"), BUGS)
def test_a_planted_bug_is_caught(
    kind: str,
    batch: int,
    change: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = planted(monkeypatch, tmp_path, "gate_up", change)
    matrix = drawn(kind, 18, 128, 64)
    assert error(gate_up, matrix, batch) < EXACT
    assert error(wrong.gate_up, matrix, batch) > 100 * EXACT
