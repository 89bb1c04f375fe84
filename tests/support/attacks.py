"""One appliance, many attacks, and a count of what arrived.

    async with arena() as it:
        await it.send("pay it", secret, body, "masked")
        assert it.arrived() == []

Each worker abroad stands for a way in which a policy may protect it: by the clearance floor alone,
by a guardrail, by a rule that is only a shadow, by obligations, or by the step `redact`. Whatever
is sent, none of what an attack hides may be found in what the vendor got (`attacks_oracle.py`), and
no answer may hold what another request has put into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest

from conductor.core import PlanRequest
from conductor.plan.language import parse
from conductor.planner.default import DefaultEngine
from conductor.planner.engine import Planned
from support.appliance import Box, appliance
from support.attacks_oracle import Oracle
from support.attacks_secrets import Mint, Secret
from support.attacks_vendor import Lines
from support.configs import KEY, Tree, local_worker, policy_tree, remote_worker

HOME = ("home", "home-2")
FLOOR, GUARDED, SHADOWED, MASKED, CUT = "floor", "guarded", "shadowed", "masked", "cut"
ABROAD = (FLOOR, GUARDED, SHADOWED, MASKED, CUT)
EVERYBODY = ("conductor", "conductor-quality", "conductor-thrifty")
SIDE_BY_SIDE = 12

_TYPES = ["email", "phone", "iban", "payment_card", "id"]
_REMOVED: Tree = {"compartments": ["pii", "payment"], "level": "internal"}
_ALL: Tree = {"level": "restricted", "compartments": ["pii", "secret", "payment"]}
_LOW: Tree = {"level": "internal", "compartments": []}
_GOOD: Tree = {"skill": {"general": 0.95}, "output_tokens_per_s": 50, "source": "declared"}
_POOR: Tree = {"skill": {"general": 0.4}, "output_tokens_per_s": 50, "source": "declared"}


def guarded_policy(*, names: bool = False) -> Tree:
    """One destination for each way of protection; a plan may redact."""
    types = [*_TYPES, *(["person", "address"] if names else [])]
    tree = policy_tree()
    remote = {"kind": "remote", "vendor": "simulated", "region": "us"}
    tree["destinations"] = {
        "box": {**tree["destinations"]["box"], "way": "home"},
        **{name: {**remote, "way": name, "clearance": _LOW} for name in (FLOOR, MASKED, CUT)},
        **{name: {**remote, "way": name, "clearance": _ALL} for name in (GUARDED, SHADOWED)},
    }
    if not names:
        dropped = {"person", "address"}
        tree["classify"] = [one for one in tree["classify"] if one["id"] not in dropped]
    tree["guardrails"] = [
        {
            "id": "nothing-above",
            "deny": {
                "to": {"way": GUARDED},
                "if": {
                    "any": [
                        {"compartments_any": ["pii", "secret", "payment"]},
                        {"level_at_least": "confidential"},
                    ]
                },
            },
        }
    ]
    tree["rules"] = [
        _allow("ordinary", {"kind": "remote"}, {
            "level_at_most": "internal", "compartments_none": ["pii", "secret", "payment"]}),
        _allow("everything", {"way": GUARDED}),
        {**_allow("tried-out", {"way": SHADOWED}), "mode": "shadow"},
        _allow("under-pseudonyms", {"way": MASKED}, by={"pseudonymise": {"by": "pseudonyms"}}),
        _allow("cut-out", {"way": CUT}, by={"redact": {"by": "redacted"}}),
    ]  # fmt: skip
    tree["declassifiers"] = [
        {"id": "redacted", "kind": "redact", "types": [*types, "secret"],
         "removes": {"compartments": ["pii", "payment", "secret"], "level": "internal"}},
        {"id": "pseudonyms", "kind": "pseudonymise", "types": types, "removes": _REMOVED,
         "steps": True},
    ]  # fmt: skip
    return tree


def _allow(name: str, to: Tree, when: Tree | None = None, by: Tree | None = None) -> Tree:
    rule: Tree = {"id": name, "allow": {"to": to, **({"if": when} if when else {})}}
    return {**rule, **({"obligations": [by]} if by else {})}


def workers(local: str = "says:home", **more: Any) -> list[Tree]:
    """Two poor workers at home that do as `local`, and a good one for each way of protection."""
    roomy: Tree = {"limits": {"context_tokens": 200_000, **more}}
    at_home = [local_worker(name, port=0, model=local, card=_POOR, **roomy) for name in HOME]
    abroad = [
        remote_worker(name, "{vendor}", destination=name, model="says:abroad", card=_GOOD, **roomy)
        for name in ABROAD
    ]
    return [*at_home, *abroad]


@dataclass
class Engine:
    """Plans as an attack says, else as the engine that ships does.

    In a script's texts `{home}` stands for a worker at home, `{veiled}` for one that may see only
    what a redaction leaves, `{abroad}` for one abroad that may see the question as it is or under
    an obligation. A text that names nobody who is there is not used.
    """

    name: str = "default"
    script: list[tuple[str, bool]] = field(default_factory=list)

    async def ready(self) -> bool:
        return True

    async def plan(self, request: PlanRequest) -> Planned:
        places: dict[str, int] = {}
        for ordinal, one in enumerate(request.candidates):
            name = "home" if one.local else "veiled" if one.veiled else "abroad"
            places.setdefault(name, ordinal)
        try:
            text, look = self.script[min(bool(request.heard), len(self.script) - 1)]
            plan = parse(text.format(**places), len(request.heard))
        except (IndexError, KeyError):
            return await DefaultEngine().plan(request)
        return Planned(plan, self.name, tuple(range(len(request.candidates))), look=look)


@dataclass(frozen=True)
class Answered:
    """What became of one request."""

    status: int
    worker: str
    text: str
    """All of the answer's body, streamed or not, with its texts put together."""


