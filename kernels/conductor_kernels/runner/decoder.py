"""A Llama- or Qwen2-shaped decoder over a paged cache: what its layers compute, in order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from conductor_kernels.runner import ops
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.rope import rotations
from conductor_kernels.runner.shape import Shape
from conductor_kernels.runner.step import Share, lay_out
from conductor_kernels.runner.weights import Weights


class Decoder:
    """Weights with the cache that they fill. For one thread."""

    def __init__(self, shape: Shape, weights: Weights, cache: Cache) -> None:
        self.shape, self.cache = shape, cache
        self._weights = weights
        places = min(shape.positions, cache.slots)
        turns = rotations(shape.rope, shape.head_dim, places)
        self._cosines, self._sines = (turn.to(weights.norm) for turn in turns)

    @property
    def window(self) -> int:
        """Most tokens that one sequence may have."""
        return len(self._cosines)

    @torch.inference_mode()
    def forward(self, shares: Sequence[Share]) -> Tensor:
        """Run the shares' tokens through all layers; their keys and values are then in the cache.

        Gives the normed hidden state of the last token of each share, [B, H]. Run again with the
        same shares it does the same: what it writes is what is there already.
        """
        step = lay_out(shares, self._cosines, self._sines)
        weights, cache, eps = self._weights, self.cache, self.shape.eps
        x = weights.embedding[step.tokens]
        for number, layer in enumerate(weights.layers):
            query = ops.project_queries(x, layer, number, step, cache, eps)
            attended = ops.attend(query, number, step, cache)
            x = ops.add_projected(x, attended, layer)
            x = ops.add_mlp(x, layer, eps)
        return ops.rms_norm(x[step.last], weights.norm, eps)

    @torch.inference_mode()
    def choose(
        self,
        hidden: Tensor,
        masks: Tensor,
        temperatures: Sequence[float],
        drawn: Sequence[Tensor | None],
    ) -> list[tuple[int, float]]:
        """The next token of each sequence and its log-probability, as `ops.choose` says."""
        heat = torch.tensor(temperatures, device=hidden.device)
        chosen, log_probs = ops.choose(hidden, self._weights.head, masks, heat, drawn)
        return list(zip(chosen.tolist(), log_probs.tolist(), strict=True))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._weights.norm.device
