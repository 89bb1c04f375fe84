"""Which sentence encoders the model catalogue holds, and loading one from its two files."""

from __future__ import annotations

from pathlib import Path

from conductor.errors import StartError
from conductor.planner.encoder import Encoder
from conductor.planner.manifest import EncoderId
from conductor.workers.catalogue import ENCODER_ID, Catalogue, load_catalogue, with_needed
from conductor.workers.fetch import locate


def known_encoders(catalogue: Catalogue) -> dict[EncoderId, str]:
    """The catalogue's id of every graph that needs one tokenizer, by what both files are."""
    return {
        EncoderId(model.sha256, catalogue[model.needs[0]].sha256): model.id
        for model in catalogue.values()
        if model.file.endswith(".onnx") and len(model.needs) == 1
    }


def default_encoder(catalogue: Catalogue) -> EncoderId:
    """What training uses."""
    graph, tokenizer = with_needed(catalogue, ENCODER_ID)
    return EncoderId(graph.sha256, tokenizer.sha256)


def load_encoder(models_dir: Path, wanted: EncoderId | None = None, *, threads: int = 2) -> Encoder:
    """The encoder that a bundle was trained with, or the default one, from the pulled files.

    Raises `StartError` if the catalogue does not hold it, or its files are missing or damaged.
    """
    catalogue = load_catalogue()
    identity = wanted or default_encoder(catalogue)
    name = known_encoders(catalogue).get(identity)
    if name is None:
        raise StartError("the model catalogue does not hold the sentence encoder that is asked for")
    onnx, tokenizer = (locate(models_dir, file) for file in with_needed(catalogue, name))
    if onnx is None or tokenizer is None:
        raise StartError(f"the files of {name} are missing: run 'conductor models pull {name}'")
    return Encoder.load(onnx, tokenizer, threads=threads, expected=identity)
