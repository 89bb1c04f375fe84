"""Loading a base model: what is kept, what is refused, and what a killed conversion leaves."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from conductor.errors import StartError
from conductor.plan.prompt import CHATML, PLAIN
from conductor.workers.catalogue import CatalogueModel, Origin
from conductor_build.lm import base as bases
from conductor_build.lm import convert
from conductor_build.lm.base import BaseError, load_base
from conductor_build.lm.policy import PlanPolicy
from conductor_build.lm.tokens import Writer, ids_of
from support.lmgguf import write_gguf
from support.lmmodels import base as made_base
from support.lmmodels import requests, tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in Hugging Face's form."""
    model: Any = made_base().model
    model.save_pretrained(tmp_path / "model")
    tokenizer().save(str(tmp_path / "model" / "tokenizer.json"))
    return tmp_path / "model"


def loaded(folder: Path) -> bases.Base:
    return load_base(str(folder), models=folder, dtype=torch.float32)


def test_a_folder_gives_its_weights_frozen_its_frame_and_its_end_token(folder: Path) -> None:
    found, wanted = loaded(folder), made_base()
    ours, theirs = found.model.state_dict(), wanted.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not any(one.requires_grad for one in found.model.parameters())
    assert not found.model.training
    assert (found.frame, found.eos) == (CHATML, wanted.eos)


def test_the_digest_is_that_of_the_weights_and_of_nothing_else(folder: Path) -> None:
    before = loaded(folder).digest
    (folder / "README.md").write_text("something")
    assert loaded(folder).digest == before
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert loaded(folder).digest != before


def test_a_model_without_marks_of_a_chat_is_told_plainly(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(_renamed(tokenizer(), "<|im_start|>")))
    assert loaded(folder).frame == PLAIN


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_that_lacks_a_part_is_refused(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(BaseError):
        loaded(folder)


def test_weights_that_are_cut_or_incomplete_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file({n: one for n, one in weights.items() if "layers.1.mlp" not in n}, path)
    with pytest.raises(BaseError, match="weights are missing"):
        loaded(folder)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BaseError, match="cannot load"):
        loaded(folder)


def test_a_damaged_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BaseError, match=r"tokenizer\.json"):
        loaded(folder)


def test_a_name_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="known"):
        load_base("nothing", models=tmp_path, dtype=torch.float32)
    with pytest.raises(StartError, match="models pull smollm2-135m"):
        load_base("smollm2-135m", models=tmp_path, dtype=torch.float32)
    with pytest.raises(BaseError, match="no language model"):
        load_base("minilm-l6", models=tmp_path, dtype=torch.float32)


# -- tokenizers and models that plans cannot be written with ---------------------------------------


def with_tokenizer(words: Tokenizer, **changes: Any) -> bases.Base:
    found = made_base(**changes)
    return bases.Base(found.model, words, PLAIN, (1,), "odd", "0" * 64)


def test_a_tokenizer_that_changes_digits_is_refused_by_name() -> None:
    words = tokenizer()
    words.normalizer = normalizers.Replace("1", "one")
    with pytest.raises(BaseError, match="changes numbers"):
        Writer.of(with_tokenizer(words), examples=0)


def test_a_tokenizer_that_changes_the_text_of_plans_is_refused() -> None:
    words = tokenizer()
    words.normalizer = normalizers.Lowercase()
    with pytest.raises(BaseError, match="changes the text"):
        Writer.of(with_tokenizer(words), examples=0)


def test_a_tokenizer_that_groups_digits_is_no_trouble() -> None:
    words = tokenizer()
    grouped = pre_tokenizers.Digits(individual_digits=False)
    words.pre_tokenizer = pre_tokenizers.Sequence([grouped, pre_tokenizers.ByteLevel(False)])
    assert Writer.of(with_tokenizer(words), examples=0).prefix


def test_a_tokenizer_of_words_is_refused() -> None:
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    with pytest.raises(BaseError, match="no plan can be written"):
        Writer.of(with_tokenizer(words), examples=0)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(BaseError, match="belongs to it"):
        Writer.of(with_tokenizer(tokenizer(), vocab_size=600), examples=0)


