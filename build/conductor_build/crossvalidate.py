"""The honest number of a recipe: trained on each fold's rest, judged on the fold, all folds joined.

Every prompt is judged by a conductor that never saw it, nor another prompt that asks the same, in
whichever table. Workers may be left out of training altogether: they get cards from a few
calibration prompts of each fold's rest, and are judged in the pool like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from conductor_build.baselines.plays import EvaluationError, Plays, Prompts, recorded
from conductor_build.bootstrap import DRAWS
from conductor_build.evaluate import calibration
from conductor_build.evaluate.calibration import answering
from conductor_build.evaluate.judge import Evaluation, evaluate
from conductor_build.evaluate.kept import Kept
from conductor_build.evaluate.opened import Opened
from conductor_build.evaluate.pools import views
from conductor_build.evaluate.unseen import in_domains, sentence
from conductor_build.outcomes import Table, split
from conductor_build.report.document import fingerprint
from conductor_build.seen import normalise
from conductor_build.sources import Source, Sources

if TYPE_CHECKING:
    from conductor.planner.bundle import Bundle
    from conductor_build.baselines.plays import Ints, Rows
    from conductor_build.evaluate.pools import Pool
    from conductor_build.evaluate.unseen import Vectors
    from conductor_build.pocket.conductor import Card, Playing
    from conductor_build.recipe import Recipe


class Train(Protocol):
    """Training as a function: everything goes into `out`, a bundle comes back."""

    def __call__(self, recipe: Recipe, sources: Sources, out: Path, /) -> Bundle: ...


@dataclass(frozen=True)
class Settings:
    """How to cross-validate. `left_out`: workers that training never meets. `lambdas` None: those
    of the recipe; `max_rounds` None: as in training."""

    folds: int = 5
    left_out: tuple[str, ...] = ()
    lambdas: tuple[float, ...] | None = None
    max_rounds: int | None = None
    calibration: int = calibration.PROMPTS
    seed: int = 0
    draws: int = DRAWS


@dataclass(frozen=True, eq=False)
class Joined:
    """One policy out of several: each prompt is played by the conductor of its fold. `fold` [P]
    goes by the judged table's rows."""

    parts: tuple[Playing, ...]
    fold: Ints
    name: str = "cross-validated"

    def play(self, table: Table, rows: Rows) -> Plays:
        index = np.asarray(rows, dtype=np.int64)
        score, cost = np.empty(len(index)), np.empty(len(index))
        for number, part in enumerate(self.parts):
            here = self.fold[index] == number
            if here.any():
                plays = part.play(table, index[here])
                score[here], cost[here] = plays.score, plays.cost
        return Plays(score, cost)


@dataclass(frozen=True, eq=False)
class Held:
    """What cross-validation says of one table. `plays`: the conductor's own, over each pool."""

    name: str
    evaluation: Evaluation
    provenance: Mapping[str, object]
    plays: tuple[Kept, ...]


def crossvalidate(
    recipe: Recipe,
    sources: Sources,
    out: Path,
    train: Train,
    vectors: Vectors,
    settings: Settings,
    report: Callable[[str], None],
) -> list[Held]:
    """Train `settings.folds` conductors below `out`, and judge each table of `sources` on them.

    Raises `OutcomesError` for a worker that no table knows, `EvaluationError` when too little is
    left to train or judge on, and whatever `train` raises.
    """
    _check_left_out(sources, settings.left_out)
    folds = divided(sources, settings.folds, settings.seed)
    conductors = []
    for number in range(settings.folds):
        report(f"fold {number + 1} of {settings.folds}")
        rest = _rest(sources, folds, number, settings.left_out)
        conductor = Opened.of(train(recipe, rest, out / f"fold-{number + 1}"))
        _check_unseen(conductor, sources, folds, number)
        conductors.append(conductor)
    return [
        _judge(recipe, part, fold, conductors, vectors, settings)
        for part, fold in zip(sources.parts, folds, strict=True)
    ]


def divided(sources: Sources, folds: int, seed: int) -> list[Ints]:
    """The fold of every prompt, a table at a time; one that an earlier table asks too goes where it
    is there."""
    placed: dict[str, int] = {}
    found = []
    for part in sources.parts:
        own = split(part.table, folds=folds, seed=seed)
        for row, question in enumerate(part.table.questions):
            own[row] = placed.setdefault(normalise(question), int(own[row]))
        found.append(own)
    return found


