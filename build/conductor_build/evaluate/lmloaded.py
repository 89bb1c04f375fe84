"""What `evaluate` may be pointed at, as a policy that writes plans.

    manifest.json     a signed bundle; weights in fewer bits are unpacked
    policy.pt         the folder of a training that is through
    best.pt, checkpoint.pt    of one that is not: its best weights so far, else its last
    config.json, adapter_config.json    a model or an adapter in Hugging Face's form

The seed of a training comes from what it left, since `train --seed` may have told it another one
than the recipe. Whether the judged questions are new to the conductor hangs on seed, tasks and the
held-out share: of a bundle they are compared, of a model without origin nobody knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_build.baselines.plays import EvaluationError

if TYPE_CHECKING:
    from conductor.planner.bundle import Bundle
    from conductor.planner.lm_parts import Parts
    from conductor_build.lm.base import Base
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.recipe import LmRecipe
    from conductor_build.lm.setting import Setting

_PLAIN = ("float32", "bfloat16", "float16")


class Kind(Enum):
    """What a path holds."""

    BUNDLE = "bundle"
    TRAINING = "training"
    MODEL = "model"


@dataclass(frozen=True)
class Found:
    """A path that was looked into, and the recipe with the seed of the training."""

    path: Path
    kind: Kind
    recipe: LmRecipe
    bundle: Bundle | None = None


@dataclass(frozen=True)
class Loaded:
    """A conductor. `facts` name it in a report; `fresh`: whether the held-out questions are new to
    it, None when that is not known."""

    policy: PlanPolicy
    facts: Mapping[str, object]
    fresh: bool | None


def find(path: Path, recipe: LmRecipe, keys: Sequence[Path]) -> Found:
    """Look into a path. Raises `BundleError`, `ConfigError`, `EvaluationError`."""
    if (path / "manifest.json").is_file():
        from conductor.planner.bundle import Runtime
        from conductor.planner.kinds import LM
        from conductor.planner.trust import resolve
        from conductor_build.lm import lmbundle

        bundle = resolve(path, keys, Runtime(kind=LM.name))
        lmbundle.check(bundle)
        seed = bundle.manifest.provenance.recipe.get("seed")
        return Found(path, Kind.BUNDLE, _seeded(recipe, seed), bundle)
    if (path / "run.json").is_file():
        return Found(path, Kind.TRAINING, _seeded(recipe, _run(path).get("seed")))
    if not path.is_dir():
        raise EvaluationError("nothing to judge is there: name a bundle, or a training's folder")
    return Found(path, Kind.MODEL, recipe)


def load(found: Found, setting: Setting, models: Path) -> Loaded:
    """The policy. `setting` is that of `found.recipe`.

    Raises `BundleError`, `BaseError`, `ExportError`, `EvaluationError`.
    """
    if found.kind is Kind.BUNDLE:
        return _of_bundle(found)
    if found.kind is Kind.TRAINING:
        return _of_training(found, setting, models)
    return _of_model(found, models)


def _seeded(recipe: LmRecipe, seed: object) -> LmRecipe:
    return replace(recipe, seed=seed) if isinstance(seed, int) else recipe


# -- bundles ----------------------------------------------------------------------------------


def _of_bundle(found: Found) -> Loaded:
    from conductor.planner.lm_parts import read_parts
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.tokens import Writer

    bundle = found.bundle
    assert bundle is not None
    parts = read_parts(bundle.read)
    precision = str(bundle.manifest.precision)
    base = _base(bundle.path / "lm", precision, parts)
    writer = Writer(parts.tokenizer, parts.prompter, parts.prefix, parts.tables)
    facts = {"conductor": bundle.id, "signed_by": bundle.signer, "precision": precision}
    fresh = _same_split(bundle.manifest.provenance.recipe, found.recipe)
    return Loaded(PlanPolicy(placed(base), writer, lora=None), facts, fresh)


def _base(folder: Path, precision: str, parts: Parts) -> Base:
    """Its model. What ends a plan stands in the tables, and what frames a prompt in `parts`."""
    import torch

    from conductor_build.lm.base import load_base

    if precision in _PLAIN:
        base = load_base(str(folder), models=folder, dtype=getattr(torch, precision))
    else:
        base = _unpacked(folder, parts)
    return replace(base, tokenizer=parts.tokenizer, eos=tuple(parts.tables.eos.tolist()))


def _unpacked(folder: Path, parts: Parts) -> Base:
    """A model whose weights are stored in fewer bits."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from conductor.plan.prompt import CHATML
    from conductor_build.lm.base import Base
    from conductor_build.lm.export import in_fewer_bits

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    kinds: Any = AutoModelForCausalLM
    model = kinds.from_config(config, dtype=config.dtype)
    model.eval().requires_grad_(False)
    # The frame is the prompter's by now; nothing reads the base's.
    return in_fewer_bits(Base(model, parts.tokenizer, CHATML, (), folder.name, ""), folder)


