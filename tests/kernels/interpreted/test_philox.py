"""Numbers without a state: as published, as in torch, and as they should be spread."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from conductor_kernels.language import jit, tl
from conductor_kernels.ops.philox import log_exponential, log_exponential_reference, philox

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@jit  # type: ignore[untyped-decorator]
def _numbers_kernel(  # type: ignore[no-untyped-def]
    out, seed, drawn, token, LANES: tl.constexpr
):
    lane = tl.arange(0, LANES)
    tokens, draws = tl.load(token + lane), tl.load(drawn + lane)
    tl.store(out + lane, log_exponential(tl.load(seed + lane), draws, tokens))


@pytest.mark.parametrize(
    ("seed", "counter", "words"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (-1, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_words_are_those_of_the_published_vectors(
    seed: int, counter: tuple[int, ...], words: tuple[int, ...]
) -> None:
    """Random123's known answers for philox4x32 with ten rounds."""
    c0, c1, c2, c3 = (torch.tensor([word]) for word in counter)
    found = philox(torch.tensor([seed]), (c0, c1, c2, c3))
    assert tuple(int(word) for word in found) == words


def _keys(lanes: int) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.Generator().manual_seed(3)
    seed = torch.randint(0, 2**62, (lanes,), generator=wide)
    drawn, token = (torch.randint(0, 2**31, (lanes,), generator=wide).int() for _ in range(2))
    return seed, drawn, token


def test_kernel_and_torch_draw_the_same_numbers() -> None:
    lanes = 4096
    seed, drawn, token = _keys(lanes)
    out = torch.empty(lanes)
    _numbers_kernel[(1,)](out, seed, drawn, token, LANES=lanes)
    torch.testing.assert_close(
        out, log_exponential_reference(seed, drawn, token), rtol=1e-6, atol=1e-6
    )


def test_the_numbers_are_exponential_and_neighbours_have_nothing_in_common() -> None:
    token = torch.arange(1 << 18)
    first, other = (
        log_exponential_reference(torch.tensor(9), torch.tensor(drawn), token).exp().double()
        for drawn in (0, 1)
    )
    assert abs(first.mean() - 1) < 0.01 and abs(first.var() - 1) < 0.03
    for bound in (1e-4, 0.1, 1.0, 5.0):
        chance = 1 - math.exp(-bound)
        spread = math.sqrt(chance * (1 - chance) / len(token))
        assert abs((first < bound).double().mean() - chance) < 4.5 * spread
    assert abs(torch.corrcoef(torch.stack((first, other)))[0, 1]) < 0.01
    assert abs(torch.corrcoef(torch.stack((first[1:], first[:-1])))[0, 1]) < 0.01


def test_no_word_gives_a_number_without_a_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    from conductor_kernels.ops import philox as module

    words = torch.tensor([0, 1, 2**26 - 1, 2**26, 2**31, 2**32 - 2, 2**32 - 1])
    monkeypatch.setattr(module, "philox", lambda *_: (words,))
    found = log_exponential_reference(torch.tensor(0), torch.tensor(0), torch.zeros_like(words))
    wanted = (-torch.log1p(-((words.double() + 0.5) / 2**32))).log()
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found[:5].double(), wanted[:5], rtol=1e-5, atol=1e-5)
