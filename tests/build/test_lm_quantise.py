"""Weights in fewer bits: no value further off than its own bound, and files that give them back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from conductor_build.lm import parity, quantisedfile
from conductor_build.lm.export import in_fewer_bits
from conductor_build.lm.merge import ExportError
from conductor_build.lm.policy import PlanPolicy
from conductor_build.lm.quantise import Scheme, bound, pack, unpack
from conductor_build.lm.tokens import Writer
from support.lmexports import loaded, logits, write_model

SCHEMES = {
    "int8": Scheme("int8"),
    "int4": Scheme("int4"),
    "int4 asymmetric": Scheme("int4", symmetric=False),
    "int4 in small groups": Scheme("int4", group=32),
    "fp8": Scheme("fp8"),
}
named = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())


@st.composite
def matrices(draw: st.DrawFn) -> torch.Tensor:
    """Of any shape, of very large and very small values, with rows and groups of zeros."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 300))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    found = torch.randn(shape, generator=generator) * 10.0 ** draw(st.integers(-6, 4))
    found += draw(st.sampled_from([0.0, 0.0, 1.0, -3.0])) * found.abs().max()
    if draw(st.booleans()):
        found[0] = 0.0
    if draw(st.booleans()):
        found[:, :128] = 0.0
    return found


@named
@settings(deadline=None, max_examples=60)
@given(matrix=matrices())
def test_no_weight_is_further_off_than_its_bound(scheme: Scheme, matrix: torch.Tensor) -> None:
    packed = pack(matrix, scheme)
    off = (unpack(packed, scheme).double() - matrix.double()).abs()
    # The sums around the rounding are in float32: two places of what is summed.
    slack = 2e-6 * matrix.abs().max().double()
    assert (off <= bound(matrix, packed, scheme).double() + slack).all()


@named
def test_bounds_are_as_tight_as_the_bits_allow(scheme: Scheme) -> None:
    matrix = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    packed = pack(matrix, scheme)
    used = (unpack(packed, scheme) - matrix).abs() / bound(matrix, packed, scheme)
    assert used.max() > 0.9
    assert (
        bound(matrix, packed, scheme).max() < {"int8": 0.02, "int4": 0.4, "fp8": 0.3}[scheme.name]
    )


@named
def test_zero_stays_zero_and_packing_again_changes_nothing(scheme: Scheme) -> None:
    matrix = torch.randn(5, 130, generator=torch.Generator().manual_seed(2))
    matrix[1], matrix[2, :128] = 0.0, 0.0
    once = unpack(pack(matrix, scheme), scheme)
    assert not once[1].any() and not once[2, :128].any()
    if scheme.symmetric:
        assert torch.allclose(unpack(pack(once, scheme), scheme), once, rtol=0.01, atol=0)


def test_a_zero_point_helps_where_all_weights_have_one_sign() -> None:
    matrix = torch.rand(8, 128, generator=torch.Generator().manual_seed(3))
    one, two = (unpack(pack(matrix, s), s) for s in (Scheme("int4"), SCHEMES["int4 asymmetric"]))
    assert (two - matrix).abs().mean() < 0.6 * (one - matrix).abs().mean()


def test_int4_lies_two_to_a_byte_the_earlier_input_in_the_lower_half() -> None:
    packed = pack(torch.tensor([[7.0, -7.0, 1.0]]), Scheme("int4"))
    assert packed.values.tolist() == [[15 | 1 << 4, 9]]
    assert packed.scale.tolist() == [[1.0]]
    uneven = pack(torch.tensor([[0.0, 15.0]]), SCHEMES["int4 asymmetric"])
    assert (uneven.values.tolist(), uneven.zero.tolist()) == ([[0 | 15 << 4]], [[0]])


def test_int8_and_fp8_have_one_scale_an_output() -> None:
    eight = pack(torch.tensor([[127.0, -12.0], [0.5, 1.0]]), Scheme("int8"))
    assert eight.values.tolist() == [[127, -12], [64, 127]]
    float8 = pack(torch.tensor([[448.0, 17.0]]), Scheme("fp8"))
    assert float8.values.float().tolist() == [[448.0, 16.0]]


