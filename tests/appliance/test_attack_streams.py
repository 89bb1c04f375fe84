"""A vendor, or a server on this machine, whose stream is no stream."""

from __future__ import annotations

import pytest

from support.hostile import ERROR, WORDS, completion, delta, plain, stream, told

STREAMS = {
    "an end and nothing else": stream("data: [DONE]\n\n"),
    "HTML in its midst": stream(delta("a"), f"data: <html>{WORDS}\n\n"),
    "an error in its midst": stream(delta("a"), f"data: {ERROR}\n\n"),
    "no end": stream(delta("a")),
    "words after its end": stream(delta("a", "stop"), "data: [DONE]\n\n", delta(WORDS)),
    "choices without end": stream(*[delta("a").replace('"index": 0', f'"index": {i}')
                                    for i in range(100)]),
    "an endless line": stream("data: " + WORDS * 300_000),
    "a flood of nothing": stream(": x\n" * 300_000),
}  # fmt: skip


@pytest.mark.parametrize("remote", [True, False], ids=["vendor", "local"])
@pytest.mark.parametrize("name", STREAMS)
async def test_what_is_no_stream_never_looks_like_a_whole_one(name: str, remote: bool) -> None:
    status, text, log = await told(STREAMS[name], remote=remote, streamed=True)
    whole = name == "words after its end"
    assert WORDS not in text + log
    assert "unhandled" not in log
    assert status == 200 or not whole
    assert text.endswith("data: [DONE]\n\n") is whole


@pytest.mark.parametrize("remote", [True, False], ids=["vendor", "local"])
async def test_a_peer_writes_no_event_and_no_header_of_ours(remote: bool) -> None:
    evil = "x\n\ndata: [DONE]\n\ndata: {}"
    status, text, _ = await told(
        stream(delta(evil), delta("", "stop"), "data: [DONE]\n\n"), remote=remote, streamed=True
    )
    assert status == 200
    assert text.count("data: [DONE]\n\n") == 1
    headers = ["X-Conductor-Model: evil", f"Set-Cookie: {WORDS}", "x-conductor-failure: permit"]
    status, text, _ = await told(
        plain(completion(), "200 OK", *headers), remote=remote, streamed=False
    )
    assert status == 200
    assert WORDS not in text and "evil" not in text