def _check_left_out(sources: Sources, left_out: Sequence[str]) -> None:
    known = {name for part in sources.parts for name in part.table.names}
    for name in left_out:
        if name not in known:
            raise EvaluationError(
                f"there is no worker {name!r} to leave out; there are {', '.join(sorted(known))}"
            )


def _check_unseen(conductor: Opened, sources: Sources, folds: Sequence[Ints], number: int) -> None:
    """What makes the number honest is looked up in the bundle rather than assumed."""
    for part, fold in zip(sources.parts, folds, strict=True):
        for row in np.flatnonzero(fold == number):
            if conductor.seen.contains(part.table.questions[row]):
                raise EvaluationError("a conductor was trained on a prompt that it is judged on")


def _rest(sources: Sources, folds: Sequence[Ints], number: int, left_out: Sequence[str]) -> Sources:
    """What the conductor of one fold is trained on."""
    parts = []
    for part, fold in zip(sources.parts, folds, strict=True):
        table = part.table.rows(fold != number)
        kept = [name for name in answering(table) if name not in left_out]
        if len(kept) < 2:
            raise EvaluationError(f"{part.use.name!r} has fewer than two workers left to train on")
        pool = tuple(name for name in part.use.pool if name in kept)
        use = replace(part.use, pool=pool if len(pool) > 1 else ())
        parts.append(Source(use, table.columns(kept)))
    used = {f"{part.use.name} without fold {number + 1}": fingerprint(part.table) for part in parts}
    return Sources(tuple(parts), {**sources.data, **used})


def _judge(
    recipe: Recipe,
    part: Source,
    fold: Ints,
    conductors: Sequence[Opened],
    vectors: Vectors,
    settings: Settings,
) -> Held:
    table = part.table
    features = vectors(table.questions)
    pools = _pools(recipe, table, settings)
    names = tuple(dict.fromkeys(name for pool in pools for name in pool.workers))
    parts = []
    for number, one in enumerate(conductors):
        rest = table.rows(fold != number)
        cards = _cards(one, rest, names, vectors, settings)
        limits = one.limits
        if settings.max_rounds is not None:
            limits = replace(limits, max_rounds=settings.max_rounds)
        parts.append(one.conductor(features, cards, limits))

    def conductor(lam: float) -> Joined:
        return Joined(tuple(at(lam) for at in parts), fold)

    evaluation = evaluate(
        conductor,
        Prompts(table, sentence(conductors[0], features)),
        pools,
        seed=settings.seed,
        draws=settings.draws,
    )
    return _held(part, evaluation, pools, conductor, conductors, settings)


def _pools(recipe: Recipe, table: Table, settings: Settings) -> tuple[Pool, ...]:
    lambdas = settings.lambdas or recipe.evaluation.lambdas
    for pool in recipe.evaluation.pools:
        if set(pool.workers) <= set(table.names):
            return views(table, pool.workers, lambdas)
    return views(table, None, lambdas)


def _cards(
    opened: Opened, rest: Table, names: Sequence[str], vectors: Vectors, settings: Settings
) -> dict[str, Card]:
    """Of workers that training met from its outcomes, of the others from prompts of its fold's
    rest: what is judged stays out of both."""
    new = [name for name in names if name not in opened.cards]
    cards = {name: opened.cards[name] for name in names if name in opened.cards}
    if new:
        drawn = calibration.choose(rest, new, settings.calibration, settings.seed).calibration
        measured_on = in_domains(opened, rest.rows(drawn), vectors)
        training = opened.training.table
        cards |= calibration.measured(training, measured_on, opened.domains, new)
    return cards


def _held(
    part: Source,
    evaluation: Evaluation,
    pools: Sequence[Pool],
    conductor: Callable[[float], Joined],
    conductors: Sequence[Opened],
    settings: Settings,
) -> Held:
    plays = []
    for pool in pools:
        table = part.table.columns(pool.workers)
        rows = recorded(table)
        ids = tuple(table.prompts[row] for row in rows)
        played = {lam: conductor(lam).play(table, rows) for lam in pool.lambdas}
        plays.append(Kept(pool.title, pool.workers, ids, played))
    left_out = ", ".join(settings.left_out) or "none"
    provenance = {
        "table": part.use.name,
        "cross-validated": f"{len(conductors)} folds, each unseen by the conductor that it judges",
        "conductors": ", ".join(one.bundle.id for one in conductors),
        "workers_left_out_of_training": left_out,
        "cards": f"of workers left out from {settings.calibration} calibration prompts of each "
        "fold's rest; of the others from training outcomes",
        "outcomes": fingerprint(part.table),
    }
    return Held(part.use.name, evaluation, provenance, tuple(plays))
