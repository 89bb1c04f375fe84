"""What `conductor-build evaluate` does with a language model and its recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_build.baselines.plays import EvaluationError
from conductor_build.evaluate import lmloaded
from conductor_build.evaluate.judge import CONDUCTOR
from conductor_build.evaluate.lmjudge import ZERO_SHOT, LmEvaluation, Options, judge
from conductor_build.lm.recipefile import load_lm_recipe

if TYPE_CHECKING:
    from conductor_build.evaluate.lmloaded import Found, Loaded
    from conductor_build.lm.setting import Setting

_FEW, _MANY = 50, 200
"""Training games that baselines are chosen on, with workers that cost something and others."""


@dataclass(frozen=True)
class Asked:
    """What stands on the command line. None: see `lmjudge.Options`."""

    path: Path
    recipe: Path
    out: Path
    models: Path
    data: Path = Path()
    keys: Sequence[Path] = ()
    games: int | None = None
    lambdas: tuple[float, ...] | None = None
    choosing: int | None = None
    base: str | None = None
    max_cost_usd: float | None = None
    allow_seen: bool = False
    seed: int = 0
    draws: int = 2000


def run(asked: Asked, say: Callable[[str], None]) -> str:
    """Judge, and write the report; returns what to print. Raises what `evaluate` raises, and
    `OutputError` when nothing can be written."""
    from conductor_build.files import OutputError
    from conductor_build.report.lmmarkdown import lm_summary
    from conductor_build.report.write import write_lm_report

    evaluation, provenance = evaluate(asked, say)
    try:
        written = write_lm_report(asked.out, evaluation, provenance)
    except OSError:
        raise OutputError(
            f"the report cannot be written to {asked.out}: is the disk full?"
        ) from None
    shown = lm_summary(evaluation, bool(provenance["simulated"]))
    return f"{shown}\n{asked.out}: {', '.join(written)}"


def evaluate(
    asked: Asked, say: Callable[[str], None] = lambda text: None
) -> tuple[LmEvaluation, dict[str, object]]:
    """Judge it, and say where the numbers come from. Answers of live workers are kept in `out`, so
    that the same command, ended half way, goes on without asking them again.

    Raises `EvaluationError` when there is nothing to judge or to compare, and whatever is wrong
    with the bundle, the recipe and its files.
    """
    from conductor_build.lm.episodes import Players
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.setting import opened

    recipe = load_lm_recipe(asked.recipe)
    if asked.base is not None:
        recipe = replace(recipe, base=replace(recipe.base, source=asked.base))
    found = lmloaded.find(asked.path, recipe, asked.keys)
    options = _options(asked, found)
    most = math.inf if asked.max_cost_usd is None else asked.max_cost_usd
    with (
        _threads(found.recipe.threads),
        opened(found.recipe, asked.data, asked.out, asked.models, most) as setting,
    ):
        loaded = lmloaded.load(found, setting, asked.models)
        _check_fresh(loaded, asked.allow_seen)
        _check_prompt(loaded, setting)
        untrained = PlanPolicy(lmloaded.placed(setting.base), loaded.policy.writer, lora=None)
        policies = {CONDUCTOR: loaded.policy, ZERO_SHOT: untrained}
        with Players(setting.environment, setting.close) as players:
            evaluation = judge(found.recipe, setting, players, policies, options, say)
        return evaluation, _provenance(found, loaded, setting, options)


def _options(asked: Asked, found: Found) -> Options:
    usual = _FEW if found.recipe.pool.kind == "live" else _MANY
    return Options(asked.games, asked.lambdas, asked.choosing or usual, asked.seed, asked.draws)


def _check_fresh(loaded: Loaded, allow_seen: bool) -> None:
    if loaded.fresh is False and not allow_seen:
        raise EvaluationError(
            "this conductor was trained with another seed, other tasks or another held-out share "
            "than the recipe says, so it may know the questions: name its own recipe (or "
            "--allow-seen, which says so in the report)"
        )


def _check_prompt(loaded: Loaded, setting: Setting) -> None:
    """The untrained model is shown what the conductor is, in tokens that are its own."""
    own = loaded.policy.writer
    if own.prefix != setting.writer.prefix or own.tables.tokens != setting.writer.tables.tokens:
        raise EvaluationError(
            "the conductor has another prompt or tokenizer than the recipe's base: name its own "
            "recipe, and its base with --base"
        )


def _provenance(
    found: Found, loaded: Loaded, setting: Setting, options: Options
) -> dict[str, object]:
    recipe = found.recipe
    held_out = {
        True: "by the recipe's seed and share, never trained on",
        False: "NOT A FAIR JUDGEMENT: another split than in training, questions may be known",
        None: "not known: nothing says what this model was trained on",
    }
    return {
        **loaded.facts,
        "simulated": setting.environment.simulated,
        "pool": recipe.pool.kind,
        "held_out": held_out[loaded.fresh],
        "recipe": recipe.sha256(),
        "recipe_seed": recipe.seed,
        "untrained": Path(setting.base.name).name,
        "untrained_sha256": setting.base.digest,
        "games": options.games or recipe.held_out.games,
        "games_chosen_on": options.choosing,
        "spent_usd": round(setting.account.spent_usd, 6),
        "data": setting.data,
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Sums depend on how they are split over threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
