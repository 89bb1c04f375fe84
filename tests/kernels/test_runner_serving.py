"""From a signed bundle to plans over the planner's socket, many at once, with a real tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from conductor.core import Flow, PlanRequest
from conductor.errors import BundleError, StartError
from conductor.plan.prompt import PROMPT_VERSION
from conductor.planner import lm_runner, server, wire
from conductor.planner.engine import Planned
from conductor.planner.lm import Decoding, LmEngine
from conductor.planner.lm_parts import FOLDER
from conductor.planner.lm_runner import RunnerSettings
from conductor.planner.manifest import PromptId
from conductor.planner.server import load_engine, serving
from conductor.settings import PlannerConfig
from conductor_kernels.runner.load import load_decoder
from conductor_kernels.runner.runner import TorchRunner
from support import bundles
from support.decoders import checkpoint
from support.lmbundles import VOCABULARY, files, parts
from support.planner import FakeEngine, socket_folder
from support.plans import candidate, request
from support.soon import until

SETTINGS = RunnerSettings(device="cpu", threads=1, max_running=12, cache_tokens=16_384)
BARE = Flow(question=0, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
            sees=(frozenset({0, 1, 2}), frozenset()))  # fmt: skip
"""Nobody may be told anything in the planner's own words, so that plans are short."""


def asked(number: int) -> PlanRequest:
    pool = [candidate(general=0.1 * (number % 7 + place), price=place) for place in range(3)]
    made = request(*pool, question=f"How many are {number} and {number}?")
    return replace(made, flow=BARE, max_steps=1 + number % 3, request_id=f"r-{number}")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    checkpoint(folder, "qwen2", vocab_size=VOCABULARY, max_position_embeddings=4096)
    held = {f"lm/{path.name}": path.read_bytes() for path in folder.iterdir()}
    prompt = PromptId(PROMPT_VERSION, parts().prompter.digest)
    return bundles.write(
        folder / "bundle", files() | held, kind="lm", features=None, encoder=None,
        prompt=prompt, precision="float32",
    )  # fmt: skip


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Who may sign. The runner is offered as an installed package would."""
    point = EntryPoint("torch", "conductor_kernels.runner.runner:load", "conductor.runners")
    monkeypatch.setattr(lm_runner, "entry_points", lambda group: EntryPoints([point]))
    path = tmp_path / "site.pub"
    (public,) = bundles.TRUSTED
    path.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


@pytest.fixture
def engine(bundle: Path, key: Path) -> Iterator[LmEngine]:
    made = LmEngine.load(bundle, [key], Decoding(limit_s=120.0, max_tokens=400), SETTINGS)
    yield made
    made.close()


def runner_of(engine: LmEngine) -> TorchRunner:
    assert isinstance(engine._runner, TorchRunner)
    return engine._runner


@asynccontextmanager
async def asking(engine: LmEngine) -> AsyncIterator[aiohttp.ClientSession]:
    with socket_folder() as folder:
        path = folder / "planner.sock"
        async with serving(path, engine):
            async with aiohttp.ClientSession(
                "http://planner", connector=aiohttp.UnixConnector(str(path), limit=0)
            ) as session:
                yield session


async def post(session: aiohttp.ClientSession, one: PlanRequest) -> Planned:
    async with session.post("/v1/plan", data=wire.encode_request(one)) as response:
        assert response.status == 200, await response.text()
        return wire.decode_planned(await response.read())


async def test_a_hundred_questions_half_of_whose_askers_leave(
    engine: LmEngine, bundle: Path
) -> None:
    questions = [asked(number) for number in range(100)]
    alone = [await engine.plan(one) for one in questions[::2]]
    assert len({planned.plan for planned in alone}) > 5, "plans hang on the question"
    async with asking(engine) as session:
        tasks = [asyncio.create_task(post(session, one)) for one in questions]
        await until(lambda: runner_of(engine)._under_way > 50)
        for number in range(1, 100, 2):
            tasks[number].cancel()
            await asyncio.sleep(0)
        got = await asyncio.gather(*tasks, return_exceptions=True)
    for one, here, there in zip(questions[::2], got[::2], alone, strict=True):
        assert isinstance(here, Planned) and wire.check(here, one)
        assert (here.plan, here.alternates, here.bundle) == (
            there.plan, there.alternates, engine._bundle
        )  # fmt: skip
        assert here.log_prob == pytest.approx(there.log_prob, abs=1e-4)
    left = [one for one in got[1::2] if not isinstance(one, Planned)]
    assert len(left) > 10, "many left before their plan was written"
    batch = runner_of(engine)._batch
    await until(lambda: not batch.busy)
    assert batch._cache.blocks - batch._cache.free == len(parts().prefix) // 32
    assert runner_of(engine)._under_way == 0


async def test_plans_that_the_device_writes_are_those_of_the_host(
    engine: LmEngine, bundle: Path
) -> None:
    runner = TorchRunner(load_decoder(bundle / FOLDER, SETTINGS), SETTINGS, steps=4)
    device = LmEngine(runner, engine._parts, engine._decoding, engine._bundle)
    questions = [asked(number) for number in range(4)]
    ours = await asyncio.gather(*(device.plan(one) for one in questions))
    for one, mine in zip(questions, ours, strict=True):
        theirs = await engine.plan(one)
        assert mine.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
        assert replace(mine, log_prob=theirs.log_prob) == theirs
    assert runner._batch._device is not None and runner._batch._device._tokenizer is not None
    device.close()


async def test_the_prefix_is_there_before_the_first_question(engine: LmEngine) -> None:
    held = [prefix.tokens for prefix in runner_of(engine)._batch._prefixes._kept.values()]
    assert held == [parts().prefix]
    assert await engine.ready()


async def test_whoever_comes_when_all_places_are_taken_is_told_busy(
    engine: LmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_of(engine), "at_once", 0)
    async with asking_with_places(engine, 3) as session:
        async with session.post("/v1/plan", data=wire.encode_request(asked(1))) as response:
            assert (response.status, (await response.json())["error"]) == (503, "busy")


@asynccontextmanager
async def asking_with_places(engine: LmEngine, places: int) -> AsyncIterator[aiohttp.ClientSession]:
    from aiohttp.test_utils import TestServer

    async with TestServer(server.PlannerService(engine, max_in_flight=places).app()) as site:
        async with aiohttp.ClientSession(site.make_url("/")) as session:
            yield session


def test_the_planner_loads_the_engine_lm_from_its_settings(bundle: Path, key: Path) -> None:
    made = load_engine(PlannerConfig("lm", bundle, (key,), timeout_s=30.0), Path("/nowhere"))
    assert isinstance(made, LmEngine)
    assert (made.name, made._decoding.limit_s) == ("lm", 27.0)
    made.close()
    assert not runner_of(made)._thread.is_alive()


def test_a_bundle_of_the_other_kind_is_refused(bundle: Path, key: Path, tmp_path: Path) -> None:
    pocket = bundles.write(tmp_path / "pocket")
    with pytest.raises(BundleError, match="of kind pocket, and one of kind lm"):
        LmEngine.load(pocket, [key])


def test_a_model_too_large_for_this_machine_is_refused_in_one_line(bundle: Path, key: Path) -> None:
    with pytest.raises(StartError, match="GB are free"):
        LmEngine.load(bundle, [key], settings=replace(SETTINGS, cache_tokens=2**40))


def test_only_engines_that_batch_get_more_than_the_usual_places(engine: LmEngine) -> None:
    assert isinstance(engine, server.BatchingEngine) and engine.at_once == 140
    assert not isinstance(FakeEngine(), server.BatchingEngine)
