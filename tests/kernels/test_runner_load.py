"""A checkpoint that cannot be run here is refused before it is run, with the reason."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from conductor.errors import StartError
from conductor.planner.lm_runner import RUNNERS_GROUP
from conductor_kernels.runner import load as loading
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.shape import read_shape
from support.decoders import checkpoint, decoder

Tensors = dict[str, torch.Tensor]
FILE = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoint(tmp_path)
    return tmp_path


def config(folder: Path, **changed: Any) -> None:
    path = folder / "config.json"
    said = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({name: v for name, v in said.items() if v is not None}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "LlamaForCausalLM and Qwen2ForCausalLM"),
        ({"architectures": None}, "no other model"),
        ({"hidden_act": "gelu"}, "silu"),
        ({"sliding_window": 128}, "sliding"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rotary"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0,
                              "mscale": 1.0}}, "mscale"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "'factor'"),
        ({"hidden_size": None}, "'hidden_size'"),
        ({"hidden_size": "wide"}, "no configuration"),
        ({"num_key_value_heads": 3}, "no configuration"),
        ({"num_attention_heads": 0}, "no configuration"),
        ({"vocab_size": 301}, "embed_tokens"),
        ({"num_hidden_layers": 1}, "9 tensors that no Llama"),
        ({"num_hidden_layers": 3}, "holds no model.layers.2"),
    ],
)  # fmt: skip
def test_a_configuration_that_it_cannot_run_is_refused(
    folder: Path, changed: dict[str, Any], words: str
) -> None:
    config(folder, **changed)
    with pytest.raises(StartError, match=words):
        decoder(folder)


def drop(name: str) -> Callable[[Tensors], None]:
    def change(held: Tensors) -> None:
        del held[name]

    return change


def put(name: str, *sizes: int, dtype: torch.dtype = torch.float32) -> Callable[[Tensors], None]:
    return lambda held: held.update({name: torch.zeros(sizes, dtype=dtype)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("lm_head.weight"), "holds no lm_head"),
        (drop("model.layers.1.mlp.up_proj.weight"), "holds no model.layers.1.mlp.up_proj"),
        (put("model.layers.0.mlp.up_proj.bias", 96), "1 tensors that no Llama"),
        (put("model.layers.0.self_attn.q_norm.weight", 16), "1 tensors"),
        (put("model.layers.0.self_attn.q_proj.bias", 64), "for some of query, key and value"),
        (put("model.norm.weight", 65), "the sizes or the type"),
        (put("model.norm.weight", 64, dtype=torch.int8), "the sizes or the type"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[Tensors], None], words: str
) -> None:
    held = load_file(folder / FILE)
    change(held)
    save_file(held, folder / FILE)
    with pytest.raises(StartError, match=words):
        decoder(folder)


def test_old_buffers_of_rotary_embeddings_are_passed_over(folder: Path) -> None:
    held = load_file(folder / FILE)
    held["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    save_file(held, folder / FILE)
    decoder(folder)


def test_files_that_are_missing_damaged_or_double_are_refused(folder: Path) -> None:
    whole = (folder / FILE).read_bytes()
    (folder / "more.safetensors").write_bytes(whole)
    with pytest.raises(StartError, match="two files of the checkpoint hold"):
        decoder(folder)
    (folder / "more.safetensors").unlink()
    (folder / FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StartError, match="cannot be read as safetensors"):
        decoder(folder)
    (folder / FILE).unlink()
    with pytest.raises(StartError, match=r"no \*\.safetensors file"):
        decoder(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(StartError, match="no configuration"):
        decoder(folder)
    (folder / "config.json").unlink()
    with pytest.raises(StartError, match=r"no config\.json"):
        decoder(folder)


def test_what_does_not_fit_into_memory_is_refused_before_it_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(StartError, match=r"GB are free: take a smaller"):
        decoder(folder, cache_tokens=2**40)
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 9 kB\nMemAvailable: 700 kB\n")
    monkeypatch.setattr(loading, "_MEMINFO", told)
    with pytest.raises(StartError, match=r"take 1\.4 GB"):
        decoder(folder, cache_tokens=2_700_000)
    with pytest.raises(StartError, match=r"0\.0 GB are free"):
        decoder(folder)
    decoder(folder, cache_tokens=32)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_while_loading_is_said_plainly(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(loading, "Cache", full)
    with pytest.raises(StartError, match="fewer cache_tokens"):
        decoder(folder)


def test_sizes_that_the_kernels_do_not_read_are_refused_on_a_gpu(folder: Path) -> None:
    shape = replace(read_shape(folder), heads=2, head_dim=64, inner=128)
    loading.check_kernels(shape)
    for wrong in ({"head_dim": 32}, {"inner": 96}, {"hidden": 100}):
        with pytest.raises(StartError, match="set its device to cpu"):
            loading.check_kernels(replace(shape, **wrong))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_looked_for_in_vain(folder: Path) -> None:
    with pytest.raises(StartError, match="no GPU"):
        decoder(folder, device="cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(("built_for", "lines"), [("12.8", 1), (None, 0)])
def test_a_driver_that_is_missing_is_told_where_torch_expects_one(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    built_for: str | None,
    lines: int,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", built_for)
    assert decoder(folder, device="auto").device.type == "cpu"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * lines


def test_the_package_offers_the_runner() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module, _, name = project["project"]["entry-points"][RUNNERS_GROUP]["torch"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_a_cache_gives_each_block_to_one_owner(folder: Path) -> None:
    cache: Cache = decoder(folder, cache_tokens=100).cache
    assert (cache.blocks, cache.slots) == (4, 128)
    first, second = cache.take(1), cache.take(3)
    assert sorted((*first, *second)) == [0, 1, 2, 3] and cache.free == 0
    with pytest.raises(IndexError):
        cache.take(1)
    cache.give_back(first)
    assert cache.take(1) == first
