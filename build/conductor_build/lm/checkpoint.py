"""What a training has left, opened for export: weights, the prompt they were trained on, origin.

policy.pt beside run.json      our own training, whose recipe is named with it
adapter_config.json            an adapter as peft and TRL save it; the base is named in it
config.json                    a Hugging Face model folder
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.planner.manifest import Provenance
from conductor_build import curves
from conductor_build.lm.base import Base, load_base
from conductor_build.lm.merge import ExportError

if TYPE_CHECKING:
    import torch

    from conductor_build.lm.recipe import LmRecipe

WEIGHTS, RUN, REPORT = "policy.pt", "run.json", "report.json"
ADAPTER = "adapter_config.json"
_CARRIED = (curves.LINES, curves.PICTURE, REPORT)
_SOFTWARE = ("torch", "transformers", "peft", "safetensors")


@dataclass(frozen=True)
class Prompting:
    """What the prompt was in training: how many examples it showed, how many rounds there were."""

    examples: int = 4
    rounds: int = 1


@dataclass(frozen=True)
class Opened:
    """A trained model. Adapters are still beside the weights of `base.model`."""

    base: Base
    prompting: Prompting
    provenance: Provenance
    report: Mapping[str, Path]
    """Files for the bundle's `report/`, by name."""


def open_checkpoint(
    folder: Path,
    *,
    models: Path,
    recipe: LmRecipe | None = None,
    prompting: Prompting | None = None,
) -> Opened:
    """`recipe` belongs to a folder of our own training, and says what `prompting` says of others.

    Raises `ExportError`, `BaseError`, `StartError`; the message says what to do.
    """
    if (folder / WEIGHTS).is_file():
        if recipe is None:
            raise ExportError("this is a training's own folder: name its recipe with --recipe")
        return _of_training(folder, recipe, models)
    if recipe is not None:
        raise ExportError(f"the folder holds no {WEIGHTS}: is this training through?")
    adapted = (folder / ADAPTER).is_file()
    base = _of_adapter(folder, models) if adapted else _of_folder(folder, models)
    made = Provenance({}, {"weights": base.digest}, 0, _versions(), {"base": base.name})
    return Opened(base, prompting or Prompting(), made, {})


def _of_folder(folder: Path, models: Path) -> Base:
    if not (folder / "config.json").is_file():
        raise ExportError(
            f"the folder is no checkpoint: it holds none of {WEIGHTS}, {ADAPTER}, config.json"
        )
    base = load_base(str(folder), models=models, dtype=_dtype_of(folder))
    return replace(base, name=folder.name)


def _of_adapter(folder: Path, models: Path) -> Base:
    from peft import PeftModel

    try:
        source = json.loads((folder / ADAPTER).read_text())["base_model_name_or_path"]
        base = load_base(source, models=models, dtype=_dtype_of(Path(source)))
        with warnings.catch_warnings():
            # peft 0.21 asks transformers 5.24 for a property by its former name.
            warnings.filterwarnings(
                "ignore", message=".*is_gradient_checkpointing", category=FutureWarning
            )
            PeftModel.from_pretrained(base.model, str(folder))
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise ExportError(
            f"{ADAPTER} does not go with its base model: save the adapter again, or merge it there"
        ) from None
    return replace(base, name=Path(source).name)


def _dtype_of(folder: Path) -> torch.dtype:
    """That of the weights, by the folder's configuration; float32 where that does not say."""
    import torch

    try:
        config = json.loads((folder / "config.json").read_text())
        named = str(config.get("dtype") or config.get("torch_dtype"))
    except (OSError, ValueError, AttributeError):
        named = ""
    return torch.bfloat16 if named == "bfloat16" else torch.float32


# -- our own training -----------------------------------------------------------------------------


def _of_training(folder: Path, recipe: LmRecipe, models: Path) -> Opened:
    import torch

    from conductor_build.lm.policy import Lora, PlanPolicy
    from conductor_build.lm.tokens import Writer

    run = _run(folder, recipe)
    dtype = getattr(torch, recipe.base.dtype)
    base = load_base(recipe.base.source, models=models, dtype=dtype, seed=recipe.seed)
    if run["base"] != base.digest:
        raise ExportError("this was trained on another base model: give that one's own files")
    writer = Writer.of(base, examples=recipe.base.examples)
    if run["prompt"] != writer.prompter.digest:
        raise ExportError(
            "this was trained on another prompt than this release writes: train it again, or "
            "export it with the release that trained it"
        )
    own = recipe.lora
    lora = None if own is None else Lora(own.rank, own.alpha, seed=recipe.seed)
    PlanPolicy(base, writer, lora=lora).load_state(_state(folder / WEIGHTS))
    made = Provenance(
        recipe=recipe.plain(),
        data={**run["data"], "base": base.digest},
        seed=recipe.seed,
        versions=_versions(),
        summary={"base": Path(base.name).name, "iterations": recipe.iterations},
    )
    present = {name: folder / name for name in _CARRIED if (folder / name).is_file()}
    rounds = recipe.rounds.most if recipe.rounds.share else 1
    return Opened(base, Prompting(recipe.base.examples, rounds), made, present)


def _run(folder: Path, recipe: LmRecipe) -> dict[str, Any]:
    try:
        run: dict[str, Any] = json.loads((folder / RUN).read_text())
        other = run["recipe"] != recipe.sha256()
        if not {"prompt", "base"} < run.keys() or not isinstance(run["data"], dict):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportError(f"{RUN} cannot be read: is this the folder of a training?") from None
    if other:
        raise ExportError("the folder was trained by another recipe: name that one")
    return run


def _state(path: Path) -> dict[str, Any]:
    import torch

    try:
        found: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except Exception:  # noqa: BLE001  the library raises whatever its readers do
        raise ExportError(
            f"{path.name} is damaged: go on with the training, or train anew"
        ) from None
    return found


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _SOFTWARE}


def sha256_of(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
