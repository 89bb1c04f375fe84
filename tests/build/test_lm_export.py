"""A trained adapter becomes a plain checkpoint that computes the same, or no checkpoint at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from conductor_build.lm.checkpoint import Prompting, open_checkpoint
from conductor_build.lm.genai import build_onnx
from conductor_build.lm.merge import ExportError, merged, save_checkpoint
from conductor_build.lm.policy import PlanPolicy
from conductor_build.lm.recipe import Adapter, BaseUse, LmRecipe, PoolUse, Rounds
from support.lmexports import adapted, loaded, logits, write_model


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def tensors(folder: Path) -> list[str]:
    names: list[str] = []
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names += file.keys()
    return sorted(names)


def test_the_merged_checkpoint_computes_what_the_adapter_does(plain: Path, tmp_path: Path) -> None:
    policy = adapted(plain)
    before = logits(policy.base)
    assert (before - logits(loaded(plain))).abs().max() > 0.1, "the adapter changes something"
    save_checkpoint(policy.base, tmp_path / "out")
    assert torch.allclose(logits(loaded(tmp_path / "out")), before, atol=1e-4, rtol=0)


def test_the_policy_is_left_as_it_is(plain: Path, tmp_path: Path) -> None:
    policy = adapted(plain)
    state, before = policy.state(), logits(policy.base)
    save_checkpoint(policy.base, tmp_path / "out")
    assert torch.equal(logits(policy.base), before)
    assert all(torch.equal(one, policy.state()[name]) for name, one in state.items())


def test_a_merged_checkpoint_has_the_tensors_of_a_plain_one(plain: Path, tmp_path: Path) -> None:
    save_checkpoint(adapted(plain).base, tmp_path / "out")
    assert tensors(tmp_path / "out") == tensors(plain)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"config.json", "tokenizer.json", "model.safetensors"}
    assert (tmp_path / "out/tokenizer.json").read_text() == loaded(plain).tokenizer.to_str()


def test_a_model_without_an_adapter_is_saved_bit_for_bit(plain: Path) -> None:
    base = loaded(plain)
    weights = merged(base.model)
    assert all(torch.equal(one, weights[name]) for name, one in base.model.state_dict().items())


def test_weights_may_be_stored_in_half_the_bytes(plain: Path, tmp_path: Path) -> None:
    save_checkpoint(adapted(plain).base, tmp_path / "out", torch.bfloat16)
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"
    with safe_open(tmp_path / "out/model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in tensors(tmp_path / "out")} == {
            torch.bfloat16
        }


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_training_that_ran_away_is_not_exported(
    plain: Path, tmp_path: Path, wrong: float
) -> None:
    policy = adapted(plain)
    with torch.no_grad():
        policy.parameters()[0][0, 0] = wrong
    with pytest.raises(ExportError, match="ran away"):
        save_checkpoint(policy.base, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- which checkpoint -----------------------------------------------------------------------------


def test_a_folder_of_weights_is_opened_with_the_prompt_that_is_told(plain: Path) -> None:
    found = open_checkpoint(plain, models=plain, prompting=Prompting(2, 3))
    assert found.prompting == Prompting(2, 3)
    assert found.provenance.data == {"weights": loaded(plain).digest}


def test_an_adapter_as_peft_saves_it_is_put_on_its_base(plain: Path, tmp_path: Path) -> None:
    policy = adapted(plain)
    policy.model.peft_config["default"].base_model_name_or_path = str(plain)
    policy.model.save_pretrained(tmp_path)
    found = open_checkpoint(tmp_path, models=plain)
    save_checkpoint(found.base, tmp_path / "out")
    assert torch.allclose(logits(loaded(tmp_path / "out")), logits(policy.base), atol=1e-4, rtol=0)


def test_a_folder_that_is_no_checkpoint_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no checkpoint"):
        open_checkpoint(tmp_path, models=tmp_path)


def test_a_trainings_folder_needs_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "policy.pt").write_bytes(b"")
    with pytest.raises(ExportError, match="--recipe"):
        open_checkpoint(tmp_path, models=tmp_path)


# -- our own training -----------------------------------------------------------------------------


def recipe_of(plain: Path, **changes: Any) -> LmRecipe:
    pool, base = PoolUse("simulated"), BaseUse(str(plain), examples=0)
    told = {"lora": Adapter(rank=3, alpha=5.0), "rounds": Rounds(share=0.5, most=3), **changes}
    return LmRecipe(tasks=(), pool=pool, base=base, **told)


def trained(plain: Path, folder: Path, **changes: Any) -> PlanPolicy:
    """A folder as a training leaves it; `changes` of its run.json."""
    policy = adapted(plain)
    torch.save(policy.state(), folder / "policy.pt")
    run = {
        "recipe": recipe_of(plain).sha256(),
        "base": policy.base.digest,
        "prompt": policy.writer.prompter.digest,
        "data": {"questions.jsonl": "c" * 64},
    }
    (folder / "run.json").write_text(json.dumps({**run, **changes}))
    (folder / "curves.jsonl").write_text("{}\n")
    return policy


def test_a_trainings_folder_is_opened_with_its_recipe(plain: Path, tmp_path: Path) -> None:
    policy = trained(plain, tmp_path)
    found = open_checkpoint(tmp_path, models=plain, recipe=recipe_of(plain))
    assert torch.equal(logits(found.base), logits(policy.base))
    assert found.prompting == Prompting(examples=0, rounds=3)
    assert found.provenance.recipe["lora"] == {"rank": 3, "alpha": 5.0}
    assert found.provenance.data.keys() == {"questions.jsonl", "base"}
    assert found.report.keys() == {"curves.jsonl"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": "0"}, "another recipe"),
        ({"base": "0"}, "another base model"),
        ({"prompt": "0"}, "another prompt"),
        ({"data": None}, "cannot be read"),
    ],
)
def test_a_training_of_something_else_is_refused(
    plain: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    trained(plain, tmp_path, **changes)
    with pytest.raises(ExportError, match=said):
        open_checkpoint(tmp_path, models=plain, recipe=recipe_of(plain))


@pytest.mark.parametrize("name", ["policy.pt", "run.json"])
def test_a_damaged_training_is_a_clear_error(plain: Path, tmp_path: Path, name: str) -> None:
    trained(plain, tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:40])
    with pytest.raises(ExportError, match=r"damaged|cannot be read"):
        open_checkpoint(tmp_path, models=plain, recipe=recipe_of(plain))


def test_a_recipe_without_a_training_is_a_clear_error(plain: Path) -> None:
    with pytest.raises(ExportError, match="is this training through"):
        open_checkpoint(plain, models=plain, recipe=recipe_of(plain))


# -- ONNX -----------------------------------------------------------------------------------------


def test_onnx_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_build.lm.genai.find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"conductor-appliance\[genai\]"):
        build_onnx(tmp_path, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
