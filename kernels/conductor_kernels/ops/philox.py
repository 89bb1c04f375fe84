"""Random numbers without a state: exponential ones, keyed by a sequence, a draw and a token.

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) of the
counter (token, draw, 0, 0) under the sequence's seed. So what a sequence draws hangs on nothing but
its seed: neither on its neighbours in a batch nor on how a kernel is cut, and a CPU draws the same.

The token with the largest `z - log e`, z its logit and e its exponential number, is a draw from the
softmax of z (the Gumbel-max trick: -log e is Gumbel's).
"""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_kernels.language import jit, tl

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF
_TWO_32 = 2.0**-32
_BELOW_ONE = 1 - 2.0**-24
"""The largest float32 below 1: 32 random bits may round up to 1, whose logarithm is none."""
_SMALL = 2.0**-6
"""Below it 1 - v rounds too much away, and four terms of the series are exact to 2^-26."""


def philox(seed: Tensor, counters: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four words of 32 random bits in int64 for each 64-bit seed and counter, all of one shape."""
    c0, c1, c2, c3 = counters
    k0, k1 = seed & _WORD, seed >> 32 & _WORD
    for _ in range(_ROUNDS):
        (high0, low0), (high1, low1) = _product(_MULTIPLIERS[0], c0), _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _WEYL[0] & _WORD, k1 + _WEYL[1] & _WORD
    return c0, c1, c2, c3


def _product(one: int, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves of a 64-bit product: int64 would overflow, so by halves of 16 bits."""
    low, high = (one & 0xFFFF) * other, (one >> 16) * other
    middle = high + (low >> 16)
    return middle >> 16, (middle & 0xFFFF) << 16 | low & 0xFFFF


def log_exponential_reference(seed: Tensor, drawn: Tensor, token: Tensor) -> Tensor:
    """What `log_exponential` gives, in torch. The arguments' shapes broadcast."""
    seed, drawn, token = torch.broadcast_tensors(seed.long(), drawn.long(), token.long())
    none = torch.zeros_like(token)
    word = philox(seed, (token, drawn, none, none))[0]
    v = ((word.float() + 0.5) * _TWO_32).clamp(max=_BELOW_ONE)
    series = v * (1 + v * (1 / 2 + v * (1 / 3 + v * (1 / 4))))
    return torch.where(v < _SMALL, series, -(1 - v).log()).log()


@jit
def log_exponential(seed, drawn, token):
    """The logarithm of an exponential number for each lane: float32. `seed` int64, `drawn` and
    `token` int32, all of one shape."""
    none = token * 0
    word, _, _, _ = tl.philox(seed, token, drawn, none, none)
    v = tl.minimum((word.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.9999999403953552)
    series = v * (1.0 + v * (0.5 + v * (0.3333333432674408 + v * 0.25)))
    return tl.log(tl.where(v < 0.015625, series, -tl.log(1.0 - v)))
