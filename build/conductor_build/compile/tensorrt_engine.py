"""Target `tensorrt-engine`: an engine by TensorRT-LLM 1.2.1, the last version that builds any.

    convert_checkpoint.py    the plain checkpoint in TensorRT-LLM's own form
    trtllm-build             that as an engine, for the GPU of this machine

Both run as programs of TensorRT-LLM's environment, found by `trtllm-build` on the path. An engine
serves on the kind of GPU that it was built on, and is run by the engine backend, with its ops and
not ours. So this is the way for whom the word matters; for all others `tensorrt-llm` is.

    TENSORRT_LLM_EXAMPLES    the folder `examples` of the 1.2.1 sources, where the first program is;
                             without it, where NVIDIA's container has it
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.errors import BundleError, ConductorError, StartError
from conductor.planner.lm_runner import RunnerSettings
from conductor.planner.manifest import Refusal
from conductor_build.bundle import sibling
from conductor_build.compile.tensorrt_llm import (
    need_language_model,
    read_layout,
    tensors,
    unpacked,
)
from conductor_build.lm.lmbundle import CONFIG
from conductor_kernels.tensorrt_llm.arguments import MOST_AT_ONCE, window

if TYPE_CHECKING:
    from torch import Tensor

    from conductor.planner.bundle import Bundle
    from conductor_build.compile.targets import Options

RECORD = "conductor.json"
"""In the written folder: what the engine was made of."""
_BUILDER, _OTHER = "trtllm-build", "trtllm-serve"
_EXAMPLES = "TENSORRT_LLM_EXAMPLES"
_CONTAINER = Path("/app/tensorrt_llm/examples")
_CONVERTERS = {"Qwen2ForCausalLM": "qwen", "LlamaForCausalLM": "llama"}
_LINE = "1.2."
_GONE = (
    "the engine backend was removed from TensorRT-LLM after 1.2.1: install 1.2.1 for it "
    "(docs/tensorrt-llm.md), or compile with --target tensorrt-llm"
)
_LIMIT_S = 4 * 3600.0
_TEXTS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_VERSION = "from importlib.metadata import version; print(version('tensorrt_llm'))"


class EngineFailed(ConductorError):
    """A program of TensorRT-LLM's did not do its part. Names it and says what to look at."""


@dataclass(frozen=True)
class Programs:
    """What an engine is built by."""

    python: Path
    """Of TensorRT-LLM's environment."""
    convert: Path
    build: Path
    version: str


def compile_tensorrt_engine(bundle: Bundle, out: Path, options: Options) -> Path:
    """Write engine and tokenizer to `out`, a new folder. Takes the GPU that will serve.

    Raises `StartError` where a program is missing or too new, `EngineFailed` and `BundleError`;
    then `out` is as it was.
    """
    need_language_model(bundle)
    config, layout = json.loads(bundle.read(CONFIG)), read_layout(bundle)
    programs = find_programs(config)
    more = _precision(layout["scheme"])
    if out.exists() and any(out.iterdir()):
        raise BundleError(Refusal.WRITE, "something is there already: give a new directory")
    out.parent.mkdir(parents=True, exist_ok=True)
    with sibling(out) as work:
        _write_plain(bundle, config, layout, work / "plain")
        for argv in commands(programs, config, work, more):
            options.say(" ".join(map(str, argv)))
            _run(argv, work)
        _finish(bundle, programs, work / "engine")
        (work / "engine").rename(out)
    return out


def find_programs(config: Mapping[str, Any]) -> Programs:
    """Raises `StartError` when one is missing, or of a version that builds no engines."""
    build = shutil.which(_BUILDER)
    if build is None:
        newer = shutil.which(_OTHER)
        if newer is not None:
            said = _version_of(Path(newer).with_name("python"))
            raise StartError(f"TensorRT-LLM {said} has no {_BUILDER}: {_GONE}")
        raise StartError(
            f"there is no {_BUILDER} on the path: install TensorRT-LLM 1.2.1 in an environment of "
            "its own and put its bin folder on the path (docs/tensorrt-llm.md)"
        )
    python = Path(build).with_name("python")
    version = _version_of(python)
    if not version.startswith(_LINE):
        raise StartError(f"TensorRT-LLM {version} is installed: {_GONE}")
    return Programs(python, _converter(config), Path(build), version)


