"""What is written beside a model for TensorRT-LLM, and what is refused. The plans of what is
written are compared in `tests/kernels/test_tensorrt_llm_models.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from conductor.errors import BundleError, StartError
from conductor.plan.prompt import PROMPT_VERSION
from conductor.planner.bundle import Bundle, open_bundle
from conductor.planner.manifest import PromptId
from conductor_build.compile.targets import Options, find_target
from conductor_build.compile.tensorrt_config import (
    ARCHITECTURES,
    check_packed,
    model_config,
    serve_config,
)
from conductor_kernels.tensorrt_llm.folder import OURS
from support import bundles
from support.lmbundles import files, parts

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
    "max_position_embeddings": 4096, "dtype": "bfloat16", "vocab_size": 700,
    "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
}  # fmt: skip
LLAMA3 = {
    "rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip


UNPACKED = {"lm/quantisation.json": b'{"scheme": null, "group": 0, "tensors": {}}'}


def bundle(folder: Path, more: dict[str, bytes] | None = None, **changed: Any) -> Bundle:
    """One whose weights nobody can read."""
    held = {"lm/config.json": json.dumps({**CONFIG, **changed}).encode(),
            "lm/model.safetensors": b"weights", "onnx/model.onnx": b"graph"}  # fmt: skip
    path = bundles.write(
        folder, files() | held | (more or {}), kind="lm", features=None, encoder=None,
        precision="bfloat16", prompt=PromptId(PROMPT_VERSION, parts().prompter.digest),
    )  # fmt: skip
    return open_bundle(path, bundles.TRUSTED)


def run(made_from: Bundle, out: Path, **options: Any) -> Path:
    return find_target("tensorrt-llm")(made_from, out, Options(**{"key": bundles.KEY, **options}))


def test_rotary_settings_are_written_in_the_form_that_the_1_2_line_reads() -> None:
    plain = model_config(CONFIG, 0)
    assert (plain["rope_theta"], plain["rope_scaling"]) == (5e5, None)
    assert plain["rope_parameters"] == CONFIG["rope_parameters"], "and in the newer one"
    stretched = model_config({**CONFIG, "rope_parameters": LLAMA3}, 0)
    assert stretched["rope_theta"] == 5e5
    assert stretched["rope_scaling"] == {k: v for k, v in LLAMA3.items() if k != "rope_theta"}
    older = {k: v for k, v in CONFIG.items() if k != "rope_parameters"} | {"rope_theta": 3e4}
    assert model_config(older, 0)["rope_theta"] == 3e4
    assert plain["torch_dtype"] == plain["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"architectures": ["MistralForCausalLM"]}, "not MistralForCausalLM"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, "not yarn"),
    ],
)
def test_a_model_that_ours_would_compute_differently_is_refused(
    changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(StartError, match=said):
        model_config({**CONFIG, **changed}, 0)


@pytest.mark.parametrize(
    ("changed", "scheme", "group", "fits"),
    [
        ({}, None, 0, True),
        ({}, "int8", 128, True),
        ({}, "int4", 128, True),
        ({}, "int4", 32, True),
        ({}, "int4", 16, False),
        ({}, "int4", 96, False),
        ({"intermediate_size": 320}, "int4", 128, False),
        ({"intermediate_size": 320}, "int8", 128, True),
        ({"hidden_size": 100}, "int8", 128, False),
    ],
)
def test_only_what_the_kernels_can_read_is_left_packed(
    changed: dict[str, Any], scheme: str | None, group: int, fits: bool
) -> None:
    said = {**CONFIG, **changed}
    if fits:
        check_packed(said, scheme, group)
        return
    with pytest.raises(StartError, match="the kernels read"):
        check_packed(said, scheme, group)


def test_both_sides_know_the_same_architectures() -> None:
    assert set(ARCHITECTURES.values()) == set(OURS)


def test_the_settings_for_its_own_programs_serve_text() -> None:
    said = yaml.safe_load(serve_config(CONFIG))
    assert "skip_tokenizer_init" not in said
    assert said["kv_cache_config"]["enable_block_reuse"] is True
    assert said["max_seq_len"] == 4096


def test_weights_that_are_not_packed_are_kept_byte_for_byte(tmp_path: Path) -> None:
    old = bundle(tmp_path / "old")
    new = open_bundle(run(old, tmp_path / "new"), bundles.TRUSTED)
    assert new.manifest.files["lm/model.safetensors"] == old.manifest.files["lm/model.safetensors"]
    assert new.manifest.precision == "bfloat16"
    assert "onnx/model.onnx" not in new.manifest.files, "it is another engine's"
    assert not [one for one in tmp_path.iterdir() if one.name not in ("old", "new")]


@pytest.mark.parametrize("more", [{}, UNPACKED], ids=["plain", "with a layout of nothing"])
def test_weights_that_change_meanwhile_are_found_out(
    tmp_path: Path, more: dict[str, bytes]
) -> None:
    old = bundle(tmp_path / "old", more)
    (tmp_path / "old" / "lm" / "model.safetensors").write_bytes(b"others!")
    with pytest.raises(BundleError, match="changed meanwhile"):
        run(old, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_without_a_key_nothing_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="--sign"):
        run(bundle(tmp_path / "old"), tmp_path / "new", key=None)


def test_only_a_language_model_is_compiled(tmp_path: Path) -> None:
    pocket = open_bundle(bundles.write(tmp_path / "old"), bundles.TRUSTED)
    for target in ("tensorrt-llm", "tensorrt-engine"):
        with pytest.raises(StartError, match="only a language model"):
            find_target(target)(pocket, tmp_path / "new", Options(bundles.KEY))
