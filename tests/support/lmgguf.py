"""A small Llama written as a GGUF, its matrices in 8 bits, laid out as llama.cpp wants them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer

_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "model.layers.": "blk.",
}
_NORMAL, _CONTROL = 1, 3


def write_gguf(path: Path, model: Any, words: Tokenizer) -> None:
    """Write a Llama of transformers, whose widths are multiples of 32, with its tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, model.config)
    _add_tokenizer(writer, words)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight":
            _add(writer, name, weight.numpy(), model.config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: gguf.GGUFWriter, words: Tokenizer) -> None:
    document = json.loads(words.to_str())
    special = {one["id"] for one in document["added_tokens"]}
    pieces = [words.id_to_token(i) for i in range(words.get_vocab_size())]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(pieces)
    writer.add_token_types([_CONTROL if i in special else _NORMAL for i in range(len(pieces))])
    writer.add_token_merges([" ".join(one) for one in document["model"]["merges"]])
    writer.add_eos_token_id(1)


def _add(writer: gguf.GGUFWriter, name: str, weight: Any, config: Any) -> None:
    if "q_proj" in name or "k_proj" in name:
        own = "q_proj" in name
        heads = config.num_attention_heads if own else config.num_key_value_heads
        rotated = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
        weight = rotated.swapaxes(1, 2).reshape(weight.shape)
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    eight = weight.ndim == 2 and weight.shape[1] % 32 == 0
    kind = gguf.GGMLQuantizationType.Q8_0 if eight else gguf.GGMLQuantizationType.F32
    data = gguf.quants.quantize(np.ascontiguousarray(weight), kind)
    writer.add_tensor(name, data, raw_dtype=kind)
