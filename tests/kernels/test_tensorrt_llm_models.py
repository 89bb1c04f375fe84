"""A bundle compiled for TensorRT-LLM, and plans of the out-of-tree model that it names."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from conductor.core import Flow
from conductor.errors import StartError
from conductor.plan.automaton import Automaton
from conductor.plan.prompt import PROMPT_VERSION
from conductor.plan.validate import PlanPool
from conductor.planner import lm_runner
from conductor.planner.bundle import Bundle, open_bundle
from conductor.planner.lm import Decoding, LmEngine
from conductor.planner.lm_runner import RunnerSettings, Wanted
from conductor.planner.manifest import PromptId
from conductor_build.compile.targets import Options, find_target
from conductor_build.lm.lmbundle import check
from conductor_build.lm.quantise import Scheme
from conductor_build.lm.quantisedfile import dequantised, linear_names, quantise_folder
from conductor_kernels.tensorrt_llm import warmup
from conductor_kernels.tensorrt_llm.blocks import RestrictedHead
from conductor_kernels.tensorrt_llm.runner import load
from conductor_kernels.tensorrt_llm.warmup import warm_up
from support import bundles
from support.decoders import alike, by_transformers, checkpoint, written
from support.lmbundles import VOCABULARY, files, parts
from support.plans import candidate, request
from support.trtllm import LAYOUTS, installed

SETTINGS = RunnerSettings(cache_tokens=2048, max_running=4)
END = int(parts().tables.eos[0])
BARE = Flow(question=0, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
            sees=(frozenset({0, 1, 2}), frozenset()))  # fmt: skip
MODELS: dict[str, tuple[str, Scheme | None, dict[str, Any]]] = {
    "plain": ("qwen2", None, {"tie_word_embeddings": True}),
    "int8": ("llama", Scheme("int8"), {"rope_theta": 5e5}),
    "int4": ("qwen2", Scheme("int4", 32, symmetric=False), {"rope_theta": 1e6}),
}


def bundle_of(folder: Path, name: str) -> tuple[Bundle, torch.nn.Module]:
    """A bundle of a small model, and the model as it computes with what is stored."""
    kind, scheme, more = MODELS[name]
    plain = folder / "plain"
    sizes = {"vocab_size": VOCABULARY, "intermediate_size": 128, "max_position_embeddings": 4096}
    model = checkpoint(plain, kind, **{**sizes, "eos_token_id": END, **more})
    if scheme is not None:
        quantise_folder(plain, folder / "packed", scheme, linear_names(model))
        model.load_state_dict(dequantised(folder / "packed"), strict=False)
        (plain / "model.safetensors").unlink()
    weights = folder / "packed" if scheme else plain
    held = {path.name: path.read_bytes() for at in {plain, weights} for path in at.iterdir()}
    path = bundles.write(
        folder / "bundle", files() | {f"lm/{one}": data for one, data in held.items()},
        kind="lm", features=None, encoder=None, precision=scheme.name if scheme else "float32",
        prompt=PromptId(PROMPT_VERSION, parts().prompter.digest),
    )  # fmt: skip
    return open_bundle(path, bundles.TRUSTED), model


def compiled(bundle: Bundle, out: Path) -> Path:
    return find_target("tensorrt-llm")(bundle, out, Options(bundles.KEY))


def asked(number: int) -> Wanted:
    automaton = Automaton(parts().tables, PlanPool(5), parts().encode)
    return Wanted(tuple(range(90, 130)), (5, 7, 9 + number), automaton, 16, temperature=1.5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", list(MODELS))
async def test_a_compiled_model_writes_the_plans_of_the_stored_weights(
    tmp_path: Path, layout: str, name: str
) -> None:
    bundle, model = bundle_of(tmp_path, name)
    made = compiled(bundle, tmp_path / "made")
    with installed(layout):
        runner = load(made / "lm", SETTINGS)
        try:
            for number in range(2):
                one = asked(number)
                assert alike(await written(runner, one), by_transformers(model, one), 1e-3)
        finally:
            runner.close()


def test_the_bundle_is_whole_and_says_what_it_holds(tmp_path: Path) -> None:
    bundle, _ = bundle_of(tmp_path, "int4")
    made = open_bundle(compiled(bundle, tmp_path / "made"), bundles.TRUSTED)
    check(made)
    config = json.loads(made.read("lm/config.json"))
    assert config["architectures"] == ["ConductorQwen2ForCausalLM"]
    assert (config["rope_theta"], config["rope_scaling"]) == (1e6, None)
    assert config["torch_dtype"] == "float32" and config["conductor_group"] == 32
    left = json.loads(made.read("lm/quantisation.json"))["tensors"]
    assert left and all(".mlp." in one for one in left)
    assert "disable_overlap_scheduler: true" in made.read("lm/config.yaml").decode()
    compile(made.read("lm/warm_up.py"), "warm_up.py", "exec")
    assert made.manifest.provenance.summary["compiled_from"] == bundle.id[:12]
    assert made.read("plan/tables.bin") == bundle.read("plan/tables.bin")


def test_the_warm_up_writes_plans_in_falling_batches(tmp_path: Path) -> None:
    bundle, _ = bundle_of(tmp_path, "plain")
    made, lines = compiled(bundle, tmp_path / "made"), list[str]()
    with installed("v1_2"):
        warm_up(made, [key(tmp_path)], replace(SETTINGS, max_running=3), lines.append)
    assert [line.split()[0] for line in lines] == ["3", "1"]
    assert lines[1].startswith("  1 at once: 24 tokens in ")


def test_the_warm_up_runs_no_bundle_that_is_not_what_was_signed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "load", lambda *_: pytest.fail("it was loaded"))
    bundle, _ = bundle_of(tmp_path, "plain")
    made = compiled(bundle, tmp_path / "made")
    assert warmup.main([str(made)]) == 1
    assert "trusted_keys" in capsys.readouterr().err
    (made / "lm" / "config.json").write_bytes(b"{}")
    assert warmup.main([str(made), "--key", str(key(tmp_path))]) == 1
    assert "lm/config.json is not what the manifest says" in capsys.readouterr().err


def key(folder: Path) -> Path:
    """Of who signed."""
    (public,) = bundles.TRUSTED
    path = folder / "site.pub"
    path.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


async def test_the_planner_plans_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    bundle, _ = bundle_of(tmp_path, "plain")
    made = compiled(bundle, tmp_path / "made")
    point = EntryPoint(
        "tensorrt_llm", "conductor_kernels.tensorrt_llm.runner:load", "conductor.runners"
    )
    monkeypatch.setattr(lm_runner, "entry_points", lambda group: EntryPoints([point]))
    monkeypatch.setattr(
        "conductor.planner.lm.resolve", lambda path, *_: open_bundle(path, bundles.TRUSTED)
    )
    with installed("v1_4"):
        engine = await asyncio.to_thread(
            LmEngine.load, made, (), Decoding(limit_s=60), replace(SETTINGS, cache_tokens=8192),
            "tensorrt_llm",
        )  # fmt: skip
        try:
            pool = [candidate(general=0.1 * place, price=place) for place in range(3)]
            one = request(*pool, question="How many are 2 and 2?")
            planned = await engine.plan(replace(one, flow=BARE, max_steps=1))
            assert planned.engine == "lm" and planned.log_prob is not None
        finally:
            engine.close()


def test_on_a_gpu_kernels_are_those_of_the_bundle(tmp_path: Path) -> None:
    bundle, _ = bundle_of(tmp_path, "plain")
    made, used = compiled(bundle, tmp_path / "made"), list[Path]()
    with installed("v1_2") as patch:
        patch.setattr("conductor_kernels.tensorrt_llm.runner.use_bundle", used.append)
        load(made / "lm", SETTINGS).close()
        assert not used, "there is none here"
        patch.setattr("torch.cuda.is_available", lambda: True)
        load(made / "lm", SETTINGS).close()
    assert used == [made]


def test_a_head_keeps_the_logits_of_its_rows_and_no_others() -> None:
    whole, hidden = torch.randn(9, 64), torch.randn(3, 64)
    head, rows = RestrictedHead(9), torch.tensor([1, 4, 5, 8], dtype=torch.int32)
    head.put(whole, rows, whole)
    logits, expected = head(hidden), hidden @ whole.T
    assert torch.allclose(logits[:, rows.long()], expected[:, rows.long()], atol=1e-5)
    others = [0, 2, 3, 6, 7]
    assert bool((logits[:, others] == -torch.inf).all())


def test_the_rows_of_the_head_are_those_that_plans_need(tmp_path: Path) -> None:
    from safetensors.torch import load as tensors

    bundle, _ = bundle_of(tmp_path, "plain")
    made = open_bundle(compiled(bundle, tmp_path / "made"), bundles.TRUSTED)
    rows = set(tensors(made.read("lm/conductor.safetensors"))["conductor.head_rows"].tolist())
    tables = parts().tables
    needed = {token for token in range(VOCABULARY) if tables.class_of[token]}
    assert rows == needed | set(tables.eos)
    assert 0 not in rows, "a control token that stands in no plan"


def test_a_checkpoint_without_one_of_our_weights_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    bundle, _ = bundle_of(tmp_path, "plain")
    lm = compiled(bundle, tmp_path / "made") / "lm"
    held = load_file(lm / "model.safetensors")
    del held["model.layers.1.mlp.up_proj.weight"]
    save_file(held, lm / "model.safetensors")
    with installed("v1_2"), pytest.raises(StartError, match=r"no model\.layers\.1\.mlp\.up_proj"):
        load(lm, SETTINGS)
