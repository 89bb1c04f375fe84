"""The checks of the ops pass for the ops as they are, and fail for each with a fault planted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from conductor_kernels import checks
from conductor_kernels.checks import Case, Outcome, run
from conductor_kernels.checks.case import relative
from conductor_kernels.checks.heads import chi_square, packed_bits
from conductor_kernels.checks.matrices import KINDS, make
from conductor_kernels.matrix import Matrix
from conductor_kernels.ops import attention, automaton, choose, gate_up, linear, norm, qkv

CPU = torch.device("cpu")
SLOW = ("masked sampling", "automaton")
"""One case each: `test_bench.py` runs one as it is, and here one is run with a fault."""
CASES = list(checks.cases())


def outcomes(op: str, cases: list[Case] | None = None) -> list[Outcome]:
    return [run(case, CPU, 3) for case in cases or CASES if case.op == op]


@pytest.mark.parametrize("op", [op for op in checks.ops() if op not in SLOW])
def test_an_op_is_as_exact_as_its_bounds_say(op: str) -> None:
    found = outcomes(op)
    assert found
    assert [one for one in found if not one.passed] == []


def test_large_cases_are_for_a_gpu() -> None:
    assert not any(case.large for case in CASES)
    assert any(case.large for case in checks.cases(large=True))


# -- faults that are planted ------------------------------------------------------------------


def swapped(matrix: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The later input of int4 in the lower half."""
    return lambda values, *parts: matrix(
        values >> 4 | values << 4 if values.dtype == torch.uint8 else values, *parts
    )


def off_by(place: int, amount: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An argument that is a little more."""

    def planted(reference: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*given: Any) -> Any:
            changed = list(given)
            changed[place] = changed[place] + amount
            return reference(*changed)

        return wrong

    return planted


def without(place: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An argument that is forgotten."""

    def planted(reference: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: reference(*given[:place], None, *given[place + 1 :])

    return planted


FAULTS = [
    ("rms_norm", norm, "rms_norm_reference", lambda made: lambda x, w, eps: made(x, w, eps) * 1.01),
    ("linear", linear, "dense", swapped),
    ("linear", linear, "linear_reference", without(3)),  # the zero points
    ("linear", linear, "linear_reference", without(5)),  # the bias
    ("gate_up", gate_up, "gate_up_reference", off_by(1, 1)),  # the norm's weight
    ("attention", attention, "attention_reference", off_by(4, -1)),  # the last key
    ("qkv", qkv, "qkv_reference", without(8)),  # the bias
    ("qkv", qkv, "qkv_reference", off_by(11, 1)),  # the position
    ("qkv", qkv, "qkv_reference", off_by(12, 1)),  # the slot
    ("choose", choose, "dense", swapped),
    ("choose", choose, "choose_reference", off_by(7, -1)),  # the last listed row
    ("choose", choose, "choose_reference", off_by(8, 0.1)),  # the temperature
    ("masked sampling", choose, "choose_reference", off_by(8, 0.6)),
    ("automaton", automaton, "automaton_mask_reference",
     lambda made: lambda *given: (made(*given)[0] & -17, *made(*given)[1:])),
]  # fmt: skip


@pytest.mark.parametrize(("op", "module", "name", "plant"), FAULTS)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, op: str, module: Any, name: str, plant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, name, plant(getattr(module, name)))
    some = [case for case in CASES if case.op == op and case.dtype != torch.float16]
    assert not all(one.passed for one in outcomes(op, some[:1] if op in SLOW else some))


def test_an_op_that_raises_has_failed_and_says_how() -> None:
    def broken(device: torch.device, seed: int) -> float:
        raise RuntimeError("out of registers\nand more")

    found = run(Case("op", "case", torch.float32, 1.0, broken), CPU)
    assert not found.passed
    assert found.problem == "RuntimeError: out of registers"


def test_what_is_no_number_is_never_within_a_bound() -> None:
    found = run(Case("op", "case", torch.float32, 1.0, lambda device, seed: math.nan), CPU)
    assert not found.passed


# -- what they stand on -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_matrix_is_what_its_packed_form_says(kind: str) -> None:
    made = make(kind, 5, 128, torch.float32, torch.Generator().manual_seed(1))
    assert isinstance(made.matrix, Matrix)
    assert torch.allclose(made.matrix.dense().double(), made.exact, rtol=1e-6, atol=0)
    assert bool(((made.exact - made.original).abs() <= made.step * 1.0001).all())


def test_an_error_is_relative_to_the_largest_number() -> None:
    want = torch.tensor([1.0, -4.0]).double()
    assert relative(torch.tensor([1.0, -3.0]), want) == 0.25
    assert relative(torch.tensor([1.0, math.nan]), want) == math.inf
    assert relative(torch.tensor([1.0]), want) == math.inf


def test_bits_are_the_automatons() -> None:
    allowed = torch.zeros(1, 40, dtype=torch.bool)
    allowed[0, [0, 31, 33]] = True
    assert packed_bits(allowed).tolist() == [[-(2**31) + 1, 2]]


def test_frequencies_are_judged_by_chi_square() -> None:
    chances = torch.tensor([0.5, 0.25, 0.25, 0.0]).double()
    assert chi_square(torch.tensor([500, 250, 250, 0]), chances, 1000) == 0
    assert chi_square(torch.tensor([620, 190, 190, 0]), chances, 1000) > 1
    assert chi_square(torch.tensor([500, 250, 249, 1]), chances, 1000) == math.inf
