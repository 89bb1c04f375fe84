"""Which TensorRT-LLM is accepted, and what is said of one that is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conductor.errors import StartError
from conductor.planner.lm_runner import RunnerSettings
from conductor_kernels.tensorrt_llm.arguments import arguments
from conductor_kernels.tensorrt_llm.folder import read_folder
from conductor_kernels.tensorrt_llm.runner import load
from conductor_kernels.tensorrt_llm.versions import resolve, resolve_models
from support.automata import EOS
from support.trtllm import LAYOUTS, installed, lot

SETTINGS = RunnerSettings(cache_tokens=2048, max_running=4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_name_is_found_in_both_layouts(layout: str) -> None:
    with installed(layout):
        api = resolve_models(resolve())
        assert api.line == {"v1_2": (1, 2), "v1_4": (1, 4)}[layout]
        assert api.Attention.__module__ == "trtllm_stub.layers"


def test_without_it_the_refusal_says_where_to_read() -> None:
    with installed(None), pytest.raises(StartError, match=r"not installed: docs/tensorrt-llm\.md"):
        resolve()


def test_one_that_cannot_be_loaded_here_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "tensorrt_llm.py").write_text("raise OSError('libcuda.so.1')")
    with installed(None) as patch:
        patch.syspath_prepend(str(tmp_path))
        with pytest.raises(StartError, match="an NVIDIA driver"):
            resolve()


@pytest.mark.parametrize("version", ["1.1.0", "1.5.0", "2.2.0", "0.21", "unknown"])
def test_an_unknown_version_is_refused_by_its_name(version: str) -> None:
    with installed("v1_2") as patch:
        import tensorrt_llm  # type: ignore[import-not-found]

        patch.setattr(tensorrt_llm, "__version__", version)
        with pytest.raises(
            StartError, match=rf"{version} is not known here, only 1\.2, 1\.3, 1\.4"
        ):
            resolve()


@pytest.mark.parametrize(
    ("place", "left", "said"),
    [
        ("KvCacheConfig", ("max_tokens",), "KvCacheConfig has no enable_block_reuse, tokens_per"),
        ("SamplingParams", (), "SamplingParams has no max_tokens, end_id"),
        ("LLM.generate_async", ("self", "inputs"), "generate_async has no sampling_params, stre"),
        ("LogitsProcessor.__call__", ("self", "req_id", "logits"), "__call__ has no token_ids"),
    ],
)
def test_a_signature_that_differs_is_refused_by_what_differs(
    place: str, left: tuple[str, ...], said: str
) -> None:
    with installed("v1_4") as patch:
        api = resolve()
        name, _, member = place.partition(".")
        other = _taking(left)
        where = sys.modules[_module_of(name)]
        if member:
            patch.setattr(getattr(where, name), member, other)
        else:
            patch.setattr(where, name, other)
        with pytest.raises(StartError, match=said):
            resolve()
        assert api.version == "1.4.0rc4"


def test_a_name_that_moved_elsewhere_is_refused_with_where_it_was_sought() -> None:
    with installed("v1_2") as patch:
        api = resolve()
        patch.setitem(sys.modules, "tensorrt_llm._torch.modules.attention", ModuleType("empty"))
        with pytest.raises(StartError, match=r"Attention is in none of .*modules\.attention, "):
            resolve_models(api)


def test_an_argument_that_it_no_longer_knows_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed("v1_2"):
        from trtllm_stub import serving  # type: ignore[import-not-found]

        monkeypatch.setattr(serving, "KNOWN", serving.KNOWN - {"cuda_graph_config"})
        with pytest.raises(
            StartError, match=r"1\.2\.1 does not start \(ValueError\) of an argument"
        ):
            load(lot(tmp_path / "lm"), SETTINGS)


def test_a_cpu_is_no_place_for_it(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="needs a GPU"):
        load(tmp_path, RunnerSettings(device="cpu"))


# -- folders ----------------------------------------------------------------------------------


def test_a_built_engine_runs_on_the_last_version_that_can(tmp_path: Path) -> None:
    model = {"vocab_size": 300, "eos_token_id": EOS, "architecture": "Qwen2ForCausalLM"}
    (tmp_path / "config.json").write_text(
        json.dumps({"pretrained_config": model, "build_config": {"max_seq_len": 900},
                    "vocab_size": 300})
    )  # fmt: skip
    folder = read_folder(tmp_path)
    assert (folder.kind, folder.positions, folder.vocabulary) == ("engine", 900, 300)
    with installed("v1_2"):
        load(tmp_path, SETTINGS).close()
    with installed("v1_4"), pytest.raises(StartError, match=r"has no engine backend, 1\.2\.1 was"):
        load(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "not by GPT2LMHeadModel"),
        ({"eos_token_id": None}, "no eos_token_id"),
        ({"max_position_embeddings": "many"}, "lacks what a model's must say"),
        ({"rope_theta": None}, "--target tensorrt-llm"),
    ],
)
def test_a_folder_that_it_cannot_run_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(StartError, match=said):
        read_folder(lot(tmp_path / "lm", **changed))


def test_packed_weights_have_to_be_compiled_first(tmp_path: Path) -> None:
    folder = lot(tmp_path / "lm")
    (folder / "quantisation.json").write_text("{}")
    with pytest.raises(StartError, match="compile --target tensorrt-llm"):
        read_folder(folder)


def test_the_ends_are_those_that_generation_is_told(tmp_path: Path) -> None:
    folder = lot(tmp_path / "lm", eos_token_id=3)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert read_folder(folder).ends == (7, 9)


def test_a_batch_beyond_sixteen_gets_no_graph_of_its_own() -> None:
    asked = arguments(4096, RunnerSettings(max_running=40, cache_tokens=100_000))
    assert asked.graphs["batch_sizes"] == list(range(1, 17))
    assert asked.main["max_batch_size"] == 40 and asked.main["max_seq_len"] == 4096
    assert asked.main["max_num_tokens"] == 512
    assert asked.as_config()["kv_cache_config"]["tokens_per_block"] == 32


# -- helpers ----------------------------------------------------------------------------------


def _taking(names: tuple[str, ...]) -> Any:
    """A function of these arguments and no others."""
    held: dict[str, Any] = {}
    exec(f"def made({', '.join(names)}): ...", held)
    return held["made"]


def _module_of(name: str) -> str:
    return {
        "KvCacheConfig": "tensorrt_llm.llmapi",
        "LogitsProcessor": "tensorrt_llm.sampling_params",
    }.get(name, "tensorrt_llm")
