"""Whatever becomes of the planner process, every request gets a plan that fits, and says whose."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from conductor.core import PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import show
from conductor.planner import wire
from conductor.planner.client import MAX_IN_FLIGHT, PlannerClient, PlannerState
from conductor.planner.default import DefaultEngine
from conductor.planner.engine import Detour, Planned
from conductor.planner.server import serving
from support.planner import (
    FakeEngine,
    FakePlanner,
    http,
    planner_process,
    socket_folder,
)
from support.plans import candidate, heard, request
from support.soon import SOON_S, until

ASKED = request(candidate(general=0.9), candidate(price=2.0, general=0.9))
REST_S = 0.1


@pytest.fixture
def path() -> Iterator[Path]:
    with socket_folder() as folder:
        yield folder / "planner.sock"


@asynccontextmanager
async def client_of(
    path: Path, *, timeout_s: float = SOON_S, rest_s: float = REST_S
) -> AsyncIterator[PlannerClient]:
    client = PlannerClient(path, timeout_s, DefaultEngine(), rest_s=rest_s)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def answer(plan: str = "1 q -\n", **fields: object) -> bytes:
    usual = {"plan": plan, "engine": "fake", "alternates": [0], "look": False, "insight": None}
    return http(orjson.dumps(usual | fields))


INSIGHT = {
    "right": [0.5, 0.75],
    "chosen": [1, 0.25],
    "accept": 0.0,
    "expected_cost_usd": 0.001,
    "expected_quality": 0.75,
}


def whose(planned: Planned) -> tuple[str, str, Detour | None]:
    return planned.where, planned.engine, planned.why


async def test_the_planner_plans_when_it_can(path: Path) -> None:
    async with serving(path, FakeEngine("1 q -\n")), client_of(path) as client:
        planned = await client.plan(ASKED)
    assert show(planned.plan) == "1 q -\n"
    assert whose(planned) == ("planner", "fake", None)
    assert client.state is PlannerState.UP


async def test_with_no_planner_serve_plans_and_says_why(path: Path) -> None:
    async with client_of(path) as client:
        planned = await client.plan(ASKED)
        assert whose(planned) == ("serve", "default", Detour.DOWN)
        await until(lambda: client.state is PlannerState.DOWN)
        assert (await client.plan(ASKED)).why is Detour.RESTING


async def test_a_path_that_can_be_no_socket_is_a_planner_that_is_down(path: Path) -> None:
    async with client_of(path.parent / ("x" * 150)) as client:
        assert (await client.plan(ASKED)).why is Detour.DOWN


async def test_both_sides_plan_the_same_with_the_same_engine(path: Path) -> None:
    asked = replace(ASKED, question="Solve the equation 2 + 3 = x. " + "filler " * 30_000)
    async with client_of(path) as client:
        alone = await client.plan(asked)
    async with serving(path, DefaultEngine()), client_of(path) as client:
        asked_for = await client.plan(asked)
    assert (alone.where, asked_for.where) == ("serve", "planner")
    assert (alone.plan, alone.alternates) == (asked_for.plan, asked_for.alternates)


async def test_a_loading_planner_is_found_ready_without_traffic(path: Path) -> None:
    engine = FakeEngine(is_ready=False)
    async with serving(path, engine), client_of(path) as client:
        assert (await client.plan(ASKED)).why in (Detour.LOADING, Detour.RESTING)
        assert client.state is PlannerState.LOADING
        assert (await client.plan(ASKED)).why is Detour.RESTING
        engine.is_ready = True
        await until(lambda: client.state is PlannerState.TRIAL)
        assert (await client.plan(ASKED)).where == "planner"
        assert client.state is PlannerState.UP


# -- junk -------------------------------------------------------------------------------------

UNFIT = {
    "a worker that is not offered": answer("2 q -\n"),
    "an empty plan": answer(""),
    "a text that is no plan": answer("0 q - \n"),
    "a redaction at the end": answer("redact q -\n"),
    "a stand-in that is not offered": answer(alternates=[2]),
    "a step of a round that never was": answer("0 q,0 -\n"),
    "a look in the last round": answer(look=True),
    "insight into fewer candidates": answer(insight=INSIGHT | {"right": [0.5]}),
    "insight into more candidates": answer(insight=INSIGHT | {"chosen": [0.5] * 3}),
}
JUNK = {
    "no JSON": http(b"<html>"),
    "an array": http(b"[]"),
    "a plan of another type": answer(plan=["0 q -"]),  # type: ignore[arg-type]
    "a missing field": http(b'{"plan": "1 q -\\n", "engine": "fake"}'),
    "an answer as it was before rounds": http(
        b'{"plan": "1 q -\\n", "engine": "fake", "alternates": [0]}'
    ),
    "a look that is a number": answer(look=1),
    "insight that is a list": answer(insight=[INSIGHT]),
    "insight that lacks a number": answer(insight={"right": [0.5, 0.5]}),
    "a chance above one": answer(insight=INSIGHT | {"right": [0.5, 1.5]}),
    "a chance that is no number": answer(insight=INSIGHT | {"chosen": [0.5, None]}),
    "a cost without end": answer(insight=INSIGHT).replace(b"0.001", b"1e999"),
    "quality below zero": answer(insight=INSIGHT | {"expected_quality": -0.1}),
    "words in insight": answer(insight=INSIGHT | {"why": "it is cheap"}),
    "an unknown field": answer(price=3),
    "an engine name for a header split": answer(engine="x\r\nSet-Cookie: a"),
    "an engine name too long": answer(engine="x" * 33),
    "a stand-in twice": answer(alternates=[1, 1]),
    "a stand-in that is true": answer(alternates=[True]),
    "far too long": http(b" " * 5_000_000),
    "compressed": http(gzip.compress(answer().partition(b"\r\n\r\n")[2])).replace(
        b"\r\n", b"\r\nContent-Encoding: gzip\r\n", 1
    ),
    "no HTTP at all": b"SSH-2.0-OpenSSH\r\n\r\n<close>",
    "a bad chunk": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n<close>",
    "headers without end": b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 50_000 + b"<close>",
}
ERROR = {
    "a 500": http(b"oops", 500),
    "a 404": http(b"{}", 404),
    "a 503 without a word": http(b"{}", 503),
    "a 503 with a strange word": http(b'{"error": ["loading"]}', 503),
    "a redirect": b"HTTP/1.1 307 X\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n",
}
DOWN = {
    "cut at once": b"HTTP/1.1 200 X\r\nContent-Length: 50\r\n\r\n{<close>",
    "cut in a chunk": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{<close>",
}
CASES = [
    pytest.param(reply, why, id=name)
    for why, cases in [
        (Detour.UNFIT, UNFIT),
        (Detour.JUNK, JUNK),
        (Detour.ERROR, ERROR),
        (Detour.DOWN, DOWN),
    ]
    for name, reply in cases.items()
]


@pytest.mark.parametrize(("reply", "why"), CASES)
async def test_an_answer_that_cannot_be_used_makes_serve_plan(
    path: Path, reply: bytes, why: Detour
) -> None:
    planner = FakePlanner(reply)
    async with planner.serving(path), client_of(path) as client:
        planned = await client.plan(ASKED)
    assert planner.plans_asked >= 1
    assert whose(planned) == ("serve", "default", why)


@pytest.mark.parametrize(
    ("change", "plan"),
    [
        ({"one_step": True}, "0 q -\n1 0 -\n"),
        ({"one_step": True}, "redact q -\n"),
        ({"max_steps": 2}, "0 q -\n0 q -\nvote 0,1 -\n"),
        ({"calls_left": 2}, "0 q -\n1 q -\n0 0,1 -\n"),
    ],
)
async def test_a_plan_beyond_the_limits_of_its_request_is_not_used(
    path: Path, change: dict[str, object], plan: str
) -> None:
    async with FakePlanner(answer(plan)).serving(path), client_of(path) as client:
        assert (await client.plan(replace(ASKED, **change))).why is Detour.UNFIT


FURTHER = replace(ASKED, heard=heard("Four.", "5"), rounds_left=1, calls_left=2)


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        pytest.param({"plan": ""}, {}, id="keep"),
        pytest.param({"plan": "vote 0,1 -\n"}, {}, id="vote"),
        pytest.param({"plan": "1 * -\n"}, {"rounds_left": 0}, id="the last round"),
        pytest.param({"plan": "0 q -\n1 q,2 -\n", "look": True}, {}, id="look again"),
        pytest.param({"plan": "1 q,0 -\n", "insight": INSIGHT}, {}, id="insight"),
    ],
)
async def test_a_plan_of_a_further_round_comes_through(
    path: Path, fields: dict[str, object], change: dict[str, object]
) -> None:
    reply = answer(**fields)  # type: ignore[arg-type]
    async with FakePlanner(reply).serving(path), client_of(path) as client:
        planned = await client.plan(replace(FURTHER, **change))
    assert whose(planned) == ("planner", "fake", None)
    assert (show(planned.plan), planned.plan.first) == (fields["plan"], 2)
    assert planned.look is fields.get("look", False)
    assert (planned.insight is None) is ("insight" not in fields)


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        pytest.param({"plan": "1 3 -\n"}, {}, id="a step that is not there yet"),
        pytest.param({"plan": "1 q -\n" * 3}, {}, id="more calls than are left"),
        pytest.param({"plan": "", "look": True}, {}, id="a look at nothing new"),
        pytest.param({"plan": "vote * -\n", "look": True}, {}, id="a look at a vote"),
        pytest.param({"plan": "1 q -\n", "look": True}, {"rounds_left": 0}, id="no round left"),
        pytest.param({"plan": "1 q -\n", "look": True}, {"one_step": True}, id="only passed on"),
        pytest.param({"plan": ""}, {"heard": heard("", "")}, id="nothing that stands to keep"),
    ],
)
async def test_a_plan_that_makes_no_sense_in_its_round_is_not_used(
    path: Path, fields: dict[str, object], change: dict[str, object]
) -> None:
    reply = answer(**fields)  # type: ignore[arg-type]
    async with FakePlanner(reply).serving(path), client_of(path) as client:
        planned = await client.plan(replace(FURTHER, **change))
    assert whose(planned) == ("serve", "default", Detour.UNFIT)


async def test_without_a_planner_a_later_round_keeps_the_answer_that_stands(path: Path) -> None:
    nobody_left = replace(FURTHER, candidates=(), heard=heard("Four.", workers=(None,)))
    async with client_of(path) as client:
        for asked in [FURTHER, nobody_left, replace(FURTHER, calls_left=0, rounds_left=0)]:
            planned = await client.plan(asked)
            assert planned.plan.steps == ()
            assert planned.plan.first == len(asked.heard)
            assert planned.where == "serve"


async def test_without_a_planner_and_an_answer_a_later_round_asks_somebody_else(path: Path) -> None:
    async with client_of(path) as client:
        planned = await client.plan(replace(FURTHER, heard=heard("", workers=(0,))))
    assert (show(planned.plan), planned.plan.first) == ("1 q -\n", 1)


async def test_what_was_heard_reaches_the_engine_bounded(path: Path) -> None:
    engine = FakeEngine("")
    endless = "a" * 1_000_000 + "\ud800 so it is 42"
    async with serving(path, engine), client_of(path) as client:
        planned = await client.plan(replace(FURTHER, heard=heard(endless, "42")))
    assert whose(planned) == ("planner", "fake", None)
    first, second = engine.asked[0].heard
    assert len(first.answer) <= wire.MAX_ANSWER_CHARS
    assert first.answer.endswith("? so it is 42")
    assert second.answer == "42"


async def test_misnumbered_answers_are_an_error_of_ours_and_no_plan(path: Path) -> None:
    async with serving(path, DefaultEngine()), client_of(path) as client:
        with pytest.raises(PlanError):
            await client.plan(replace(FURTHER, heard=FURTHER.heard[1:]))


async def test_a_planner_that_answers_junk_is_still_asked_the_next_time(path: Path) -> None:
    planner = FakePlanner(http(b"junk"))
    async with planner.serving(path), client_of(path) as client:
        assert (await client.plan(ASKED)).why is Detour.JUNK
        planner.reply = answer()
        assert (await client.plan(ASKED)).where == "planner"


async def test_no_plan_at_all_is_an_error_whoever_is_asked(path: Path) -> None:
    nobody = replace(ASKED, candidates=())
    async with client_of(path) as client:
        with pytest.raises(PlanError):
            await client.plan(nobody)
    async with serving(path, DefaultEngine()), client_of(path) as client:
        with pytest.raises(PlanError):
            await client.plan(nobody)


async def test_a_fallback_is_checked_like_any_engine(path: Path) -> None:
    client = PlannerClient(path, SOON_S, FakeEngine("7 q -\n"))
    await client.start()
    with pytest.raises(PlanError):
        await client.plan(ASKED)
    await client.close()


# -- slow, dead, back again -------------------------------------------------------------------


async def test_a_hung_planner_costs_one_timeout_a_rest_and_not_one_a_request(path: Path) -> None:
    planner = FakePlanner(None)
    async with planner.serving(path), client_of(path, timeout_s=0.2) as client:
        for _ in range(3):
            assert (await client.plan(ASKED)).why is Detour.TIMEOUT
            # The loop has no turn meanwhile, so that no rest ends amid them.
            assert {(await client.plan(ASKED)).why for _ in range(50)} == {Detour.RESTING}
            await until(lambda: client.state is PlannerState.TRIAL)
    assert planner.plans_asked <= 3


async def test_while_one_question_is_on_trial_the_others_do_not_wait(path: Path) -> None:
    planner = FakePlanner(None)
    async with planner.serving(path), client_of(path, timeout_s=0.3) as client:
        assert (await client.plan(ASKED)).why is Detour.TIMEOUT
        await until(lambda: client.state is PlannerState.TRIAL)
        answers = await asyncio.gather(*(client.plan(ASKED) for _ in range(50)))
    assert sorted(str(planned.why) for planned in answers) == ["resting"] * 49 + ["timeout"]


async def test_a_trial_that_its_caller_gives_up_does_not_block_the_next(path: Path) -> None:
    planner = FakePlanner(DOWN["cut at once"])
    async with planner.serving(path), client_of(path) as client:
        assert (await client.plan(ASKED)).why is Detour.DOWN
        await until(lambda: client.state is PlannerState.TRIAL)
        planner.reply = None
        asked = planner.plans_asked
        trial = asyncio.create_task(client.plan(ASKED))
        await until(lambda: planner.plans_asked > asked)
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial
        planner.reply = answer()
        assert (await client.plan(ASKED)).where == "planner"


async def test_a_planner_whose_probe_hangs_too_is_left_alone(path: Path) -> None:
    planner = FakePlanner(None, ready=None)
    async with planner.serving(path), client_of(path, timeout_s=0.1) as client:
        assert (await client.plan(ASKED)).why is Detour.TIMEOUT
        await asyncio.sleep(3 * REST_S)
        assert client.state is PlannerState.HUNG
        assert (await client.plan(ASKED)).why is Detour.RESTING


async def test_the_queue_to_the_planner_is_bounded(path: Path) -> None:
    gate = asyncio.Event()
    async with serving(path, FakeEngine("1 q -\n", gate=gate)), client_of(path) as client:
        await until(lambda: client.state is PlannerState.UP)
        asks = [asyncio.create_task(client.plan(ASKED)) for _ in range(MAX_IN_FLIGHT + 50)]
        await until(lambda: sum(task.done() for task in asks) == 50)
        gate.set()
        answers = await asyncio.gather(*asks)
        assert [planned.why for planned in answers].count(Detour.BUSY) == 50
        assert (await client.plan(ASKED)).where == "planner"


async def test_ten_thousand_questions_at_once_all_get_a_plan(path: Path) -> None:
    async with serving(path, DefaultEngine()), client_of(path, timeout_s=SOON_S) as client:
        answers = await asyncio.gather(*(client.plan(ASKED) for _ in range(10_000)))
        assert {show(planned.plan) for planned in answers} == {"0 q -\n"}
        assert {planned.why for planned in answers} == {None, Detour.BUSY}
        assert (await client.plan(ASKED)).where == "planner"


async def test_a_stop_and_restart_between_two_questions_is_noticed_at_once(path: Path) -> None:
    async with client_of(path, rest_s=60) as client:
        for _ in range(3):
            async with serving(path, FakeEngine("1 q -\n")):
                assert (await client.plan(ASKED)).where == "planner"


async def test_a_planner_that_dies_unseen_is_reported_down_without_traffic(path: Path) -> None:
    async with client_of(path) as client:
        async with serving(path, FakeEngine()):
            assert (await client.plan(ASKED)).where == "planner"
        assert client.state is PlannerState.UP
        await until(lambda: client.state is PlannerState.DOWN)


async def test_kill_9_and_restart_while_plans_are_asked_loses_no_request(path: Path) -> None:
    answers: list[Planned] = []

    async def keep_asking(client: PlannerClient, asked: PlanRequest) -> None:
        while True:
            answers.append(await client.plan(asked))
            await asyncio.sleep(0.002)

    async def seen(where: str) -> None:
        start = len(answers)
        await until(lambda: any(planned.where == where for planned in answers[start:]))

    async with client_of(path) as client, asyncio.TaskGroup() as group:
        asking = [group.create_task(keep_asking(client, ASKED)) for _ in range(4)]
        for _ in range(2):
            async with planner_process(path) as pid:
                await seen("planner")
                os.kill(pid, signal.SIGKILL)
                await seen("serve")
        for task in asking:
            task.cancel()
    assert {show(planned.plan) for planned in answers} == {"0 q -\n"}
    assert {planned.why for planned in answers} <= {None, Detour.DOWN, Detour.RESTING}


async def test_a_stopped_process_is_hung_and_planning_goes_on(path: Path) -> None:
    async with planner_process(path) as pid, client_of(path, timeout_s=1.5) as client:
        assert (await client.plan(ASKED)).where == "planner"
        os.kill(pid, signal.SIGSTOP)
        assert (await client.plan(ASKED)).why is Detour.TIMEOUT
        assert (await client.plan(ASKED)).why is Detour.RESTING
        os.kill(pid, signal.SIGCONT)
        await until(lambda: client.state is PlannerState.TRIAL)
        assert (await client.plan(ASKED)).where == "planner"


async def test_closing_twice_or_before_the_start_is_no_error(path: Path) -> None:
    client = PlannerClient(path, SOON_S, DefaultEngine())
    await client.close()
    await client.start()
    await client.close()
    await client.close()
