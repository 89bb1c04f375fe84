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
from conductor_kernels.matrix import Matrix
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.load import load_decoder
from conductor_kernels.runner.packed import LAYOUT
from conductor_kernels.runner.shape import read_shape
from conductor_kernels.runner.weights import Checkpoint, Weights
from support.decoders import SETTINGS, checkpoint, decoder, log_probs, ours_log_probs, shares, taken

IDS = list(range(0, 300, 3))
SCHEMES = [Scheme("int8"), Scheme("fp8"), Scheme("int4", 32), Scheme("int4", 40, symmetric=False)]


def kept(folder: Path) -> Decoder:
    """As on a GPU: matrices stay packed."""
    return load_decoder(folder, SETTINGS, packed=True)


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
    for ours in (decoder(folder), kept(folder)):
        # Many tokens at once, and the last one by the ops of a decode step.
        for ends in ((), (99,)):
            table = taken(ours, 100)
            for share in shares(IDS, table, *ends):
                hidden = ours.forward([share])
            mine = ours_log_probs(ours, hidden)[0]
            assert torch.allclose(mine, theirs, atol=1e-4, rtol=0)
    assert not torch.allclose(mine, exact, atol=1e-3, rtol=0), "the packing is felt"


def test_matrices_that_kernels_read_stay_packed_and_are_counted_so(
    packed: tuple[Path, torch.nn.Module],
) -> None:
    folder, _ = packed
    layers = kept(folder)._weights.layers
    group = 0 if layers[0].down.kind in ("int8", "fp8") else 32
    odd = json.loads((folder / LAYOUT).read_text())["group"] == 40
    for layer in layers:
        for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down):
            assert (matrix.kind == "dense") == odd and matrix.group == (0 if odd else group)
        assert layer.qkv.rows == 128 and layer.gate_up.rows == 192
    for stays in (True, False):
        with Checkpoint(folder, read_shape(folder)) as checkpoint:
            weights = checkpoint.read(torch.device("cpu"), torch.float32, packed=stays)
            assert checkpoint.size(torch.float32, packed=stays) == held_bytes(weights)


def held_bytes(weights: Weights) -> int:
    tensors = [weights.embedding, weights.norm, weights.head]
    for layer in weights.layers:
        for one in vars(layer).values():
            tensors += [part for part in (vars(one).values() if isinstance(one, Matrix) else [one])
                        if isinstance(part, torch.Tensor)]  # fmt: skip
    return sum(one.nbytes for one in tensors)


def test_parts_that_do_not_fit_the_layout_are_refused(
    packed: tuple[Path, torch.nn.Module],
) -> None:
    folder, _ = packed
    path = folder / "model.safetensors"
    held = load_file(path)
    name = "model.layers.0.mlp.down_proj.weight"
    save_file(held | {f"{name}.scale": held[f"{name}.scale"][:-1].clone()}, path)
    for read in (decoder, kept):
        with pytest.raises(StartError, match="not packed as"):
            read(folder)
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
