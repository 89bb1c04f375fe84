"""One real play: a plan over a real small model behind a real socket, and its replay."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conductor.core import UnixEndpoint, Worker
from conductor.process.probe import answers
from conductor.workers.catalogue import load_catalogue
from conductor.workers.fetch import locate
from conductor.workers.http import HttpCaller
from conductor_build.live.calls import Calls
from conductor_build.live.executed import Executed, Sampling
from conductor_build.live.journal import opened, replayed
from conductor_build.tasks.sketches import Sketches
from support.plays import game, played
from support.rawpeer import local_worker
from support.soon import until_now

pytestmark = pytest.mark.model

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from pathlib import Path
from conductor.logs import configure
from conductor.workers.embedded import EmbeddedModel, own_log_stream, run_embedded

configure("json", "info", own_log_stream())
run_embedded(EmbeddedModel(Path(sys.argv[1]), "tiny", 512, 64, parallel=2), Path(sys.argv[2]))
"""
PLAN = "0 q -\n1 q,0 Check this, and give the number alone.\n"


@pytest.fixture
def small() -> Iterator[Worker]:
    folder = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
    path = locate(folder, load_catalogue()["smollm2-135m"])
    if path is None:
        pytest.skip("run 'conductor models pull smollm2-135m' first")
    room = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    socket = room / "w.sock"
    arguments = [sys.executable, "-c", SCRIPT, str(path), str(socket)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(arguments, env=environ, stderr=subprocess.DEVNULL)
    try:
        until_now(lambda: asyncio.run(answers(socket, "/health")))
        yield local_worker(UnixEndpoint(socket), "small", context_tokens=512, max_in_flight=2)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(room)


def test_a_plan_is_played_on_a_real_model_and_replayed_without_it(small, tmp_path):
    path = tmp_path / "calls.journal"
    pool = (small, replace(small, id="same"))
    dealt = game(pool, task=Sketches(1, seed=1, difficulty=(1, 1)))
    sampling = Sampling(temperature=0.2, max_tokens=12)

    async def live():
        caller = HttpCaller()
        with opened(path) as journal:
            calls = Calls(lambda one: caller, journal)
            outcome = await played(Executed(calls, simulated=False, sampling=sampling), dealt, PLAN)
        await caller.close()
        return outcome

    async def again():
        calls = Calls(lambda one: HttpCaller(), replayed(path))
        return await played(Executed(calls, simulated=False, sampling=sampling), dealt, PLAN)

    outcome = asyncio.run(live())
    assert (outcome.void, outcome.calls, outcome.used) == (None, 2, (0, 1))
    assert outcome.prompt_tokens > 40
    assert 2 <= outcome.output_tokens <= 24
    assert outcome.seconds > 0.01
    assert asyncio.run(again()) == outcome
