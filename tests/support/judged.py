"""An appliance that keeps judged questions, and judging them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from conductor.feedback.record import Answered, PlannedRound
from support.appliance import Box
from support.configs import KEY, Tree

KEEPS: Tree = {"feedback": {"max_label": "internal"}}
"""What turns it on: the sites of tests label everything `internal` to begin with."""


async def judge(
    box: Box, request_id: object, score: object = 1, *, key: str = KEY
) -> httpx.Response:
    """One judgement."""
    return await post(box, {"request_id": request_id, "score": score}, key=key)


async def post(box: Box, body: object, *, key: str = KEY) -> httpx.Response:
    """Whatever is sent as one; bytes as they are."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with box.http(key) as http:
        return await http.post("/v1/feedback", content=raw)


def folder(box: Box) -> Path:
    return box.site.appliance.paths.feedback


def lines(where: Box | Path) -> list[dict[str, Any]]:
    """What has been written, the oldest file first."""
    at = where if isinstance(where, Path) else folder(where)
    files = [*sorted(at.glob("feedback.*.jsonl"), reverse=True), at / "feedback.jsonl"]
    texts = (path.read_text() for path in files if path.exists())
    return [json.loads(line) for text in texts for line in text.splitlines()]


def answered(request_id: str = "req_1", **changed: Any) -> Answered:
    """One that waits, of the key `app`."""
    planned = PlannedRound("0 q -\n", ("a",), "pocket", "planner", "f" * 64, False, -0.25)
    given: dict[str, Any] = {
        "request_id": request_id,
        "key_id": "app",
        "question": "How many?",
        "answer": "The answer is 12.",
        "worker": "a",
        "step": 0,
        "round": 0,
        "output_tokens": 5,
        "cost_usd": 0.0,
        "cost_weight": 0.03,
        "rounds": (planned,),
    }
    return Answered(**{**given, **changed})
