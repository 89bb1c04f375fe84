"""A conversation as its reader sees it: which texts follow one another, and what is no text.

Only members of a request that hold messages are looked at: elsewhere a `type` may mean anything.
Knows the shapes of OpenAI chat completions and responses, and of Anthropic messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conductor.detect.canonical import BREAK

_TEXT_PARTS = frozenset(
    {
        "content",
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "input_text",
        "message",
        "output_text",
        "reasoning",
        "reasoning_text",
        "refusal",
        "search_result",
        "server_tool_use",
        "summary_text",
        "text",
        "thinking",
        "tool_call",
        "tool_result",
        "tool_use",
    }
)
_OPAQUE_PARTS = {
    "image": "image",
    "image_url": "image",
    "image_file": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "output_audio": "audio",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "redacted_thinking": "encrypted",
}
_ROOTS = ("system", "instructions", "messages", "input", "prediction")
_INNER = ("content", "output", "summary")
"""Members of a message or part that hold further parts."""

_EDGE = 512
"""Characters at either end of a long text that are set beside its neighbour's."""

_SEAM = 64
"""Characters at either side of a seam that is read alone: as many as the longest number has."""


def beside(texts: list[str]) -> str:
    """The texts with nothing between them; of a long one only both ends, around a break."""
    return "".join(map(_edges, texts))


def _edges(text: str) -> str:
    if len(text) <= 2 * _EDGE:
        return text.replace(BREAK, "")
    return text[:_EDGE].replace(BREAK, "") + BREAK + text[-_EDGE:].replace(BREAK, "")


def joined(body: object) -> list[str]:
    """All turns as one text, those of each role, and each few neighbours: a secret may be dealt out
    over several. Neighbours apart from the rest, because what goes on after a number hides it."""
    turns = list(_turns(body))
    roles: dict[str, list[str]] = {}
    for role, text in turns:
        roles.setdefault(role, []).append(text)
    runs = [[text for _, text in turns]]
    if len(roles) > 1:
        runs.extend(roles.values())
    whole = (beside(run) for run in runs if len(run) > 1)
    return list(dict.fromkeys((*whole, *_neighbours(runs))))


def _neighbours(runs: list[list[str]]) -> Iterator[str]:
    """The seams of every run alone: two texts, and three where the middle one is short. The two
    that make the whole run are there already."""
    for run in runs:
        for place in range(len(run) - 1 if len(run) > 2 else 0):
            first, middle, *after = run[place : place + 3]
            yield _last(first) + _first(middle)
            if after and len(middle) <= _SEAM:
                yield _last(first) + middle.replace(BREAK, "") + _first(after[0])


def _last(text: str) -> str:
    """The end of a text, from a word's beginning: the rest of a number may look like one."""
    whole = len(text) <= _SEAM
    end = text[-_SEAM:].replace(BREAK, "")
    return end if whole else end.partition(" ")[2] or end


def _first(text: str) -> str:
    whole = len(text) <= _SEAM
    beginning = text[:_SEAM].replace(BREAK, "")
    return beginning if whole else beginning.rpartition(" ")[0] or beginning


def opaque(body: object) -> set[str]:
    """Why parts of the conversation cannot be read as text: empty if all can."""
    reasons: set[str] = set()
    stack = [(item, False) for root in _roots(body) for item in root]
    while stack:
        item, is_part = stack.pop()
        if isinstance(item, list):
            reasons.add("unknown-part")
        if not isinstance(item, dict):
            continue
        if is_part or "type" in item:
            reasons.update(_why_opaque(item.get("type")))
        if item.get("encrypted_content"):
            reasons.add("encrypted")
        if isinstance(item.get("audio"), dict):
            reasons.add("audio")
        for inner in _lists(item):
            stack.extend((part, True) for part in inner)
    return reasons


def _why_opaque(kind: object) -> tuple[str, ...]:
    """Of a part's type: nothing for text, else the reason. A part without a type is unknown."""
    if not isinstance(kind, str):
        return ("unknown-part",)
    return () if kind in _TEXT_PARTS else (_OPAQUE_PARTS.get(kind, "unknown-part"),)


def _roots(body: object) -> Iterator[list[Any]]:
    """The lists of messages or parts that a request holds."""
    if not isinstance(body, dict):
        return
    for name in _ROOTS:
        value = body.get(name)
        if isinstance(value, list):
            yield value
        elif isinstance(value, dict):
            yield [value]


def _lists(item: dict[str, Any]) -> Iterator[list[Any]]:
    """The parts inside a message or part; a single one may stand without its list."""
    for name in _INNER:
        value = item.get(name)
        if isinstance(value, list | dict):
            yield value if isinstance(value, list) else [value]


def _turns(body: object) -> Iterator[tuple[str, str]]:
    """Role and text of everything said, in order. Texts alone follow one another as well."""
    if isinstance(body, list):
        yield from (("", text) for text in body if isinstance(text, str))
    if not isinstance(body, dict):
        return
    for name in _ROOTS:
        value = body.get(name)
        if isinstance(value, str):
            yield name, value
    for root in _roots(body):
        stack = [(item, "") for item in reversed(root)]
        while stack:
            item, role = stack.pop()
            if isinstance(item, str):
                yield role, item
            elif isinstance(item, dict):
                role = item["role"] if isinstance(item.get("role"), str) else role
                texts = [v for name in ("text", *_INNER) if isinstance(v := item.get(name), str)]
                stack.extend((text, role) for text in reversed(_arguments(item)))
                stack.extend((part, role) for inner in _lists(item) for part in reversed(inner))
                yield from ((role, text) for text in texts)


def _arguments(item: dict[str, Any]) -> list[str]:
    """What the calls in a message say to their tools, or what an item that is a call says."""
    calls = item.get("tool_calls")
    payloads = [item, item.get("function_call")]
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            payloads += [call.get("function"), call.get("custom")]
    found = [
        payload.get(name)
        for payload in payloads
        if isinstance(payload, dict)
        for name in ("arguments", "input")
    ]
    return [text for text in found if isinstance(text, str)]
