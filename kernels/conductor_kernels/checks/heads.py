"""Checks of the head: who is chosen, with which log-probability, and how often when it is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from conductor_kernels.checks.case import DTYPES, FLOAT32, Case, bound_of, name_of
from conductor_kernels.checks.matrices import KINDS, Made, make
from conductor_kernels.checks.products import generator, numbers

_SIZES = ((1, 77, 64), (3, 515, 192), (16, 257, 128))
"""Batch, tokens and hidden."""
_LARGE = ((1, 152_064, 3_584), (16, 152_064, 3_584))
_DRAWS = {"cuda": 200_000, "cpu": 600}
"""On a CPU the reference draws one by one."""
_AT_ONCE = 2_000
_NO_TOKEN = -1


def cases() -> Iterator[Case]:
    """All of them. Logits are sums in float32 and are not rounded; what may be is a weight that is
    unpacked for a tensor core."""
    for dtype in DTYPES:
        for kind in KINDS:
            most = FLOAT32 if kind == "dense" else bound_of(dtype, 2)
            for large, sizes in ((False, _SIZES), (True, _LARGE if kind == "dense" else ())):
                for size in sizes:
                    batch, tokens, hidden = size
                    name = f"{kind}, {name_of(dtype)}, batch {batch}, {tokens} x {hidden}"
                    measure = partial(_likeliest, kind, dtype, size)
                    yield Case("choose", name, dtype, most, measure, large)
    for dtype in (torch.float32, torch.bfloat16):
        for listed in (True, False):
            how = "rows that are listed" if listed else "the whole head"
            name = f"{name_of(dtype)}, {how}, chi-square over its limit"
            yield Case("masked sampling", name, dtype, 1.0, partial(_frequencies, dtype, listed))


@dataclass(frozen=True, eq=False)
class _Asked:
    """Sequences that ask for a token."""

    hidden: Tensor
    head: Made
    allowed: Tensor
    """[B, V] bool"""
    listed: Tensor
    """[B] bool: its allowed tokens are told as rows."""
    temperature: Tensor
    seed: Tensor
    drawn: Tensor

    def chosen(self) -> tuple[Tensor, Tensor]:
        """By the op."""
        from conductor_kernels.ops.choose import choose

        rows = _rows(self.allowed)
        count = torch.where(self.listed, self.allowed.sum(1), -1).int()
        token, log_prob = choose(
            self.hidden, *self.head.parts, packed_bits(self.allowed), rows, count,
            self.temperature, self.seed, self.drawn,
        )  # fmt: skip
        return token, log_prob

    def log_probs(self) -> Tensor:
        """[B, V] in float64: of every token among the allowed ones."""
        logits = self.hidden.double() @ self.head.exact.T / self.temperature.double()[:, None]
        return logits.masked_fill(~self.allowed, -torch.inf).log_softmax(-1)


def packed_bits(allowed: Tensor) -> Tensor:
    """[B, V] bool as [B, ceil(V / 32)] int32: token i is bit i % 32 of word i // 32."""
    padded = torch.nn.functional.pad(allowed, (0, -allowed.shape[1] % 32))
    words = (
        padded.view(len(allowed), -1, 32).long() << torch.arange(32, device=allowed.device)
    ).sum(2)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def _rows(allowed: Tensor) -> Tensor:
    """[B, R] int32: the allowed ids of each, rising, then zeros."""
    most = max(1, int(allowed.sum(1).max()))
    order = torch.argsort((~allowed).int(), dim=1, stable=True)[:, :most]
    return torch.where(allowed.gather(1, order), order, 0).int()


def _likeliest(
    kind: str, dtype: torch.dtype, size: tuple[int, int, int], device: torch.device, seed: int
) -> float:
    """The worst log-probability of what was chosen, and how far it is from the likeliest."""
    batch, tokens, hidden = size
    random = generator(device, seed)
    allowed = torch.rand(batch, tokens, generator=random, device=device) < 0.2
    allowed[:, tokens - 1] = True
    if batch > 2:
        allowed[1] = False
    # So that no list is longer than those of the automaton.
    listed = (torch.arange(batch, device=device) % 2 == 0) & (allowed.sum(1) <= 4_096)
    asked = _Asked(
        numbers(random, dtype, batch, hidden),
        make(kind, tokens, hidden, dtype, random),
        allowed,
        listed,
        torch.linspace(0.7, 1.3, batch, device=device),
        torch.full((batch,), -1, device=device),
        torch.zeros(batch, device=device, dtype=torch.int32),
    )
    return _off(asked, *asked.chosen())


def _off(asked: _Asked, token: Tensor, log_prob: Tensor) -> float:
    some = asked.allowed.any(1)
    if bool((token[~some] != _NO_TOKEN).any()) or bool((token[some] < 0).any()):
        return math.inf
    wanted = asked.log_probs()[some]
    its = wanted.gather(1, token[some].long()[:, None])[:, 0]
    apart = (log_prob[some].double() - its).abs()
    behind = wanted.amax(1) - its
    worst = float((torch.maximum(apart, behind) / its.abs().clamp_min(1.0)).max())
    return worst if math.isfinite(worst) else math.inf


def _frequencies(dtype: torch.dtype, listed: bool, device: torch.device, seed: int) -> float:
    """Pearson's statistic of many draws against the masked softmax, over the value that it exceeds
    once in a million times."""
    random, tokens = generator(device, seed), 77
    head, hidden = make("dense", tokens, 64, dtype, random), numbers(random, dtype, 1, 64)
    allowed = (torch.arange(tokens, device=device) % 3 == 1)[None]
    draws = _DRAWS[device.type]
    counts = torch.zeros(tokens, dtype=torch.int64, device=device)
    chances = torch.zeros(1, tokens, device=device)
    for first in range(0, draws, _AT_ONCE):
        batch = min(_AT_ONCE, draws - first)
        drawn = torch.arange(first, first + batch, device=device, dtype=torch.int32)
        asked = _Asked(
            hidden.expand(batch, -1).contiguous(),
            head,
            allowed.expand(batch, -1),
            torch.full((batch,), listed, device=device),
            torch.full((batch,), 0.8, device=device),
            torch.full((batch,), seed, device=device),
            drawn,
        )
        token, _ = asked.chosen()
        if bool((token < 0).any()):
            return math.inf
        counts += torch.bincount(token.long(), minlength=tokens)
        chances = asked.log_probs()[:1].exp()
    return chi_square(counts, chances[0], draws)


def chi_square(counts: Tensor, chances: Tensor, draws: int) -> float:
    """The statistic over its limit; infinite when something was drawn that never may be. Chances
    too small to be counted are taken together."""
    if bool((counts[chances == 0] > 0).any()):
        return math.inf
    expected, seen = chances * draws, counts.double()
    often = expected >= 5
    expected = torch.cat((expected[often], expected[~often].sum()[None]))
    seen = torch.cat((seen[often], seen[~often].sum()[None]))
    there = expected > 0
    statistic = float(((seen - expected).square() / expected)[there].sum())
    return statistic / chi_square_limit(int(there.sum()) - 1)


def chi_square_limit(freedom: int) -> float:
    """What chi-square exceeds once in a million times (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 4.7534 * spread**0.5) ** 3)
