"""Judging a bundle on a folder of outcomes: prompts it never saw, workers it may never have met."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from conductor_build.baselines.plays import EvaluationError, Prompts
from conductor_build.bootstrap import DRAWS
from conductor_build.evaluate import calibration
from conductor_build.evaluate.judge import Evaluation, evaluate
from conductor_build.evaluate.pools import LAMBDAS, Pool, views
from conductor_build.report.document import fingerprint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conductor_build.evaluate.opened import Opened
    from conductor_build.outcomes import Table
    from conductor_build.pocket.conductor import Card

Vectors = Callable[[Sequence[str]], "NDArray[np.float32]"]
"""From questions to prompt features, [P, F]: the sentence vector first."""


@dataclass(frozen=True)
class Options:
    """How to judge. `pool` None: the one that the conductor's recipe names, if the table has all of
    it, else every worker that answered every prompt. `lambdas` None: the recipe's; `max_rounds`
    None: as in training."""

    pool: tuple[str, ...] | None = None
    lambdas: tuple[float, ...] | None = None
    local_only: bool = False
    max_rounds: int | None = None
    calibration: int = calibration.PROMPTS
    allow_seen: bool = False
    seed: int = 0
    draws: int = DRAWS


def judge(
    opened: Opened, table: Table, vectors: Vectors, options: Options
) -> tuple[Evaluation, dict[str, object]]:
    """Judge a conductor and every baseline, and say where the numbers come from.

    Raises `EvaluationError` when training saw every prompt, or too few are left; `OutcomesError`
    for a worker that the table does not know or cannot price.
    """
    fresh, seen = unseen(opened, table, options.allow_seen)
    pools = chosen_pools(opened, fresh, options)
    names = tuple(dict.fromkeys(name for pool in pools for name in pool.workers))
    judged, cards, measured = with_cards(opened, fresh, names, vectors, options)
    features = vectors(judged.questions)
    limits = opened.limits
    if options.max_rounds is not None:
        limits = replace(limits, max_rounds=options.max_rounds)
    evaluation = evaluate(
        opened.conductor(features, cards, limits),
        Prompts(judged, sentence(opened, features)),
        pools,
        train=None if seen and options.allow_seen else opened.training,
        seed=options.seed,
        draws=options.draws,
    )
    return evaluation, {
        **({"warning": _stamp(seen)} if seen and options.allow_seen else {}),
        "conductor": opened.bundle.id,
        "signed_by": opened.bundle.signer,
        "outcomes": fingerprint(table),
        "prompts": len(table.prompts),
        "prompts_seen_in_training": f"{seen} ({'judged' if options.allow_seen else 'left out'})",
        "cards": measured,
        "max_rounds": limits.max_rounds,
        "max_calls": limits.max_calls,
    }


def unseen(opened: Opened, table: Table, allow_seen: bool) -> tuple[Table, int]:
    """The prompts that may be judged, and how many of the table training saw.

    Raises `EvaluationError` when there is nothing left.
    """
    known = np.array([opened.seen.contains(question) for question in table.questions], np.bool_)
    count = int(known.sum())
    if allow_seen or not count:
        return table, count
    if count == len(table.prompts):
        raise EvaluationError(
            f"this conductor was trained on all {count:,} prompts of the table: give prompts that "
            "it never saw (or --allow-seen, which says so in the report)"
        )
    return table.rows(~known), count


def chosen_pools(opened: Opened, table: Table, options: Options) -> tuple[Pool, ...]:
    """The pools to judge over. Raises `EvaluationError`, `OutcomesError`."""
    lambdas = options.lambdas or _recipe(opened).get("lambdas") or LAMBDAS
    names = options.pool if options.pool is not None else default_pool(opened, table)
    if not options.local_only:
        return views(table, names, tuple(lambdas))
    if names is None:
        names = tuple(name for pool in views(table) for name in pool.workers)
    local = {worker.name for worker in table.columns(tuple(dict.fromkeys(names))).workers
             if worker.local}  # fmt: skip
    kept = tuple(dict.fromkeys(name for name in names if name in local))
    if not kept:
        raise EvaluationError("no worker of the pool is local: name others, or drop --local-only")
    return views(table, kept, tuple(lambdas))


def default_pool(opened: Opened, table: Table) -> tuple[str, ...] | None:
    """The first pool of the recipe's evaluation of which the table has every worker."""
    for pool in _recipe(opened).get("pools", ()):
        if set(pool["workers"]) <= set(table.names):
            return tuple(pool["workers"])
    return None


def _recipe(opened: Opened) -> Mapping[str, Any]:
    """How its recipe wants it judged: `recipe.Evaluation` as the bundle records it."""
    evaluation = opened.bundle.manifest.provenance.recipe.get("evaluation")
    return evaluation if isinstance(evaluation, dict) else {}


def with_cards(
    opened: Opened, table: Table, names: Sequence[str], vectors: Vectors, options: Options
) -> tuple[Table, dict[str, Card], str]:
    """The prompts to judge, a card of every worker, and one sentence on where cards come from."""
    new = [name for name in names if name not in opened.cards]
    cards = {name: opened.cards[name] for name in names if name in opened.cards}
    if not new:
        return table, cards, "of all workers from training outcomes"
    split = calibration.choose(table, new, options.calibration, options.seed)
    if not len(split.judged):
        raise EvaluationError("calibration takes every prompt: give more, or less --calibration")
    measured_on = in_domains(opened, table.rows(split.calibration), vectors)
    cards |= calibration.measured(opened.training.table, measured_on, opened.domains, new)
    said = (
        f"of {', '.join(new)} from {len(split.calibration)} calibration prompts, which are not "
        "judged; of the others from training outcomes"
    )
    return table.rows(split.judged), cards, said


def in_domains(opened: Opened, table: Table, vectors: Vectors) -> Table:
    """The table with every task that training did not have renamed to the domain that the network
    takes each prompt for."""
    if set(table.tasks) <= set(opened.domains):
        return table
    likely = opened.decoder.likely_domains(vectors(table.questions))
    tasks = tuple(
        task if task in opened.domains else opened.domains[place]
        for task, place in zip(table.tasks, likely.tolist(), strict=True)
    )
    return replace(table, tasks=tasks)


def sentence(opened: Opened, features: NDArray[np.float32]) -> NDArray[np.float64]:
    """The sentence vectors alone, which the baselines learn on."""
    width = opened.training.embeddings.shape[1]
    return features[:, :width].astype(np.float64)


def _stamp(seen: int) -> str:
    return (
        f"NOT A FAIR JUDGEMENT: the conductor was trained on {seen:,} of these prompts; the "
        "baselines were not"
    )
