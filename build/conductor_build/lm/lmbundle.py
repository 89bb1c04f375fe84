"""What a language model's bundle is made of, and whether its parts belong together.

    lm/        config.json  generation_config.json  *.safetensors  tokenizer.json
               quantisation.json where weights are stored in fewer bits
    onnx/      the same model for onnxruntime-genai, an option
    plan/      tables.bin    the automaton's tables for this very tokenizer
               prompt.json   the prompt that it was trained on
    report/    parity.json, and what the training left

Signature, hashes and the one-step writing are `conductor_build.bundle`'s. Here stands what a hash
cannot tell: that the tables are those of the tokenizer, the prompt the one of this release, and the
weights those that config.json describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.errors import BundleError, PlanError
from conductor.plan import tablefile
from conductor.plan.language import LANGUAGE_VERSION
from conductor.plan.prompt import PROMPT_VERSION
from conductor.plan.tokens import of_tokenizer
from conductor.plan.tokentables import Tables, compile
from conductor.planner.lm_parts import PROMPT, TABLES, TOKENIZER, read_parts
from conductor.planner.manifest import PromptId, Refusal
from conductor_build.lm.quantisedfile import LAYOUT

if TYPE_CHECKING:
    from conductor.planner.bundle import Bundle
    from conductor_build.lm.base import Base
    from conductor_build.lm.tokens import Writer

CONFIG = "lm/config.json"
QUANTISED = f"lm/{LAYOUT}"
_PACKED = ("int8", "int4", "fp8")
_AGAIN = "export it again"


def prompt_file(base: Base, writer: Writer, examples: int, rounds: int) -> bytes:
    """`plan/prompt.json`: what the model was shown in training."""
    said = {
        "frame": base.frame.name,
        "examples": examples,
        "digest": writer.prompter.digest,
        "prompt_version": PROMPT_VERSION,
        "language_version": LANGUAGE_VERSION,
        "rounds": rounds,
    }
    return json.dumps(said, indent=2, sort_keys=True).encode() + b"\n"


def files_of(
    checkpoint: Path, writer: Writer, prompt: bytes, onnx: Path | None
) -> dict[str, bytes | Path]:
    """All files of a bundle but its report, by path."""
    files: dict[str, bytes | Path] = {
        TABLES: tablefile.pack(writer.tables),
        PROMPT: prompt,
        **{f"lm/{path.name}": path for path in sorted(checkpoint.iterdir())},
    }
    if onnx is not None:
        files |= {f"onnx/{path.name}": path for path in sorted(onnx.iterdir())}
    return files


def prompt_id(writer: Writer) -> PromptId:
    """For the manifest."""
    return PromptId(PROMPT_VERSION, writer.prompter.digest)


def check(bundle: Bundle) -> None:
    """That the parts of an opened bundle of kind `lm` belong together, and to this release.

    Raises `BundleError`: `language`, `features` (another prompt), `encoder` (another tokenizer), or
    `tampered` for parts of two exports.
    """
    parts = read_parts(bundle.read)
    prompt = bundle.manifest.prompt
    assert prompt, "of kind lm"
    if prompt != PromptId(PROMPT_VERSION, parts.prompter.digest):
        raise _not_one("manifest.json and plan/prompt.json name different prompts")
    _check_tables(parts.tables, bundle.read(TOKENIZER))
    _check_config(_json(bundle, CONFIG), parts.tables)
    _check_precision(bundle)


def _check_tables(tables: Tables, tokenizer: bytes) -> None:
    """Compiled again from the tokenizer, every array is the same."""
    try:
        again = compile(of_tokenizer(tokenizer, tables.tokens), tables.eos.tolist())
    except PlanError as error:
        raise BundleError(Refusal.ENCODER, f"no plan can be written with it: {error}") from None
    if tablefile.pack(again) != tablefile.pack(tables):
        raise BundleError(
            Refusal.ENCODER, f"{TABLES} is not what {TOKENIZER} compiles to here: {_AGAIN}"
        )


def _check_config(config: Mapping[str, Any], tables: Tables) -> None:
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    if size != tables.tokens:
        raise _not_one(f"the model has another number of tokens than {TABLES}")


def _check_precision(bundle: Bundle) -> None:
    """That what the manifest says of the weights is what lies there."""
    precision, quantised = bundle.manifest.precision, QUANTISED in bundle.manifest.files
    said = _json(bundle, QUANTISED).get("scheme") if quantised else None
    if (said or precision) != precision or quantised != (precision in _PACKED):
        raise _not_one("the manifest names another precision than the weights have")


def _json(bundle: Bundle, path: str) -> dict[str, Any]:
    try:
        found = json.loads(bundle.read(path))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BundleError(Refusal.MANIFEST, f"{path} is no JSON object: {_AGAIN}")
    return found


def _not_one(problem: str) -> BundleError:
    return BundleError(
        Refusal.TAMPERED, f"these are parts of different exports ({problem}): {_AGAIN}"
    )
