"""A model run over packed tokens that share what stands before them.

    prefix      the same for every request: a `Stretch` of keys and values, computed once
    rest        one request's: a stretch that sees the prefix, computed once for all its rollouts
    own tokens  of each rollout, which see both

Tokens of rows of different lengths stand packed one after the other, so that no padding is
multiplied. What comes out is what a plain forward of each whole sequence gives, gradients as well:
that of a stretch is the sum over all who read it. transformers hands the attention to us by name
(`AttentionInterface`); everything else of the model is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conductor_build.lm.attention import NAME, Layout, attend
from conductor_build.lm.base import BaseError

Layers = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of every layer."""
_CHECKED = (504, 281, 1217, 3110, 2034, 905, 640, 2251, 338, 411, 1520, 987)
"""Tokens that a model is tried with: any; the later half follows on the earlier."""
_MOST_DIVERGENCE = 0.02
"""Nats a token, see `_alike`."""


@dataclass(frozen=True)
class Stretch:
    """Tokens that have been read, for others to see."""

    layers: Layers
    """[1, kv heads, S, size] each."""
    end: int
    """The position after its last token."""

    def detached(self) -> Stretch:
        """The same, as leaves at which the gradient of all who read it gathers."""
        leaves = (
            (k.detach().requires_grad_(), v.detach().requires_grad_()) for k, v in self.layers
        )
        return Stretch(tuple(leaves), self.end)

    def tensors(self) -> list[Tensor]:
        """All keys and values."""
        return [one for layer in self.layers for one in layer]


class OwnKeys:
    """Keys and values of N rows that grow token by token, layer by layer: [N, room, kv heads,
    size]. For sampling, so without gradients."""

    def __init__(self, count: int, room: int = 32) -> None:
        self.lengths = [0] * count
        self._room = room
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def fits(self, length: int) -> int:
        """Make room for so many tokens a row; returns the room there is."""
        while self._room < length:
            self._room *= 2
        return self._room

    def put(self, layer: int, rows: Tensor, places: Tensor, new: tuple[Tensor, Tensor]
            ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Write new keys and values [M, kv heads, size]; returns all."""
        held = tuple(self._grown(layer, side, one) for side, one in enumerate(new))
        for all_of, one in zip(held, new, strict=True):
            all_of[rows, places] = one
        self._layers[layer] = (held[0], held[1])
        return held[0], held[1]

    def _grown(self, layer: int, side: int, like: Tensor) -> Tensor:
        before = self._layers.get(layer)
        if before is not None and before[side].shape[1] == self._room:
            return before[side]
        grown = like.new_zeros(len(self.lengths), self._room, *like.shape[1:])
        if before is not None:
            grown[:, : before[side].shape[1]] = before[side]
        return grown

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these."""
        index = torch.tensor(rows)
        self.lengths = [self.lengths[row] for row in rows]
        self._layers = {
            layer: (keys[index.to(keys.device)], values[index.to(keys.device)])
            for layer, (keys, values) in self._layers.items()
        }


@dataclass
class Packed:
    """One forward's tokens, handed through the model to the attention."""

    layout: Layout
    places: Tensor
    """[M] place of each token among its row's own."""
    seen: tuple[Stretch, ...]
    """One for each span of the layout."""
    own: OwnKeys | None
    """Where own keys are kept; None: there are none but those of this forward."""
    read: dict[int, tuple[Tensor, Tensor]]
    """Filled with the own keys and values of each layer, [N, L, kv heads, size]."""


class Reader:
    """Runs one model over packed tokens."""

    def __init__(self, model: Any) -> None:
        """Raises `BaseError` for a model whose attention cannot be split."""
        _register()
        self.model = model
        self._decoder, self._head = model.get_decoder(), model.get_output_embeddings()
        _check(self)

    @property
    def device(self) -> torch.device:
        return self._head.weight.device  # type: ignore[no-any-return]

    def read(self, ids: Sequence[int], *before: Stretch) -> tuple[Stretch, Tensor]:
        """Read tokens that see all of `before`; returns them as a stretch, and the hidden state
        [1, hidden] after the last."""
        start = before[-1].end if before else 0
        hidden, packed = self.run([tuple(ids)], start, [(one, 0, 1) for one in before])
        layers = (
            (k.transpose(1, 2), v.transpose(1, 2)) for _, (k, v) in sorted(packed.read.items())
        )
        return Stretch(tuple(layers), start + len(ids)), hidden[-1:]

    def run(
        self,
        tokens: Sequence[Sequence[int]],
        starts: int | Sequence[int],
        seen: Sequence[tuple[Stretch, int, int]],
        own: OwnKeys | None = None,
    ) -> tuple[Tensor, Packed]:
        """Hidden states [M, hidden] of the new tokens of N rows, packed row after row.

        `starts` is the position of each row's first own token; `seen` says which rows, from and to
        before, see a stretch.
        """
        packed = _packed(tokens, seen, own, self.device)
        first = torch.tensor([starts] * len(tokens) if isinstance(starts, int) else list(starts))
        positions = first.to(self.device)[packed.layout.rows] + packed.places
        ids = torch.tensor([one for row in tokens for one in row], device=self.device)
        with _attending(self._decoder.config):
            result = self._decoder(
                input_ids=ids[None], position_ids=positions[None], use_cache=False, packed=packed
            )
        if own is not None:
            own.lengths = [n + len(row) for n, row in zip(own.lengths, tokens, strict=True)]
        return result.last_hidden_state[0], packed

    def logits(self, hidden: Tensor) -> Tensor:
        """[m, vocabulary] in float32."""
        return self._head(hidden).to(torch.float32)  # type: ignore[no-any-return]


def _packed(
    tokens: Sequence[Sequence[int]],
    seen: Sequence[tuple[Stretch, int, int]],
    own: OwnKeys | None,
    device: torch.device,
) -> Packed:
    counts = [len(row) for row in tokens]
    begins = [0]
    for count in counts:
        begins.append(begins[-1] + count)
    lengths = torch.tensor(counts)
    rows = torch.repeat_interleave(torch.arange(len(counts)), lengths)
    slots = torch.arange(begins[-1]) - torch.tensor(begins)[rows]
    held = torch.tensor([0] * len(counts) if own is None else own.lengths)
    longest = max(counts)
    room = longest if own is None else own.fits(int((held + lengths).max()))
    used = [(stretch, begins[a], begins[b]) for stretch, a, b in seen if begins[a] < begins[b]]
    layout = Layout(
        rows=rows.to(device), slots=slots.to(device), count=len(counts), longest=longest,
        spans=tuple((a, b) for _, a, b in used), mask=_mask(held, longest, room).to(device),
    )  # fmt: skip
    places = (slots + held[rows]).to(device)
    return Packed(layout, places, tuple(stretch for stretch, _, _ in used), own, {})


def _mask(held: Tensor, longest: int, room: int) -> Tensor:
    """[N or 1, 1, t, L]: a token sees its row's own up to itself."""
    if not held.any():
        held = held[:1]
    place = held[:, None] + torch.arange(longest)
    hidden = torch.arange(room) > place[..., None]
    return torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None]


