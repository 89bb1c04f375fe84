"""`POST /v1/feedback {"request_id": ..., "score": 0 to 1}`: what a caller says of an answer."""

from __future__ import annotations

from aiohttp import web

from conductor.api.bodies import BodyGate
from conductor.api.envelope import json_response
from conductor.api.middleware import KEY
from conductor.chat.jsonbody import read_object
from conductor.core import Body
from conductor.errors import BadRequest, NotFound, TooLarge
from conductor.feedback.book import FeedbackBook

MAX_BYTES = 4096
_FIELDS = ("request_id", "score")


class FeedbackHandler:
    """The endpoint; without a book it is not there."""

    def __init__(self, book: FeedbackBook | None, gate: BodyGate) -> None:
        self._book = book
        self._gate = gate

    async def __call__(self, request: web.Request) -> web.Response:
        if self._book is None:
            raise NotFound(
                "This appliance keeps no feedback. An administrator may turn it on "
                "(feedback.max_label)."
            )
        if (request.content_length or 0) > MAX_BYTES:
            raise _too_large()
        async with self._gate.body(request) as raw:
            if len(raw) > MAX_BYTES:
                raise _too_large()
            body = read_object(raw)
        request_id, score = _request_id(body), _score(body)
        recorded = await self._book.judge(request[KEY].id, request_id, score)
        answer = {
            "object": "conductor.feedback",
            "request_id": request_id,
            "recorded": recorded,
        }
        return json_response(request, answer)


def _too_large() -> TooLarge:
    return TooLarge(f"A judgement has at most {MAX_BYTES} bytes: request_id and score.")


def _request_id(body: Body) -> str:
    if not set(body) <= set(_FIELDS):
        raise BadRequest("A judgement has the fields request_id and score, and no other.")
    value = body.get("request_id")
    if not isinstance(value, str) or not value:
        raise BadRequest("'request_id' must be the x-request-id of an answer.", param="request_id")
    return value


def _score(body: Body) -> float:
    value = body.get("score")
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else -1
    if not 0 <= number <= 1:  # there is no NaN: `read_object`
        raise BadRequest("'score' must be a number from 0 to 1.", param="score")
    return float(number)
