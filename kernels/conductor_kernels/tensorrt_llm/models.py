"""The model classes that TensorRT-LLM is given for `ConductorQwen2ForCausalLM` and its like.

Attention stays TensorRT-LLM's own, with its paged cache, and so do embedding and norms; the MLP and
the head are ours (`blocks.py`). The classes are made when they are registered, since what they are
made of is TensorRT-LLM's, and lies elsewhere in other versions (`versions.py`).

    x = x + attention(norm x)          theirs
    x = x + down(silu(gate) * up)      ours; gate and up are one matrix, the norm is read with it
    logits = head(norm x)              ours; of the last token of each sequence

A model is out of TensorRT-LLM's tree as its guide to new models describes. Importable by
`trtllm-serve --custom_module_dirs` through `register_now`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from conductor.errors import StartError
from conductor_kernels.runner.packed import stacked
from conductor_kernels.tensorrt_llm.blocks import (
    HEAD_ROWS,
    Mlp,
    RestrictedHead,
    taken,
)
from conductor_kernels.tensorrt_llm.folder import OURS
from conductor_kernels.tensorrt_llm.versions import Api, resolve, resolve_models

GROUP = "conductor_group"
"""In config.json: inputs that share a scale, where the MLP is packed as int4."""
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def register(api: Api) -> None:
    """Make our architectures known to TensorRT-LLM. Raises `StartError` when it differs."""
    whole = resolve_models(api)
    for name in OURS:
        whole.register_auto_model(name)(_causal(whole, name))


def register_now() -> None:
    """The same for a process that is not our runner's."""
    register(resolve())


def _attention(api: Api, qkv_bias: Callable[[Any], bool]) -> Any:
    class ConductorAttention(api.Attention):  # type: ignore[misc, name-defined]
        """TensorRT-LLM's, set up as the checkpoint says."""

        def __init__(self, model_config: Any, layer_idx: int) -> None:
            config = model_config.pretrained_config
            super().__init__(
                hidden_size=config.hidden_size,
                num_attention_heads=config.num_attention_heads,
                num_key_value_heads=config.num_key_value_heads,
                max_position_embeddings=config.max_position_embeddings,
                bias=qkv_bias(config),
                pos_embd_params=api.PositionalEmbeddingParams(
                    type=api.PositionEmbeddingType.rope_gpt_neox,
                    rope=api.RopeParams.from_config(config),
                ),
                layer_idx=layer_idx,
                dtype=config.torch_dtype,
                dense_bias=bool(getattr(config, "attention_bias", False)),
                config=model_config,
            )

    return ConductorAttention


def _layer(api: Api, attention: Any) -> Any:
    class ConductorLayer(api.DecoderLayer):  # type: ignore[misc, name-defined]
        """Their attention, our MLP."""

        def __init__(self, model_config: Any, layer_idx: int) -> None:
            super().__init__()
            config = model_config.pretrained_config
            self.self_attn = attention(model_config, layer_idx)
            self.input_layernorm = _norm(api, config)
            self.post_attention_layernorm = _norm(api, config)
            self.mlp = Mlp(config.rms_norm_eps)

        def forward(
            self, position_ids: Tensor, hidden_states: Tensor, attn_metadata: Any, **more: Any
        ) -> Tensor:
            attended = self.self_attn(
                position_ids=position_ids,
                hidden_states=self.input_layernorm(hidden_states),
                attn_metadata=attn_metadata,
                **more,
            )
            made: Tensor = self.mlp(hidden_states + attended, self.post_attention_layernorm.weight)
            return made

    return ConductorLayer


def _inner(api: Api, layer: Any) -> Any:
    class ConductorModel(api.DecoderModel):  # type: ignore[misc, name-defined]
        """Everything but the head."""

        def __init__(self, model_config: Any) -> None:
            super().__init__(model_config)
            config = model_config.pretrained_config
            self.embed_tokens = api.Embedding(
                config.vocab_size, config.hidden_size, dtype=config.torch_dtype
            )
            self.layers = nn.ModuleList(
                layer(model_config, number) for number in range(config.num_hidden_layers)
            )
            self.norm = _norm(api, config)

        def forward(
            self,
            attn_metadata: Any,
            input_ids: Tensor | None = None,
            position_ids: Tensor | None = None,
            inputs_embeds: Tensor | None = None,
            **more: Any,
        ) -> Tensor:
            x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
            for one in self.layers:
                x = one(position_ids, x, attn_metadata)
            normed: Tensor = self.norm(x)
            return normed

    return ConductorModel


