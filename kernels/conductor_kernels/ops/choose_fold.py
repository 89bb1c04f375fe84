"""How the heads' kernels reduce logits to one choice, a block of tokens at a time.

Of each vector five numbers are kept: the largest logit, the sum of all exponentials over it, and of
the token that leads its score, its logit and its id. A program folds one block: what it kept from
one to the next would cost it registers while it multiplies, and some had to be spilled. The order
in which blocks are joined is fixed by sizes alone, so the same inputs give the same bits.
"""

from __future__ import annotations

from conductor_kernels.language import jit, tl
from conductor_kernels.ops.philox import log_exponential

LOWEST = -3.0e38
"""In place of -inf where a difference is taken: -inf - -inf is no number."""
NO_TOKEN = 2**31 - 1
"""Of a choice that was not made; larger than every id."""
NUMBERS = 4
"""Floats of a partial choice; its token is kept apart."""
FOLDING = {"LOWEST": LOWEST, "NO_TOKEN": NO_TOKEN, "NUMBERS": NUMBERS}
"""Constants of every kernel that folds."""


@jit
def fold(z, token, allowed, seed, drawn, LOWEST: tl.constexpr, NO_TOKEN: tl.constexpr):
    """The choice among some tokens. z, `token` and `allowed` are [ROWS, WIDTH], `seed`, `drawn` and
    what it gives are [WIDTH]. A seed below 0 takes the likeliest token, of equal ones the lowest
    id."""
    score = z
    if tl.max(seed, 0) >= 0:
        noise = log_exponential(
            seed[None, :] + tl.zeros_like(token), drawn[None, :] + token * 0, token
        )
        score = tl.where(seed[None, :] >= 0, z - noise, z)
    score = tl.where(allowed, score, float("-inf"))
    its = tl.where(allowed, z, LOWEST)
    largest = tl.max(its, 0)
    total = tl.sum(tl.where(allowed, tl.exp(its - largest[None, :]), 0.0), 0)
    best = tl.max(score, 0)
    leads = allowed & (score == best[None, :])
    chosen = tl.min(tl.where(leads, token, NO_TOKEN), 0)
    logit = tl.max(tl.where(token == chosen[None, :], z, float("-inf")), 0)
    return largest, total, best, logit, chosen


@jit
def join(
    numbers_ptr,
    chosen_ptr,
    part,
    mask,
    LOWEST: tl.constexpr,
    NO_TOKEN: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """The choice among the partial ones at the places `part`: one of each number."""
    at = numbers_ptr + part * NUMBERS
    its = tl.load(at, mask=mask, other=LOWEST)
    totals = tl.load(at + 1, mask=mask, other=0.0)
    scores = tl.load(at + 2, mask=mask, other=float("-inf"))
    logits = tl.load(at + 3, mask=mask, other=float("-inf"))
    tokens = tl.load(chosen_ptr + part, mask=mask, other=NO_TOKEN)
    largest = tl.max(its, 0)
    total = tl.sum(totals * tl.exp(its - largest), 0)
    best = tl.max(scores, 0)
    chosen = tl.min(tl.where(scores == best, tokens, NO_TOKEN), 0)
    logit = tl.max(tl.where(tokens == chosen, logits, float("-inf")), 0)
    return largest, total, best, logit, chosen


@jit
def keep(
    numbers_ptr, chosen_ptr, part, largest, total, best, logit, chosen, mask, NUMBERS: tl.constexpr
):
    """Write partial choices at the places `part`."""
    tl.store(numbers_ptr + part * NUMBERS, largest, mask=mask)
    tl.store(numbers_ptr + part * NUMBERS + 1, total, mask=mask)
    tl.store(numbers_ptr + part * NUMBERS + 2, best, mask=mask)
    tl.store(numbers_ptr + part * NUMBERS + 3, logit, mask=mask)
    tl.store(chosen_ptr + part, chosen, mask=mask)
