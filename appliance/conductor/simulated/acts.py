"""What an answer is made of: acts, and the pieces that behaviours share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from conductor.simulated import answers as wire
from conductor.simulated.answers import Json, Question


@dataclass(frozen=True)
class Send:
    data: bytes


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Cut:
    """Close the connection, whatever was promised."""


Act = Send | Wait | Cut
Acts = Iterator[Act]


def send(data: bytes) -> Acts:
    """One act."""
    yield Send(data)


def canned(question: Question) -> list[str]:
    """The words of every answer that has nothing better to say."""
    words = f"[simulated] A canned answer of {question.model}; no model was asked."
    return re.findall(r"\S+\s*", words)


def deltas(pieces: Sequence[str]) -> list[Json]:
    """A streamed message of text."""
    return [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]


def plain(question: Question, pieces: Sequence[str], finish: str = "stop") -> bytes:
    """The body of a plain answer of text."""
    message = {"role": "assistant", "content": "".join(pieces), "refusal": None}
    return orjson.dumps(wire.whole(question, message, finish, len(pieces)))


def answer(question: Question, pieces: Sequence[str], finish: str = "stop") -> Acts:
    """A good answer of text, whichever way it was asked for."""
    if not question.stream:
        yield Send(wire.body(200, plain(question, pieces, finish)))
        return
    yield Send(wire.stream_head())
    for event in wire.events(question, deltas(pieces), finish):
        yield Send(wire.framed(event))
    yield Send(wire.framed(wire.DONE) + wire.LAST)


def half(question: Question) -> Acts:
    """A good beginning: three events, or the head and half of a plain body."""
    if question.stream:
        yield Send(wire.stream_head())
        for event in list(wire.events(question, deltas(canned(question)), "stop"))[:3]:
            yield Send(wire.framed(event))
    else:
        data = wire.body(200, plain(question, canned(question)))
        yield Send(data[: len(data) - 80])
