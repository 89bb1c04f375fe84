"""The plans of later rounds in a batch of TRL's, which knows one plan for each prompt.

TRL makes a batch of B rows, the plans of the first rounds. Those of later rounds follow them as
rows of their own, with the reward of their episode; rows that count for nothing fill the batch up,
since TRL cuts it into so many parts of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from conductor_build.lm.objective import discounted
from conductor_build.lm.trl_choices import FORCED


@dataclass(frozen=True)
class Later:
    """A plan of a later round."""

    episode: int
    """The row of its episode's first plan."""
    place: int
    """Its round, from 1."""
    prompt: list[int]
    plan: list[int]
    log_probs: list[float]


def credited(
    advantages: Sequence[float | None], turns: Sequence[int], later: Sequence[Later], share: float
) -> list[float | None]:
    """Of all plans, the first rounds' before the later ones': what of an episode's advantage each
    gets. `turns` are how many rounds each episode has; None: a void, which teaches nothing."""
    places = [(row, 0) for row in range(len(turns))] + [(one.episode, one.place) for one in later]
    return [
        None if (own := advantages[row]) is None else discounted(own, place, turns[row], share)
        for row, place in places
    ]


def lengthened(
    batch: dict[str, Tensor], later: Sequence[Later], parts: int, blank: int
) -> dict[str, Tensor]:
    """The batch with rows for later plans, and as many more as make the rows a multiple of `parts`.
    `blank` is a token for what nobody reads. Only what the loss takes is kept."""
    first = len(batch["completion_ids"])
    missing = -(first + len(later)) % parts
    prompts = [one.prompt for one in later] + [[blank]] * missing
    plans = [one.plan for one in later] + [[blank]] * missing
    chances = [one.log_probs for one in later] + [[0.0]] * missing
    found = {
        "prompt_ids": _joined(batch["prompt_ids"], prompts, blank, left=True),
        "prompt_mask": _joined(batch["prompt_mask"], _ones(prompts), 0, left=True),
        "completion_ids": _joined(batch["completion_ids"], plans, blank),
        "completion_mask": _joined(batch["completion_mask"], _ones(plans), 0),
        "sampling_per_token_logps": _joined(batch["sampling_per_token_logps"], chances, 0.0),
    }
    found["num_items_in_batch"] = batch["num_items_in_batch"]
    return found


def filled(rows: Tensor, count: int, length: int) -> Tensor:
    """Rows of masks [B, T] as [count, length]: what is added was no choice."""
    return pad(rows, (0, length - rows.shape[1], 0, count - len(rows)), value=FORCED)


def _joined(
    table: Tensor, more: Sequence[Sequence[float]], fill: float, left: bool = False
) -> Tensor:
    """`table` [B, T] with further rows, all as wide as the widest, filled up on one side."""
    width = max([table.shape[1], *map(len, more)])
    rows = [pad(table, _sides(width - table.shape[1], left), value=fill)]
    for one in more:
        row = torch.tensor([one], dtype=table.dtype, device=table.device)
        rows.append(pad(row, _sides(width - len(one), left), value=fill))
    return torch.cat(rows)


def _ones(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[1] * len(one) for one in rows]


def _sides(missing: int, left: bool) -> tuple[int, int]:
    return (missing, 0) if left else (0, missing)
