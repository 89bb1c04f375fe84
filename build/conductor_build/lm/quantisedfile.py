"""A quantised checkpoint on disk, and back: safetensors beside a small JSON of their layout.

    config.json                 as of the plain checkpoint
    model*.safetensors          matrices of linear layers as NAME.packed, NAME.scale, NAME.zero;
                                everything else (embedding, head, norms) as it was
    quantisation.json           {"version", "scheme", "group", "symmetric",
                                 "tensors": {NAME: {"shape", "dtype"}}}

The layout of NAME.packed stands in `quantise.py` and docs/formats.md. What is left as it is: a
model's embedding and head, where a step of a few bits costs plans, and all that is no matrix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conductor_build.lm.merge import SHARD_BYTES, ExportError
from conductor_build.lm.quantise import Packed, Scheme, bound, pack, unpack

LAYOUT = "quantisation.json"
VERSION = 1
_ENDS = (".packed", ".scale", ".zero")


@dataclass(frozen=True)
class Errors:
    """Of all quantised weights: how far they are off, and how far they may be."""

    matrices: int
    weights: int
    max: float
    mean: float
    of_bound: float
    """Largest share of its bound that any weight uses up; 1 and rounding at most."""


def quantise_folder(plain: Path, out: Path, scheme: Scheme, linear: frozenset[str]) -> Errors:
    """Write the weights of a plain checkpoint's folder in fewer bits. `linear`: the names of the
    matrices that are. Raises `ExportError` and `OSError`."""
    from safetensors.torch import save_file

    shards, errors, tensors = _Shards(out), _Adding(), {}
    for name, weight in _weights(plain):
        if name not in linear:
            shards.add(name, weight)
            continue
        packed = pack(weight, scheme)
        errors.add(weight, packed, scheme)
        tensors[name] = {"shape": list(weight.shape), "dtype": str(weight.dtype).split(".")[1]}
        for end, part in zip(_ENDS, (packed.values, packed.scale, packed.zero), strict=True):
            if part is not None:
                shards.add(name + end, part)
    if missing := linear - tensors.keys():
        raise ExportError(f"the checkpoint lacks {min(missing)}: save it again")
    for file, held in shards.files():
        save_file(held, out / file, metadata={"format": "pt"})
    layout = {"version": VERSION, **_told(scheme), "tensors": tensors}
    (out / LAYOUT).write_text(json.dumps(layout, indent=1, sort_keys=True) + "\n")
    return errors.total()


def dequantised(folder: Path) -> dict[str, Tensor]:
    """Every weight of a quantised checkpoint by its name, in the type that it had.

    Raises `ExportError` when layout and tensors do not fit each other.
    """
    layout = _layout(folder)
    scheme = Scheme(layout["scheme"], layout["group"], layout["symmetric"])
    held = dict(_weights(folder))
    found = {}
    for name, told in layout["tensors"].items():
        parts = [held.pop(name + end, None) for end in _ENDS]
        if parts[0] is None or parts[1] is None or len(told["shape"]) != 2:
            raise ExportError(f"{name} is not as {LAYOUT} says: export the checkpoint again")
        packed = Packed(parts[0], parts[1], parts[2], told["shape"][1])
        found[name] = unpack(packed, scheme).to(getattr(torch, told["dtype"]))
    return {**held, **found}


def _layout(folder: Path) -> dict[str, Any]:
    try:
        layout: dict[str, Any] = json.loads((folder / LAYOUT).read_text())
    except (OSError, ValueError):
        raise ExportError(f"{LAYOUT} cannot be read: export the checkpoint again") from None
    if layout.get("version") != VERSION:
        raise ExportError(f"{LAYOUT} is of another version than {VERSION}: export again")
    return layout


def _told(scheme: Scheme) -> Mapping[str, Any]:
    told = asdict(scheme)
    return {"scheme": told.pop("name"), **told}


def linear_names(model: torch.nn.Module) -> frozenset[str]:
    """The matrices of a model's linear layers, its head left out."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    return frozenset(
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    )


def _weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """One after the other, so that only one is in memory beside what is kept of it."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                yield name, file.get_tensor(name)


class _Shards:
    """Tensors dealt to files in order, none of which grows too large."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._files: list[dict[str, Tensor]] = [{}]
        self._room = SHARD_BYTES

    def add(self, name: str, tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if size > self._room and self._files[-1]:
            self._files.append({})
            self._room = SHARD_BYTES
        self._files[-1][name] = tensor.contiguous()
        self._room -= size

    def files(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        count = len(self._files)
        for place, held in enumerate(self._files, 1):
            yield (f"model-{place:05}-of-{count:05}.safetensors" if count > 1 else
                   "model.safetensors"), held  # fmt: skip


class _Adding:
    """Errors, added up matrix by matrix."""

    def __init__(self) -> None:
        self._matrices = self._weights = 0
        self._most = self._sum = self._share = 0.0

    def add(self, weight: Tensor, packed: Packed, scheme: Scheme) -> None:
        off = (unpack(packed, scheme) - weight.float()).abs()
        share = (off / bound(weight, packed, scheme).clamp(min=1e-30)).amax()
        self._matrices, self._weights = self._matrices + 1, self._weights + weight.numel()
        self._most = max(self._most, float(off.amax()))
        self._sum += float(off.double().sum())
        self._share = max(self._share, float(share))

    def total(self) -> Errors:
        mean = self._sum / max(1, self._weights)
        return Errors(self._matrices, self._weights, self._most, mean, self._share)
