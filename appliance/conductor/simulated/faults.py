"""Every way in which the simulated vendor fails. Each function is one model's behaviour."""

from __future__ import annotations

from dataclasses import replace

from conductor.simulated import answers as wire
from conductor.simulated.acts import Acts, Cut, Send, Wait, answer, canned, deltas, half, plain
from conductor.simulated.answers import Json, Question

FOREVER_S = 86_400.0
_MEBIBYTE = 2**20
_HUGE_MEBIBYTES = 64


def stall(question: Question) -> Acts:
    yield Wait(FOREVER_S)


def stall_mid_stream(question: Question) -> Acts:
    yield from half(question)
    yield Wait(FOREVER_S)


def cut_before_head(question: Question) -> Acts:
    yield Cut()


def cut_before_body(question: Question) -> Acts:
    kind = "text/event-stream" if question.stream else "application/json"
    yield Send(wire.head(200, kind, {"Content-Length": "1000"}))
    yield Cut()


def cut_mid_stream(question: Question) -> Acts:
    yield from half(question)
    yield Cut()


def end_mid_stream(question: Question) -> Acts:
    """The transfer ends well, the answer does not: no finish reason, no `[DONE]`."""
    yield from half(question)
    yield Send(wire.LAST) if question.stream else Cut()


def no_done(question: Question) -> Acts:
    """All of the answer, its finish reason too, but no `[DONE]`."""
    if not question.stream:
        yield from answer(question, canned(question))
        return
    yield Send(wire.stream_head())
    for event in wire.events(question, deltas(canned(question)), "stop"):
        yield Send(wire.framed(event))
    yield Send(wire.LAST)


def finish_one(question: Question) -> Acts:
    """Of several choices only the first comes to its finish reason; no `[DONE]`."""
    yield Send(wire.stream_head())
    *begun, _ = wire.events(replace(question, include_usage=False), deltas(canned(question)), "x")
    first = wire.events(replace(question, n=1, include_usage=False), [], "stop")
    for event in [*begun, *first]:
        yield Send(wire.framed(event))
    yield Send(wire.LAST)


def empty(question: Question) -> Acts:
    yield Send(wire.stream_head() + wire.LAST if question.stream else wire.body(200, b""))


def error_in_band(question: Question) -> Acts:
    error: Json = {"error": {"message": "simulated failure", "type": "server_error", "code": None}}
    if not question.stream:
        yield Send(wire.json_answer(200, error))
        return
    yield from half(question)
    yield Send(wire.framed(wire.event(error)) + wire.LAST)


def malformed_json(question: Question) -> Acts:
    yield Send(wire.body(200, b'{"id": "chatcmpl-simulated", "choices": [{'))


def malformed_sse(question: Question) -> Acts:
    if not question.stream:
        yield from malformed_json(question)
        return
    yield from half(question)
    yield Send(wire.framed(b'data: {"id": "chatcmpl-simulated", "choices": [{\n\n') + wire.LAST)


def odd(question: Question, old: bytes, new: bytes) -> Acts:
    """A good answer but for one place in it, with the lengths put right."""
    if not question.stream:
        yield Send(wire.body(200, plain(question, canned(question)).replace(old, new)))
        return
    yield Send(wire.stream_head())
    for event in wire.events(question, deltas(canned(question)), "stop"):
        yield Send(wire.framed(event.replace(old, new)))
    yield Send(wire.framed(wire.DONE) + wire.LAST)


def lone_surrogate(question: Question) -> Acts:
    return odd(question, b"canned", rb"\ud83d")


def huge_number(question: Question) -> Acts:
    return odd(question, b'"created":1', b'"created":' + b"9" * 400)


def deep_json(question: Question) -> Acts:
    return odd(question, b'"logprobs":null', b'"logprobs":' + b"[" * 900 + b"]" * 900)


def no_choices(question: Question) -> Acts:
    return odd(question, b'"choices":[', b'"elsewhere":[')


def huge(question: Question) -> Acts:
    """64 MiB of answer, made while it is sent; in a stream it is one event without an end."""
    if question.stream:
        yield Send(wire.stream_head() + wire.framed(b'data: "'))
    else:
        length = str(_HUGE_MEBIBYTES * _MEBIBYTE + 2)
        yield Send(wire.head(200, "application/json", {"Content-Length": length}) + b'"')
    piece = b"x" * _MEBIBYTE
    for _ in range(_HUGE_MEBIBYTES):
        yield Send(wire.framed(piece) if question.stream else piece)
    yield Send(wire.framed(b'"\n\n') + wire.LAST if question.stream else b'"')


def status(question: Question, status: int, retry_after_s: int | None = None) -> Acts:
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    yield Send(wire.error_answer(status, "simulated", f"simulated status {status}", headers))


def context_length(question: Question) -> Acts:
    message = (
        "This model's maximum context length is 8192 tokens. "
        "However, your messages resulted in 9000 tokens."
    )
    yield Send(wire.error_answer(400, "context_length_exceeded", message))