def _causal(api: Api, name: str) -> Any:
    inner = _inner(api, _layer(api, _attention(api, _has_bias(name))))

    class ConductorForCausalLM(api.DecoderModelForCausalLM[inner, Any]):  # type: ignore[misc, name-defined]
        """The whole model. One GPU: nothing of ours is split."""

        def __init__(self, model_config: Any) -> None:
            config = model_config.pretrained_config
            super().__init__(
                inner(model_config),
                config=model_config,
                hidden_size=config.hidden_size,
                vocab_size=config.vocab_size,
            )
            self.restricted_head = RestrictedHead(config.vocab_size)

        def forward(
            self,
            attn_metadata: Any,
            input_ids: Tensor | None = None,
            position_ids: Tensor | None = None,
            inputs_embeds: Tensor | None = None,
            return_context_logits: bool = False,
            **more: Any,
        ) -> Tensor:
            hidden = self.model(attn_metadata, input_ids, position_ids, inputs_embeds)
            logits: Tensor = self.logits_processor.forward(
                hidden, self.restricted_head, attn_metadata, return_context_logits
            )
            return logits

        def load_weights(
            self, weights: Mapping[str, Any], weight_mapper: Any = None, **more: Any
        ) -> None:
            """Theirs by their own way, ours as the ops take them."""
            skipped = [*more.pop("skip_modules", ()), "lm_head"]
            theirs = {one: weights[one] for one in weights if not _is_ours(one)}
            if weight_mapper is None:
                super().load_weights(theirs, skip_modules=skipped, **more)
            else:
                super().load_weights(theirs, weight_mapper, skip_modules=skipped, **more)
            _fill(self, weights)

    ConductorForCausalLM.__name__ = ConductorForCausalLM.__qualname__ = name
    return ConductorForCausalLM


def _norm(api: Api, config: Any) -> Any:
    return api.RMSNorm(
        hidden_size=config.hidden_size, eps=config.rms_norm_eps, dtype=config.torch_dtype
    )


def _has_bias(name: str) -> Callable[[Any], bool]:
    """Whether query, key and value have one: Qwen2's always, Llama's where it says so."""
    if "Qwen2" in name:
        return lambda config: True
    return lambda config: bool(getattr(config, "attention_bias", False))


def _is_ours(name: str) -> bool:
    return ".mlp." in name or name == HEAD_ROWS or name.startswith("lm_head.")


def _fill(model: Any, weights: Mapping[str, Any]) -> None:
    """Put MLPs and head in. Raises `StartError` for a checkpoint without one of them."""
    config, like = model.model_config.pretrained_config, model.model.embed_tokens.weight
    group = int(getattr(config, GROUP, 0))
    try:
        for number, layer in enumerate(model.model.layers):
            at = f"model.layers.{number}.mlp"
            gate, up = (taken(weights, f"{at}.{one}_proj.weight", group) for one in ("gate", "up"))
            layer.mlp.gate_up.put(stacked([gate, up]), like)
            layer.mlp.down.put(taken(weights, f"{at}.down_proj.weight", group), like)
        whole = weights[_EMBEDDING if config.tie_word_embeddings else _HEAD][:]
    except KeyError as error:
        raise StartError(f"the checkpoint holds no {error.args[0]}: compile it again") from None
    rows = weights.get(HEAD_ROWS)
    model.restricted_head.put(whole, None if rows is None else rows[:], like)
    if not config.tie_word_embeddings:
        # Its place is taken: kept, it would hold as much memory again.
        model.lm_head.weight = nn.Parameter(torch.empty(0, device=like.device), requires_grad=False)
