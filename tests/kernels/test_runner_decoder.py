"""Our decoder and transformers give the same log-probabilities, whatever a checkpoint asks for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from support.decoders import checkpoint, decoder, log_probs, ours_log_probs, shares, taken

IDS = random.Random(1).choices(range(300), k=150)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
        "original_max_position_embeddings": 64}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    ("llama", {"num_key_value_heads": 4, "head_dim": 32, "attention_bias": True}),
    ("llama", {"rope_parameters": LLAMA3}),
    ("llama", {"rope_parameters": LINEAR}),
    ("llama", {"rope_parameters": YARN}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True, "rms_norm_eps": 1e-2}),
    ("qwen2", {"rope_parameters": YARN | {"attention_factor": 0.7}, "vocab_size": 333}),
]


@pytest.mark.parametrize(("kind", "more"), CASES)
def test_log_probabilities_are_those_of_transformers(
    tmp_path: Path, kind: str, more: dict[str, Any]
) -> None:
    theirs = log_probs(checkpoint(tmp_path, kind, **more), IDS)
    ours = decoder(tmp_path)
    table = taken(ours, len(IDS))
    ends = [1, 2, 33, 64, 100, 149]
    for share, end in zip(shares(IDS, table, *ends), [*ends, 150], strict=True):
        mine = ours_log_probs(ours, ours.forward([share]))
        assert torch.allclose(mine[0], theirs[end - 1], atol=1e-4, rtol=0), end


def test_sequences_of_other_lengths_in_one_step_do_not_change_one(tmp_path: Path) -> None:
    model = checkpoint(tmp_path)
    ours = decoder(tmp_path)
    texts = [IDS[:70], IDS[5:6], IDS[20:53]]
    whole = [next(shares(ids, taken(ours, 512))) for ids in texts]
    mine = ours_log_probs(ours, ours.forward(whole))
    for row, ids in zip(mine, texts, strict=True):
        assert torch.allclose(row, log_probs(model, ids)[-1], atol=1e-4, rtol=0)


def test_a_step_taken_twice_gives_the_same(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    ours = decoder(tmp_path)
    first, second = shares(IDS, taken(ours, 150), 90)
    ours.forward([first])
    once = ours.forward([second])
    assert torch.equal(ours.forward([second]), once)


def test_the_older_spelling_of_rotary_settings_is_read(tmp_path: Path) -> None:
    import json

    theirs = log_probs(checkpoint(tmp_path, rope_parameters=LLAMA3), IDS)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    said = config.pop("rope_parameters")
    config["rope_theta"] = said.pop("rope_theta")
    config["rope_scaling"] = said
    path.write_text(json.dumps(config))
    ours = decoder(tmp_path)
    mine = ours_log_probs(ours, ours.forward([next(shares(IDS, taken(ours, 150)))]))
    assert torch.allclose(mine[0], theirs[-1], atol=1e-4, rtol=0)


def test_a_checkpoint_in_several_files_is_the_same_one(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "whole")
    model.save_pretrained(tmp_path / "cut", max_shard_size="100KB")  # type: ignore[operator]
    assert len(list((tmp_path / "cut").glob("*.safetensors"))) > 1
    rows = []
    for folder in ("whole", "cut"):
        ours = decoder(tmp_path / folder)
        rows.append(ours.forward([next(shares(IDS, taken(ours, 150)))]))
    assert torch.equal(*rows)


def test_bfloat16_stays_near_float32(tmp_path: Path) -> None:
    theirs = log_probs(checkpoint(tmp_path, initializer_range=0.02), IDS)
    ours = decoder(tmp_path, dtype="bfloat16")
    mine = ours_log_probs(ours, ours.forward([next(shares(IDS, taken(ours, 150)))]))
    assert torch.allclose(mine[0], theirs[-1], atol=0.05, rtol=0)
