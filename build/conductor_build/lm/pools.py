"""The workers of a recipe and what plays with them: simulated, recorded, or live.

Recorded workers get cards measured on training questions alone. Live answers are kept in a journal,
so that a training that goes on asks nothing twice; remote workers are asked through the running
appliance, with the key that `conductor-build probe` uses.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from conductor.core import (
    Caller,
    Card,
    Destination,
    Price,
    TcpEndpoint,
    Worker,
)
from conductor.errors import ConductorError
from conductor.labels import Clearance
from conductor.plan.language import MAX_WORKERS
from conductor_build.live.accounts import Account
from conductor_build.live.environment import Environment
from conductor_build.live.executed import Executed, Sampling
from conductor_build.live.known import AnswerKey
from conductor_build.live.recorded import TOKENS_PER_S, RecordedPool
from conductor_build.live.simulated import SimulatedPool
from conductor_build.lm.episodes import Close, nothing
from conductor_build.lm.recipe import LmRecipe, PoolUse, TaskUse
from conductor_build.tasks.common import Task
from conductor_build.tasks.recorded import RecordedTask

JOURNAL = ".answers"
"""In a training's folder; hidden, so that a folder that holds nothing else counts as new."""
_LOOKED_AT = 2000
"""Questions of a task that tell which domains it has."""
_RECORDED = Destination("recorded", "local", Clearance(0), {"kind": "local"}, "")

Tasks = Sequence[tuple[TaskUse, Task]]


class PoolError(ConductorError):
    """The recipe's workers cannot be had: the message says what to do."""


@dataclass(frozen=True, eq=False)
class OpenPool:
    """Workers, and what plays with them."""

    workers: tuple[Worker, ...]
    environment: Environment
    close: Close


@contextmanager
def opened(
    recipe: LmRecipe,
    tasks: Tasks,
    training: Sequence[tuple[Task, float]],
    data: Path,
    out: Path,
    account: Account,
) -> Iterator[OpenPool]:
    """The recipe's pool. Raises `PoolError`, and whatever is wrong with its files."""
    use, sampling = recipe.pool, _sampling(recipe.pool)
    if use.kind == "simulated":
        pool = SimulatedPool(use.simulated, AnswerKey.of(t for _, t in tasks), seed=recipe.seed)
        workers = pool.workers(domains(tasks), use.card_outcomes, recipe.seed)
        yield OpenPool(workers, Executed(pool, simulated=True, sampling=sampling), nothing)
    elif use.kind == "recorded":
        tables = [task for _, task in tasks if isinstance(task, RecordedTask)]
        workers = _priced(_chosen(recorded_workers(tables[0], training[0][0]), use))
        yield OpenPool(
            workers, Executed(RecordedPool(tables), simulated=False, sampling=sampling), nothing
        )
    else:
        workers = live_workers(use, data)
        with _live(workers, data / use.configs, out, account) as (caller, close):
            played = Executed(caller, simulated=False, sampling=sampling)
            yield OpenPool(workers, played, close)


def described(recipe: LmRecipe, data: Path) -> tuple[Worker, ...]:
    """The workers as far as they are known without asking, loading or measuring anything; none of
    recorded ones, who cost nothing."""
    use = recipe.pool
    if use.kind == "simulated":
        pool = SimulatedPool(use.simulated, AnswerKey({}), seed=recipe.seed)
        return pool.workers((), 1, recipe.seed)
    return live_workers(use, data) if use.kind == "live" else ()


def _sampling(use: PoolUse) -> Sampling:
    return Sampling(use.temperature, use.max_tokens)


def domains(tasks: Tasks) -> tuple[str, ...]:
    """What kinds of question there are."""
    found = {
        task.domain(task[place]) for _, task in tasks for place in range(min(len(task), _LOOKED_AT))
    }
    return tuple(sorted(found))


