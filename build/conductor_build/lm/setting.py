"""What a recipe of an LM conductor is on this machine: its base, its questions, its workers.

    training   what is learned from       \\
    watched    what may end a training     > told apart by a question's words and the seed alone
    reported   what the report is about   /

The questions of a file or a table are split; so are those of a generator, of which more can be had.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.errors import ConductorError
from conductor_build.live.accounts import Account
from conductor_build.live.environment import Environment
from conductor_build.lm import pools
from conductor_build.lm.draw import Ground
from conductor_build.lm.episodes import Close, nothing
from conductor_build.lm.recipe import LmRecipe, TaskUse
from conductor_build.lm.rollouts import spread
from conductor_build.tasks.common import Task
from conductor_build.tasks.jsonl import JsonlTask
from conductor_build.tasks.sketches import Sketches
from conductor_build.tasks.views import held_out

if TYPE_CHECKING:
    from conductor_build.lm.base import Base
    from conductor_build.lm.tokens import Writer

_WATCHED_SEED = 1
"""Added to the seed by which held-out questions are split in two."""


class SettingError(ConductorError):
    """A recipe cannot be carried out with what is there: the message says what to do."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that a training is given."""

    base: Base
    writer: Writer
    training: Ground
    watched: Ground
    reported: Ground
    environment: Environment
    data: dict[str, str]
    """What tells the data from others, by name: sha256 of every file."""
    account: Account
    """What has been paid, in earlier runs of the same training too."""
    close: Close = nothing


@contextmanager
def opened(
    recipe: LmRecipe, data: Path, out: Path, models: Path, max_cost_usd: float = math.inf
) -> Iterator[Setting]:
    """Everything, for as long as the context lasts. `data` is where the recipe's paths begin, in
    `out` answers of live workers are kept, `models` holds the catalogue's files.

    Raises `SettingError`, `TaskError`, `BaseError`, `RayError`, and whatever is wrong with files.
    """
    import torch

    from conductor_build.lm.base import load_base
    from conductor_build.lm.tokens import Writer

    tasks = named_tasks(recipe, data)
    training, watched, reported = split(recipe, tasks)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[recipe.base.dtype]
    base = load_base(recipe.base.source, models=models, dtype=dtype, seed=recipe.seed)
    writer = Writer.of(base, examples=recipe.base.examples)
    account = Account(recipe.may_cost(max_cost_usd))
    with (
        pools.opened(recipe, tasks, training, data, out, account) as pool,
        spread(recipe, pool.environment, data, out, account.max_cost_usd) as environment,
    ):
        yield Setting(
            base=base,
            writer=writer,
            training=Ground(training, pool.workers),
            watched=Ground(watched, pool.workers),
            reported=Ground(reported, pool.workers),
            environment=environment,
            data=digests(recipe, data),
            account=account,
            close=pool.close,
        )


def named_tasks(recipe: LmRecipe, data: Path) -> list[tuple[TaskUse, Task]]:
    """The recipe's tasks. Raises `TaskError`, `OutcomesError`."""
    return [(use, _task(recipe, use, data)) for use in recipe.tasks]


def _task(recipe: LmRecipe, use: TaskUse, data: Path) -> Task:
    if use.kind == "sketches":
        return Sketches(use.size, recipe.seed, domains=use.of)
    if use.kind == "jsonl":
        return JsonlTask.read(data / use.path)
    if use.kind == "recorded":
        from conductor_build.outcomes import load
        from conductor_build.tasks.recorded import RecordedTask

        return RecordedTask(load(data / use.path))
    from conductor_build.tasks.gym import gym_tasks
    from conductor_build.tasks.views import Mixture

    return Mixture(gym_tasks(use.of, size=use.size, seed=recipe.seed))


def split(
    recipe: LmRecipe, tasks: list[tuple[TaskUse, Task]]
) -> tuple[tuple[tuple[Task, float], ...], ...]:
    """Training, watched and reported questions of every task, with the tasks' shares.

    Raises `SettingError` when a part of a task is empty.
    """
    parts: tuple[list[tuple[Task, float]], ...] = ([], [], [])
    for use, task in tasks:
        training, rest = held_out(task, recipe.held_out.share, recipe.seed)
        watched, reported = held_out(rest, 0.5, recipe.seed + _WATCHED_SEED)
        for part, own in zip(parts, (training, watched, reported), strict=True):
            if not len(own):
                raise SettingError(
                    f"the task {use.name!r} has too few questions: {len(task)} are to be split "
                    "into training, watched and reported ones; give more, or another held_out.share"
                )
            part.append((own, use.share))
    return tuple(tuple(part) for part in parts)


def digests(recipe: LmRecipe, data: Path) -> dict[str, str]:
    """The sha256 of every file that the recipe names, by its path."""
    pool = recipe.pool
    named = [*(use.path for use in recipe.tasks), pool.configs, pool.cards, pool.folder]
    found: dict[str, str] = {}
    for name in filter(None, named):
        path = data / name
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in filter(Path.is_file, files):
            with file.open("rb") as opened:
                found[str(file.relative_to(data))] = hashlib.file_digest(
                    opened, "sha256"
                ).hexdigest()
    return found
