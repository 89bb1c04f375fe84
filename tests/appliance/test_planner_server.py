"""The planner process answers over its socket, refuses junk with a word, and tells no secrets."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestServer
from structlog.testing import capture_logs

from conductor.errors import PlanError, StartError
from conductor.planner import server, wire
from conductor.planner.default import DefaultEngine
from conductor.planner.engine import Insight, PlanEngine
from conductor.planner.lm_runner import RunnerFailed, RunnerLost
from conductor.planner.server import PlannerService, load_engine, serving
from conductor.process.unixserver import serve_until_stopped
from conductor.settings import PlannerConfig
from support.planner import FakeEngine, get, planner_process, socket_folder
from support.plans import candidate, heard, request
from support.soon import SOON_S, until

SECRET = "DE89370400440532013000"
ASKED = request(candidate(general=0.8), candidate(price=0.5, general=0.8), question=f"Pay {SECRET}")


@pytest.fixture
def path() -> Iterator[Path]:
    with socket_folder() as folder:
        yield folder / "planner.sock"


@asynccontextmanager
async def asking(path: Path, engine: PlanEngine) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(path, engine):
        async with aiohttp.ClientSession(
            "http://planner", connector=aiohttp.UnixConnector(str(path), limit=0)
        ) as session:
            yield session


async def post(session: aiohttp.ClientSession, body: bytes) -> tuple[int, dict[str, object]]:
    async with session.post("/v1/plan", data=io.BytesIO(body)) as response:
        assert response.content_type == "application/json"
        return response.status, orjson.loads(await response.read())


# -- asking -----------------------------------------------------------------------------------


async def test_a_question_gets_a_plan(path: Path) -> None:
    async with asking(path, DefaultEngine()) as session:
        status, answer = await post(session, wire.encode_request(ASKED))
    expected = {"plan": "1 q -\n", "engine": "default", "alternates": [0]}
    assert (status, answer) == (200, expected | {"look": False, "insight": None})


async def test_the_engine_sees_exactly_what_was_asked(path: Path) -> None:
    engine = FakeEngine()
    asked = replace(
        ASKED, preference="quality", max_steps=3, prompt_tokens=77, cost_weight=0.3,
        heard=heard("42", "", workers=(1, None)), rounds_left=2, calls_left=5,
    )  # fmt: skip
    async with asking(path, engine) as session:
        await post(session, wire.encode_request(asked))
    assert engine.asked == [asked]


async def test_what_an_engine_says_beside_its_plan_is_passed_on(path: Path) -> None:
    insight = Insight((0.5, 0.75), (1.0, 0.25), 0.0, 0.001, 0.75)
    async with asking(path, FakeEngine("0 q -\n", look=True, insight=insight)) as session:
        _, answer = await post(session, wire.encode_request(replace(ASKED, rounds_left=1)))
    planned = wire.decode_planned(orjson.dumps(answer))
    assert (planned.look, planned.insight) == (True, insight)


async def test_an_engine_whose_answer_cannot_be_written_is_a_broken_engine(path: Path) -> None:
    insight = Insight((object(),), (), 0.0, 0.0, 0.0)  # type: ignore[arg-type]
    async with asking(path, FakeEngine(insight=insight)) as session:
        status, answer = await post(session, wire.encode_request(ASKED))
    assert (status, answer["error"]) == (500, "failed")


async def test_probes_tell_life_from_readiness(path: Path) -> None:
    engine = FakeEngine(is_ready=False)
    async with asking(path, engine) as session:
        assert await get(path, "/healthz") == 200
        assert await get(path, "/readyz") == 503
        status, answer = await post(session, wire.encode_request(ASKED))
        assert (status, answer["error"]) == (503, "loading")
        engine.is_ready = True
        assert await get(path, "/readyz") == 200


async def test_no_plan_possible_is_told_apart_from_a_broken_engine(path: Path) -> None:
    engine = FakeEngine(error=PlanError("no candidate"))
    async with asking(path, engine) as session:
        status, answer = await post(session, wire.encode_request(ASKED))
        assert (status, answer["error"]) == (422, "unplannable")
        engine.error = ValueError(f"cannot plan {SECRET}")
        with capture_logs() as logs:
            status, answer = await post(session, wire.encode_request(ASKED))
        assert (status, answer["error"]) == (500, "failed")
    assert [log["error"] for log in logs if log["log_level"] == "error"] == ["ValueError"]
    assert SECRET not in f"{logs}{answer}"


@pytest.mark.parametrize(
    ("error", "times"), [(RunnerFailed("it broke (ValueError)"), 0), (RunnerLost("gone"), 1)]
)
async def test_an_engine_that_is_lost_ends_the_process_and_one_that_failed_once_does_not(
    error: Exception, times: int
) -> None:
    ended = list[str]()
    service = PlannerService(FakeEngine(error=error), when_lost=lambda: ended.append("now"))
    with capture_logs() as logs:
        async with TestServer(service.app()) as site:
            async with aiohttp.ClientSession(site.make_url("/")) as session:
                assert (await post(session, wire.encode_request(ASKED)))[0] == 500
    assert len(ended) == times
    assert logs[0]["error"] == str(error), "the kind of it, for the operator"
    assert SECRET not in str(logs)


async def test_a_process_whose_engine_is_lost_stops_as_on_sigterm(path: Path) -> None:
    lost = FakeEngine(error=RunnerLost("gone"))
    running = asyncio.create_task(serve_until_stopped(serving(path, lost), path, engine="lm"))
    await until(path.exists)
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession("http://planner", connector=connector) as session:
        assert (await post(session, wire.encode_request(ASKED)))[0] == 500
    await asyncio.wait_for(running, SOON_S)


async def test_questions_are_never_logged(
    path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    with capture_logs() as logs:
        async with asking(path, DefaultEngine()) as session:
            await post(session, wire.encode_request(ASKED))
            await post(session, b'{"question": "%s"' % SECRET.encode())
    assert SECRET not in f"{logs}{caplog.text}{capfd.readouterr()}"


async def test_at_most_so_many_run_and_wait_and_the_next_is_told_busy(path: Path) -> None:
    gate = asyncio.Event()
    engine = FakeEngine(gate=gate)
    service = PlannerService(engine, max_in_flight=2, max_waiting=3)
    body = wire.encode_request(ASKED)
    async with TestServer(service.app()) as site, aiohttp.ClientSession() as session:

        async def ask() -> int:
            async with session.post(site.make_url("/v1/plan"), data=body) as response:
                return response.status

        asks = [asyncio.create_task(ask()) for _ in range(9)]
        await until(lambda: sum(task.done() for task in asks) == 4)
        assert engine.running == 2
        gate.set()
        statuses = sorted(await asyncio.gather(*asks))
    assert statuses == [200] * 5 + [503] * 4
    assert engine.most_running == 2


async def test_a_caller_that_leaves_cancels_its_question(path: Path) -> None:
    engine = FakeEngine(gate=asyncio.Event())
    async with asking(path, engine) as session:
        asked = asyncio.create_task(post(session, wire.encode_request(ASKED)))
        await until(lambda: engine.running)
        asked.cancel()
        await until(lambda: engine.cancelled)
    assert engine.running == 0


async def test_a_body_that_never_arrives_does_not_hold_a_place_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_BODY_S", 0.05)
    async with serving(path, FakeEngine()):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"POST /v1/plan HTTP/1.1\r\nHost: p\r\nContent-Length: 100\r\n\r\n{")
        async with asyncio.timeout(SOON_S):
            assert b" 400 " in await reader.readline()
        writer.close()


# -- junk -------------------------------------------------------------------------------------

GOOD = orjson.loads(wire.encode_request(replace(ASKED, heard=heard("four", "five"))))


def changed(**fields: object) -> bytes:
    return orjson.dumps({**GOOD, **fields})


def changed_candidate(**fields: object) -> bytes:
    return changed(candidates=[{**GOOD["candidates"][0], **fields}])


def changed_answer(**fields: object) -> bytes:
    first, *others = GOOD["heard"]
    return changed(heard=[{**first, **fields}, *others])


JUNK = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"question": "\xff"}',
    "an array": b"[]",
    "deep nesting": b"[" * 100_000,
    "NaN": wire.encode_request(ASKED).replace(b"50.0", b"NaN"),
    "an unknown field": changed(model="gpt"),
    "a missing field": orjson.dumps({k: v for k, v in GOOD.items() if k != "one_step"}),
    "a number as question": changed(question=7),
    "a question too long": changed(question="a" * (wire.MAX_QUESTION_CHARS + 1)),
    "a body too long": changed(question="a" * wire.MAX_REQUEST_BYTES),
    "an unknown preference": changed(preference="cheapest"),
    "no steps": changed(max_steps=0),
    "too many steps": changed(max_steps=6),
    "a truthy flag": changed(one_step=1),
    "true as a number": changed(max_steps=True),
    "a float as a whole number": changed(max_steps=2.0),
    "candidates by name": changed(candidates={"a": 1}),
    "a candidate that is a name": changed(candidates=["gpt"]),
    "too many candidates": changed(candidates=GOOD["candidates"][:1] * 257),
    "a cost weight below zero": changed(cost_weight=-0.1),
    "a cost weight that is endless": wire.encode_request(ASKED).replace(b"0.03", b"1e999"),
    "rounds without end": changed(rounds_left=11),
    "fewer than no calls": changed(calls_left=-1),
    "half a call": changed(calls_left=0.5),
    "eleven answers": changed(heard=[{**GOOD["heard"][0], "step": n} for n in range(11)]),
    "an answer that is text": changed(heard=["four"]),
    "an answer without a number": changed(heard=[{"worker": 0, "answer": "", "output_tokens": 0}]),
    "an answer of the wrong number": changed_answer(step=1),
    "an answer of no candidate": changed_answer(worker=2),
    "an answer by name": changed_answer(worker="gpt"),
    "an answer too long": changed_answer(answer="a" * (wire.MAX_ANSWER_CHARS + 1)),
    "an answer that is nothing": changed_answer(answer=None),
    "tokens below zero": changed_answer(output_tokens=-1),
    "a label beside an answer": changed_answer(label="public"),
    "a domain that is no word": changed_candidate(skill={"Code ": 0.5}),
    "a skill above one": changed_candidate(skill={"code": 1.5}),
    "a skill that is no number": changed_candidate(skill={"code": "high"}),
    "a price below zero": changed_candidate(input_usd_per_mtok=-1),
    "an unknown source": changed_candidate(source="rumour"),
    "an unhashable source": changed_candidate(source=[]),
    "a hidden name": changed_candidate(id="gpt"),
    "too many domains": changed_candidate(skill={f"d{n}": 0.5 for n in range(65)}),
    "a huge number": wire.encode_request(ASKED).replace(b"8192", b"9" * 400),
}


async def test_junk_gets_a_400_that_says_what_is_wrong_and_does_not_repeat_it(path: Path) -> None:
    engine = FakeEngine()
    async with asking(path, engine) as session:
        for name, body in JUNK.items():
            status, answer = await post(session, body)
            assert (status, answer["error"]) == (400, "invalid"), name
            assert answer["message"], name
            assert SECRET not in str(answer), name
        assert engine.asked == []
        status, _ = await post(session, wire.encode_request(ASKED))
        assert status == 200


# -- engines ----------------------------------------------------------------------------------


def offer(monkeypatch: pytest.MonkeyPatch, *targets: str) -> None:
    points = [EntryPoint("fake", target, "conductor.engines") for target in targets]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints(points))


def broken() -> PlanEngine:
    raise RuntimeError(SECRET)


def engine(name: str) -> PlanEngine:
    return load_engine(PlannerConfig(name), Path("/nowhere"))


def test_engines_of_other_packages_plug_in_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "support.planner:FakeEngine")
    assert engine("fake").name == "fake"
    assert engine("default").name == "default"


def test_an_engine_that_is_unknown_ambiguous_or_broken_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(StartError, match="not installed; choose one of: default, pocket"):
        engine("unheard-of")
    offer(monkeypatch, "support.planner:FakeEngine", "support.planner:FakePlanner")
    with pytest.raises(StartError, match="more than one package"):
        engine("fake")
    for target in ["no.such.module:X", "support.planner:NoSuchEngine", f"{__name__}:broken"]:
        offer(monkeypatch, target)
        with pytest.raises(StartError, match="cannot be loaded") as caught:
            engine("fake")
        assert SECRET not in str(caught.value)


# -- the process ------------------------------------------------------------------------------


async def test_a_process_serves_stops_on_sigterm_and_leaves_no_socket(path: Path) -> None:
    async with planner_process(path) as pid:
        assert await get(path, "/readyz") == 200
        os.kill(pid, signal.SIGTERM)
        await until(lambda: not path.exists())


async def test_a_stop_lets_a_running_question_end(path: Path) -> None:
    gate = asyncio.Event()
    engine = FakeEngine(gate=gate)
    serve = asyncio.create_task(serve_until_stopped(serving(path, engine), path))
    await until(path.exists)
    async with aiohttp.ClientSession(
        "http://planner", connector=aiohttp.UnixConnector(str(path))
    ) as session:
        asked = asyncio.create_task(post(session, wire.encode_request(ASKED)))
        await until(lambda: engine.running)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        assert not serve.done()
        gate.set()
        assert (await asked)[0] == 200
    await serve
    await until(lambda: not path.exists())
