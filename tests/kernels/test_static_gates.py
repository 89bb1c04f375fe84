"""Machine code without a GPU: no kernel spills, and weights are loaded by 128 bits.

The ops' kernels are compiled in one process of its own: every third of them, for one of two
architectures in turn, and a few of these are taken apart. `tests/bench/kernel_gates.py` takes apart
all, for all six, in minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

import pytest

from conductor.errors import StartError
from conductor_build.compile.compiler import Compiled
from conductor_build.compile.failed import CompileFailed
from conductor_build.compile.gates import faults, read_ceilings
from conductor_build.compile.pool import compile_all, kernels_of, processes
from conductor_kernels.catalogue import OPS

PLANTED = "support.gated_kernels"
EVERY = 3
"""Of the kernels by name, which stand together by op: each takes up to a second of CPU."""
TAKEN_APART = 8
"""Of those again: each takes some seconds."""
ARCHITECTURES = ("sm_80", "sm_90")

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with processes(1) as started:
        yield started


@pytest.fixture(scope="module")
def planted(pool: ProcessPoolExecutor) -> Mapping[str, Compiled]:
    names = ["good", "narrow", "spills"]
    return {one.name: one for one in compile_all(pool, PLANTED, names, ["sm_90"])}


def said(one: Compiled, ceiling: int = 255) -> list[str]:
    return list(faults(one, {one.name: ceiling}))


def test_a_kernel_as_it_should_be_passes(planted: Mapping[str, Compiled]) -> None:
    assert said(planted["good"]) == []
    assert planted["good"].figures.weight_loads
    assert planted["good"].figures.narrow_loads == 0
    assert (planted["good"].built.warps, planted["good"].built.entry) == (4, "weigh")


def test_a_kernel_that_spills_is_caught(planted: Mapping[str, Compiled]) -> None:
    spilled, local = said(planted["spills"])
    assert "spilled registers" in spilled
    assert "local memory" in local


def test_wide_loads_of_activations_do_not_make_up_for_narrow_ones_of_weights(
    planted: Mapping[str, Compiled],
) -> None:
    (fault,) = said(planted["narrow"])
    assert re.fullmatch(r"(\d+) of \1 loads of weights or keys are not of 128 bits", fault)
    counts = planted["narrow"].figures.counts
    assert counts
    assert counts.wide_loads


def test_a_kernel_that_grows_is_caught(planted: Mapping[str, Compiled]) -> None:
    now = planted["good"].figures.registers
    assert said(planted["good"], now) == []
    assert said(planted["good"], now - 1) == [f"{now} registers, {now - 1} are allowed"]


def test_machine_code_names_no_folder_that_it_was_made_in(
    planted: Mapping[str, Compiled],
) -> None:
    one = planted["good"]
    assert b"gated_kernels" not in one.cubin + one.ptx
    assert b"weigh" in one.cubin


def test_a_kernel_that_does_not_compile_is_named(pool: ProcessPoolExecutor) -> None:
    broken = "support.gated_broken"
    with pytest.raises(CompileFailed, match="broken does not compile for sm_90") as caught:
        list(compile_all(pool, broken, ["broken"], ["sm_90"]))
    assert caught.value.details


def test_more_shared_memory_than_a_gpu_has_is_refused_for_that_gpu(
    pool: ProcessPoolExecutor,
) -> None:
    broken = "support.gated_broken"
    with pytest.raises(StartError, match="bytes of shared memory, sm_86 has 101376"):
        list(compile_all(pool, broken, ["wide"], ["sm_86"]))


def test_every_kernel_of_the_ops_has_a_ceiling_and_no_other_has(pool: ProcessPoolExecutor) -> None:
    assert set(kernels_of(pool, OPS)) == set(read_ceilings())


@pytest.mark.timeout(600)
def test_a_sample_of_the_ops_kernels_passes_all_gates(pool: ProcessPoolExecutor) -> None:
    ceilings, wrong = read_ceilings(), []
    for at, name in enumerate(kernels_of(pool, OPS)[::EVERY]):
        architecture, apart = ARCHITECTURES[at % 2], at % TAKEN_APART == 0
        (one,) = compile_all(pool, OPS, [name], [architecture], apart)
        wrong += [f"{name} {architecture}: {fault}" for fault in faults(one, ceilings)]
    assert not wrong
