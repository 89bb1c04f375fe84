"""A Llama- or Qwen2-shaped decoder over a paged cache: what its layers compute, in order.

Several tokens of a sequence, as of a prompt, go through torch's own products and attention
(`ops.py` here). One token a sequence is a decode step: it goes through the project's kernels
(`conductor_kernels.ops`), which on a CPU are plain torch too. Both fill the same cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from conductor.plan.prompt import BLOCK_TOKENS
from conductor_kernels.matrix import Matrix
from conductor_kernels.ops.attention import attention
from conductor_kernels.ops.choose import choose
from conductor_kernels.ops.gate_up import gate_up
from conductor_kernels.ops.linear import linear
from conductor_kernels.ops.norm import rms_norm
from conductor_kernels.ops.qkv import qkv
from conductor_kernels.runner import ops
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.drawing import Drawing
from conductor_kernels.runner.packed import parts
from conductor_kernels.runner.rope import rotations
from conductor_kernels.runner.shape import Shape
from conductor_kernels.runner.step import Share, Singles, lay_out, singles
from conductor_kernels.runner.weights import Layer, Weights

MOST_SEQUENCES = 16
"""Of one decode step: what the kernels are made for."""


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

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._weights.norm.device

    @torch.inference_mode()
    def forward(self, shares: Sequence[Share]) -> Tensor:
        """Run the shares' tokens through all layers; their keys and values are then in the cache.

        Gives the normed hidden state of the last token of each share, [B, H]. Run again with the
        same shares it does the same: what it writes is what is there already.
        """
        ones = [at for at, share in enumerate(shares) if len(share.tokens) == 1]
        hidden = self._weights.norm.new_empty((len(shares), self.shape.hidden))
        for first in range(0, len(ones), MOST_SEQUENCES):
            some = ones[first : first + MOST_SEQUENCES]
            hidden[some] = self.decode(singles([shares[at] for at in some], self.device))
        many = [at for at, share in enumerate(shares) if len(share.tokens) != 1]
        if many:
            hidden[many] = self._prefill([shares[at] for at in many])
        return hidden

    @torch.inference_mode()
    def decode(self, step: Singles) -> Tensor:
        """One token of each of at most `MOST_SEQUENCES` sequences; gives what `forward` does.

        Nothing is asked of the host, so a CUDA graph can hold it. A place without a sequence has
        slot -1 and length 0: it writes nothing, and what it gives is of no use.
        """
        x = self._weights.embedding[step.tokens]
        for number, layer in enumerate(self._weights.layers):
            x = self._decode_layer(x, number, layer, step)
        hidden: Tensor = rms_norm(x, self._weights.norm, self.shape.eps)
        return hidden

    @torch.inference_mode()
    def choose(self, hidden: Tensor, drawing: Drawing) -> tuple[Tensor, Tensor]:
        """The next token of each sequence and its log-probability among the allowed ones, [B] int32
        and float32. Token -1: nothing is allowed, or the model answers with what is no number, and
        then the log-probability is none either."""
        head = parts(Matrix(self._weights.head))
        chosen: tuple[Tensor, Tensor] = choose(hidden, *head, *vars(drawing).values())
        return chosen

    # -- the layers ---------------------------------------------------------------------------

    def _prefill(self, shares: Sequence[Share]) -> Tensor:
        step = lay_out(shares, self._cosines, self._sines)
        weights, cache, eps = self._weights, self.cache, self.shape.eps
        x = weights.embedding[step.tokens]
        for number, layer in enumerate(weights.layers):
            query = ops.project_queries(x, layer, number, step, cache, eps)
            attended = ops.attend(query, number, step, cache)
            x = ops.add_projected(x, attended, layer)
            x = ops.add_mlp(x, layer, eps)
        return ops.rms_norm(x[step.last], weights.norm, eps)

    def _decode_layer(self, x: Tensor, number: int, layer: Layer, step: Singles) -> Tensor:
        eps = self.shape.eps
        keys, values = self.cache.layer(number)
        query, _ = qkv(
            x, None, layer.input_norm, eps, *parts(layer.qkv), layer.qkv_bias,
            self._cosines, self._sines, step.positions, step.slots, keys, values,
        )  # fmt: skip
        attended = attention(query, keys, values, step.blocks, step.lengths, BLOCK_TOKENS)
        x = linear(attended, *parts(layer.out), layer.out_bias, x)
        inner = gate_up(x, layer.inner_norm, eps, *parts(layer.gate_up))
        after: Tensor = linear(inner, *parts(layer.down), None, x)
        return after
