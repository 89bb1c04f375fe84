"""Attacks by whoever sends requests: where a secret stands, how it is disguised, what else is said.

Each function makes its attacks in an arena and returns when all are answered; nothing is judged
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from typing import Any

from support.attacks import ABROAD, EVERYBODY, MASKED, Arena
from support.attacks_disguises import DISGUISES
from support.attacks_oracle import carriers
from support.attacks_secrets import KINDS, Secret
from support.configs import TRUSTED_KEY
from support.places import PLACES, user

DEALT_OUT = (
    "two text parts",
    "one letter a part",
    "two messages",
    "system and user message",
    "call and result",
)
"""Places that deal a secret out. Half of one is too small to be anything, and may be seen."""

_WORKERS = (*EVERYBODY, *ABROAD)
Attack = Callable[[], Awaitable[Any]]


async def positions_and_disguises(it: Arena) -> None:
    """Every place in every disguise, of all kinds and towards everybody in turn."""
    kinds, workers, streams = cycle(KINDS), cycle(_WORKERS), cycle((False, False, True))

    def attacks() -> Iterator[Attack]:
        for row, place in enumerate(PLACES):
            for column, disguise in enumerate(DISGUISES):
                if it.thorough or (row + column) % 2 == 0:
                    yield _placed(it, place, disguise, next(kinds), next(workers), next(streams))
            next(workers)  # out of step with the disguises, so that all meet

    await it.all(attacks())


def _placed(it: Arena, place: str, disguise: str, kind: str, worker: str, stream: bool) -> Attack:
    secret = it.mint.make(kind)
    text = DISGUISES[disguise](secret.text)
    name = f"{kind}, {disguise}, {place}, {worker}"
    if place == "backslash escapes" and max(text) > "\uffff":
        text = secret.text  # four digits do not write such a character
    if place in DEALT_OUT:
        it.deal_out(name, secret.parts)
    else:
        it.hide(name, secret, text, *carriers(PLACES[place], text))
    return lambda: it.send({**PLACES[place](text), "stream": stream}, worker)


async def dealt_out(it: Arena) -> None:
    """In pieces over parts, messages and roles, with something said before and after."""
    attacks = []
    for kind in KINDS:
        for pieces in (2, 3, 5):
            for way, deal in _DEALS.items():
                for worker in (*EVERYBODY, MASKED, "cut", "floor"):
                    secret = it.mint.make(kind)
                    parts = _pieces(secret, pieces)
                    it.deal_out(f"{kind} in {pieces}, {way}, {worker}", parts)
                    body = deal(parts)
                    attacks.append(lambda body=body, worker=worker: it.send(body, worker))
    await it.all(attacks)


def _pieces(secret: Secret, count: int) -> list[str]:
    size = -(-len(secret.text) // count)
    return [secret.text[at : at + size] for at in range(0, len(secret.text), size)]


def _turns(pieces: list[str], *roles: str) -> dict[str, Any]:
    named = zip(cycle(roles), pieces)
    return {"messages": [{"role": role, "content": piece} for role, piece in named]}


def _parts(pieces: list[str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": piece} for piece in pieces]


_ASK = {"role": "user", "content": "And now?"}
_DEALS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "messages": lambda p: _turns(p, "user"),
    "messages, then a question": lambda p: {"messages": [*_turns(p, "user")["messages"], _ASK]},
    "messages between others": lambda p: {
        "messages": [_ASK, *_turns(["", *p], "user", "assistant")["messages"][1:], _ASK]
    },
    "roles in turn": lambda p: _turns(p, "user", "assistant"),
    "parts": lambda p: {"messages": [{"role": "user", "content": _parts(p)}]},
    "parts, then a question": lambda p: {
        "messages": [{"role": "user", "content": _parts(p)}, _ASK]
    },
    "parts between others": lambda p: {
        "messages": [{"role": "user", "content": _parts(["Read", *p, "aloud"])}]
    },
}

ELSEWHERE = "http://127.0.0.1:9/v1"
ROUTING: dict[str, Any] = {
    "fallbacks": [*ABROAD],
    "models": [*ABROAD],
    "route": "fallback",
    "provider": {"order": ["simulated"], "allow_fallbacks": True},
    "api_base": ELSEWHERE,
    "base_url": ELSEWHERE,
    "custom_llm_provider": "openai",
    "litellm_params": {"model": "floor", "api_base": ELSEWHERE},
    "model_list": [{"model_name": "conductor", "litellm_params": {"model": "floor"}}],
    "extra_headers": {"x-conductor-label": "public"},
    "extra_body": {"model": "floor", "label": "public"},
    "guardrails": [],
    "obligations": [],
    "declassifiers": ["redacted"],
    "approved": True,
    "policy": {"rules": []},
    "mode": "shadow",
    "targets": [{"provider": "openai"}],
    "worker": "floor",
    "destination": "floor",
    "label": "public",
    "clearance": "restricted",
    "permit": "e30.e30",
    "plan": "2 q -",
    "flow": {"question": 0},
    "conductor": {"worker": "floor", "label": "public", "plan": "2 q -"},
}
HEADERS = {
    "x-conductor-label": "public",
    "x-conductor-worker": "floor",
    "x-conductor-destination": "floor",
    "x-conductor-permit": "e30.e30",
    "x-conductor-plan": "2 q -",
    "x-conductor-approval": "a1",
    "x-conductor-policy": "0",
    "x-litellm-tags": "remote",
    "x-portkey-provider": "openai",
    "x-forwarded-host": "vendor.invalid",
    "helicone-target-url": ELSEWHERE,
}


async def routing(it: Arena) -> None:
    """Fields and headers by which a client would choose who sees its request."""
    fields = [*({name: value} for name, value in ROUTING.items()), ROUTING]
    headers = [*({name: value} for name, value in HEADERS.items()), HEADERS]
    attacks = []
    for worker in (*EVERYBODY, "floor", MASKED):
        for place, more in [*(("field", one) for one in fields), *(("header", h) for h in headers)]:
            secret = it.mint.make("iban")
            it.hide(f"{place} {', '.join(more)[:60]}, {worker}", secret)
            asked = user(f"Pay {secret.text} now")
            body, named = ({**asked, **more}, {}) if place == "field" else (asked, more)
            attacks.append(lambda b=body, w=worker, h=named: it.send(b, w, key=TRUSTED_KEY, **h))
    await it.all(attacks)


async def failures(it: Arena) -> None:
    """Workers at home that fail in every way: who stands in for them?"""
    home = [worker.id for worker in it.box.site.workers if not worker.remote]
    attacks = []
    for kind in ("iban", "aws"):
        for worker in (*EVERYBODY, *home):
            for stream in (False, True):
                secret = it.mint.make(kind)
                it.hide(f"{kind}, {worker} fails", secret)
                body = {**user(f"Use {secret.text} now"), "stream": stream}
                attacks.append(lambda b=body, w=worker: it.send(b, w))
    await it.all(attacks)
