"""From a trained checkpoint to a signed bundle.

    merge       the adapter into the weights, all of them finite        merge.py
    quantise    weights in fewer bits, an option                        quantise.py
    onnx        the same model for onnxruntime-genai, an option         genai.py
    compare     plans and distributions with the trained model's        parity.py
    bundle      with tables and prompt, checked, written in one step    lmbundle.py

Everything before the last step happens in a hidden folder beside the bundle's, which the next
export to the same place removes: one that is killed leaves no bundle. The checkpoint is only read.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_build.bundle import LmFacts, sibling, write_bundle
from conductor_build.lm import genai, lmbundle, parity, quantisedfile
from conductor_build.lm.base import Base, load_base
from conductor_build.lm.checkpoint import Opened
from conductor_build.lm.merge import ExportError, save_checkpoint, save_tokenizer
from conductor_build.lm.policy import PlanPolicy
from conductor_build.lm.quantise import Scheme
from conductor_build.lm.tokens import Writer

if TYPE_CHECKING:
    import torch
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from conductor.planner.bundle import Bundle

PARITY = "report/parity.json"
_CARRIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Wanted:
    """How to export. `compared`: requests that plans are compared at; 0: none. `dtype`: of weights
    that are not quantised; None: as they were trained."""

    quantise: Scheme | None = None
    onnx: genai.Precision | None = None
    compared: int = 16
    dtype: torch.dtype | None = None


def export_lm(opened: Opened, out: Path, wanted: Wanted, key: Ed25519PrivateKey) -> Bundle:
    """Write the bundle to `out`, a new folder; returns it as it was read back.

    Raises `ExportError`, `BaseError` for a tokenizer in which no plan can be written, and
    `BundleError`; then `out` is as it was.
    """
    if wanted.onnx:
        genai.need_genai()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with sibling(out) as work:
            return _export(opened, out, wanted, key, work)
    except OSError as error:
        raise ExportError(f"the export cannot be written ({error.strerror}): make room") from None


def _export(
    opened: Opened, out: Path, wanted: Wanted, key: Ed25519PrivateKey, work: Path
) -> Bundle:
    plain, prompting = work / "plain", opened.prompting
    save_checkpoint(opened.base, plain, wanted.dtype)
    base = _loaded(plain, opened.base, wanted.dtype)
    writer = Writer.of(base, examples=prompting.examples)
    report: dict[str, Any] = {"base": opened.base.name, "requests": wanted.compared}
    held, onnx, precision = plain, None, _precision(base)
    if wanted.quantise:
        held, precision = work / "quantised", wanted.quantise.name
        report["quantised"] = _quantise(base, plain, held, wanted, writer)
    if wanted.onnx:
        onnx = work / "onnx"
        report["onnx"] = _onnx(base, plain, onnx, wanted, writer)
    prompt = lmbundle.prompt_file(base, writer, prompting.examples, prompting.rounds)
    files = lmbundle.files_of(held, writer, prompt, onnx)
    files |= {f"report/{name}": path for name, path in opened.report.items()}
    files[PARITY] = json.dumps(report, indent=2, sort_keys=True).encode() + b"\n"
    facts = LmFacts(lmbundle.prompt_id(writer), precision, opened.provenance)
    return write_bundle(out, files, facts, key, lmbundle.check)


def _loaded(folder: Path, like: Base, dtype: torch.dtype | None) -> Base:
    """What was saved, read back: what is quantised and compared is what the bundle holds."""
    own = next(iter(like.model.parameters())).dtype
    base = load_base(str(folder), models=folder, dtype=dtype or own)
    return replace(base, eos=like.eos, frame=like.frame)


def _precision(base: Base) -> str:
    return str(next(iter(base.model.parameters())).dtype).removeprefix("torch.")


def _quantise(base: Base, plain: Path, out: Path, wanted: Wanted, writer: Writer) -> dict[str, Any]:
    """Write the checkpoint in fewer bits; what became of it."""
    scheme = wanted.quantise
    assert scheme, "asked for"
    linear = quantisedfile.linear_names(base.model)
    errors = quantisedfile.quantise_folder(plain, out, scheme, linear)
    for name in _CARRIED:
        (out / name).write_bytes((plain / name).read_bytes())
    save_tokenizer(base, out)
    told = {"scheme": asdict(scheme), "errors": asdict(errors)}
    if not wanted.compared:
        return told
    other = PlanPolicy(in_fewer_bits(base, out), writer, lora=None)
    return told | _compared(base, parity.Torch(other), wanted, writer)


def _onnx(base: Base, plain: Path, out: Path, wanted: Wanted, writer: Writer) -> dict[str, Any]:
    assert wanted.onnx, "asked for"
    genai.build_onnx(plain, out, wanted.onnx)
    told = {"precision": wanted.onnx}
    if not wanted.compared:
        return told
    return told | _compared(base, genai.Onnx(out, writer), wanted, writer)


def _compared(base: Base, other: parity.Speaker, wanted: Wanted, writer: Writer) -> dict[str, Any]:
    trained = parity.Torch(PlanPolicy(base, writer, lora=None))
    asks = parity.asks_of(writer, wanted.compared)
    return asdict(parity.compare(writer, trained, other, asks))


def in_fewer_bits(base: Base, folder: Path) -> Base:
    """The model with the weights of a quantised checkpoint, unpacked. Raises `ExportError`."""
    model = copy.deepcopy(base.model)
    weights = quantisedfile.dequantised(folder)
    left = model.load_state_dict(weights, strict=False)
    tied = {name for name in left.missing_keys if "lm_head" in name}
    if left.unexpected_keys or set(left.missing_keys) - tied:
        raise ExportError("the quantised weights are of another model: export it again")
    return replace(base, model=model)