@pytest.mark.parametrize("told", [("int3", 128), ("int4", 0), ("int4", 33)])
def test_an_unknown_scheme_is_a_clear_error(told: tuple[str, int]) -> None:
    with pytest.raises(ExportError, match="int8, int4, fp8"):
        Scheme(*told)  # type: ignore[arg-type]


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def quantised(plain: Path, out: Path, scheme: Scheme) -> quantisedfile.Errors:
    return quantisedfile.quantise_folder(
        plain, out, scheme, quantisedfile.linear_names(loaded(plain).model)
    )


@named
def test_a_quantised_checkpoint_gives_back_every_weight(
    plain: Path, tmp_path: Path, scheme: Scheme
) -> None:
    errors = quantised(plain, tmp_path, scheme)
    before, after = load_file(plain / "model.safetensors"), quantisedfile.dequantised(tmp_path)
    assert after.keys() == before.keys()
    off = max(float((after[name] - one).abs().max()) for name, one in before.items())
    assert off == pytest.approx(errors.max, rel=1e-5)
    assert 0 < errors.mean < errors.max
    assert errors.of_bound <= 1.001
    assert errors.matrices == 14
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])


def test_four_bits_take_less_than_a_fifth_of_the_bytes(plain: Path, tmp_path: Path) -> None:
    quantised(plain, tmp_path, Scheme("int4"))
    name = "model.layers.0.mlp.gate_proj.weight"
    held = load_file(tmp_path / "model.safetensors")
    parts = [one for key, one in held.items() if key.startswith(name)]
    size = sum(one.numel() * one.element_size() for one in parts)
    assert size < 0.2 * 4 * 150 * 36


def test_the_quantised_model_stays_near_and_int8_is_the_nearest(
    plain: Path, tmp_path: Path
) -> None:
    base, off = loaded(plain), {}
    for name in ("int8", "int4"):
        quantised(plain, tmp_path / name, Scheme(name))  # type: ignore[arg-type]
        off[name] = (logits(in_fewer_bits(base, tmp_path / name)) - logits(base)).abs().max()
    assert 0 < off["int8"] < off["int4"] / 4 < 0.05


@pytest.mark.parametrize(
    "change",
    [
        lambda layout, held: layout.update(version=2),
        lambda layout, held: layout.clear(),
        lambda layout, held: held.pop(next(name for name in held if name.endswith(".packed"))),
        lambda layout, held: held.pop(next(name for name in held if name.endswith(".scale"))),
    ],
    ids=["version", "nothing", "no values", "no scale"],
)
def test_a_layout_that_does_not_fit_is_a_clear_error(plain: Path, tmp_path: Path, change) -> None:
    quantised(plain, tmp_path, Scheme("int8"))
    layout = json.loads((tmp_path / quantisedfile.LAYOUT).read_text())
    held = load_file(tmp_path / "model.safetensors")
    change(layout, held)
    (tmp_path / quantisedfile.LAYOUT).write_text(json.dumps(layout))
    save_file(held, tmp_path / "model.safetensors")
    with pytest.raises(ExportError, match="export"):
        quantisedfile.dequantised(tmp_path)


# -- plans ----------------------------------------------------------------------------------------


def test_a_model_agrees_with_itself_and_less_with_another(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "MAX_TOKENS", 8)
    base = loaded(plain)
    writer = Writer.of(base, examples=0)
    asks = parity.asks_of(writer, 2, seed=1)
    own = parity.Torch(PlanPolicy(base, writer, lora=None))
    same = parity.compare(writer, own, own, asks)
    assert (same.agreement, same.routing, same.kl_max) == (1.0, 1.0, 0.0)
    quantised(plain, tmp_path, Scheme("int4"))
    other = parity.Torch(PlanPolicy(in_fewer_bits(base, tmp_path), writer, lora=None))
    apart = parity.compare(writer, own, other, asks)
    assert apart.tokens == same.tokens > 2
    assert 0 < apart.kl_mean < apart.kl_max < 0.1


def test_the_same_seed_asks_the_same(plain: Path) -> None:
    writer = Writer.of(loaded(plain), examples=0)
    assert parity.asks_of(writer, 5, 7) == parity.asks_of(writer, 5, 7)
    assert parity.asks_of(writer, 5, 7) != parity.asks_of(writer, 5, 8)