@dataclass
class Arena:
    """A running appliance under attack."""

    box: Box
    lines: Lines
    engine: Engine
    mint: Mint = field(default_factory=lambda: Mint(1))
    made: int = 0
    thorough: bool = False
    """Make all attacks; else of the many that cross two lists every second, so that each of either
    list is there."""
    oracle: Oracle = field(default_factory=Oracle)
    wrong: list[str] = field(default_factory=list)
    """Answers that held what their request had not."""
    _clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)

    def hide(self, attack: str, secret: Secret, *disguised: str) -> None:
        """From now on this must not arrive, nor half of it, in whatever form."""
        self.made += 1
        self.oracle.seek(attack, secret.text, *secret.parts, *disguised)

    def deal_out(self, attack: str, pieces: Sequence[str]) -> None:
        """From now on these must not arrive together."""
        self.made += 1
        self.oracle.seek_together(attack, *pieces)

    async def send(
        self, body: Mapping[str, Any], model: str, *, key: str = KEY, **headers: str
    ) -> Answered:
        """One request, its answer read to the end."""
        client = self._clients.setdefault(key, self.box.http(key))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await client.post(
            "/v1/chat/completions", content=orjson.dumps({"model": model, **body}), headers=named
        )
        return Answered(
            answer.status_code, answer.headers.get("x-conductor-model", ""), _text(answer)
        )

    async def all(self, attacks: Iterable[Callable[[], Any]]) -> list[Any]:
        """Run attacks side by side, some at a time."""
        room = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(attack: Callable[[], Any]) -> Any:
            async with room:
                return await attack()

        return await asyncio.gather(*(one(attack) for attack in attacks))

    def arrived(self, since: int = 0) -> list[str]:
        """The attacks of which something stands in what the vendor has got since that request."""
        got = self.box.vendor.requests[since:]
        heads = (f"{request.path} {request.headers}".encode() for request in got)
        return self.oracle.found([*(request.body for request in got), *heads])


def _text(answer: httpx.Response) -> str:
    """An answer as its reader gets it: contents and arguments, whichever way they came."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return _said([answer.json()], "message") if answer.status_code == 200 else answer.text
    rows = [row[6:] for row in answer.text.split("\n") if row.startswith("data: {")]
    return _said([orjson.loads(row) for row in rows], "delta")


def _said(chunks: Sequence[Mapping[str, Any]], place: str) -> str:
    contents: list[str] = []
    arguments: list[str] = []
    for chunk in chunks:
        for choice in chunk.get("choices", ()):
            contents.append(choice[place].get("content") or "")
            for call in choice[place].get("tool_calls") or ():
                arguments.append(call.get("function", {}).get("arguments") or "")
    return "".join(contents) + "\n" + "".join(arguments)


@asynccontextmanager
async def arena(
    *, policy: Tree | None = None, pool: Sequence[Tree] | None = None, **appliance_fields: Any
) -> AsyncIterator[Arena]:
    """An appliance under `guarded_policy()`, with `workers()`."""
    lines, engine = Lines(), Engine()
    async with AsyncExitStack() as stack:
        stack.enter_context(lines.spoken())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("conductor.run.services.DefaultEngine", lambda: engine)
        lasting = {"keys": appliance_keys(), **appliance_fields}
        box = await stack.enter_async_context(
            appliance(
                workers=pool or workers(), policy=policy or guarded_policy(), appliance=lasting
            )
        )
        yield Arena(box, lines, engine)


def appliance_keys() -> list[Tree]:
    """Two keys; one may declare labels, and both may do much at once."""
    much = {"max_in_flight": 4 * SIDE_BY_SIDE}
    return [
        {"id": "app", "secret": "file:app.key", **much},
        {"id": "trusted-app", "secret": "file:trusted-app.key", "declare_labels": True, **much},
    ]
