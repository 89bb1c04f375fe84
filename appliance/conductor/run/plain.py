"""Plain answers: shaped as a stream of one chunk, so that the two modes cannot disagree, and given
later, when they were held back. Pure.
"""

from __future__ import annotations

from conductor.core import Body, Usage
from conductor.run.answers import usage_body
from conductor.run.stream import ChunkShaper, malformed


def shape_plain(
    body: Body,
    id: str,
    created: int,
    model: str,
    *,
    prompt_tokens: int = 0,
    earlier: Usage | None = None,
) -> tuple[Body, Usage]:
    """Shape a plain answer; returns it with the worker's usage (estimated when not reported).

    The answer's own `usage` also counts `earlier`, what other steps of the same request used.

    Raises:
        WorkerError: MALFORMED, for what is no chat completion.
    """
    shaper = ChunkShaper(id, created, model, False, prompt_tokens=prompt_tokens)
    chunks = shaper.feed(_as_chunk(body)) + shaper.finish()
    choices: dict[int, Body] = {}
    for chunk in chunks:
        for entry in chunk["choices"]:
            _gather(choices.setdefault(entry["index"], _empty_choice(entry["index"])), entry)
    answer: Body = {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choices[index] for index in sorted(choices)],
        "usage": shaper.usage_body(earlier),
    }
    return answer, shaper.usage


def text_body(text: str, *, id: str, created: int) -> Body:
    """A plain answer that no model gave."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": "",
        "choices": [choice],
        "usage": usage_body(Usage()),
    }


def held_back(body: Body, model: str, usage: Usage) -> Body:
    """A shaped answer as it is given later: by `model`, with the usage that it then took."""
    return {**body, "model": model, "usage": {**body["usage"], **usage_body(usage)}}


def held_back_chunks(body: Body) -> list[Body]:
    """The same as a stream, with its usage in the last chunk."""
    shaper = ChunkShaper(body["id"], body["created"], body["model"], True)
    *chunks, last = shaper.feed(_as_chunk(body)) + shaper.finish()
    return [*chunks, {**last, "usage": body["usage"]}]


def _as_chunk(body: Body) -> Body:
    """A plain answer as the one chunk of a stream."""
    entries = body.get("choices")
    if not isinstance(entries, list):
        raise malformed("choices is no list")
    choices = []
    for position, entry in enumerate(entries):
        message = entry.get("message") if isinstance(entry, dict) else None
        if not isinstance(message, dict):
            raise malformed("a choice has no message")
        delta = dict(message)
        if isinstance(calls := message.get("tool_calls"), list):
            # Whatever `index` a back-end puts here, each entry is a call of its own.
            delta["tool_calls"] = [
                {**call, "index": place} if isinstance(call, dict) else call
                for place, call in enumerate(calls)
            ]
        choices.append({"index": position, **entry, "delta": delta})
    return {**body, "choices": choices}


def _empty_choice(index: int) -> Body:
    message: Body = {"role": "assistant", "content": "", "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": None}


def _gather(choice: Body, entry: Body) -> None:
    """Add one shaped entry to a choice. Text comes whole here, so only calls need joining."""
    message = choice["message"]
    for key, value in entry["delta"].items():
        if key == "tool_calls":
            _gather_calls(message.setdefault("tool_calls", []), value)
        elif key != "content" or value:
            message[key] = value
    if not message["content"] and (message.get("tool_calls") or message["refusal"]):
        message["content"] = None
    choice["finish_reason"] = entry["finish_reason"] or choice["finish_reason"]
    choice["logprobs"] = entry.get("logprobs") or choice["logprobs"]


def _gather_calls(calls: list[Body], deltas: list[Body]) -> None:
    for delta in deltas:
        if delta["index"] == len(calls):
            calls.append({key: value for key, value in delta.items() if key != "index"})
            continue
        call = calls[delta["index"]]
        for payload, part in ((key, delta[key]) for key in ("function", "custom") if key in delta):
            for key, text in part.items():
                call[payload][key] = call[payload].get(key, "") + text
