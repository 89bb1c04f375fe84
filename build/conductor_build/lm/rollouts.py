"""Where a recipe's plans are played: in the trainer's own process, or on Ray actors.

Each actor opens the recipe's questions and workers for itself, from files that it must find at the
same paths. Answers of live workers are kept in a journal of each actor: a training that goes on has
new actors, and asks again. Every actor may spend its share of the money.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from conductor_build.live.accounts import Account
from conductor_build.live.environment import Environment
from conductor_build.lm.recipe import LmRecipe

JOURNALS = ".answers-of-actors"
"""In a training's folder, one folder an actor."""


@contextmanager
def spread(
    recipe: LmRecipe, own: Environment, data: Path, out: Path, max_cost_usd: float
) -> Iterator[Environment]:
    """What plays the recipe's games: `own`, or its like on as many actors as the recipe says.

    Raises `RayError` when there is no cluster, or no place on it.
    """
    use = recipe.rollouts
    if not use.actors:
        yield own
        return
    from conductor_build.lm.raycluster import Cluster, running
    from conductor_build.lm.rayrollouts import Crew, RayEnvironment

    build = partial(_actors_own, recipe, data.resolve(), out.resolve(), max_cost_usd / use.actors)
    # Sockets are made below the folder: its path must be short.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        # A machine of fewer processors than actors still gets them all: they mostly wait.
        cpus = os.cpu_count() or 1
        with running(Cluster(use.address or None, cpus=cpus), Path(folder)):
            crew = Crew(use.actors, use.in_flight, cpus=min(1.0, cpus / use.actors))
            environment = RayEnvironment(build, crew)
            try:
                yield environment
            finally:
                environment.close()


_KEPT = ExitStack()
"""What an actor has opened, for as long as its process lives."""


def _actors_own(recipe: LmRecipe, data: Path, out: Path, max_cost_usd: float) -> Environment:
    """Called in an actor: the environment that it plays on, for its own share of the money."""
    from conductor_build.lm import pools
    from conductor_build.lm.setting import named_tasks, split

    tasks = named_tasks(recipe, data)
    training, _, _ = split(recipe, tasks)
    folder = out
    if recipe.pool.kind == "live":
        folder = out / JOURNALS / secrets.token_hex(8)
        folder.mkdir(parents=True)
    opened = pools.opened(recipe, tasks, training, data, folder, Account(max_cost_usd))
    return _KEPT.enter_context(opened).environment
