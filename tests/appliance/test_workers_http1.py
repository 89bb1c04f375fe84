"""HTTP/1.1 without sockets: bodies that end where they say, heads that can be read in one way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.workers import http1
from conductor.workers.connection import Connection

# -- bodies -----------------------------------------------------------------------------------


CHUNKED = b"Transfer-Encoding: chunked\r\n"


def asked() -> http1.Cycle:
    cycle = http1.Cycle()
    cycle.send(http1.post("/v1", "localhost", [], b"{}"))
    return cycle


def answered(fields: bytes = b"", status_line: bytes = b"HTTP/1.1 200 OK") -> http1.Cycle:
    """A cycle whose head has come; each line of `fields` ends in CRLF."""
    cycle = asked()
    assert cycle.head(status_line + b"\r\n" + fields + b"\r\n") is not None
    return cycle


def outcome(cycle: http1.Cycle, wire: bytes, size: int) -> tuple[bytes, bool] | None:
    """Content, and whether it ended, of a body that comes in pieces; None when refused."""
    content = b""
    try:
        for at in range(0, len(wire), size):
            content += cycle.feed(wire[at : at + size])
    except http1.BadHttp:
        assert not cycle.done
        return None
    return content, cycle.done


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.integers(1, 9))
def test_a_chunked_body_is_the_same_for_every_split(chunks, size):
    wire = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\nT: x\r\n\r\n"
    body = answered(CHUNKED)
    content = b""
    for at in range(0, len(wire), size):
        assert not body.done
        content += body.feed(wire[at : at + size])
    assert content == b"".join(chunks)
    assert body.done and body.keep_alive


PARTS = [b"0", b"1", b"2", b"a", b";", b":", b" ", b"\r\n", b"\r\n", b"\r", b"\n", b"1\r\nx\r\n"]


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.integers(1, 4))
def test_no_split_makes_a_chunked_body_end_elsewhere(parts, size):
    wire = b"".join(parts)
    whole = outcome(answered(CHUNKED), wire, len(wire) + 1)
    assert outcome(answered(CHUNKED), wire, size) == whole


@pytest.mark.parametrize(
    "wire",
    [
        *(b"-1\r\n", b"0x5\r\nabcde\r\n", b"\r\n", b"5\nabcde\r\n", b" 5\r\n", b"5_0\r\n"),
        *(b"3\r\nabcd\r\n", b"1" + b"0" * 20 + b"\r\n", b"0\r\n\r\nHTTP/1.1 200 OK"),
        *(b"1;" + b"x" * 5000, b"0\r\nT: " + b"x" * 5000),
        *(b"1;" + b"x" * 5000 + b"\r\n", b"0\r\nT: " + b"x" * 5000 + b"\r\n\r\n"),
        *(b"1;\nx\r\n", b"3\r\nabc\n0\r\n\r\n", b"0\r\nno colon\r\n\r\n", b"+5\r\nabcde\r\n"),
    ],
)
def test_a_chunked_body_with_an_end_in_doubt_is_refused(wire):
    body = answered(CHUNKED)
    with pytest.raises(http1.BadHttp):
        body.feed(wire)
    assert not body.done


@pytest.mark.parametrize("fields", [b"Content-Length: 3\r\n", CHUNKED])
@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("apart", [False, True])
def test_bytes_behind_the_end_are_refused_and_leave_no_end(fields, close, apart):
    body = answered(fields + close)
    wire = b"3\r\nabc\r\n0\r\n\r\n" if fields == CHUNKED else b"abc"
    with pytest.raises(http1.BadHttp):
        if apart:
            assert body.feed(wire) == b"abc" and body.done
            body.feed(b"x")
        else:
            body.feed(wire + b"x")
    assert not body.done


def test_a_body_that_ends_early_has_not_ended():
    fixed = answered(b"Content-Length: 5\r\n")
    assert fixed.feed(b"abc") == b"abc"
    assert not fixed.end() and not fixed.done
    for wire in (b"5\r\nabcde\r\n", b"5\r\nab", b"5\r", b"0\r\n", b"0\r\nT: x\r\n"):
        chunked = answered(CHUNKED)
        chunked.feed(wire)
        assert not chunked.end() and not chunked.done
    assert answered().end()
    assert answered(b"Content-Length: 0\r\n").done


@pytest.mark.parametrize("status", [b"204 No", b"304 No"])
def test_a_status_without_a_body_ends_with_its_head_whatever_length_it_states(status):
    assert answered(b"Content-Length: 5\r\n", b"HTTP/1.1 " + status).done


@pytest.mark.parametrize("split", [True, False])
def test_a_body_of_many_steps_comes_out_whole(split):
    content = bytes(range(256)) * 500
    wire = b"1F400\r\n" + content[:128_000] + b"\r\n0\r\n\r\n" if split else content
    body = answered(CHUNKED if split else b"Content-Length: 128000\r\n")
    assert body.feed(wire) == content
    assert body.done


# -- heads ------------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "head",
    [
        # what two readers could frame differently
        OK + CHUNKED + b"Content-Length: 5\r\n",
        OK + b"content-length: 5\r\nTRANSFER-ENCODING: Chunked\r\n",
        OK + CHUNKED + CHUNKED,
        OK + b"Transfer-Encoding: chunked, chunked\r\n",
        OK + b"Transfer-Encoding: identity\r\n",
        OK + b"Transfer-Encoding: xchunked\r\n",
        OK + b"Transfer-Encoding: chunked\x0b\r\n",
        OK + b"Transfer-Encoding:\r\n",
        b"HTTP/1.0 200 OK\r\n" + CHUNKED,
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n",
        *(OK + b"Content-Length: %b\r\n" % n for n in (b"+5", b"0x5", b"5_0", b"", b"5,", b"5 5")),
        OK + b"Content-Length: " + b"9" * 21 + b"\r\n",
        OK + b"Content-Length: \xb2\r\n",
        # what hides a field, or makes one
        OK + b"Content-Length : 5\r\n",
        OK + b"A: b\r\n Content-Length: 5\r\n",
        OK + b"A: b\r\n\tfolded\r\n",
        OK + b"A: b\nContent-Length: 5\r\n",
        OK + b"A: b\rContent-Length: 5\r\n",
        OK + b"A: b\0c\r\n",
        OK + b"\r\nA: b\r\n",
        OK + b": b\r\n",
        # what is no answer of HTTP/1.0 or 1.1
        *(
            v + b" 200 OK\r\n"
            for v in (b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/11", b"http/1.1")
        ),
        *(b"HTTP/1.1 %b\r\n" % code for code in (b"20", b"2000", b"000", b"099", b"-20", b"200OK")),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n",
        *(b"\r\n" + OK, b"\n" + OK, b" " + OK, b"", b"HTTP/1.1 200 OK\n"),
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head):
    with pytest.raises(http1.BadHttp) as caught:
        asked().head(head + b"\r\n")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_interim_heads_are_read_over_and_bounded_in_their_sum():
    cycle, early = asked(), b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
    with pytest.raises(http1.BadHttp):
        for _ in range(http1.MAX_HEAD_BYTES // len(early) + 1):
            assert cycle.head(early) is None


@given(st.binary(max_size=300))
def test_no_bytes_in_place_of_a_head_do_worse_than_be_refused(data):
    with suppress(http1.BadHttp):
        asked().head(b"HTTP/1.1 200 OK\r\n" + data + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("fields", "status_line", "kept"),
    [
        (b"", b"HTTP/1.1 200 OK", True),
        (b"Connection: x, CLOSE\r\n", b"HTTP/1.1 200 OK", False),
        (b"", b"HTTP/1.0 200 OK", False),
    ],
)
def test_a_connection_is_kept_only_where_both_sides_would(fields, status_line, kept):
    cycle = answered(fields + b"Content-Length: 1\r\n", status_line)
    assert cycle.keep_alive is kept
    cycle.feed(b"x")
    assert cycle.done and cycle.keep_alive is kept


def test_repeated_header_fields_are_joined_and_names_are_in_lower_case():
    head = asked().head(b"HTTP/1.1 429 No\r\nA: 1 \r\na:2\r\nB: \xe9\r\n\r\n")
    assert head == http1.Head(429, {"a": "1, 2", "b": "é"})


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        *(("/v1", "X", bad) for bad in ("a\r\nB: c", "a\nb", "a\rb", "a\0b", "é", " a", "a ")),
        *(("/v1", bad, "a") for bad in ("X Y", "X:", "", "X\r\nY")),
        *((bad, "X", "a") for bad in ("/v1 HTTP/1.1\r\nX: y", "/a b", "", "/é")),
    ],
)
def test_a_request_that_would_say_more_than_it_was_told_is_not_made(target, name, value):
    with pytest.raises(ValueError, match="no header may hold"):
        http1.post(target, "localhost", [(name, value)], b"")


# -- turns of the loop ------------------------------------------------------------------------


async def test_a_flood_that_has_come_is_given_out_in_pieces_with_a_turn_of_the_loop_between():
    connection, flood = Connection(), b"x" * 200_000
    connection.connection_made(Mock(asyncio.Transport))
    connection.data_received(flood)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        pieces = [await connection.read()]
        while sum(map(len, pieces)) < len(flood):
            pieces.append(await connection.read())
        task.cancel()
    assert b"".join(pieces) == flood
    assert turns >= len(pieces) - 1 >= 10
