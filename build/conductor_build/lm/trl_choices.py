"""What each token of a batch of plans was chosen among, and its log-probability there.

TRL scores a token by its probability among all tokens. A conductor chooses among those that its
automaton allows, so that is what its objective must score: a batch carries, beside its tokens, the
row of a table of masks for each token that was a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from conductor_build.lm.sampling import entropy, log_probs

if TYPE_CHECKING:
    from conductor.plan.automaton import Automaton
    from conductor_build.lm.policy import Written

FORCED = -1
"""In place of a row: the token had to come, or is padding."""


@dataclass(frozen=True)
class Choices:
    """The choices of B plans of at most T tokens, over a vocabulary of V."""

    rows: Tensor
    """[B, T] int64: rows of `masks`, or `FORCED`."""
    masks: Tensor
    """[M, ceil(V / 32) * 4] uint8: which tokens were allowed, id i at bit i % 8 of byte i // 8."""


def choices_of(plans: Iterable[tuple[Automaton, Written]]) -> Choices:
    """What the tokens of plans were chosen among, by walking each through its automaton."""
    numbers: dict[bytes, int] = {}
    rows = []
    for automaton, written in plans:
        state, row = automaton.start(), []
        for token, forced in zip(written.tokens, written.forced, strict=True):
            mask = None if forced else automaton.allowed(state)
            row.append(FORCED if mask is None else numbers.setdefault(mask, len(numbers)))
            state = automaton.advance(state, token)
        rows.append(torch.tensor(row))
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=FORCED)
    masks = torch.frombuffer(bytearray(b"".join(numbers)), dtype=torch.uint8)
    return Choices(padded, masks.view(len(numbers), -1))


def scores(
    logits: Tensor, tokens: Tensor, choices: Choices, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (nats) [B, T] of `tokens` [B, T] among what was allowed, 0 at
    tokens that were no choice. `logits` are [B, T, V]: those that each token was sampled from."""
    chosen = choices.rows != FORCED
    used, inverse = torch.unique(choices.rows[chosen], return_inverse=True)
    allowed = unpacked(choices.masks[used], logits.shape[-1])[inverse]
    log = log_probs(logits[chosen], allowed, temperature)
    taken = log.gather(1, tokens[chosen][:, None])[:, 0]
    blank = torch.zeros(tokens.shape, device=logits.device)
    return (
        blank.masked_scatter(chosen, taken),
        blank.masked_scatter(chosen, entropy(log)),
    )


def unpacked(masks: Tensor, vocabulary: int) -> Tensor:
    """Bit masks [M, bytes] as bool [M, vocabulary]. A head may be padded beyond the tokenizer."""
    bits = masks[:, :, None].bitwise_right_shift(torch.arange(8, device=masks.device)) & 1
    flat = bits.bool().flatten(1)[:, :vocabulary]
    return torch.nn.functional.pad(flat, (0, vocabulary - flat.shape[1]), value=False)


def total(choices: Choices, counted: Sequence[bool]) -> int:
    """How many tokens of the plans that count were choices."""
    own = choices.rows[torch.tensor(counted, dtype=torch.bool)]
    return int((own != FORCED).sum())
