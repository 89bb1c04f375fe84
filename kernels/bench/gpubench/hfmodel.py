"""The model of the benchmark as transformers and others know it: a configuration, random weights,
and a folder that says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from conductor_kernels.runner.shape import Shape
from gpubench.asked import Asked
from gpubench.vocabulary import spellings

END = "<|end|>"


def fields(shape: Shape) -> dict[str, Any]:
    """Of a Qwen2's `config.json`."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope.theta,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "eos_token_id": shape.vocabulary - 1,
        "pad_token_id": shape.vocabulary - 1,
    }


def model_of(one: Asked) -> Any:
    """As transformers runs it, with random weights, on the GPU if there is one."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    said = fields(one.sizes.shape)
    config = Qwen2Config(**{name: said[name] for name in said if name != "architectures"})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_dtype(torch.float32 if one.tiny else torch.bfloat16)
    with torch.device(device):
        model: Any = Qwen2ForCausalLM(config)
    model.eval()
    model.generation_config.eos_token_id = None
    return model


def write_folder(folder: Path, shape: Shape) -> None:
    """Configuration and tokenizer; engines make up the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields(shape)))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": None}))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(shape.vocabulary)))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END,
                    "pad_token": END, "model_max_length": shape.positions})
    )  # fmt: skip


def _tokenizer(count: int) -> dict[str, Any]:
    """Byte-level BPE without merges: nothing is ever encoded by it, only decoded."""
    texts, end = spellings(count)
    shown = _byte_letters()
    vocabulary = {
        "".join(shown[byte] for byte in text): number
        for number, text in enumerate(texts)
        if text is not None
    }
    added = {"id": end, "content": END, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}  # fmt: skip
    return {
        "version": "1.0",
        "added_tokens": [added],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {**vocabulary, END: end}, "merges": []},
    }


def _byte_letters() -> list[str]:
    """The letter by which byte-level BPE shows each byte: itself where it can be seen, else one of
    the next free letters from 256 on, in order."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = [byte for byte in range(256) if byte not in seen]
    return [chr(byte if byte in seen else 256 + unseen.index(byte)) for byte in range(256)]