def test_a_head_that_is_padded_beyond_the_vocabulary_is_not() -> None:
    padded = made_base(vocab_size=704)
    writer = Writer.of(padded, examples=0)
    policy = PlanPolicy(padded, writer, lora=None)
    generator = torch.Generator().manual_seed(0)
    [[one]] = policy.write([writer.ask(requests()[0])], 1, generator, max_tokens=5)
    assert one.plan is not None and max(one.tokens) < 700


def test_a_model_that_sees_only_a_window_is_refused() -> None:
    odd = made_base("qwen2", use_sliding_window=True, sliding_window=64, max_window_layers=0)
    with pytest.raises(BaseError, match="plain causal attention"):
        PlanPolicy(odd, Writer.of(odd, examples=0), lora=None)


def test_a_prefix_is_whole_blocks_and_prompts_join_without_a_seam() -> None:
    found = made_base()
    writer = Writer.of(found, examples=1)
    prompt = writer.prompter.write(requests()[0])
    assert len(writer.prefix) % 32 == 0
    whole = ids_of(found.tokenizer, prompt.text)
    assert (*writer.prefix, *writer.ask(requests()[0]).rest) == whole


# -- a GGUF ---------------------------------------------------------------------------------------


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model in a GGUF, in a catalogue of its own."""
    model: Any = made_base().model
    path = tmp_path / "small.gguf"
    write_gguf(path, model, tokenizer())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = CatalogueModel(
        "small", "A small model", "small.gguf", digest, path.stat().st_size, "none", 64, (),
        Origin("", ""),
    )  # fmt: skip
    path.rename(tmp_path / known.stored_as)
    monkeypatch.setattr(bases, "load_catalogue", lambda: {"small": known})
    return tmp_path / known.stored_as


def test_a_gguf_gives_the_weights_that_went_into_it_and_is_converted_once(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_base("small", models=gguf.parent, dtype=torch.float32)
    monkeypatch.setattr(convert, "_dequantise", _must_not_run)
    again = load_base("small", models=gguf.parent, dtype=torch.bfloat16)
    wanted = made_base()
    for name, weight in wanted.model.state_dict().items():
        assert torch.allclose(first.model.state_dict()[name], weight, atol=5e-3), name
        assert torch.equal(
            again.model.state_dict()[name], first.model.state_dict()[name].bfloat16()
        )
    assert first.digest == again.digest == gguf.stem
    sample = "<|im_start|>user\nWhat is 17 times 3?<|im_end|>"
    assert ids_of(first.tokenizer, sample) == ids_of(wanted.tokenizer, sample)


def test_bytes_that_are_not_the_catalogues_are_not_converted(gguf: Path) -> None:
    data = bytearray(gguf.read_bytes())
    data[-1] ^= 1
    gguf.write_bytes(data)
    with pytest.raises(StartError, match="models pull small"):
        load_base("small", models=gguf.parent, dtype=torch.float32)
    assert not list(gguf.parent.glob("*.torch"))


def test_a_killed_conversion_leaves_nothing_that_loads_and_is_swept_by_the_next(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(convert, "_dequantise", killed)
        patch.setattr(convert.shutil, "rmtree", lambda *_, **__: None)  # as SIGKILL would
        with pytest.raises(KeyboardInterrupt):
            load_base("small", models=gguf.parent, dtype=torch.float32)
    left = [one.name for one in gguf.parent.iterdir() if one.is_dir()]
    assert len(left) == 1 and not left[0].endswith(".torch")
    load_base("small", models=gguf.parent, dtype=torch.float32)
    assert [one.name for one in gguf.parent.iterdir() if one.is_dir()] == [f"{gguf.stem}.torch"]


@pytest.mark.model
def test_tiny_is_the_same_for_the_same_seed() -> None:
    folder = Path(os.environ.get("CONDUCTOR_MODELS_DIR", "var/models"))
    one, same, other = (
        load_base("tiny", models=folder, dtype=torch.float32, seed=seed) for seed in (0, 0, 1)
    )
    assert one.digest == same.digest != other.digest
    assert one.frame == CHATML and one.tokenizer.id_to_token(one.eos[0]) == "<|im_end|>"
    assert torch.equal(one.model.lm_head.weight, same.model.lm_head.weight)  # type: ignore[union-attr]


def _must_not_run(path: Path, folder: Path) -> None:
    raise AssertionError("the model was converted again")


def _renamed(words: Tokenizer, mark: str) -> Any:
    return json.loads(words.to_str().replace(mark, "<|other|>"))
