"""Recorded outcomes played through the daemon's executor."""

from __future__ import annotations

import numpy as np
import pytest

from conductor.core import Candidate, Card, PlanRequest, Price, TcpEndpoint, Worker
from conductor.plan.language import parse
from conductor.run.exchange import Limits
from conductor_build.live.executed import Executed
from conductor_build.live.game import Game
from conductor_build.live.recorded import UNCOUNTED, RecordedPool
from conductor_build.tasks.recorded import RecordedTask
from support.outcomes import NAN, table
from support.plays import HERE, played

TABLE = table(
    [[1, 0, 0.0], [0, 1, 1], [1, NAN, 0]],
    [[0, 1, 1], [0, 1, 1], [0, -1, -1]],
    tokens=[[100, 200, 300], [100, 200, NAN], [100, NAN, 300]],
)
TASK = RecordedTask(TABLE)


def game(place: int) -> Game:
    workers = tuple(
        Worker(
            name, name, HERE, HERE.clearance, TcpEndpoint("127.0.0.1", 1),
            Card({"t": 0.5}, 50.0, "measured"), Price(0, float(j + 1)),
        )
        for j, name in enumerate(TABLE.names)
    )  # fmt: skip
    example = TASK[place]
    candidates = tuple(Candidate(w.card, w.price, True, 8192) for w in workers)
    request = PlanRequest("r", example.question, candidates, 10, rounds_left=2)
    return Game(TASK, example, request, workers, Limits(), 0.03, seed=1)


@pytest.fixture
def environment() -> Executed:
    return Executed(RecordedPool([TASK]), simulated=False)


async def test_single_workers_come_to_what_was_recorded(environment):
    for place, row in enumerate(TABLE.score):
        for column, score in enumerate(row):
            outcome = await played(environment, game(place), f"{column} q -\n")
            if np.isnan(score):
                assert (outcome.quality, outcome.void) == (None, "worker:refused")
            else:
                assert (outcome.quality, outcome.void) == (score, None)


async def test_tokens_and_prices_are_those_of_the_table(environment):
    outcome = await played(environment, game(0), "0 q -\n1 q -\nvote 0,1 -\n")
    assert outcome.output_tokens == 300
    assert outcome.cost_usd_per_1k == pytest.approx((100 * 1 + 200 * 2) / 1e3)
    assert outcome.seconds == pytest.approx(200 / 50)
    uncounted = await played(environment, game(1), "2 q -\n")
    assert uncounted.output_tokens == UNCOUNTED


async def test_votes_go_by_who_agreed(environment):
    text = "0 q -\n1 q -\n2 q -\nvote 0,1,2 -\n"
    qualities = [(await played(environment, game(place), text)).quality for place in (0, 1)]
    assert qualities == [0.0, 1.0]


async def test_an_instruction_changes_nothing_that_was_recorded(environment):
    outcome = await played(environment, game(0), "0 q Think about the weather.\n")
    assert outcome.quality == 1.0


async def test_who_is_not_shown_the_question_says_nothing(environment):
    outcome = await played(environment, game(0), "0 q -\n1 0 Finish.\n")
    assert (outcome.quality, outcome.void) == (0.0, None)


async def test_a_look_and_a_kept_answer(environment):
    session = environment.open(game(0))
    asked = await session.play(parse("0 q -\n1 q -\n"), look=True)
    assert asked is not None
    assert [heard.output_tokens for heard in asked.heard] == [100, 200]
    assert await session.play(parse("vote 0 -\n", 2), look=False) is None
    assert session.outcome().quality == 1.0
