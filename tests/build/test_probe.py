"""Measuring workers through real sockets: what is right, what is void, and how it goes on."""

from __future__ import annotations

import asyncio
import errno
import io
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from conductor.core import Price, TcpEndpoint, Worker
from conductor.workers.http import HttpCaller
from conductor_build.probe import Probe, Settings
from conductor_build.probe_cards import document
from conductor_build.probe_journal import Asked, ProbeError, digest_of, opened
from conductor_build.tasks.common import Example, Void, VoidReason
from support.rawpeer import local_worker, plain, serving, status, then_silence

QUICK = Settings(tries=2, pause_s=0.01, total_s=5)


class Sums:
    """`n + n?`, answered by 2n. One question's verifier can be broken."""

    def __init__(self, count: int, broken: int | None = None) -> None:
        self.count, self.broken = count, broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        return Example(str(index), f"{index} + {index}?")

    def score(self, example: Example, answer: str) -> float:
        if self.broken is not None and example.key == str(self.broken):
            raise Void(VoidReason.CRASHED)
        return float(answer == str(2 * int(example.key)))

    def domain(self, example: Example) -> str:
        return "math" if int(example.key) % 2 else "general"


def said(text: str, tokens: int = 3) -> bytes:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 5, "completion_tokens": tokens}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return plain(orjson.dumps({"choices": [choice], "usage": usage}))


def adding(wrong: frozenset[int] = frozenset()):
    """A server that adds, wrongly where told."""

    async def script(peer, reader, writer):
        while True:
            await peer.read_request(reader)
            number = int(orjson.loads(peer.bodies[-1])["messages"][0]["content"].split()[0])
            writer.write(said("?" if number in wrong else str(2 * number)))
            await writer.drain()

    return script


def always(*pieces: bytes):
    async def script(peer, reader, writer):
        while True:
            await peer.read_request(reader)
            writer.write(b"".join(pieces))
            await writer.drain()

    return script


async def measured(
    path: Path, task: Sums, *workers: Worker, settings: Settings = QUICK
) -> list[Asked]:
    caller, seen = HttpCaller(), []
    with opened(path, digest_of(task), settings.digest()) as journal:
        probe = Probe(task, lambda worker: caller, settings, lambda row, left: seen.append(row))
        try:
            await probe.run(workers, journal)
        finally:
            await caller.close()
        return list(journal.rows)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cards.json.journal"


async def test_a_worker_is_asked_everything_once_and_scored(path):
    async with serving(adding(wrong=frozenset({1, 2}))) as peer:
        rows = await measured(path, Sums(6), local_worker(peer.endpoint))
    assert {row.key: row.score for row in rows} == {"0": 1, "1": 0, "2": 0, "3": 1, "4": 1, "5": 1}
    assert all(row.output_tokens == 3 and row.seconds > 0 for row in rows)
    sent = orjson.loads(peer.bodies[0])
    assert sent["model"] == "m"
    assert (sent["max_tokens"], sent["temperature"]) == (512, 0.0)


@pytest.mark.parametrize(
    ("answer", "void"),
    [
        (status("500 Internal Server Error", b"{}"), "worker:server_error"),
        (plain(b"<html>"), "worker:malformed"),
        (plain(b'{"choices": []'), "worker:malformed"),
        (status("401 Unauthorized", b"{}"), "worker:auth"),
        (plain(b'{"choices": [{}]}'), "worker:malformed"),
        (plain(b'{"choices": [{"message": "2"}]}'), "worker:malformed"),
    ],
)
async def test_an_endpoint_that_gives_no_answer_is_void_and_given_up(path, answer, void):
    async with serving(always(answer)) as peer:
        rows = await measured(path, Sums(50), local_worker(peer.endpoint))
    assert {(row.score, row.void) for row in rows} == {(None, void)}
    assert len(rows) == QUICK.give_up


async def test_an_endpoint_that_is_down_or_silent_does_not_hold_up_the_others(path):
    down = local_worker(TcpEndpoint("127.0.0.1", 1), "down")
    async with serving(adding()) as peer, serving(then_silence()) as mute:
        slow = local_worker(mute.endpoint, "slow", first_byte_s=0.05)
        rows = await measured(path, Sums(8), down, slow, local_worker(peer.endpoint, "up"))
    voids = {name: {row.void for row in rows if row.worker == name} for name in ("down", "slow")}
    assert voids == {"down": {"worker:refused"}, "slow": {"worker:first_byte_timeout"}}
    assert sum(row.score == 1 for row in rows if row.worker == "up") == 8


