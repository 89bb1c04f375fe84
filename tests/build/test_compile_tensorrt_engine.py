"""Driving the programs of TensorRT-LLM 1.2.1, with programs that only write down what they got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from conductor.errors import BundleError, StartError
from conductor.plan.prompt import PROMPT_VERSION
from conductor.planner.bundle import Bundle, open_bundle
from conductor.planner.manifest import PromptId
from conductor_build.compile.targets import Options, find_target
from conductor_build.compile.tensorrt_engine import EngineFailed
from conductor_build.lm.quantise import Scheme, pack, unpack
from conductor_kernels.tensorrt_llm.folder import read_folder
from support import bundles
from support.lmbundles import files, parts

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 4096, "dtype": "bfloat16",
    "eos_token_id": 1, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
}  # fmt: skip
NAME = "model.layers.0.mlp.up_proj.weight"
WEIGHT = torch.arange(-64, 64).float().view(2, 64)
BUILT = {"pretrained_config": {"vocab_size": 700}, "build_config": {"max_seq_len": 4096}}


class Box:
    """A machine with an environment of TensorRT-LLM on its path."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.bin, self.log = folder, folder / "bin", folder / "log"
        self.bin.mkdir()
        self.converter = folder / "examples/models/core/qwen/convert_checkpoint.py"
        self.converter.parent.mkdir(parents=True)
        self.converter.write_text("")
        patch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        patch.setenv("TENSORRT_LLM_EXAMPLES", str(folder / "examples"))

    def program(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def whole(self, version: str = "1.2.1", build: str = "") -> None:
        """Both programs. `build`: what the second does besides."""
        self.program(
            "python",
            f'[ "$1" = -c ] && {{ echo {version}; exit; }}\n'
            f'echo "$@" >> {self.log}\ncp "$3/model.safetensors" "$3/config.json" {self.folder}',
        )
        engine = (
            f"mkdir -p \"$4\"; echo '{json.dumps(BUILT)}' > $4/config.json; : > $4/rank0.engine"
        )
        self.program("trtllm-build", f'echo "$@" >> {self.log}\n{build or engine}')


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


def bundle(folder: Path, scheme: Scheme | None = None, **changed: Any) -> Bundle:
    held = {"lm/config.json": json.dumps({**CONFIG, **changed}).encode(),
            "lm/model.safetensors": save({NAME: WEIGHT})}  # fmt: skip
    if scheme is not None:
        packed = pack(WEIGHT, scheme)
        found = {f"{NAME}.packed": packed.values, f"{NAME}.scale": packed.scale}
        layout = {"version": 1, "scheme": scheme.name, "group": scheme.group, "symmetric": True,
                  "tensors": {NAME: {"shape": [2, 64], "dtype": "float32"}}}  # fmt: skip
        held |= {"lm/model.safetensors": save(found),
                 "lm/quantisation.json": json.dumps(layout).encode()}  # fmt: skip
    path = bundles.write(
        folder / "bundle", files() | held, kind="lm", features=None, encoder=None,
        precision=scheme.name if scheme else "bfloat16",
        prompt=PromptId(PROMPT_VERSION, parts().prompter.digest),
    )  # fmt: skip
    return open_bundle(path, bundles.TRUSTED)


def run(made_from: Bundle, out: Path) -> Path:
    return find_target("tensorrt-engine")(made_from, out, Options())


def arguments(line: str) -> dict[str, str]:
    words = line.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def test_an_engine_is_built_in_two_steps_and_put_in_place_whole(box: Box, tmp_path: Path) -> None:
    box.whole()
    given = bundle(tmp_path)
    made = run(given, tmp_path / "engine")
    convert, build = box.log.read_text().splitlines()
    first, second = arguments(convert.split(" ", 1)[1]), arguments(build)
    assert convert.split()[0] == str(box.converter)
    assert first["--dtype"] == "bfloat16" and "--use_weight_only" not in first
    assert second["--checkpoint_dir"] == first["--output_dir"]
    assert (second["--max_seq_len"], second["--max_batch_size"]) == ("4096", "16")
    assert second["--use_paged_context_fmha"] == "enable", "without it no prompt is reused"
    assert json.loads((made / "conductor.json").read_text()) == {
        "bundle": given.id, "tensorrt_llm": "1.2.1",
    }  # fmt: skip
    assert (made / "tokenizer.json").is_file()
    folder = read_folder(made)
    assert (folder.kind, folder.ends, folder.positions) == ("engine", (1,), 4096)
    assert json.loads((tmp_path / "config.json").read_text())["rope_theta"] == 1e6
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_packed_weights_are_handed_over_whole(box: Box, tmp_path: Path) -> None:
    box.whole()
    scheme = Scheme("int8")
    run(bundle(tmp_path, scheme), tmp_path / "engine")
    assert "--use_weight_only --weight_only_precision int8" in box.log.read_text()
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == {NAME}
    assert torch.equal(found[NAME], unpack(pack(WEIGHT, scheme), scheme))


def test_no_engine_is_built_in_fp8(box: Box, tmp_path: Path) -> None:
    box.whole()
    with pytest.raises(StartError, match="needs calibration data"):
        run(bundle(tmp_path, Scheme("fp8")), tmp_path / "engine")


def test_without_the_programs_it_says_what_to_install(box: Box, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"no trtllm-build on the path: install TensorRT-LLM 1\.2"):
        run(bundle(tmp_path), tmp_path / "engine")


def test_a_newer_version_has_no_engines_any_more(box: Box, tmp_path: Path) -> None:
    given = bundle(tmp_path)
    box.whole("1.3.0rc20")
    with pytest.raises(StartError, match=r"1\.3\.0rc20 is installed: the engine backend was remov"):
        run(given, tmp_path / "engine")
    (box.bin / "trtllm-build").rename(box.bin / "trtllm-serve")
    with pytest.raises(StartError, match=r"TensorRT-LLM 1\.3\.0rc20 has no trtllm-build: the eng"):
        run(given, tmp_path / "engine")


def test_without_the_converter_it_says_where_that_is_from(box: Box, tmp_path: Path) -> None:
    box.whole()
    box.converter.unlink()
    with pytest.raises(StartError, match="set TENSORRT_LLM_EXAMPLES to the folder"):
        run(bundle(tmp_path), tmp_path / "engine")


def test_another_model_is_refused(box: Box, tmp_path: Path) -> None:
    box.whole()
    with pytest.raises(StartError, match="not of GPT2LMHeadModel"):
        run(bundle(tmp_path, architectures=["GPT2LMHeadModel"]), tmp_path / "engine")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("echo 'out of memory' >&2; exit 3", r"trtllm-build failed \(3\): out of memory"),
        (":", "ended well and left no engine"),
    ],
)
def test_a_build_that_fails_leaves_nothing(box: Box, tmp_path: Path, build: str, said: str) -> None:
    box.whole(build=build)
    with pytest.raises(EngineFailed, match=said):
        run(bundle(tmp_path), tmp_path / "engine")
    assert not (tmp_path / "engine").exists()
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_what_is_there_already_stays(box: Box, tmp_path: Path) -> None:
    box.whole()
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "mine").write_text("")
    with pytest.raises(BundleError, match="something is there already"):
        run(bundle(tmp_path), tmp_path / "engine")
