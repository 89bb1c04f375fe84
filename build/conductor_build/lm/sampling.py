"""Choosing tokens: masks as tensors, the masked and tempered distribution, draws from it.

Pure. Sampling is by one uniform number a row and the inverse of the cumulative distribution, so
that a draw costs no random number for each of 50,000 tokens, and a forbidden token, whose
probability is exactly zero, cannot come out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_KEPT = 256
"""Masks kept as tensors; one of 150,000 tokens is 150 kB."""


class Masks:
    """The automaton's bit masks as boolean tensors. In a text nearly all rows ask for the same
    few."""

    def __init__(self, size: int, device: torch.device) -> None:
        """`size` is the number of logits."""
        self._size, self._device = size, device
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()

    def of(self, mask: bytes) -> Tensor:
        """[V] true where a token may come next."""
        found = self._kept.get(mask)
        if found is None:
            bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[: self._size]
            found = torch.from_numpy(bits.astype(bool)).to(self._device)
            self._kept[mask] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(mask)
        return found

    def stacked(self, masks: Sequence[bytes]) -> Tensor:
        """[n, V] of them all."""
        return torch.stack([self.of(mask) for mask in masks])


def log_probs(logits: Tensor, allowed: Tensor | None, temperature: float) -> Tensor:
    """[n, V] log-probabilities in float32: minus infinity where `allowed` is false."""
    tempered = logits.to(torch.float32) / temperature
    if allowed is not None:
        tempered = tempered.masked_fill(~allowed, -torch.inf)
    return torch.log_softmax(tempered, -1)


def entropy(log: Tensor) -> Tensor:
    """[n] entropies of distributions [n, V], in nats; forbidden tokens add nothing, nor to the
    gradient."""
    return -(log.exp() * log.masked_fill(log == -torch.inf, 0.0)).sum(-1)


def draw(log: Tensor, generator: torch.Generator | None) -> Tensor:
    """[n] a token of each row of [n, V] log-probabilities; the likeliest without a generator."""
    if generator is None:
        return log.argmax(-1)
    heaped = log.exp().cumsum(-1, dtype=torch.float64)
    total = heaped[:, -1:]
    chance = torch.rand(
        len(log), 1, dtype=torch.float64, generator=generator, device=generator.device
    ).to(log.device)
    below = torch.nextafter(total, torch.zeros_like(total))
    return torch.searchsorted(heaped, torch.minimum(chance * total, below), right=True)[:, 0]
