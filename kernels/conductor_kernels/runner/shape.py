"""What a checkpoint's `config.json` says of a Llama- or Qwen2-shaped decoder.

Both forms of rotary settings are read: `rope_parameters`, and the older `rope_theta` beside
`rope_scaling`. Whatever this decoder would compute differently from what was trained is refused:
other activations, sliding windows, partial or other rotary embeddings, quantised weights.

Left out: the end token, which is the automaton tables' to know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor.errors import StartError

CONFIG = "config.json"
ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")
ROPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: the base, and how frequencies are stretched for longer texts."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    trained_positions: int = 0
    """Positions before stretching, where the kind asks for them."""
    low: float = 1.0
    """llama3: `low_freq_factor`. yarn: `beta_slow`."""
    high: float = 4.0
    """llama3: `high_freq_factor`. yarn: `beta_fast`."""
    attention: float | None = None
    """yarn: factor on cosines and sines; None: from `factor`."""


@dataclass(frozen=True)
class Shape:
    """Sizes of one decoder."""

    vocabulary: int
    hidden: int
    inner: int
    """Width of the MLP."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int
    """Longest text that it was made for, in tokens."""
    eps: float
    tied: bool
    """The head's weights are the embedding's."""
    rope: Rope

    @property
    def cache_numbers(self) -> int:
        """How many numbers the keys and values of one token are."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def read_shape(folder: Path) -> Shape:
    """From `config.json` in a checkpoint's folder. Raises `StartError`."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        _check_known(config)
        return _shape(config)
    except OSError:
        raise StartError(f"the checkpoint has no {CONFIG} that can be read") from None
    except (ValueError, TypeError, AttributeError, ZeroDivisionError):
        raise StartError(f"{CONFIG} is no configuration of a model") from None
    except KeyError as error:
        raise StartError(f"{CONFIG} does not say {error.args[0]!r}") from None


def _check_known(config: dict[str, Any]) -> None:
    architectures = config.get("architectures") or []
    if len(architectures) != 1 or architectures[0] not in ARCHITECTURES:
        raise StartError(f"the torch runner runs {' and '.join(ARCHITECTURES)}, no other model")
    if config.get("hidden_act", "silu") != "silu":
        raise StartError("the torch runner knows no other activation than silu")
    if config.get("use_sliding_window") or (
        architectures[0] != "Qwen2ForCausalLM" and config.get("sliding_window")
    ):
        raise StartError("the torch runner knows no sliding windows")
    if config.get("quantization_config"):
        raise StartError("the torch runner reads no quantised checkpoint: export it as bfloat16")


def _shape(config: dict[str, Any]) -> Shape:
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    positions = int(config["max_position_embeddings"])
    shape = Shape(
        vocabulary=int(config["vocab_size"]),
        hidden=hidden,
        inner=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        positions=positions,
        eps=float(config["rms_norm_eps"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        rope=_rope(config, positions),
    )
    if min(shape.layers, heads, shape.kv_heads, shape.head_dim) < 1 or heads % shape.kv_heads:
        raise ValueError
    return shape


def _rope(config: dict[str, Any], positions: int) -> Rope:
    said = config.get("rope_parameters") or {
        "rope_theta": config.get("rope_theta", 10_000.0),
        **(config.get("rope_scaling") or {}),
    }
    kind = said.get("rope_type", said.get("type", "default"))
    if kind not in ROPES or said.get("partial_rotary_factor", 1.0) != 1.0:
        raise StartError(f"the torch runner knows the rotary embeddings {', '.join(ROPES)}, whole")
    if any(said.get(name) for name in ("mscale", "mscale_all_dim")) or not said.get(
        "truncate", True
    ):
        raise StartError("the torch runner knows yarn as Qwen2.5 uses it, without mscale")
    is_yarn = kind == "yarn"
    return Rope(
        theta=float(said["rope_theta"]),
        kind=kind,
        factor=1.0 if kind == "default" else float(said["factor"]),
        trained_positions=int(said.get("original_max_position_embeddings") or positions),
        low=float(said.get("beta_slow" if is_yarn else "low_freq_factor") or 1.0),
        high=float(
            said.get("beta_fast" if is_yarn else "high_freq_factor") or (32.0 if is_yarn else 4.0)
        ),
        attention=said.get("attention_factor"),
    )
