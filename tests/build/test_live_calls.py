"""Asking workers through real sockets, each thing once; and what happens when that goes wrong."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from conductor.core import Call, Failure, Price, TcpEndpoint, Usage, Worker
from conductor.errors import WorkerError
from conductor.run.messages import answer_text
from conductor.workers.http import HttpCaller
from conductor_build.live.accounts import Account, CostReached
from conductor_build.live.calls import Calls, NotRecorded, Settings
from conductor_build.live.executed import Executed
from conductor_build.live.journal import JournalError, opened, replayed
from conductor_build.live.precompute import precompute
from support.plays import Saying, game, played, worker
from support.rawpeer import answering, plain, serving, status, then_silence
from support.rawpeer import local_worker as at

QUICK = Settings(tries=3, pause_s=0.01, total_s=5, give_up=50)
DEAR = Price(0, 1_000_000)  # a dollar a token


def said(text: str, tokens: int = 3) -> bytes:
    usage = {"prompt_tokens": 5, "completion_tokens": tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    return plain(orjson.dumps({"choices": [choice], "usage": usage}))


def question(text: str = "2 + 2?", seed: int = 1, **more) -> Call:
    body = {"messages": [{"role": "user", "content": text}], "model": "m", "seed": seed, **more}
    return Call("r", orjson.dumps(body, option=orjson.OPT_SORT_KEYS), stream=False)


async def ask(calls: Calls, one: Worker, call: Call | None = None) -> str:
    async with calls.call(one, call or question()) as reply:
        return answer_text(await reply.json())


@asynccontextmanager
async def asking(path: Path, caller=None, **more) -> AsyncIterator[Calls]:
    """Calls over a journal at `path`; by default through real sockets."""
    http = HttpCaller()
    more.setdefault("settings", QUICK)
    with opened(path) as journal:
        calls = Calls(lambda one: caller or http, journal, **more)
        try:
            yield calls
        finally:
            await calls.close()
            await http.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.journal"


# -- each thing once ----------------------------------------------------------------------------


async def test_the_same_is_asked_once_also_by_a_later_run(path):
    async with serving(answering(said("4"))) as peer:
        for _ in range(2):
            async with asking(path) as calls:
                assert [await ask(calls, at(peer.endpoint)) for _ in range(3)] == ["4"] * 3
        assert len(peer.bodies) == 1
        assert (calls.account.asked, calls.account.kept) == (0, 3)


async def test_what_is_being_asked_is_waited_for(path):
    async with serving(answering(said("4"))) as peer, asking(path) as calls:
        await asyncio.gather(*(ask(calls, at(peer.endpoint)) for _ in range(20)))
        assert len(peer.bodies) == 1


async def test_another_seed_message_sampling_or_model_is_another_question(path):
    async with serving(answering(said("4"))) as peer, asking(path) as calls:
        one = at(peer.endpoint)
        for call in (question(), question("3?"), question(seed=2), question(temperature=1)):
            await ask(calls, one, call)
        await ask(calls, replace(one, model="newer"))
        await ask(calls, replace(one, price=DEAR))  # is the same worker, dearer
        assert len(peer.bodies) == 5


async def test_whoever_leaves_does_not_take_the_answer_from_the_others(path):
    async with serving(answering(said("4"))) as peer, asking(path) as calls:
        first = asyncio.create_task(ask(calls, at(peer.endpoint)))
        second = asyncio.create_task(ask(calls, at(peer.endpoint)))
        await peer.asked.wait()
        first.cancel()
        assert await second == "4"


# -- the journal --------------------------------------------------------------------------------


async def filled(path: Path, *texts: str) -> None:
    async with asking(path, Saying({"w": "4"})) as calls:
        for text in texts:
            await ask(calls, worker("w"), question(text))


async def test_a_torn_last_line_is_dropped_and_asked_anew(path):
    await filled(path, "a", "b", "c")
    whole = path.read_bytes()
    for cut in (1, 30, 100):
        path.write_bytes(whole[:-cut])
        caller = Saying({"w": "5"})
        async with asking(path, caller) as calls:
            answers = [await ask(calls, worker("w"), question(text)) for text in "abc"]
        assert answers == ["4", "4", "5"]
        assert len(caller.made) == 1


async def test_a_damaged_line_before_the_last_is_an_error_with_its_place(path):
    await filled(path, "a", "b", "c")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"4"', b'"5"'), *lines[3:]]))
    with pytest.raises(JournalError, match=r"calls\.journal:3 is damaged"), opened(path):
        pass


def test_a_file_that_is_no_journal_is_left_alone(path):
    path.write_bytes(b"important\n")
    with pytest.raises(JournalError, match="no journal"), opened(path):
        pass
    assert path.read_bytes() == b"important\n"


async def test_a_journal_is_for_its_owner_and_for_one_writer(path):
    with opened(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(JournalError, match="another run"), opened(path):
            pass
        assert len(replayed(path)) == 0


def test_a_journal_that_cannot_be_had_is_named_and_other_errors_are_left_as_they_are(tmp_path):
    with pytest.raises(JournalError, match="nowhere"), opened(tmp_path / "nowhere" / "j"):
        pass
    with pytest.raises(JournalError, match="nowhere"):
        replayed(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError), opened(tmp_path / "j"):
        (tmp_path / "elsewhere").read_bytes()


async def test_a_replay_calls_nobody_and_says_what_is_missing(path):
    await filled(path, "a")
    caller = Saying()
    calls = Calls(lambda one: caller, replayed(path))
    assert await ask(calls, worker("w"), question("a")) == "4"
    with pytest.raises(NotRecorded, match="no answer of 'w'"):
        await ask(calls, worker("w"), question("b"))
    assert not caller.made


async def test_a_finished_run_is_replayed_to_the_same_outcomes(path):
    plans = ("0 q -\n1 q Think first.\n", "1 0,1 Check both.\n")
    async with asking(path, Saying({"w0": "41"}, seconds=2.5)) as calls:
        first = await played(Executed(calls, simulated=False), game(2), *plans)
    again = Calls(lambda one: Saying(), replayed(path))
    assert await played(Executed(again, simulated=False), game(2), *plans) == first
    assert first.seconds == 5.0
    with pytest.raises(NotRecorded):
        await played(Executed(again, simulated=False), game(2), "1 q Something else.\n")


# -- limits, retries, failures ------------------------------------------------------------------


async def test_no_more_calls_run_at_once_than_the_worker_takes(path):
    running, most = 0, 0

    async def script(peer, reader, writer):
        nonlocal running, most
        while True:
            await peer.read_request(reader)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            writer.write(said("4"))

    async with serving(script) as peer, asking(path) as calls:
        one = at(peer.endpoint, max_in_flight=3)
        await asyncio.gather(*(ask(calls, one, question(str(n))) for n in range(12)))
    assert most == 3


async def test_what_fails_in_passing_is_asked_again(path):
    busy = status("503 Service Unavailable", b"{}")
    async with serving(answering(busy, busy, said("4"))) as peer, asking(path) as calls:
        assert await ask(calls, at(peer.endpoint)) == "4"
    assert calls.account.retried == 2
    assert sum(calls.account.failures.values()) == 2


@pytest.mark.parametrize(
    ("response", "void"),
    [
        (status("500 Internal Server Error", b"{}"), "worker:server_error"),
        (plain(b"<html>"), "worker:malformed"),
        (plain(b'{"choices": []'), "worker:malformed"),
        (status("401 Unauthorized", b"{}"), "worker:auth"),
        (plain(b'{"choices": [{}]}'), "worker:malformed"),
        (plain(b'{"choices": [{"text": "42"}]}'), "worker:malformed"),
        (plain(b'{"choices": [{"message": "42"}]}'), "worker:malformed"),
        (plain(b'{"choices": [{"message": {}}]}'), "worker:malformed"),
        (plain(b'{"choices": [{"message": {"content": ["42"]}}]}'), "worker:malformed"),
    ],
)
async def test_an_endpoint_that_returns_junk_makes_the_play_void(path, response, void):
    async with serving(answering(response)) as peer, asking(path) as calls:
        outcome = await played(
            Executed(calls, simulated=False), game((at(peer.endpoint),)), "0 q -\n"
        )
    assert (outcome.quality, outcome.void) == (None, void)
    assert len(replayed(path)) == 0
    assert calls.account.held_usd == 0


@pytest.mark.parametrize("seconds", [b'"x"', b"null", b"1e300", b"-5"])
async def test_an_endpoint_cannot_say_how_long_it_took(path, seconds):
    body = b'{"choices": [{"message": {"content": "42"}}], "seconds": ' + seconds + b"}"
    async with serving(answering(plain(body))) as peer, asking(path) as calls:
        outcome = await played(
            Executed(calls, simulated=False), game((at(peer.endpoint),)), "0 q -\n"
        )
    assert outcome.quality == 1
    assert 0 <= outcome.seconds < 5


@pytest.mark.parametrize(
    ("prompt", "written"), [(5, 1 << 39), (5, 31), (1 << 39, 3), (5, 0), (-1, 3)]
)
async def test_a_count_of_tokens_that_cannot_be_is_not_believed(path, prompt, written):
    usage = {"prompt_tokens": prompt, "completion_tokens": written}
    choice = {"message": {"role": "assistant", "content": "some words of an answer"}}
    body = plain(orjson.dumps({"choices": [choice], "usage": usage}))
    account = Account(max_cost_usd=100.0)
    async with serving(answering(body)) as peer, asking(path, account=account) as calls:
        one = replace(at(peer.endpoint), price=DEAR)
        await ask(calls, one, question(max_tokens=30))
    assert account.usage.completion_tokens == 6  # by its length
    assert account.usage.prompt_tokens < 100
    assert account.spent_usd == pytest.approx(6)


async def test_an_endpoint_that_is_down_or_silent_makes_the_play_void(path):
    async with serving(then_silence()) as mute, asking(path) as calls:
        slow = at(mute.endpoint, "slow", first_byte_s=0.05)
        down = at(TcpEndpoint("127.0.0.1", 1), "down")
        environment = Executed(calls, simulated=False)
        voids = [(await played(environment, game((one,)), "0 q -\n")).void for one in (slow, down)]
    assert voids == ["worker:first_byte_timeout", "worker:refused"]
    assert calls.account.failures["down:refused"] >= 1


async def test_a_worker_that_failed_often_is_left_alone_for_a_while(path):
    now = 0.0
    caller = Saying({"w": WorkerError(Failure.AUTH)})
    settings = replace(QUICK, give_up=3, rest_s=30.0)
    async with asking(path, caller, settings=settings, clock=lambda: now) as calls:
        for number in range(10):
            with pytest.raises(WorkerError, match="auth"):
                await ask(calls, worker("w"), question(str(number)))
        assert len(caller.made) == 3
        now, caller.texts = 31.0, {}
        assert await ask(calls, worker("w")) == "42"


# -- money --------------------------------------------------------------------------------------


async def test_it_stops_before_more_is_spent_than_may_be(path):
    one = replace(worker("w"), price=DEAR)
    account = Account(max_cost_usd=100.0)
    async with asking(path, Saying(), account=account) as calls:
        answered = 0
        with pytest.raises(CostReached, match="100 USD"):
            for number in range(50):
                await ask(calls, one, question(str(number), max_tokens=30))
                answered += 1
    assert (account.spent_usd, account.held_usd) == (80.0, 0.0)
    assert answered == len(replayed(path)) == 4
    assert account.usage == Usage(160, 80)


async def test_side_by_side_calls_cannot_spend_more_together_than_may_be(path):
    one = replace(worker("w"), price=DEAR)
    account = Account(max_cost_usd=100.0)
    async with asking(path, Saying(), account=account) as calls:
        tasks = (ask(calls, one, question(str(n), max_tokens=30)) for n in range(50))
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert account.spent_usd <= 100.0
    assert any(isinstance(result, CostReached) for result in results)


async def test_free_workers_and_known_answers_go_on_when_the_money_is_spent(path):
    account = Account(max_cost_usd=1.0)
    free = replace(worker("free"), price=Price())
    async with asking(path, Saying(), account=account) as calls:
        assert await ask(calls, free) == "42"
        with pytest.raises(CostReached):
            await ask(calls, replace(worker("w"), price=DEAR))
        assert await ask(calls, free) == "42"


async def test_the_limit_comes_out_of_a_play_and_is_no_void(path):
    async with asking(path, Saying(), account=Account(max_cost_usd=0.0)) as calls:
        with pytest.raises(CostReached):
            await played(Executed(calls, simulated=False), game(2), "0 q -\n1 q -\n")


def test_these_errors_may_come_out_of_another_process():
    for error in (CostReached(5.0), NotRecorded("w", "abc")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# -- ahead --------------------------------------------------------------------------------------


async def test_bare_questions_are_asked_ahead_once_and_found_by_later_plays(path):
    caller = Saying()
    async with asking(path, caller) as calls:
        environment = Executed(calls, simulated=False)
        found = await precompute(environment, [game(3), game(2), game(3)])
        assert (found.answered, sorted(caller.workers)) == (3, ["w0", "w1", "w2"])
        await played(environment, game(3), "0 q -\n1 q -\n2 q -\nvote 0,1,2 -\n")
        assert len(caller.made) == 3


async def test_what_cannot_be_had_ahead_is_counted(path):
    caller = Saying({"w0": WorkerError(Failure.AUTH)})
    async with asking(path, caller) as calls:
        found = await precompute(Executed(calls, simulated=False), [game(2)])
    assert (found.answered, dict(found.void)) == (1, {"worker:auth": 1})
