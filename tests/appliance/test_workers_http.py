"""Calling workers: what goes over the wire, every way in which it fails, and how it is aborted."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from conductor.core import Call, Failure, TcpEndpoint, UnixEndpoint, Worker
from conductor.errors import WorkerError
from conductor.workers import address
from conductor.workers.connection import Connection
from conductor.workers.http import HttpCaller
from support.rawpeer import (
    ANSWER,
    BODY,
    CHUNK,
    JSON,
    LAST,
    OK,
    SSE,
    STREAM,
    Peer,
    answering,
    chunked,
    event,
    local_worker,
    plain,
    remote_worker,
    request,
    serving,
    status,
    then_close,
    then_silence,
)
from support.soon import SOON_S, until

AT_ONCE_S = 1.0
"""What the product promises."""


@pytest.fixture
async def caller():
    caller = HttpCaller()
    yield caller
    await caller.close()


async def ask(caller: HttpCaller, worker: Worker, call: Call) -> Any:
    """The plain answer, or the list of chunks."""
    async with caller.call(worker, call) as reply:
        if call.stream:
            return [chunk async for chunk in reply.events()]
        return await reply.json()


async def failing(caller: HttpCaller, worker: Worker, call: Call | None = None) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await ask(caller, worker, call or request())
    return caught.value


async def failure_of(script: Any, *, stream: bool = False, **limits: float) -> WorkerError:
    caller = HttpCaller(max_reply_bytes=100_000)
    async with serving(script) as peer:
        error = await failing(caller, local_worker(peer.endpoint, **limits), request(stream=stream))
    await caller.close()
    return error


def client_connections() -> set[Connection]:
    # By type: `isinstance` asks every object for its class, and some of torch's warn at that.
    return {thing for thing in gc.get_objects() if type(thing) is Connection}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# -- what is sent -----------------------------------------------------------------------------


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_worker_is_sent_the_call_s_bytes_and_only_the_allowed_headers(caller, unix, stream):
    async with serving(answering(STREAM if stream else plain()), unix=unix) as peer:
        await ask(caller, local_worker(peer.endpoint), request(stream=stream))
    assert peer.bodies == [BODY]
    assert peer.heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    headers = peer.headers()
    assert set(headers) == {"host", "content-length", "content-type", "accept", "x-request-id"}
    assert headers["x-request-id"] == "req-1"
    assert headers["accept"] == ("text/event-stream" if stream else "application/json")


async def test_a_remote_call_goes_to_egress_with_its_permit_and_without_the_request_id():
    async with serving(answering(plain()), unix=True) as peer:
        assert isinstance(peer.endpoint, UnixEndpoint)
        caller = HttpCaller(peer.endpoint.path)
        await ask(caller, remote_worker(), replace(request(), permit="signed"))
        await caller.close()
    headers = peer.headers()
    assert set(headers) == {
        *("host", "content-length", "content-type", "accept"),
        *("x-conductor-permit", "x-conductor-worker"),
    }
    assert headers["x-conductor-permit"] == "signed"
    assert headers["x-conductor-worker"] == "far"
    assert peer.bodies == [BODY]


async def test_a_remote_call_without_a_permit_opens_no_socket():
    async with serving(answering(plain()), unix=True) as peer:
        assert isinstance(peer.endpoint, UnixEndpoint)
        error = await failing(HttpCaller(peer.endpoint.path), remote_worker())
    assert error.failure is Failure.PERMIT
    assert peer.connections == 0


async def test_a_remote_call_in_local_only_mode_is_refused(caller):
    error = await failing(caller, remote_worker(), replace(request(), permit="signed"))
    assert error.failure is Failure.EGRESS_DOWN


async def test_an_egress_process_that_is_not_there_is_said_to_be_down(tmp_path):
    caller = HttpCaller(tmp_path / "none.sock")
    error = await failing(caller, remote_worker(), replace(request(), permit="signed"))
    assert error.failure is Failure.EGRESS_DOWN


@pytest.mark.parametrize(
    "host",
    ["10.0.0.1", "0.0.0.0", "localhost", "vendor.invalid", "::ffff:8.8.8.8", "", "2130706433"],
)
async def test_nothing_but_a_literal_loopback_address_is_dialled(caller, host, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("a name was looked up"))
    error = await failing(caller, local_worker(TcpEndpoint(host, 9)))
    assert error.failure is Failure.REFUSED


async def test_a_worker_whose_endpoint_contradicts_its_destination_is_not_called(caller):
    async with serving(answering(plain())) as peer:
        worker = replace(remote_worker(), endpoint=peer.endpoint)
        assert (await failing(caller, worker)).failure is Failure.REFUSED
        assert peer.connections == 0


async def test_proxy_settings_of_the_environment_are_not_followed(caller, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with serving(answering(plain())) as peer:
        assert await ask(caller, local_worker(peer.endpoint), request())


async def test_a_line_break_in_a_header_value_is_never_sent(caller):
    async with serving(answering(plain())) as peer:
        with pytest.raises(ValueError, match="header"):
            await ask(
                caller, local_worker(peer.endpoint), replace(request(), request_id="a\r\nb: c")
            )
        assert peer.connections == 0


async def test_a_body_of_eight_megabytes_arrives_whole(caller):
    body = os.urandom(4 << 20).hex().encode()
    async with serving(answering(plain()), unix=True) as peer:
        await ask(caller, local_worker(peer.endpoint), request(body=body))
    assert peer.bodies == [body]


# -- answers ----------------------------------------------------------------------------------


async def test_a_plain_answer_comes_back_decoded(caller):
    async with serving(answering(plain())) as peer:
        answer = await ask(caller, local_worker(peer.endpoint), request())
    assert answer == orjson.loads(ANSWER)


async def test_a_streamed_answer_comes_chunk_by_chunk_without_the_done_mark(caller):
    async with serving(answering(STREAM)) as peer:
        chunks = await ask(caller, local_worker(peer.endpoint), request(stream=True))
    assert chunks == [orjson.loads(CHUNK), orjson.loads(LAST)]


async def test_a_stream_that_closes_after_a_finish_reason_for_every_choice_is_whole(caller):
    async with serving(then_close(SSE, event(CHUNK), event(LAST), chunked(b""))) as peer:
        assert len(await ask(caller, local_worker(peer.endpoint), request(stream=True))) == 2


async def test_an_interim_response_is_skipped(caller):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
    async with serving(answering(early + plain())) as peer:
        assert await ask(caller, local_worker(peer.endpoint), request())


async def test_a_character_split_over_chunks_is_not_broken(caller):
    text = '{"choices":[{"index":0,"delta":{"content":"日本語 🦊 é"},"finish_reason":"stop"}]}'
    data = f"data: {text}\r\n\r\ndata: [DONE]\n\n".encode()
    pieces = [chunked(data[i : i + 1]) for i in range(len(data))]
    async with serving(then_close(SSE, *pieces, chunked(b""))) as peer:
        chunks = await ask(caller, local_worker(peer.endpoint), request(stream=True))
    assert chunks == [orjson.loads(text)]


# -- broken answers ---------------------------------------------------------------------------

ONE_OF_TWO = b'{"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"delta":{"content":"a"}}]}'


@pytest.mark.parametrize(
    ("pieces", "failure", "began"),
    [
        ([SSE, event(CHUNK)], Failure.CUT, True),
        ([SSE, event(CHUNK), chunked(b"")], Failure.CUT, True),
        ([SSE, chunked(b"data: " + CHUNK)], Failure.CUT, False),
        ([SSE], Failure.CUT, False),
        ([SSE, chunked(b"")], Failure.CUT, False),
        ([SSE, event(ONE_OF_TWO), chunked(b"")], Failure.CUT, True),
        ([SSE, event(b"[DONE]"), chunked(b"")], Failure.MALFORMED, False),
        ([SSE, event(CHUNK), event(b"nonsense")], Failure.MALFORMED, True),
        ([SSE, event(b"[1]")], Failure.MALFORMED, False),
        ([SSE, event(b'{"choices":[1]}')], Failure.MALFORMED, False),
        ([SSE, event(b'{"choices":[{"index":"x"}]}')], Failure.MALFORMED, False),
        ([SSE, event(b'{"object":"ping"}')], Failure.MALFORMED, False),
        ([SSE, event(b"[" * 100_000)], Failure.MALFORMED, False),
        ([SSE, event(b'{"choices":[{"delta":{"content":"\xff"}}]}')], Failure.MALFORMED, False),
        ([SSE, event(CHUNK), b"zz\r\n"], Failure.MALFORMED, True),
        ([SSE, event(CHUNK), b"5\r\nabcdefgh"], Failure.MALFORMED, True),
        ([SSE, event(b'{"error":{"code":500,"message":"x"}}')], Failure.SERVER_ERROR, False),
        ([SSE, event(CHUNK), event(b'{"error":"x"}')], Failure.SERVER_ERROR, True),
        ([SSE, event(CHUNK), event(b'{"error":{"failure":"auth"}}')], Failure.SERVER_ERROR, True),
        ([plain()], Failure.MALFORMED, False),
        ([plain(b'{"error":{"code":429,"message":"x"}}')], Failure.RATE_LIMITED, False),
        ([SSE, chunked(b"data: " + b"x" * 3_000_000)] * 2, Failure.MALFORMED, False),
    ],
)
async def test_a_broken_stream_is_told_by_its_failure_and_whether_content_came(
    pieces, failure, began
):
    error = await failure_of(then_close(*pieces), stream=True)
    assert (error.failure, error.began) == (failure, began)


@pytest.mark.parametrize(
    ("pieces", "failure"),
    [
        ([b""], Failure.CUT),
        ([b"HTTP/1.1 200"], Failure.MALFORMED),
        ([b"SSH-2.0-x\r\n\r\n"], Failure.MALFORMED),
        ([b"HTTP/2 200\r\n\r\n"], Failure.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], Failure.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n"], Failure.MALFORMED),
        ([OK + b"X: " + b"y" * 40_000], Failure.MALFORMED),
        ([JSON + b"Content-Length: 80\r\n\r\n", ANSWER[:10]], Failure.CUT),
        ([JSON + b"Content-Length: 5, 6\r\n\r\n", ANSWER], Failure.MALFORMED),
        ([JSON + b"Content-Length: -5\r\n\r\n", ANSWER], Failure.MALFORMED),
        ([JSON + b"Content-Length: 3\r\n\r\n" + ANSWER], Failure.MALFORMED),
        ([JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n"], Failure.MALFORMED),
        ([JSON + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"], Failure.MALFORMED),
        ([JSON + b"Content-Encoding: gzip\r\n\r\n"], Failure.MALFORMED),
        ([JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nab"], Failure.CUT),
        (
            [JSON + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n" + b"x" * 200_000],
            Failure.MALFORMED,
        ),
        ([b"HTTP/1.1 103 Early\r\n\r\n" * 3000 + plain()], Failure.MALFORMED),
        ([b"HTTP/1.1 101 Switching\r\n\r\n" + plain()], Failure.MALFORMED),
        ([plain(b"{}")], Failure.MALFORMED),
        ([plain(b"null")], Failure.MALFORMED),
        ([plain(b'{"choices":[]}')], Failure.MALFORMED),
        ([plain(b'{"choices":{"0":1}}')], Failure.MALFORMED),
        ([plain(b"\xff\xfe")], Failure.MALFORMED),
        ([plain(b'{"choices":[{}],"x":"' + b"y" * 200_000 + b'"}')], Failure.MALFORMED),
        ([plain(b'{"error":{"message":"x"}}')], Failure.SERVER_ERROR),
        ([status("302 Found", headers="Location: http://127.0.0.1:9/\r\n")], Failure.MALFORMED),
        ([status("204 No Content")], Failure.MALFORMED),
    ],
)
async def test_a_broken_plain_answer_is_told_by_its_failure(pieces, failure):
    error = await failure_of(then_close(*pieces))
    assert (error.failure, error.began) == (failure, False)


async def test_a_refusal_carries_its_failure_window_and_wait(caller):
    body = (
        b'{"error":{"code":400,"type":"exceed_context_size_error","message":"request (6031 tokens)'
        b' exceeds the available context size (2048 tokens)","n_prompt_tokens":6031,"n_ctx":2048}}'
    )
    async with serving(answering(status("400 Bad Request", body))) as peer:
        error = await failing(caller, local_worker(peer.endpoint))
    assert (error.failure, error.window) == (Failure.CONTEXT_LENGTH, (2048, 6031))
    async with serving(answering(status("429 Slow", b"{}", "Retry-After: 7\r\n"))) as peer:
        error = await failing(caller, local_worker(peer.endpoint))
    assert (error.failure, error.retry_after_s) == (Failure.RATE_LIMITED, 7.0)


async def test_only_egress_may_name_the_failure_in_a_header():
    answer = status(
        "502 Bad", b"", "x-conductor-failure: permit\r\nx-conductor-reason: replayed\r\n"
    )
    async with serving(answering(answer), unix=True) as peer:
        assert isinstance(peer.endpoint, UnixEndpoint)
        caller = HttpCaller(peer.endpoint.path)
        error = await failing(caller, remote_worker(), replace(request(), permit="p"))
        assert (error.failure, error.detail) == (Failure.PERMIT, "replayed")
        error = await failing(caller, local_worker(peer.endpoint))
        assert error.failure is Failure.SERVER_ERROR
        await caller.close()


async def test_nothing_that_a_worker_says_is_repeated_in_an_error(caller):
    said = b"SECRET-SAYING"
    for answer in (
        status("500 " + said.decode(), b'{"error":{"message":"' + said + b'"}}'),
        status("400 x", said),
        said + b"\r\n\r\n",
        OK + said + b"\r\n\r\n",
        plain(b'{"error":"' + said + b'"}'),
    ):
        async with serving(then_close(answer)) as peer:
            error = await failing(caller, local_worker(peer.endpoint))
        assert "SECRET" not in f"{error} {error.detail}"
        assert error.__context__ is None or error.__suppress_context__


# -- connections ------------------------------------------------------------------------------


@pytest.mark.parametrize("response", [plain(), STREAM])
async def test_a_connection_whose_answer_was_read_to_its_end_is_used_again(caller, response):
    async with serving(answering(response)) as peer:
        for _ in range(3):
            await ask(caller, local_worker(peer.endpoint), request(stream=response is STREAM))
        assert peer.connections == 1


async def test_a_refused_call_leaves_a_connection_that_is_used_again(caller):
    async with serving(answering(status("400 Bad", b"{}"), plain())) as peer:
        await failing(caller, local_worker(peer.endpoint))
        await ask(caller, local_worker(peer.endpoint), request())
        assert peer.connections == 1


@pytest.mark.parametrize(
    "response",
    [
        plain(head=b"HTTP/1.1 200 OK\r\nConnection: close\r\n"),
        plain(head=b"HTTP/1.0 200 OK\r\n"),
        plain() + plain(b'{"choices":[{"message":{"content":"smuggled"}}]}'),
    ],
)
async def test_a_connection_that_may_not_be_clean_is_not_used_again(caller, response):
    async with serving(answering(response)) as peer:
        worker = local_worker(peer.endpoint)
        for _ in range(2):
            try:
                answer = await ask(caller, worker, request())
            except WorkerError as error:
                assert error.failure is Failure.MALFORMED
            else:
                assert answer == orjson.loads(ANSWER)
        assert peer.connections == 2


async def test_bytes_that_come_unasked_on_a_kept_connection_answer_no_request(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await peer.read_request(reader)
        writer.write(plain())
        await answered.wait()
        answered.clear()
        writer.write(plain(b'{"choices":[{"message":{"content":"smuggled"}}]}'))
        await peer.wait_hang_up(reader)

    answered, others = asyncio.Event(), client_connections()
    async with serving(script) as peer:
        for _ in range(2):
            answer = await ask(caller, local_worker(peer.endpoint), request())
            assert answer == orjson.loads(ANSWER)
            answered.set()
            await until(lambda: not all(one.clean for one in client_connections() - others))
        assert peer.connections == 2


async def test_a_kept_connection_that_died_is_replaced_once(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await peer.read_request(reader)
        writer.write(plain())
        if peer.connections == 1:
            await peer.read_request(reader)  # and close without a byte
        else:
            await peer.wait_hang_up(reader)

    async with serving(script) as peer:
        worker = local_worker(peer.endpoint)
        assert await ask(caller, worker, request())
        assert await ask(caller, worker, request())
        assert peer.connections == 2
        assert len(peer.bodies) == 3


async def test_a_fresh_connection_that_dies_is_not_tried_again(caller):
    async with serving(then_close(b"")) as peer:
        assert (await failing(caller, local_worker(peer.endpoint))).failure is Failure.CUT
        assert peer.connections == 1


async def test_an_idle_connection_is_closed_before_the_worker_would(caller, monkeypatch):
    monkeypatch.setattr(address, "KEEP_ALIVE_S", 0.05)
    async with serving(answering(plain())) as peer:
        await ask(caller, local_worker(peer.endpoint), request())
        await until(peer.hung_up.is_set)


@pytest.mark.parametrize("how", ["no such file", "nobody listens", "no such port"])
async def test_a_worker_that_is_not_there_refuses_at_once(caller, how, tmp_path):
    if how == "no such port":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint: Any = TcpEndpoint(*free.getsockname())
    else:
        endpoint = UnixEndpoint(tmp_path / "w.sock")
        if how == "nobody listens":
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(endpoint.path))
    error = await failing(caller, local_worker(endpoint))
    assert error.failure is Failure.REFUSED


async def test_two_hundred_calls_at_once_wait_for_room_in_a_backlog_of_one(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await peer.read_request(reader)
        writer.write(plain(head=b"HTTP/1.1 200 OK\r\nConnection: close\r\n"))
        await writer.drain()

    async with serving(script, unix=True, backlog=1) as peer:
        worker = local_worker(peer.endpoint, connect_s=SOON_S)
        answers = await asyncio.gather(*(ask(caller, worker, request()) for _ in range(200)))
    assert len(answers) == 200


async def test_a_backlog_that_stays_full_ends_as_a_connect_timeout(caller):
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", prefix="c-"))
        path = Path(folder) / "w.sock"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        error = await failing(caller, local_worker(UnixEndpoint(path), connect_s=0.1))
    assert error.failure is Failure.CONNECT_TIMEOUT


async def test_a_thousand_streams_at_once_leave_no_connection_open(caller):
    before = open_files()
    async with serving(then_close(STREAM), unix=True) as peer:
        worker = local_worker(peer.endpoint, connect_s=SOON_S)
        calls = (ask(caller, worker, request(stream=True)) for _ in range(1000))
        assert all(len(chunks) == 2 for chunks in await asyncio.gather(*calls))
        await caller.close()
    await until(lambda: open_files() <= before + 1)


async def test_running_out_of_files_is_no_fault_of_the_worker(caller, monkeypatch):
    def none_left(*_: object) -> None:
        raise OSError(24, "Too many open files")

    async with serving(answering(plain()), unix=True) as peer:
        monkeypatch.setattr(address.socket, "socket", none_left)
        error = await failing(caller, local_worker(peer.endpoint))
    assert error.failure is Failure.OVERLOADED


async def test_a_slow_reader_holds_the_worker_back_instead_of_filling_memory(caller):
    sent = 0

    async def script(peer: Peer, reader, writer) -> None:
        nonlocal sent
        await peer.read_request(reader)
        writer.write(SSE)
        piece = event(CHUNK.replace(b"hi", b"x" * 65_000))
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    async with serving(script, unix=True) as peer:
        async with caller.call(local_worker(peer.endpoint), request(stream=True)) as reply:
            async for _ in reply.events():
                await asyncio.sleep(0.2)
                break
            assert sent < 4_000_000


# -- timers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "stream", "timer", "failure"),
    [
        ([], False, "first_byte_s", Failure.FIRST_BYTE_TIMEOUT),
        ([b"HTTP/1.1 200 OK\r\n"], False, "first_byte_s", Failure.FIRST_BYTE_TIMEOUT),
        ([SSE], True, "first_byte_s", Failure.FIRST_BYTE_TIMEOUT),
        ([SSE, event(CHUNK)], True, "idle_s", Failure.IDLE_TIMEOUT),
        (
            [JSON + b"Content-Length: 80\r\n\r\n" + ANSWER[:9]],
            False,
            "idle_s",
            Failure.IDLE_TIMEOUT,
        ),
    ],
)
async def test_silence_ends_by_the_timer_that_belongs_to_it(pieces, stream, timer, failure):
    """The others are as long as they are by default."""
    error = await failure_of(then_silence(*pieces), stream=stream, **{timer: 0.1})
    assert error.failure is failure


async def test_a_worker_that_never_stops_ends_by_the_total_timer(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await peer.read_request(reader)
        writer.write(SSE)
        while not writer.is_closing():
            writer.write(event(CHUNK))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(script) as peer:
        worker = local_worker(peer.endpoint)
        error = await failing(caller, worker, request(stream=True, total_s=0.5))
        assert (error.failure, error.began) == (Failure.TOTAL_TIMEOUT, True)
        error = await failing(
            caller, local_worker(peer.endpoint, total_s=0.2), request(stream=True)
        )
        assert error.failure is Failure.TOTAL_TIMEOUT


async def test_a_header_dripped_byte_by_byte_does_not_hold_the_first_byte_timer(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await peer.read_request(reader)
        while not writer.is_closing():
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(script) as peer:
        error = await failing(caller, local_worker(peer.endpoint, first_byte_s=0.2))
    assert error.failure is Failure.FIRST_BYTE_TIMEOUT


async def test_comments_keep_a_stream_alive(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await peer.read_request(reader)
        writer.write(SSE)
        for _ in range(25):
            writer.write(chunked(b": still loading\n\n"))
            await asyncio.sleep(0.05)
        writer.write(event(LAST) + event(b"[DONE]") + chunked(b""))
        await writer.drain()

    async with serving(script) as peer:
        worker = local_worker(peer.endpoint, first_byte_s=1.0, idle_s=1.0)
        assert len(await ask(caller, worker, request(stream=True))) == 1


# -- cancellation -----------------------------------------------------------------------------


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("pieces", [[], [SSE], [SSE, event(CHUNK)]])
async def test_a_cancelled_call_hangs_up_at_once(caller, pieces, unix):
    async with serving(then_silence(*pieces), unix=unix) as peer:
        call = asyncio.create_task(ask(caller, local_worker(peer.endpoint), request(stream=True)))
        await peer.asked.wait()
        await asyncio.sleep(0.02)
        call.cancel()
        await until(peer.hung_up.is_set, AT_ONCE_S)
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_leaving_the_context_in_the_middle_hangs_up_at_once(caller):
    async with serving(then_silence(SSE, event(CHUNK))) as peer:
        async with caller.call(local_worker(peer.endpoint), request(stream=True)) as reply:
            async for _ in reply.events():
                break
        await until(peer.hung_up.is_set, AT_ONCE_S)


async def test_leaving_without_reading_hangs_up_at_once(caller):
    async with serving(then_silence(SSE)) as peer:
        async with caller.call(local_worker(peer.endpoint), request(stream=True)):
            pass
        await until(peer.hung_up.is_set, AT_ONCE_S)


async def test_nothing_more_of_a_long_body_is_sent_once_the_call_is_cancelled(caller):
    received = 0

    async def script(peer: Peer, reader, writer) -> None:
        nonlocal received
        await begin_reading.wait()
        while data := await reader.read(65536):
            received += len(data)
        peer.hung_up.set()

    begin_reading = asyncio.Event()
    body = b"x" * (8 << 20)
    async with serving(script, unix=True) as peer:
        call = asyncio.create_task(ask(caller, local_worker(peer.endpoint), request(body=body)))
        await asyncio.sleep(0.1)
        call.cancel()
        begin_reading.set()
        await until(peer.hung_up.is_set, AT_ONCE_S)
        with pytest.raises(asyncio.CancelledError):
            await call
    assert received < len(body) // 2


async def test_an_early_refusal_is_read_though_the_body_was_not(caller):
    async def script(peer: Peer, reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(status("413 Too Large", b"{}"))
        await writer.drain()
        await read.wait()

    read = asyncio.Event()
    async with serving(script) as peer:
        error = await failing(caller, local_worker(peer.endpoint), request(body=b"x" * (8 << 20)))
        read.set()
    assert error.failure is Failure.BAD_REQUEST