# -- the attention of transformers ----------------------------------------------------------------


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, packed: Packed | None = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """[1, heads, M, size] to [1, M, heads, size]; called by every layer of the model."""
    assert packed is not None
    layer, layout = module.layer_idx, packed.layout
    new = key[0].transpose(0, 1), value[0].transpose(0, 1)
    if packed.own is None:
        own = layout.padded(new[0]), layout.padded(new[1])
    else:
        own = packed.own.put(layer, layout.rows, packed.places, new)
    packed.read[layer] = own
    shared = [one for stretch in packed.seen for one in stretch.layers[layer]]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query[0].transpose(0, 1), own, shared, layout, scale)[None], None


def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attention)


@contextmanager
def _attending(config: Any) -> Iterator[None]:
    """For one forward the model uses our attention; whoever else runs it gets its own."""
    usual = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = usual


def _check(reader: Reader) -> None:
    """That the model gives, split, what it gives whole: sliding windows, biases of the attention,
    scaled logits and the like come to light here and not in a training."""
    config = reader.model.config
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or not getattr(reader.model, "_supports_attention_backend", False):
        raise BaseError("this model's attention is not plain causal attention: take another base")
    ids, known = [i % config.vocab_size for i in _CHECKED], len(_CHECKED) // 2
    with torch.no_grad():
        whole = reader.model(
            input_ids=torch.tensor([ids], device=reader.device), use_cache=False
        ).logits[0, known:].to(torch.float32)  # fmt: skip
        before, _ = reader.read(ids[:known])
        hidden, _ = reader.run([ids[known:]] * 2, known, [(before, 0, 2)])
        split = reader.logits(hidden).to(torch.float32).view(2, *whole.shape)
    if not _alike(split, whole, rounded=reader.model.dtype is not torch.float32):
        raise BaseError(
            "this model gives other logits when its prompt is shared: take a base model with "
            "plain causal attention and a plain head"
        )


def _alike(split: Tensor, whole: Tensor, *, rounded: bool) -> bool:
    """[2, M, V] and [M, V]. In few bits single logits differ by a tenth of their range from one way
    of computing to another, so there what they say of the next token is compared: their divergence
    is .001 to .005 for SmolLM2 in bfloat16, and .04 to .4 where its positions are off by one."""
    if not rounded:
        span = max(float(whole.max() - whole.min()), 1e-3)
        return float((split - whole).abs().max()) <= 1e-3 * span
    expected = whole.log_softmax(-1)
    divergence = (expected.exp() * (expected - split.log_softmax(-1))).sum(-1)
    return float(divergence.mean()) <= _MOST_DIVERGENCE