def commands(
    programs: Programs, config: Mapping[str, Any], work: Path, precision: Sequence[str]
) -> tuple[list[str], list[str]]:
    """What is run, in order."""
    room = window(int(config["max_position_embeddings"]), RunnerSettings())
    dtype = "float16" if config.get("dtype") == "float16" else "bfloat16"
    convert = [
        *(str(programs.python), str(programs.convert)),
        *("--model_dir", str(work / "plain"), "--output_dir", str(work / "checkpoint")),
        *("--dtype", dtype, *precision),
    ]
    build = [
        *(str(programs.build), "--checkpoint_dir", str(work / "checkpoint")),
        *("--output_dir", str(work / "engine"), "--gemm_plugin", "auto"),
        *("--kv_cache_type", "paged", "--use_paged_context_fmha", "enable"),
        *("--max_batch_size", str(MOST_AT_ONCE), "--max_beam_width", "1"),
        *("--max_seq_len", str(room), "--max_input_len", str(room)),
        *("--max_num_tokens", str(room)),
    ]
    return convert, build


def _precision(scheme: str | None) -> list[str]:
    """Its own rounding of whole weights: an engine does not read our packed ones."""
    if scheme == "fp8":
        raise StartError(
            "an engine in fp8 needs calibration data that a bundle does not hold: compile a bundle "
            "in bfloat16 or int8"
        )
    if scheme is None:
        return []
    return ["--use_weight_only", "--weight_only_precision", scheme]


def _converter(config: Mapping[str, Any]) -> Path:
    name = (config.get("architectures") or ["none"])[0]
    folder = _CONVERTERS.get(name)
    if folder is None:
        raise StartError(f"engines are built of {' and '.join(_CONVERTERS)}, not of {name}")
    root = Path(os.environ.get(_EXAMPLES, _CONTAINER))
    found = root / "models" / "core" / folder / "convert_checkpoint.py"
    if not found.is_file():
        raise StartError(
            f"convert_checkpoint.py for {name} is not there: set {_EXAMPLES} to the folder "
            "`examples` of TensorRT-LLM 1.2.1's sources"
        )
    return found


def _version_of(python: Path) -> str:
    """Asked without loading it, which would need a GPU."""
    try:
        done = subprocess.run(  # noqa: S603  our own arguments
            [str(python), "-c", _VERSION], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "of no known version"
    return done.stdout.decode(errors="replace").strip() or "of no known version"


def _run(argv: Sequence[str], work: Path) -> None:
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TRTLLM_NO_USAGE_STATS": "1"}
    name = Path(argv[1] if argv[1].endswith(".py") else argv[0]).name
    try:
        done = subprocess.run(  # noqa: S603  our own arguments
            list(argv), env=offline, cwd=work, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"{name} was not through after {_LIMIT_S:g} s") from None
    except OSError as error:
        raise EngineFailed(f"{name} cannot be started ({error.strerror})") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineFailed(f"{name} failed ({done.returncode}): {''.join(last)[:200]}")


def _write_plain(
    bundle: Bundle, config: Mapping[str, Any], layout: Mapping[str, Any], folder: Path
) -> None:
    """The checkpoint with whole weights, in the form that the converter's transformers reads."""
    from safetensors.torch import save_file

    from conductor_build.compile.tensorrt_config import model_config

    folder.mkdir()
    told = {**model_config(config, 0), "architectures": config["architectures"]}
    (folder / "config.json").write_text(json.dumps(told, indent=2))
    _copy_texts(bundle, folder)
    held: dict[str, Tensor] = {}
    for _, found in tensors(bundle):
        held |= found
    for name in layout["tensors"]:
        ends = (".packed", ".scale", ".zero")
        parts = {end: held.pop(name + end) for end in ends if name + end in held}
        held[name] = unpacked(layout, name, parts)
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})


def _finish(bundle: Bundle, programs: Programs, engine: Path) -> None:
    """The texts beside the engine; the record last, so that with it the folder is whole."""
    if not (engine / "rank0.engine").is_file() or not (engine / "config.json").is_file():
        raise EngineFailed(f"{_BUILDER} ended well and left no engine: look at its version")
    _copy_texts(bundle, engine)
    if not (engine / "generation_config.json").is_file():
        ends = {"eos_token_id": json.loads(bundle.read(CONFIG)).get("eos_token_id")}
        (engine / "generation_config.json").write_text(json.dumps(ends) + "\n")
    said = {"bundle": bundle.id, "tensorrt_llm": programs.version}
    (engine / RECORD).write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")


def _copy_texts(bundle: Bundle, folder: Path) -> None:
    for name in _TEXTS:
        if f"lm/{name}" in bundle.manifest.files:
            (folder / name).write_bytes(bundle.read(f"lm/{name}"))
