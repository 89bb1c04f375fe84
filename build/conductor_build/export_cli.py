"""`conductor-build export`: a trained language model in, a signed bundle out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.errors import StartError

if TYPE_CHECKING:
    from conductor_build.lm.checkpoint import Opened
    from conductor_build.lm.recipe import LmRecipe

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--out", type=_FOLDER, required=True, metavar="BUNDLE", help="A new folder.")
@click.option("--recipe", type=_FILE, help="Of the training that CHECKPOINT is the folder of.")
@click.option("--quantise", type=click.Choice(["int8", "int4", "fp8"]),
              help="Store weights in fewer bits.")  # fmt: skip
@click.option("--group", type=click.IntRange(2, 4096), default=128, show_default=True,
              help="Inputs that share a scale, for int4.")  # fmt: skip
@click.option("--asymmetric", is_flag=True, help="A zero point a group, for int4.")
@click.option("--onnx", type=click.Choice(["int4", "fp32"]), metavar="[int4|fp32]",
              help="For CPUs too, by onnxruntime-genai.")  # fmt: skip
@click.option("--compare", "compared", type=click.IntRange(0, 10_000), default=16,
              show_default=True, help="Requests that plans are compared at; 0: none.")  # fmt: skip
@click.option("--examples", type=click.IntRange(0, 4), default=4, show_default=True,
              help="Of its prompt in training; a recipe says so itself.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 10), default=1, show_default=True,
              help="Of a request in training; a recipe says so itself.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="As in training.")
@click.option("--base", metavar="MODEL", help="As in training.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]),
              help="Of weights that are not quantised.  [default: as trained]")  # fmt: skip
@click.option("--sign", "key", type=_FILE, metavar="KEY",
              help="Private key, see bundle keygen.  [default: one beside BUNDLE]")  # fmt: skip
@click.option("--models-dir", type=_FOLDER, envvar="CONDUCTOR_MODELS_DIR",
              default=Path("var/models"), show_default=True,
              help="Where the catalogue's files are.")  # fmt: skip
def export(checkpoint: Path, out: Path, key: Path | None, **asked: Any) -> None:
    """Make a bundle of CHECKPOINT: the folder of a training (with --recipe), an adapter, or a model
    in Hugging Face's form.

    The adapter is merged, weights are checked and stored, tables and prompt are written beside
    them; with --quantise or --onnx, report/parity.json says how many plans stay the same.

    \b
    Exit codes:
      0  exported: path, id and where its public key is
      1  not: the message says why
    """
    _need_lm()
    import torch

    from conductor.planner.trust import PURPOSE
    from conductor.process.keyfiles import generate, load_private
    from conductor_build.lm.export import Wanted, export_lm
    from conductor_build.lm.quantise import Scheme

    opened = _opened(checkpoint, asked)
    scheme = asked["quantise"]
    wanted = Wanted(
        scheme and Scheme(scheme, asked["group"], not asked["asymmetric"]),
        asked["onnx"],
        asked["compared"],
        asked["dtype"] and getattr(torch, asked["dtype"]),
    )
    if key is None:
        key = out.with_name(f"{out.name}.key")
        out.parent.mkdir(parents=True, exist_ok=True)
        if not key.exists():
            generate(key, out.with_name(f"{out.name}.key.pub"), PURPOSE)
    bundle = export_lm(opened, out, wanted, load_private(key, PURPOSE))
    click.echo(f"{bundle.path}\n{bundle.id}\nsigned with {key}")


def _opened(checkpoint: Path, asked: dict[str, Any]) -> Opened:
    from conductor_build.lm.checkpoint import Prompting, open_checkpoint

    return open_checkpoint(
        checkpoint,
        models=asked["models_dir"],
        recipe=_recipe(asked["recipe"], asked["seed"], asked["base"]),
        prompting=Prompting(asked["examples"], asked["rounds"]),
    )


def _recipe(path: Path | None, seed: int | None, base: str | None) -> LmRecipe | None:
    """The recipe with what training was told beside it."""
    from conductor_build.lm.recipefile import load_lm_recipe

    if path is None:
        return None
    recipe = load_lm_recipe(path)
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    return recipe if base is None else replace(recipe, base=replace(recipe.base, source=base))


def _need_lm() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]
    if missing:
        raise StartError(f"exporting needs {', '.join(missing)}: run `make lm-set`")
