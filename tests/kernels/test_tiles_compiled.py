"""What `ops/tiles.py` asks of the compiler: that numbers below 2^-126 are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_kernels.ops import linear

triton = pytest.importorskip("triton")


@pytest.mark.parametrize("kind", ["int4_g32", "fp8"])
def test_weights_read_as_subnormal_floats_are_not_flushed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = next(k for k in linear.KERNELS if k.name == f"linear_{kind}_b1")
    constants = {**kernel.constants, "ROWS": 1, "COLUMNS": 128}
    order = kernel.function.arg_names
    types = {name: kernel.signature.get(name, "constexpr") for name in order}
    source = ASTSource(fn=kernel.function, signature=types, constexprs=constants)
    made = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 1})
    assert "fma.rn.f32" in made.asm["ptx"]
    assert ".ftz" not in made.asm["ptx"]
