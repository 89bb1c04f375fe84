"""`conductor-build probe` on a site: cards, exit codes, remote workers by way of the appliance."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager

import orjson
import pytest
from click.testing import CliRunner

from conductor.core import Call, Failure
from conductor.errors import WorkerError
from conductor_build.probe_api import ApiCaller
from conductor_build.probe_cards import read_cards
from conductor_build.probe_cli import KEY, probe
from support.configs import local_worker, remote_worker, write_site
from support.rawpeer import plain, serving, status
from support.rawpeer import remote_worker as far_worker

QUESTIONS = (
    {"question": "2 + 2?", "answer": 4, "domain": "math"},
    {"question": "Capital of France?", "answer": "Paris"},
)


def said(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return plain(orjson.dumps({"choices": [choice]}))


@contextmanager
def answering(*answers: bytes):
    """A server in a thread of its own that gives these answers in turn; yields its peer."""
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), []
    turn = [0]

    async def script(peer, reader, writer):
        while True:
            await peer.read_request(reader)
            writer.write(answers[turn[0] % len(answers)])
            turn[0] += 1
            await writer.drain()

    async def serve(done: asyncio.Event) -> None:
        async with serving(script) as peer:
            found.append(peer)
            ready.set()
            await done.wait()

    done = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(done)))
    thread.start()
    ready.wait(5)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(5)
        loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()


def asked(folder, *workers, appliance=None, options=()):
    site = folder / "site"
    site.mkdir(exist_ok=True)
    write_site(site, workers=workers, appliance=appliance)
    tasks = folder / "mine.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    words = [str(site), "--out", str(folder / "cards.json"), "--tasks", str(tasks), *options]
    return CliRunner().invoke(probe, words)


def test_cards_are_measured_and_written(tmp_path):
    with answering(said("It is 4."), said("Lyon")) as peer:
        result = asked(tmp_path, local_worker("small", port=peer.endpoint.port))
    assert result.exit_code == 0, result.output
    card = read_cards(tmp_path / "cards.json")["small"]
    assert card.skill == {"general": 0.0, "math": 1.0}
    assert "source: measured" in result.output
    assert "small: 0 left; 0.50 right of 2" in result.output


def test_a_second_run_asks_nothing_again(tmp_path):
    with answering(said("It is 4."), said("Paris")) as peer:
        worker = local_worker("small", port=peer.endpoint.port)
        first, second = asked(tmp_path, worker), asked(tmp_path, worker)
    assert (first.exit_code, second.exit_code, len(peer.bodies)) == (0, 0, 2)


def test_a_worker_that_is_down_has_no_card_and_the_others_have(tmp_path):
    with answering(said("It is 4.")) as peer:
        up, down = local_worker("up", port=peer.endpoint.port), local_worker("down", port=9)
        result = asked(tmp_path, up, down)
    assert result.exit_code == 1
    assert set(read_cards(tmp_path / "cards.json")) == {"up"}
    found = orjson.loads((tmp_path / "cards.json").read_bytes())
    assert found["workers"]["down"]["void"] == {"worker:refused": 2}


def test_other_questions_need_another_journal(tmp_path):
    (tmp_path / "cards.json.journal").write_text('{"probe":1,"tasks":"x","settings":"y"}\n')
    result = asked(tmp_path, local_worker("small", port=9))
    assert result.exit_code == 2
    assert "other questions or settings" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--worker", "nobody"), "no worker 'nobody'"),
        ((), "no worker to be asked"),
        (("--remote",), f"put a key into {KEY}"),
    ],
)
def test_what_cannot_be_asked_is_an_error(tmp_path, monkeypatch, options, message):
    monkeypatch.delenv(KEY, raising=False)
    result = asked(tmp_path, remote_worker("far"), options=options)
    assert result.exit_code == 2
    assert message in result.output


def test_remote_workers_are_asked_through_the_appliance_by_their_ids(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, "the-key")
    with answering(said("4")) as peer:
        api = {"api": {"host": "127.0.0.1", "port": peer.endpoint.port}}
        result = asked(tmp_path, remote_worker("far"), appliance=api, options=("--remote",))
    assert result.exit_code == 0, result.output
    assert peer.headers()["authorization"] == "Bearer the-key"
    assert orjson.loads(peer.bodies[0])["model"] == "far"
    assert "the-key" not in result.output
    assert "the-key" not in (tmp_path / "cards.json.journal").read_text()


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (status("403 Forbidden", b"{}"), Failure.PERMIT),
        (status("401 Unauthorized", b"{}"), Failure.AUTH),
        (status("429 Too Many", b"{}"), Failure.RATE_LIMITED),
        (status("500 Oops", b"{}"), Failure.SERVER_ERROR),
        (plain(b"junk"), Failure.MALFORMED),
    ],
)
async def test_what_the_appliance_refuses_is_a_failure_and_no_answer(answer, failure):
    async def script(peer, reader, writer):
        await peer.read_request(reader)
        writer.write(answer)
        writer.close()

    call = Call("r", b'{"model": "m"}', stream=False)
    async with serving(script) as peer:
        caller = ApiCaller(f"http://127.0.0.1:{peer.endpoint.port}/v1", "k")
        with pytest.raises(WorkerError) as caught:
            async with caller.call(far_worker(), call) as reply:
                await reply.json()
    assert caught.value.failure == failure


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end():
    whole = said("4" * 5000)

    async def script(peer, reader, writer):
        await peer.read_request(reader)
        for piece in (whole[:300], whole[300:2000], whole[2000:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async with serving(script) as peer:
        caller = ApiCaller(f"http://127.0.0.1:{peer.endpoint.port}/v1", "k")
        async with caller.call(far_worker(), Call("r", b"{}", stream=False)) as reply:
            body = await reply.json()
    assert body["choices"][0]["message"]["content"] == "4" * 5000


async def test_an_appliance_that_is_down_refuses():
    with pytest.raises(WorkerError) as caught:
        async with ApiCaller("http://127.0.0.1:9/v1", "k").call(
            far_worker(), Call("r", b"{}", stream=False)
        ):
            pass
    assert caught.value.failure == Failure.REFUSED
