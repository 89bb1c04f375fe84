"""What a model folder holds, as far as TensorRT-LLM has to be told: its kind, its window, its ends.

    plain      a Hugging Face checkpoint in floating point: TensorRT-LLM's own model runs it
    conductor  the same with our architecture, written by `conductor-build compile`: ours runs it
    engine     what `trtllm-build` left: the engine backend runs it, up to 1.2.1

A checkpoint that is packed as our bundles pack, and was not compiled, is none that it can read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from conductor.errors import StartError
from conductor_kernels.runner.packed import LAYOUT

Kind = Literal["plain", "conductor", "engine"]
OURS = ("ConductorQwen2ForCausalLM", "ConductorLlamaForCausalLM")
_PLAIN = ("Qwen2ForCausalLM", "LlamaForCausalLM")
_COMPILE = "conductor-build compile --target tensorrt-llm"


@dataclass(frozen=True)
class Folder:
    """One model folder."""

    path: Path
    kind: Kind
    vocabulary: int
    positions: int
    """Longest text that the model, or the engine, was made for."""
    ends: tuple[int, ...]
    """Tokens that end a text; the first is the one to stop at."""


def read_folder(path: Path) -> Folder:
    """Raises `StartError` for one that TensorRT-LLM cannot run."""
    config = _json(path / "config.json")
    try:
        if "build_config" in config:
            return _engine(path, config)
        kind = _kind(path, config)
        return Folder(
            path,
            kind,
            int(config["vocab_size"]),
            int(config["max_position_embeddings"]),
            _ends(path, config),
        )
    except (KeyError, TypeError, ValueError):
        raise StartError(
            "config.json lacks what a model's must say: export the bundle again"
        ) from None


def _engine(path: Path, config: dict[str, Any]) -> Folder:
    built, model = config["build_config"], config["pretrained_config"]
    return Folder(
        path,
        "engine",
        int(model["vocab_size"]),
        int(built["max_seq_len"]),
        _ends(path, model),
    )


def _kind(path: Path, config: dict[str, Any]) -> Kind:
    (name,) = config["architectures"]
    if name in OURS:
        return "conductor"
    if name not in _PLAIN:
        known = ", ".join(_PLAIN)
        raise StartError(f"plans are written by {known} on TensorRT-LLM, not by {name}")
    if (path / LAYOUT).exists():
        raise StartError(f"TensorRT-LLM does not read a bundle's packed weights: {_COMPILE}")
    if config.get("rope_theta") is None:
        # Its own reader takes 10,000 then, without a word, whatever `rope_parameters` say.
        raise StartError(
            f"TensorRT-LLM does not read this checkpoint's rope_parameters: {_COMPILE}"
        )
    return "plain"


def _ends(path: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """What generation ends with, as the checkpoint says: the one file before the other."""
    said = _json(path / "generation_config.json", missing={}).get("eos_token_id")
    said = config.get("eos_token_id") if said is None else said
    ends = said if isinstance(said, list) else [said]
    if not ends or any(type(one) is not int for one in ends):
        raise StartError("the checkpoint names no eos_token_id to end a plan at: export it again")
    return tuple(ends)


def _json(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        if missing is not None:
            return missing
        found = None
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise StartError(f"the model folder has no {path.name} that can be read")
    return found
