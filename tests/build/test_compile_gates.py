"""What the tools say of machine code, as figures; and what of that a gate refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conductor.errors import StartError
from conductor_build.compile.assembly import Load, flushed_fields, loads_of
from conductor_build.compile.gates import faults
from conductor_build.compile.machinecode import Counts, Figures, figures_of
from support.compiled import COUNTS, compiled

USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function weigh:
  REG:30 STACK:16 SHARED:1024 LOCAL:8 CONSTANT[0]:400 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
CODE = """
\t.section\t.text.weigh,"ax",@progbits
.text.weigh:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDG.E.128 R4, [R2.64] ;
        /*0020*/              @!P0 LDG.E.EF.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;
        /*0040*/             @!UP1 LDGSTS.E.BYPASS.LTC128B.128 [R4], [R2.64] ;
        /*0050*/               @PT LDGSTS.E.LTC128B.64 [R4], [R2.64] ;
        /*0060*/                   STL.64 [R1+0x8], R4 ;
        /*0070*/                   LDL R4, [R1+0x8] ;
        /*0080*/                   LDS.128 R4, [R1] ;
        /*0090*/                   I2F.S8 R4, R5 ;
        /*00a0*/                   I2FP.F32.S32 R4, R5 ;
        /*00b0*/                   HFMA2.MMA R4, R5, R6, R7 ;
        /*00c0*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*00d0*/                   HGMMA.64x16x16.F32.BF16 R4, gdesc[UR4], R4 ;
        /*00e0*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;
.L_x_1:
        /*00f0*/                   EXIT ;
"""
PTX = """
.visible .entry weigh(
	.param .u64 .ptr .global .align 1 weigh_param_0,
	.param .u32 weigh_param_2
)
	ld.param.b64 	%rd1, [weigh_param_0];
	ld.param.b64 	%rd2, [weigh_param_1];
	ld.param.b32 	%r1, [weigh_param_2];
	ld.param.b64 	%rd3, [weigh_param_3];
	@%p1 ld.global.b32 { %r2 }, [ %rd3 + 0 ];
	mad.wide.s32 	%rd4, %r2, 4, %rd1;
	mov.b64 	%rd5, %rd4;
$L__BB0_1:
	@!%p1 ld.global.L1::evict_last.L2::cache_hint.v4.b32 {%r3, %r4, %r5, %r6}, [ %rd5 + 16 ], %rd9;
	ld.global.v2.b64 	{%rd10, %rd11}, [%rd2+8];
	ld.shared.v4.b32 	{%r7, %r8, %r9, %r10}, [%r11];
	cp.async.cg.shared.global [ %r12 + 0 ], [ %rd6 + 0 ], 0x10, %r13;
	cp.async.ca.shared.global [ %r12 + 0 ], [ %rd5 + 0 ], 0x4, %r13;
	cp.async.wait_group 0;
	add.s64 	%rd5, %rd5, 64;
	add.s64 	%rd6, %rd2, %rd7;
	and.b32 	%r14, %r3, 240;
	fma.rn.ftz.f32 	%r15, %r14, %r16, %r17;
	fma.rn.ftz.f32 	%r18, %r15, %r16, %r17;
	mul.f32 	%r19, %r14, %r16;
"""
"""The second load of weights, argument 0, is narrow; 1 are activations, 3 says which rows."""


def refusals(ceiling: int | None = 64, reads: bool = True, **changes: Any) -> list[str]:
    one = compiled()
    changed = replace(one, reads=reads, figures=replace(one.figures, **changes))
    return list(faults(changed, {} if ceiling is None else {one.name: ceiling}))


def test_figures_are_read_from_what_the_tools_say() -> None:
    counts = Counts(spills=2, loads=5, wide_loads=3, conversions=2, tensor=3, instructions=16)
    assert figures_of(USAGE, PTX, CODE, 2048, [0]) == Figures(
        registers=30,
        shared_bytes=2048,
        stack_bytes=16,
        local_bytes=8,
        weight_loads=2,
        narrow_loads=1,
        flushed=1,
        counts=counts,
    )
    assert figures_of(USAGE, PTX, None, 2048, [1]).narrow_loads == 0


def test_each_load_is_known_by_the_argument_that_it_reads() -> None:
    places = [(3, 4), (0, 16), (1, 16), (1, 16), (0, 4)]
    assert [*loads_of(PTX)] == [Load(frozenset({at}), size) for at, size in places]


def test_only_what_was_masked_out_of_a_word_must_not_be_flushed() -> None:
    assert flushed_fields(PTX) == 1
    assert flushed_fields(PTX.replace("%r14, %r16, %r17", "%r15, %r16, %r17")) == 0
    assert flushed_fields(PTX.replace("mul.f32", "mul.ftz.f32")) == 2


@pytest.mark.parametrize(("usage", "code"), [("", CODE), (USAGE, ""), ("", None)])
def test_tools_that_say_nothing_are_an_error_and_no_clean_kernel(
    usage: str, code: str | None
) -> None:
    with pytest.raises(StartError, match="says nothing"):
        figures_of(usage, PTX, code, 0)


def test_a_kernel_as_it_should_be_passes() -> None:
    assert refusals() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": replace(COUNTS, spills=1)}, "1 loads and stores of spilled registers"),
        ({"stack_bytes": 8}, "8 bytes of local memory"),
        ({"local_bytes": 4}, "4 bytes of local memory"),
        ({"narrow_loads": 1}, "1 of 2 loads of weights or keys are not of 128 bits"),
        ({"counts": None, "narrow_loads": 2}, "2 of 2 loads of weights"),
        ({"weight_loads": 0}, "no load of them is to be found"),
        ({"weight_loads": 3}, "2 loads of 128 bits, 3 of weights or keys"),
        ({"registers": 65}, "65 registers, 64 are allowed"),
        ({"ceiling": None}, "no ceiling"),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], said: str) -> None:
    (fault,) = refusals(**changes)
    assert said in fault


def test_only_a_kernel_that_reads_weights_has_to_load_128_bits() -> None:
    assert refusals(reads=False, narrow_loads=1, counts=replace(COUNTS, wide_loads=0)) == []


@pytest.mark.parametrize("kind", ["int4", "int8", "fp8"])
def test_packed_weights_have_to_be_kept_where_they_are_small(kind: str) -> None:
    one = compiled()
    flushing = replace(one, figures=replace(one.figures, flushed=3))
    assert list(faults(flushing, {one.name: 40})) == []
    packed = replace(flushing, built=replace(one.built, constants={"KIND": kind}))
    (fault,) = faults(packed, {one.name: 40})
    assert fault == "3 sums and products take small packed weights for zero (.ftz)"
