"""A real embedded model in a process of its own, on a Unix socket."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from conductor.core import Call, Failure, UnixEndpoint, Worker
from conductor.errors import WorkerError
from conductor.process.probe import answers
from conductor.workers.catalogue import load_catalogue
from conductor.workers.fetch import locate
from conductor.workers.http import HttpCaller
from support.rawpeer import local_worker
from support.soon import SOON_S, until, until_now

pytestmark = pytest.mark.model

ROOT = Path(__file__).resolve().parents[2]
SECRET = "HERON-4711"

SCRIPT = """
import sys
from pathlib import Path
from conductor.logs import configure
from conductor.workers.embedded import EmbeddedModel, own_log_stream, run_embedded

configure("json", "info", own_log_stream())
model = EmbeddedModel(Path(sys.argv[1]), "tiny", 1024, 256, parallel=2)
run_embedded(model, Path(sys.argv[2]))
"""


def model_path() -> Path:
    folder = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
    path = locate(folder, load_catalogue()["smollm2-135m"])
    if path is None:
        pytest.skip("run 'conductor models pull smollm2-135m' first")
    return path


class Process:
    """The worker process, with a log file that is read back."""

    def __init__(self, folder: Path, path: Path | None = None) -> None:
        self.socket = folder / "w.sock"
        self.log_path = folder / "log"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(path or model_path()), str(self.socket)],
                stderr=log,
                stdout=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    @property
    def worker(self) -> Worker:
        return local_worker(UnixEndpoint(self.socket))

    def log(self) -> str:
        return self.log_path.read_text()

    def wait_ready(self) -> None:
        until_now(lambda: self.process.poll() is not None or self.healthy())
        assert self.process.poll() is None, self.log()

    def healthy(self) -> bool:
        return asyncio.run(answers(self.socket, "/health"))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="c-"))
    running = Process(path)
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()
        shutil.rmtree(path)


@pytest.fixture
async def caller():
    caller = HttpCaller()
    yield caller
    await caller.close()


def request(text: str, *, stream: bool = False, **more: Any) -> Call:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
        "max_tokens": 16,
        "temperature": 0,
        **more,
    }
    return Call("req-1", orjson.dumps(body), stream, total_s=60.0)


async def ask(caller: HttpCaller, process: Process, call: Call) -> Any:
    async with caller.call(process.worker, call) as reply:
        if call.stream:
            return [chunk async for chunk in reply.events()]
        return await reply.json()


async def test_a_plain_answer_names_the_alias_and_its_usage(caller, process):
    answer = await ask(caller, process, request("Say hello."))
    assert answer["model"] == "tiny"
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0
    assert ".gguf" not in str(answer)


async def test_a_streamed_answer_gives_the_same_words_and_its_usage(caller, process):
    plain = await ask(caller, process, request("Name a colour."))
    options = {"stream_options": {"include_usage": True}}
    chunks = await ask(caller, process, request("Name a colour.", stream=True, **options))
    words = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    assert "".join(words) == plain["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


async def test_a_json_schema_is_kept_to(caller, process):
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    answer = await ask(caller, process, request("How old?", response_format=form, max_tokens=40))
    assert set(orjson.loads(answer["choices"][0]["message"]["content"])) == {"age"}


async def test_a_prompt_over_the_window_is_told_with_its_length(caller, process):
    with pytest.raises(WorkerError) as caught:
        await ask(caller, process, request("word " * 3000))
    assert caught.value.failure is Failure.CONTEXT_LENGTH
    assert caught.value.window is not None
    assert caught.value.window[0] == 1024 and caught.value.window[1] > 3000


@pytest.mark.parametrize("stream", [False, True])
async def test_generations_that_nobody_waits_for_stop_and_the_next_request_is_served(
    caller, process, stream
):
    start_s = time.monotonic()
    await ask(caller, process, request("Count.", max_tokens=20, ignore_eos=True))
    token_s = (time.monotonic() - start_s) / 20
    endless = request("Count.", stream=stream, max_tokens=900, ignore_eos=True)
    calls = [asyncio.create_task(ask(caller, process, endless)) for _ in range(4)]
    await asyncio.sleep(0.5)
    assert not any(call.done() for call in calls)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    # Without the cancellation four times 900 tokens would come first.
    async with asyncio.timeout(max(20.0, 900 * token_s)):
        assert await ask(caller, process, request("Hi.", max_tokens=4))


async def test_one_request_does_not_show_what_another_has_sent(caller, process):
    for _ in range(2):
        answer = await ask(caller, process, request("The same long beginning. " * 20))
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_nothing_of_a_request_is_in_the_log(caller, process):
    call = request("x")
    for body in (
        b'{"messages": ' + SECRET.encode(),
        call.body.replace(b'"x"', b'"' + SECRET.encode() + b' \\ud800 "'),
        call.body.replace(b'"user"', b'"' + SECRET.encode() + b'"'),
        orjson.dumps({"messages": SECRET}),
        orjson.dumps({**orjson.loads(call.body), "response_format": {"type": SECRET}}),
    ):
        try:
            await ask(caller, process, replace(call, body=body))
        except WorkerError as error:
            assert SECRET not in str(error)
    assert await ask(caller, process, request(SECRET))
    assert SECRET not in process.log()
    assert [orjson.loads(line)["event"] for line in process.log().splitlines()] == [
        "loading",
        "listening",
    ]


async def test_an_image_address_is_not_fetched(caller, process):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
    image = [{"type": "image_url", "image_url": {"url": url}}]
    with listener:
        with pytest.raises(WorkerError) as caught:
            await ask(caller, process, request(image))  # type: ignore[arg-type]
        assert caught.value.failure is Failure.BAD_REQUEST
        with pytest.raises(TimeoutError):
            listener.accept()


def test_the_socket_is_for_its_owner_only(process):
    assert stat.S_IMODE(process.socket.stat().st_mode) == 0o600


def test_a_second_worker_on_the_same_socket_is_refused(process):
    second = Process(process.socket.parent)
    assert second.process.wait(SOON_S) != 0
    assert "another worker runs" in process.log()
    process.log_path.write_text("")
    assert asyncio.run(answers(process.socket, "/health"))


async def test_sigterm_stops_it_without_waiting_for_what_it_generates(folder, caller):
    process = Process(folder)
    try:
        await asyncio.to_thread(process.wait_ready)
        endless = request("Count.", stream=True, max_tokens=900, ignore_eos=True)
        chunks: list[Any] = []

        async def read() -> None:
            async with caller.call(process.worker, endless) as reply:
                async for chunk in reply.events():
                    chunks.append(chunk)

        call = asyncio.create_task(read())
        await until(lambda: len(chunks) > 3)
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.process.wait, SOON_S) == 0
        with pytest.raises(WorkerError) as caught:
            await call
        assert caught.value.failure is Failure.CUT
        assert len(chunks) < 600, "it generated all that was asked for"
        assert not process.socket.exists()
    finally:
        process.stop()


def test_sigterm_stops_it_also_while_it_loads(folder):
    process = Process(folder)
    try:
        while "loading" not in process.log():
            time.sleep(0.005)
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(SOON_S) in (0, -signal.SIGTERM)
    finally:
        process.stop()


async def test_a_killed_worker_s_socket_is_taken_over(folder, caller):
    first = Process(folder)
    second = None
    try:
        await asyncio.to_thread(first.wait_ready)
        first.stop()
        assert first.socket.exists()
        second = Process(folder)
        await asyncio.to_thread(second.wait_ready)
        assert await ask(caller, second, request("Hi.", max_tokens=2))
    finally:
        first.stop()
        if second is not None:
            second.stop()


@pytest.mark.parametrize("what", ["no model", "no socket"])
def test_what_it_cannot_use_is_told_and_left_alone(folder, what):
    path = None
    if what == "no model":
        path = folder / "garbage.gguf"
        path.write_bytes(os.urandom(4096))
    else:
        (folder / "w.sock").write_text("mine")
    process = Process(folder, path)
    assert process.process.wait(SOON_S) != 0
    assert "StartError" in process.log()
    if what == "no socket":
        assert (folder / "w.sock").read_text() == "mine"