async def test_what_fails_in_passing_is_asked_again(path):
    answers = iter([status("503 Service Unavailable", b"{}"), said("0")])

    async def script(peer, reader, writer):
        await peer.read_request(reader)
        writer.write(next(answers))
        await writer.drain()
        writer.close()

    async with serving(script) as peer:
        rows = await measured(path, Sums(1), local_worker(peer.endpoint))
    assert [row.score for row in rows] == [1.0]


async def test_a_broken_verifier_is_void_and_no_wrong_answer(path):
    async with serving(adding()) as peer:
        rows = await measured(path, Sums(3, broken=1), local_worker(peer.endpoint))
    assert {row.key: (row.score, row.void) for row in rows}["1"] == (None, "verifier:crashed")
    assert sum(row.score == 1 for row in rows) == 2


async def test_a_killed_probe_goes_on_where_it_was_and_asks_voids_again(path):
    async with serving(adding()) as peer:
        worker = local_worker(peer.endpoint)
        await measured(path, Sums(6, broken=2), worker)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:5]) + lines[5][:20])  # killed while writing
        peer.bodies.clear()
        rows = await measured(path, Sums(6), worker)
    asked = {orjson.loads(body)["messages"][0]["content"] for body in peer.bodies}
    assert asked == {"2 + 2?", "4 + 4?", "5 + 5?"}
    cards = document([worker], rows, {})["workers"]["w"]
    assert sum(one["asked"] for one in cards["domains"].values()) == 6
    assert cards["void"] == {}


async def test_another_model_behind_the_same_id_is_asked_anew(path):
    async with serving(adding()) as peer:
        worker = local_worker(peer.endpoint)
        await measured(path, Sums(2), worker)
        await measured(path, Sums(2), replace(worker, model="newer"))
    assert len(peer.bodies) == 4


async def test_it_stops_at_the_cost_that_was_set(path):
    dear = Price(0, 1_000_000)  # a dollar a token
    async with serving(adding()) as peer:
        worker = replace(local_worker(peer.endpoint), price=dear)
        settings = replace(QUICK, max_cost_usd=7.0)
        rows = await measured(path, Sums(50), worker, settings=settings)
    assert sum(row.usd for row in rows) == 9.0  # three answers of three tokens


async def test_no_more_questions_run_at_once_than_the_worker_takes(path):
    running, most = 0, 0

    async def script(peer, reader, writer):
        nonlocal running, most
        while True:
            await peer.read_request(reader)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1
            writer.write(said("0"))

    async with serving(script) as peer:
        worker = local_worker(peer.endpoint, max_in_flight=3)
        await measured(path, Sums(12), worker, settings=replace(QUICK, at_once=8))
    assert most == 3


def test_a_journal_of_other_questions_or_damaged_is_refused(path):
    with opened(path, "a", "s") as journal:
        journal.add(Asked("w", "i", "k", "math", 1.0))
    for tasks, settings in (("b", "s"), ("a", "t")):
        with pytest.raises(ProbeError, match="other questions or settings"):
            with opened(path, tasks, settings):
                pass
    path.write_bytes(path.read_bytes() + b"{]\n")
    with pytest.raises(ProbeError, match="damaged"):
        with opened(path, "a", "s"):
            pass


class FullDisk(io.BytesIO):
    def flush(self):
        raise OSError(errno.ENOSPC, "full")


def test_a_full_disk_stops_the_probe_with_a_clear_error(path, monkeypatch):
    monkeypatch.setattr(Path, "open", lambda *_: FullDisk())
    with pytest.raises(ProbeError, match=r"cannot be used \(No space"):
        with opened(path, "a", "s"):
            pass
    monkeypatch.setattr(FullDisk, "flush", lambda _: None)
    with opened(path, "a", "s") as journal:
        monkeypatch.undo()
        with pytest.raises(ProbeError, match=r"cannot be used \(No space"):
            journal.add(Asked("w", "i", "k", "math", 1.0))
        assert journal.rows == []


def test_a_fault_of_the_probe_itself_is_not_called_a_fault_of_its_journal(path):
    with pytest.raises(ConnectionError):
        with opened(path, "a", "s"):
            raise ConnectionError


def test_a_journal_holds_neither_questions_nor_answers(path):
    with opened(path, "a", "s") as journal:
        journal.add(Asked("w", "i", "k", "math", 1.0))
    assert set(orjson.loads(path.read_bytes().splitlines()[1])) == {
        "worker", "identity", "key", "domain", "score", "void", "prompt_tokens", "output_tokens",
        "seconds", "usd",
    }  # fmt: skip
