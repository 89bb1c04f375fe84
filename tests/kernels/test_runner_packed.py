"""What the build stage stored in fewer bits is computed with as it said it would be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conductor.errors import StartError
from conductor_build.lm.quantise import Scheme
from conductor_build.lm.quantisedfile import dequantised, linear_names, quantise_folder
from conductor_kernels.runner.packed import LAYOUT
from support.decoders import checkpoint, decoder, log_probs, ours_log_probs, shares, taken

IDS = list(range(0, 300, 3))
SCHEMES = [Scheme("int8"), Scheme("fp8"), Scheme("int4", 32), Scheme("int4", 40, symmetric=False)]


@pytest.fixture(params=SCHEMES, ids=str)
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    model = checkpoint(tmp_path / "plain")
    folder = tmp_path / "packed"
    quantise_folder(tmp_path / "plain", folder, request.param, linear_names(model))
    (folder / "config.json").write_bytes((tmp_path / "plain" / "config.json").read_bytes())
    return folder, model


def test_a_packed_checkpoint_is_the_one_it_unpacks_to(
    packed: tuple[Path, torch.nn.Module],
) -> None:
    folder, model = packed
    exact = log_probs(model, IDS)[-1]
    model.load_state_dict(dequantised(folder))
    theirs = log_probs(model, IDS)[-1]
    ours = decoder(folder)
    mine = ours_log_probs(ours, ours.forward([next(shares(IDS, taken(ours, 100)))]))[0]
    assert torch.allclose(mine, theirs, atol=1e-4, rtol=0)
    assert not torch.allclose(mine, exact, atol=1e-3, rtol=0), "the packing is felt"


def test_parts_that_do_not_fit_the_layout_are_refused(
    packed: tuple[Path, torch.nn.Module],
) -> None:
    folder, _ = packed
    path = folder / "model.safetensors"
    held = load_file(path)
    name = "model.layers.0.mlp.down_proj.weight"
    save_file(held | {f"{name}.scale": held[f"{name}.scale"][:-1].clone()}, path)
    with pytest.raises(StartError, match="not packed as"):
        decoder(folder)
    save_file({key: one for key, one in held.items() if key != f"{name}.scale"}, path)
    with pytest.raises(StartError, match=f"holds no {name}"):
        decoder(folder)
    save_file(held, path)
    said = json.loads((folder / LAYOUT).read_text())
    wrongs: list[dict[str, object]] = [
        {"version": 2}, {"scheme": "int2"}, {"group": 0}, {"tensors": {name: {}}},
    ]  # fmt: skip
    for wrong in wrongs:
        (folder / LAYOUT).write_text(json.dumps(said | wrong))
        with pytest.raises(StartError, match="export the bundle"):
            decoder(folder)
    (folder / LAYOUT).unlink()
    with pytest.raises(StartError):
        decoder(folder)
