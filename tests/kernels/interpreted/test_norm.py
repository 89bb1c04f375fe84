"""`rms_norm` in Triton's interpreter, and all three ops as torch has them: checked and exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conductor_kernels.ops.gate_up import gate_up
from conductor_kernels.ops.linear import linear
from conductor_kernels.ops.norm import rms_norm, rms_norm_reference
from support.packed_matrices import drawn, off, parts
from support.planted_kernels import planted

# The interpreter takes numbers out of arrays in a way that numpy will drop; torch's own tracing
# warns of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

EPS = 0.5


def wanted(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


def given(batch: int, hidden: int) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(2)
    return torch.randn(batch, hidden, generator=noise), torch.randn(hidden, generator=noise)


@pytest.mark.parametrize("batch", [1, 2, 5, 16])
@pytest.mark.parametrize("hidden", [64, 192, 1088])
def test_rows_are_normed_as_exactly_as_float32(batch: int, hidden: int) -> None:
    x, weight = given(batch, hidden)
    assert off(rms_norm(x, weight, EPS), wanted(x, weight)) < 1e-6
    assert off(rms_norm_reference(x, weight, EPS), wanted(x, weight)) < 1e-6


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16])
def test_short_types_lose_no_more_than_their_last_places(kept: torch.dtype) -> None:
    x, weight = (term.to(kept) for term in given(3, 192))
    found = rms_norm(x, weight, EPS)
    assert found.dtype == kept
    assert off(found, wanted(x, weight)) < 2.0**-8


@pytest.mark.parametrize(
    "change",
    [
        {"squares, 0) / columns + eps": "squares, 0) / columns"},
        {"squares, 0) / columns + eps": "squares, 0) / BLOCK + eps"},
        {"squares += x * x\n    return": "squares = x * x\n    return"},
        {"x * scale * weight": "x * scale"},
    ],
)
def test_a_planted_bug_is_caught(
    change: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = planted(monkeypatch, tmp_path, "norm", change)
    x, weight = given(2, 1088)
    assert off(wrong.rms_norm(x, weight, EPS), wanted(x, weight)) > 1e-3


def linear_case() -> tuple[Any, ...]:
    x = torch.randn(2, 64)
    return x, *parts(drawn("int4", 9, 64, 32)), torch.randn(9), torch.randn(2, 9)


def gate_up_case() -> tuple[Any, ...]:
    return torch.randn(2, 64), torch.rand(64), EPS, *parts(drawn("int8", 18, 64))


CASES: list[tuple[Any, Callable[[], tuple[Any, ...]]]] = [
    (linear, linear_case),
    (gate_up, gate_up_case),
    (rms_norm, lambda: (*given(2, 64), EPS)),
]


class Module(torch.nn.Module):
    def __init__(self, op: Any, rest: tuple[Any, ...]) -> None:
        super().__init__()
        self.op, self.rest = op, rest

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x + 1.0, *self.rest) * 2.0


@pytest.mark.parametrize(("op", "case"), CASES)
def test_torch_finds_nothing_wrong_with_an_op(op: Any, case: Callable[[], tuple[Any, ...]]) -> None:
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(op, case(), test_utils=checks)


@pytest.mark.parametrize(("op", "case"), CASES)
def test_an_op_can_be_exported_and_compiled(op: Any, case: Callable[[], tuple[Any, ...]]) -> None:
    x, *rest = case()
    module = Module(op, tuple(rest))
    plain = module(x)
    exported = torch.export.export(module, (x,))
    assert f"conductor.{op._name}" in str(exported.graph)
    assert torch.equal(exported.module()(x), plain)
    assert torch.equal(torch.compile(module, backend="aot_eager", fullgraph=True)(x), plain)
