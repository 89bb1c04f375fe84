"""What stands beside a model's weights for TensorRT-LLM: its config.json, settings, a script. Pure.

TensorRT-LLM reads a checkpoint by the transformers that it pins. The 1.2 line pins one that does
not know `rope_parameters` and takes a base of 10,000 where it finds no `rope_theta`, so both forms
are written, and likewise both names of the type of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from conductor.errors import StartError
from conductor.planner.lm_runner import RunnerSettings
from conductor_kernels.tensorrt_llm.arguments import arguments

ARCHITECTURES = {
    "Qwen2ForCausalLM": "ConductorQwen2ForCausalLM",
    "LlamaForCausalLM": "ConductorLlamaForCausalLM",
}
_ROPES = ("default", "llama3")
_LEAST_INPUTS = 64
_LEAST_GROUP = 32

WARM_UP = '''"""Write plans for nobody on this GPU, so that the first question finds all compiled.

Run once after the bundle was installed and checked, by the Python of TensorRT-LLM's environment:

    TRITON_CACHE_DIR=/var/cache/conductor/triton python warm_up.py --key site.pub

with the TRITON_CACHE_DIR that the planner is started with, and the key of who signed the bundle.
Where the bundle was not checked, start what is installed and not this file:

    python -m conductor_kernels.tensorrt_llm.warmup BUNDLE --key site.pub
"""

import sys
from pathlib import Path

from conductor_kernels.tensorrt_llm.warmup import main

if __name__ == "__main__":
    sys.exit(main([str(Path(__file__).resolve().parents[1]), *sys.argv[1:]]))
'''


def model_config(said: Mapping[str, Any], group: int) -> dict[str, Any]:
    """A checkpoint's config.json with our architecture, as every TensorRT-LLM reads it. `group`:
    inputs that share a scale, of an MLP packed as int4; else 0.

    Raises `StartError` for a model that ours would compute differently.
    """
    dtype = said.get("dtype") or said.get("torch_dtype") or "bfloat16"
    return {
        **said,
        "architectures": [_architecture(said)],
        "dtype": dtype,
        "torch_dtype": dtype,
        **_rope(said),
        "conductor_group": group,
    }


def check_packed(said: Mapping[str, Any], scheme: str | None, group: int) -> None:
    """Raises `StartError` for an MLP that the kernels cannot read."""
    sizes = int(said["hidden_size"]), int(said["intermediate_size"])
    if any(size % _LEAST_INPUTS for size in sizes):
        raise StartError(
            f"the kernels read {_LEAST_INPUTS} inputs at a time, and this model's MLP is "
            f"{sizes[0]} by {sizes[1]}: serve it with the torch runner on the CPU"
        )
    whole = group >= _LEAST_GROUP and not group & (group - 1)
    if scheme == "int4" and (not whole or any(size % group for size in sizes)):
        raise StartError(
            f"the kernels read int4 in whole groups of 32, 64, 128 and so on, not in {group} of an "
            f"MLP of {sizes[0]} by {sizes[1]}: export the bundle with another --group, or as int8"
        )


def serve_config(said: Mapping[str, Any]) -> str:
    """`config.yaml`: the settings of our runner, as `trtllm-serve --config` reads them."""
    asked = arguments(int(said["max_position_embeddings"]), RunnerSettings()).as_config()
    del asked["skip_tokenizer_init"]  # it serves text
    head = "# As conductor's own runner asks TensorRT-LLM; for trtllm-serve and trtllm-bench.\n"
    return head + yaml.safe_dump(asked, sort_keys=True)


def _architecture(said: Mapping[str, Any]) -> str:
    names = said.get("architectures") or ["none"]
    if names[0] not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise StartError(f"{known} are compiled for TensorRT-LLM, not {names[0]}")
    return ARCHITECTURES[names[0]]


def _rope(said: Mapping[str, Any]) -> dict[str, Any]:
    """The older form of the rotary settings."""
    told = said.get("rope_parameters") or {
        "rope_theta": said.get("rope_theta", 10_000.0),
        **(said.get("rope_scaling") or {}),
    }
    kind = told.get("rope_type", told.get("type", "default"))
    if kind not in _ROPES:
        raise StartError(
            f"rotary embeddings {' and '.join(_ROPES)} are compiled for TensorRT-LLM, not {kind}"
        )
    scaling = {name: value for name, value in told.items() if name != "rope_theta"}
    return {
        "rope_theta": float(told["rope_theta"]),
        "rope_scaling": None if kind == "default" else {**scaling, "rope_type": kind},
    }
