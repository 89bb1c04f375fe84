"""Target `tensorrt-llm`: the bundle again, its model folder written for TensorRT-LLM, signed anew.

    lm/config.json              our architecture, so that our model class is taken for it
    lm/*.safetensors            as they were; attention unpacked, since that is TensorRT-LLM's own
    lm/quantisation.json        of what stays packed: the MLP
    lm/conductor.safetensors    the rows of the head that some plan may need
    lm/config.yaml              settings, for TensorRT-LLM's own programs
    lm/warm_up.py               to be run once on the GPU

Nothing here needs TensorRT-LLM or a GPU. What is timed and recorded on a GPU is made there, at the
first start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.errors import BundleError, StartError
from conductor.plan import tablefile
from conductor.plan.tokentables import Tables
from conductor.planner.kinds import LM
from conductor.planner.lm_parts import TABLES
from conductor.planner.manifest import Refusal
from conductor_build.bundle import LmFacts, sibling, write_bundle
from conductor_build.compile.tensorrt_config import (
    WARM_UP,
    check_packed,
    model_config,
    serve_config,
)
from conductor_build.lm.lmbundle import CONFIG, QUANTISED

if TYPE_CHECKING:
    from torch import Tensor

    from conductor.planner.bundle import Bundle
    from conductor_build.compile.targets import Options

HEAD = "lm/conductor.safetensors"
_ENDS = (".packed", ".scale", ".zero")
_DROPPED = "onnx/"
"""A model for another engine: it stays in the bundle that this one is made of."""


def compile_tensorrt_llm(bundle: Bundle, out: Path, options: Options) -> Path:
    """Write the bundle at `out`, a new folder.

    Raises `StartError` and `BundleError`; then `out` is as it was.
    """
    if options.key is None:
        raise StartError("a compiled bundle is signed anew: give the private key with --sign")
    need_language_model(bundle)
    layout = read_layout(bundle)
    config = json.loads(bundle.read(CONFIG))
    group = layout["group"] if layout["scheme"] == "int4" else 0
    made = model_config(config, group)
    check_packed(config, layout["scheme"], layout["group"])
    out.parent.mkdir(parents=True, exist_ok=True)
    with sibling(out) as work:
        files = _kept(bundle) | _weights(bundle, layout, work)
        files |= {
            CONFIG: _json(made),
            HEAD: _head_rows(tablefile.unpack(bundle.read(TABLES))),
            "lm/config.yaml": serve_config(config).encode(),
            "lm/warm_up.py": WARM_UP.encode(),
        }
        options.say(f"{made['architectures'][0]}, {len(files)} files")
        written = write_bundle(
            out, files, _facts(bundle), options.key, lambda new: _same(bundle, new)
        )
    return written.path


def need_language_model(bundle: Bundle) -> None:
    """Raises `StartError` for a bundle of another kind."""
    if bundle.manifest.kind != LM.name:
        raise StartError("only a language model runs on TensorRT-LLM: this bundle is another kind")


def read_layout(bundle: Bundle) -> dict[str, Any]:
    """How the bundle's matrices are packed; with no scheme and no tensors where none is."""
    if QUANTISED not in bundle.manifest.files:
        return {"scheme": None, "group": 0, "tensors": {}}
    found: dict[str, Any] = json.loads(bundle.read(QUANTISED))
    return found


def unpacked(layout: Mapping[str, Any], name: str, parts: Mapping[str, Tensor]) -> Tensor:
    """A packed matrix [O, I], in the type that it had."""
    import torch

    from conductor_build.lm.quantise import Packed, Scheme, unpack

    told = layout["tensors"][name]
    packed = Packed(parts[".packed"], parts[".scale"], parts.get(".zero"), int(told["shape"][1]))
    scheme = Scheme(layout["scheme"], layout["group"], layout["symmetric"])
    return unpack(packed, scheme).to(getattr(torch, told["dtype"]))


def tensors(bundle: Bundle) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The files of weights with their tensors, each read as it was verified."""
    from safetensors.torch import load

    for path in sorted(filter(_is_model, bundle.manifest.files)):
        yield path, load(bundle.read(path))


def _is_model(path: str) -> bool:
    return path.startswith("lm/") and path.endswith(".safetensors") and path != HEAD


def _kept(bundle: Bundle) -> dict[str, bytes | Path]:
    """All files; those of weights by their place, since they are copied in pieces."""
    return {
        path: bundle.path / path if LM.is_weights(path) else bundle.read(path)
        for path in bundle.manifest.files
        if not path.startswith(_DROPPED)
    }


def _weights(bundle: Bundle, layout: Mapping[str, Any], work: Path) -> dict[str, bytes | Path]:
    """What replaces files of a packed model; nothing of another."""
    from safetensors.torch import save_file

    if layout["scheme"] is None:
        return {}
    mine = {name: told for name, told in layout["tensors"].items() if ".mlp." not in name}
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in mine}
    home: dict[str, str] = {}
    held: dict[str, dict[str, Tensor]] = {}
    for path, found in tensors(bundle):
        held[path] = {}
        for name, tensor in found.items():
            matrix, end = name.rpartition(".")[0], "." + name.rpartition(".")[2]
            if matrix in parts and end in _ENDS:
                parts[matrix][end] = tensor
                home.setdefault(matrix, path)
            else:
                held[path][name] = tensor
    files: dict[str, bytes | Path] = {}
    for name, pieces in parts.items():
        held[home[name]][name] = unpacked(layout, name, pieces)
    for path, kept in held.items():
        files[path] = work / Path(path).name
        save_file(kept, work / Path(path).name, metadata={"format": "pt"})
    left = {name: told for name, told in layout["tensors"].items() if name not in mine}
    return {**files, QUANTISED: _json({**layout, "tensors": left})}


def _head_rows(tables: Tables) -> bytes:
    """Tokens that may come in some plan: all that lead somewhere, and those that end one."""
    import torch
    from safetensors.torch import save

    from conductor_kernels.tensorrt_llm.blocks import HEAD_ROWS

    ends = frozenset(tables.eos)
    rows = [token for token, kind in enumerate(tables.class_of) if kind or token in ends]
    return save({HEAD_ROWS: torch.tensor(rows, dtype=torch.int32)}, metadata={"format": "pt"})


def _json(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, indent=2, sort_keys=True).encode() + b"\n"


def _facts(bundle: Bundle) -> LmFacts:
    manifest = bundle.manifest
    assert manifest.prompt, "of kind lm"
    assert manifest.precision, "of kind lm"
    made = {**manifest.provenance.summary, "compiled_from": bundle.id[:12]}
    return LmFacts(manifest.prompt, manifest.precision, replace(manifest.provenance, summary=made))


def _same(old: Bundle, new: Bundle) -> None:
    """That weights, which are read a second time to be copied, are those that were checked."""
    if read_layout(old)["scheme"] is not None:
        return  # written from bytes that were
    for path in filter(_is_model, old.manifest.files):
        if new.manifest.files.get(path) != old.manifest.files[path]:
            raise BundleError(Refusal.TAMPERED, f"{path} changed meanwhile: compile it again")