def _same_split(trained: Any, recipe: LmRecipe) -> bool:
    """Whether the held-out questions of both recipes are the same."""
    own = recipe.plain()
    share = trained.get("held_out")
    return (
        trained.get("seed") == own["seed"]
        and trained.get("tasks") == own["tasks"]
        and isinstance(share, dict)
        and share.get("share") == own["held_out"]["share"]
    )


# -- trainings and models ---------------------------------------------------------------------


def _of_training(found: Found, setting: Setting, models: Path) -> Loaded:
    from conductor_build.lm.checkpoint import WEIGHTS, open_checkpoint, sha256_of
    from conductor_build.lm.policy import PlanPolicy

    if not (found.path / WEIGHTS).is_file():
        return _unfinished(found, setting, models)
    opened = open_checkpoint(found.path, models=models, recipe=found.recipe)
    policy = PlanPolicy(placed(opened.base), setting.writer, lora=None)
    facts = {"conductor": "a finished training", "weights_sha256": sha256_of(found.path / WEIGHTS)}
    return Loaded(policy, facts, True)


def _unfinished(found: Found, setting: Setting, models: Path) -> Loaded:
    """The best weights so far, where the training looks for them, else the last."""
    from conductor_build.lm import state
    from conductor_build.lm.base import load_base
    from conductor_build.lm.train import begin

    run, recipe = _run(found.path), found.recipe
    for name, own in (
        ("recipe", recipe.sha256()),
        ("base", setting.base.digest),
        ("prompt", setting.writer.prompter.digest),
    ):
        if run.get(name) != own:
            raise EvaluationError(f"the folder was trained with another {name}: name that one")
    dtype = next(iter(setting.base.model.parameters())).dtype
    again = load_base(recipe.base.source, models=models, dtype=dtype, seed=recipe.seed)
    learner = begin(recipe, replace(setting, base=placed(again)))
    state.restore(found.path, learner)
    best = state.restore_best(found.path, learner)
    done = learner.done if best is None else best
    if not done:
        raise EvaluationError("the training has no checkpoint yet: wait, or train further")
    said = f"a training under way, after iteration {done} of {recipe.iterations}"
    return Loaded(learner.policy, {"conductor": said}, True)


def _of_model(found: Found, models: Path) -> Loaded:
    from conductor_build.lm.checkpoint import Prompting, open_checkpoint
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.tokens import Writer

    examples = found.recipe.base.examples
    opened = open_checkpoint(found.path, models=models, prompting=Prompting(examples))
    writer = Writer.of(opened.base, examples=examples)
    facts = {"conductor": opened.base.digest}
    return Loaded(PlanPolicy(placed(opened.base), writer, lora=None), facts, None)


def placed(base: Base) -> Base:
    """On the GPU, where there is one."""
    import torch

    if torch.cuda.is_available():
        base.model.to("cuda")
    return base


def _run(folder: Path) -> dict[str, Any]:
    try:
        run = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError):
        run = None
    if not isinstance(run, dict):
        raise EvaluationError("run.json cannot be read: is this the folder of a training?")
    return run
