"""From a game and its first plan to a request under way, as the daemon makes one of a client's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from conductor.chat.request import ChatRequest, parse_chat
from conductor.core import Scan, Worker
from conductor.flow.choices import choice_bits
from conductor.labels import LOWEST
from conductor.plan.validate import PlanPool
from conductor.planner.engine import Planned
from conductor.run.budget import Budget
from conductor.run.exchange import Used, goes_on
from conductor.run.intake import Drafted, Judged
from conductor.run.job import Job, Round, Run
from conductor.run.workflow import Workflow
from conductor.selection import Selection
from conductor_build.live.game import Game
from conductor_build.live.stage import POLICY, VEILED, request_limits


@dataclass(frozen=True)
class Sampling:
    """How workers sample. At temperature 0 they are given no seed."""

    temperature: float = 0.2
    max_tokens: int = 1024
    """Of each answer, within the worker's own limit."""


DEFAULT = Sampling()


def opened(game: Game, workers: Sequence[Worker], planned: Planned, sampling: Sampling) -> Run:
    """The request of a game, about to run its first round: see `Conduct` and `Intake.draft`.

    `workers` are the game's as they are played, in its order. To be called on the event loop.
    """
    job = _job(game, sampling)
    pool = None if game.request.flow is None else PlanPool.of(game.request)
    bits = 0.0 if pool is None else choice_bits(planned.plan, pool, planned.alternates)
    look = goes_on(planned.plan, planned.look, game.limits, Used())
    drafted = Drafted(tuple(workers), planned, look, bits, pool)
    recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    recorded.set_result(None)
    return Run(job, [Round(job.label, drafted, recorded, job.workflow.reveals.spend(bits))])


def judged_as(game: Game, workers: Sequence[Worker], run: Run) -> Judged:
    """The request as judged, from which further rounds are judged again."""
    return Judged(
        policy=POLICY,
        selection=Selection("conductor", game.request.preference),
        scan=Scan((), 0),
        label=run.job.label,
        verdicts={},
        permitted=tuple(workers),
        cost_weight=game.request.cost_weight,
    )


def _job(game: Game, sampling: Sampling) -> Job:
    veiled = any(candidate.veiled for candidate in game.request.candidates)
    return Job(
        request=_chat(game, sampling),
        request_id=game.request.request_id,
        decision_id="play",
        answer_id="play",
        created=0,
        label=VEILED if veiled else LOWEST,
        budget=Budget(request_limits(game.limits), asyncio.get_running_loop().time),
        policy=POLICY,
        workflow=Workflow.under(POLICY, LOWEST),
    )


def _chat(game: Game, sampling: Sampling) -> ChatRequest:
    body: dict[str, Any] = {
        "model": "conductor",
        "messages": [{"role": "user", "content": game.example.question}],
        "temperature": sampling.temperature,
    }
    if sampling.temperature:
        body["seed"] = game.seed
    return replace(parse_chat(orjson.dumps(body)), one_step=game.request.one_step)
