"""What the tools say of machine code, as figures; and what of that a gate refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conductor.errors import StartError
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
    ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    @%p1 ld.global.L1::evict_last.L2::cache_hint.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 ], %rd2;
    ld.global.v2.b64 { %rd1, %rd2 }, [ %rd3 ];
    ld.global.v2.b32 { %r1, %r2 }, [ %rd3 ];
    ld.shared.v4.b32 { %r1, %r2, %r3, %r4 }, [ %r9 ];
    cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
    cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x4, %r2;
    cp.async.bulk.tensor.2d.shared::cluster.global [ %r1 ], [ %rd1, { %r2, %r3 } ], [ %r4 ];
    cp.async.wait_group 0;
"""


def refusals(ceiling: int | None = 64, reads: bool = True, **changes: Any) -> list[str]:
    one = compiled()
    changed = replace(one, reads=reads, figures=replace(one.figures, **changes))
    return list(faults(changed, {} if ceiling is None else {one.name: ceiling}))


def test_figures_are_read_from_what_the_tools_say() -> None:
    counts = Counts(spills=2, loads=5, wide_loads=3, conversions=2, tensor=3, instructions=16)
    figures = figures_of(USAGE, PTX, CODE, 2048)
    assert figures == Figures(
        registers=30,
        shared_bytes=2048,
        stack_bytes=16,
        local_bytes=8,
        asked_wide=5,
        counts=counts,
    )
    assert figures.wide_loads == 3
    assert figures_of(USAGE, PTX, None, 2048).wide_loads == 5


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
        ({"counts": replace(COUNTS, wide_loads=0)}, "no load of it is of 128 bits"),
        ({"counts": None, "asked_wide": 0}, "no load of it is of 128 bits"),
        ({"registers": 65}, "65 registers, 64 are allowed"),
        ({"ceiling": None}, "no ceiling"),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], said: str) -> None:
    (fault,) = refusals(**changes)
    assert said in fault


def test_only_a_kernel_that_reads_weights_has_to_load_128_bits() -> None:
    assert refusals(reads=False, counts=replace(COUNTS, wide_loads=0)) == []
