"""A trained policy as a plain checkpoint: its adapter in its weights, and as others read it.

    config.json  generation_config.json  *.safetensors  tokenizer.json  tokenizer_config.json

W' = W + (alpha / r) B A of every adapted matrix (Hu et al. 2021, arXiv:2106.09685, section 4.1).
The sum is made in float32 and rounded once. The policy itself is left as it is, and can go on
training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.errors import ConductorError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from conductor_build.lm.base import Base

SHARD_BYTES = 4 * 1000**3
"""Most bytes of one file of weights."""


class ExportError(ConductorError):
    """A conductor cannot be exported as asked. Says what to do."""


def merged(model: torch.nn.Module, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The weights by their own names, adapters added, in `dtype` or each in its own.

    Tensors that no adapter changes and whose type stays are the model's own, not copies. Raises
    `ExportError` when a weight is not finite.
    """
    deltas = dict(_deltas(model))
    found = {}
    for name, weight in model.state_dict().items():
        plain = name.replace(".base_layer.", ".")
        if ".lora_" in name:
            continue
        if (delta := deltas.get(plain)) is not None:
            weight = (weight.float() + delta).to(dtype or weight.dtype)
        found[plain] = weight.to(dtype or weight.dtype) if weight.is_floating_point() else weight
    check_finite(found)
    return found


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Raises `ExportError` when one is NaN or infinite, as after a training that ran away."""
    wrong = [name for name, weight in weights.items() if not weight.isfinite().all()]
    if wrong:
        raise ExportError(
            f"{len(wrong)} weights are not finite ({wrong[0]} is the first): this training ran "
            "away, export an earlier checkpoint"
        )


def _deltas(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What the active adapters of each adapted module add, in float32."""
    import torch

    for name, module in model.named_modules():
        adapted: Any = module
        if not hasattr(module, "get_delta_weight"):
            continue
        with torch.no_grad():
            parts = [adapted.get_delta_weight(one).float() for one in adapted.active_adapters]
        if parts:
            yield f"{name}.weight", torch.stack(parts).sum(0)


def save_checkpoint(base: Base, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write what `base.model` is with its adapter, for `load_base` and every other reader.

    Raises `ExportError` for weights that are not finite, and `OSError`.
    """
    model: Any = base.model
    weights = merged(model, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=weights, max_shard_size=SHARD_BYTES)
    if dtype is not None:
        _name_dtype(folder / "config.json", str(dtype).removeprefix("torch."))
    save_tokenizer(base, folder)


def save_tokenizer(base: Base, folder: Path) -> None:
    """The tokenizer as every reader takes it. Our own readers want `tokenizer.json` alone."""
    (folder / "tokenizer.json").write_text(base.tokenizer.to_str())
    end = base.tokenizer.id_to_token(base.eos[0])
    known = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "pad_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(known, indent=2, sort_keys=True))


def _name_dtype(path: Path, dtype: str) -> None:
    config = json.loads(path.read_text())
    config["dtype"] = dtype
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