def _chosen(workers: Sequence[Worker], use: PoolUse) -> tuple[Worker, ...]:
    """Those that the recipe names, in its order."""
    by_id = {worker.id: worker for worker in workers}
    unknown = [name for name in use.only if name not in by_id]
    if unknown:
        raise PoolError(f"the recipe's pool has {unknown[0]!r}, which is not among its workers")
    chosen = tuple(by_id[name] for name in use.only) or tuple(workers)
    if len(chosen) > MAX_WORKERS:
        raise PoolError(
            f"the pool has {len(chosen)} workers, and a plan can name {MAX_WORKERS}: name those to "
            "train with under `only`"
        )
    return chosen


# -- recorded -------------------------------------------------------------------------------------


def recorded_workers(task: RecordedTask, training: Task) -> tuple[Worker, ...]:
    """The workers of a table, with cards measured on its training questions."""
    from conductor_build.cards import measure

    keys = {training[place].key for place in range(len(training))}
    table = task.table.rows([i for i, name in enumerate(task.table.prompts) if name in keys])
    cards = measure(table, tuple(sorted(set(table.tasks))))
    mean = float(cards.tokens.mean())
    return tuple(
        Worker(
            id=name,
            model=name,
            destination=_RECORDED,
            clearance=_RECORDED.clearance,
            endpoint=TcpEndpoint("127.0.0.1", 0),
            card=Card(
                {domain: float(cards.skill[row, at]) for at, domain in enumerate(cards.domains)},
                TOKENS_PER_S,
                "measured",
                min(100.0, max(0.01, float(cards.tokens[row].mean()) / mean)),
            ),
            price=Price(0.0, float(cards.price[row])),
        )
        for row, name in enumerate(cards.names)
    )


def _priced(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
    """A play of a worker whose price nobody knows would have no cost, and so no worth."""
    unknown = [one.id for one in workers if not math.isfinite(one.price.output_usd_per_mtok)]
    if unknown:
        raise PoolError(
            f"no price is recorded of {', '.join(unknown)}: add usd_out_per_mtok to workers.csv, "
            "or name those to train with under `only`"
        )
    return workers


# -- live -----------------------------------------------------------------------------------------


def live_workers(use: PoolUse, data: Path) -> tuple[Worker, ...]:
    """The workers of a site, with their probed cards. Raises `ConfigError`, `ProbeError`."""
    from conductor.config import load
    from conductor_build.probe_cards import read_cards

    workers = _chosen(load(data / use.configs).workers, use)
    cards = read_cards(data / use.cards) if use.cards else {}
    missing = [worker.id for worker in workers if use.cards and worker.id not in cards]
    if missing:
        raise PoolError(f"{use.cards} has no card of {missing[0]!r}: probe it, or leave it out")
    return tuple(
        replace(
            worker,
            card=cards.get(worker.id, worker.card),
            limits=replace(
                worker.limits, max_in_flight=min(use.in_flight, worker.limits.max_in_flight)
            ),
        )
        for worker in workers
    )


@contextmanager
def _live(
    workers: Sequence[Worker], configs: Path, out: Path, account: Account
) -> Iterator[tuple[Caller, Close]]:
    """What asks them, keeping every answer in `out`, and how it is closed."""
    from conductor.config import load
    from conductor.workers.http import HttpCaller
    from conductor_build.live import journal
    from conductor_build.live.calls import Calls
    from conductor_build.probe_api import ApiCaller
    from conductor_build.probe_cli import KEY

    if any(worker.remote for worker in workers) and not os.environ.get(KEY):
        raise PoolError(f"remote workers are asked through the appliance: put a key into {KEY}")
    api = load(configs).appliance.api
    local = HttpCaller()
    far = ApiCaller(f"http://{api.host}:{api.port}/v1", os.environ.get(KEY, ""))
    out.mkdir(parents=True, exist_ok=True)
    with journal.opened(out / JOURNAL) as kept:
        account.spent_usd = kept.spent_usd
        calls = Calls(lambda worker: far if worker.remote else local, kept, account)

        async def close() -> None:
            await calls.close()
            await local.close()

        yield calls, close
