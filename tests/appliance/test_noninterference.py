"""Non-interference: what the vendor sees does not depend on any secret, in value, length or order.

A workload is run twice, each time against a fresh appliance and a fresh vendor; the two runs differ
in the secret and in nothing else. Whatever reaches the vendor must then be the same, request by
request: path, headers, body.

What would make two runs differ by how busy this machine is, is taken out: breakers go by a clock
that ticks per request, what the steps of one request send side by side is compared without its
order, and where workers fail, which opens breakers, plans have one step.

Definition after Goguen and Meseguer, "Security policies and security models", 1982.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conductor.simulated.vendor import Received
from conductor.workers.pool import Pool
from support.appliance import LOCAL, REMOTE, appliance
from support.configs import Tree, local_worker, remote_worker
from support.leaks import send, traces
from support.places import HARMLESS, PLACES, SECRETS

TICK_S = 0.4

PAIRS = {
    "two of a kind": (SECRETS["iban"], "IT91X0300203280284975661141"),
    "short and long": ("NO8330001234567", "MT31MALT01100000000000000000123"),
    "of two kinds": (SECRETS["iban"], SECRETS["aws"]),
    "a card and an address": (SECRETS["card"], f"{'a' * 60}@{'b' * 60}.example.org"),
}

Traffic = list[list[tuple[str, tuple[tuple[str, str], ...], bytes]]]
"""What the vendor received for each request of a workload."""


@dataclass(frozen=True)
class Item:
    """One request of a workload."""

    number: int
    secret: bool
    model: str
    stream: bool
    place: str

    def body(self, secret: str) -> dict[str, Any]:
        body = PLACES[self.place](secret if self.secret else HARMLESS)
        numbered = {"role": "user", "content": f"Question {self.number}"}
        return {**body, "messages": [*body["messages"], numbered]}


@dataclass(frozen=True)
class Workload:
    """Requests, one after the other, and how the workers behave."""

    items: tuple[Item, ...]
    home: str = "ok"
    abroad: str = "ok"

    @property
    def max_steps(self) -> int:
        return 5 if {self.home, self.abroad} <= {"ok", "echo"} else 1

    def pool(self) -> list[Tree]:
        def card(skill: float) -> Tree:
            return {"skill": {"general": skill}, "output_tokens_per_s": 50, "source": "declared"}

        return [
            local_worker(LOCAL, port=0, model=self.home, card=card(0.6)),
            local_worker("local-b", port=0, model="echo", card=card(0.55)),
            remote_worker(REMOTE, "{vendor}", model=self.abroad, card=card(0.9)),
            remote_worker("remote-b", "{vendor}", model="ok", card=card(0.85)),
        ]


async def run(workload: Workload, secret: str) -> Traffic:
    """What the vendor received in a run with this secret."""
    now, seen = [1000.0], []
    limits = {"limits": {"max_steps": workload.max_steps}}
    with pytest.MonkeyPatch.context() as patch:
        frozen = partial(Pool, clock=lambda: now[0])
        patch.setattr("conductor.run.services.Pool", frozen)
        async with appliance(workers=workload.pool(), appliance=limits) as box:
            client = box.client()
            for item in workload.items:
                before = len(box.vendor.requests)
                await send(client, item.body(secret), item.model, stream=item.stream)
                seen.append(sorted(map(_plain, box.vendor.requests[before:])))
                now[0] += TICK_S
            assert sum(map(len, seen)) == len(box.vendor.requests)
    return seen


def _plain(request: Received) -> tuple[str, tuple[tuple[str, str], ...], bytes]:
    """A request, but for the port that the kernel happened to give the vendor."""
    headers = tuple(
        (name, value.partition(":")[0] if name == "Host" else value)
        for name, value in request.headers
    )
    return request.path, headers, request.body


def everything(places: Sequence[str]) -> tuple[Item, ...]:
    """Secret and harmless requests by turns, in each of the places, for every model."""
    models = ("conductor", "conductor-quality", "conductor-thrifty", "conductor-local", REMOTE)
    return tuple(
        Item(number, number % 2 == 0, models[number // 2 % len(models)], number % 3 == 0, place)
        for number, place in enumerate([place for place in places for _ in range(2)])
    )


@pytest.mark.parametrize("pair", PAIRS)
async def test_the_vendor_cannot_tell_two_secrets_apart(pair: str) -> None:
    one, other = PAIRS[pair]
    start = list(PAIRS).index(pair) % 2
    workload = Workload(everything(list(PLACES)[start::2]))
    seen = await run(workload, one)
    # The harmless half goes out, but for what its model's name keeps here.
    assert sum(map(bool, seen)) > len(workload.items) // 4
    assert seen == await run(workload, other)
    for secret in (one, other):
        assert traces(secret, vendor=repr(seen).encode()) == []


@pytest.mark.parametrize("home", ["status-500", "cut-mid-stream", "status-429-retry-1"])
async def test_nor_by_how_home_fails(home: str) -> None:
    one, other = PAIRS["of two kinds"]
    workload = Workload(everything(list(PLACES)[::4]), home=home, abroad="status-500")
    seen = await run(workload, one)
    assert any(seen)
    assert seen == await run(workload, other)


async def test_a_harmless_word_in_the_secret_s_place_would_be_seen() -> None:
    """That the comparison can fail."""
    workload = Workload(everything(list(PLACES)[:4]))
    assert await run(workload, SECRETS["iban"]) != await run(workload, HARMLESS)


ITEMS = st.builds(
    Item,
    number=st.integers(0, 99),
    secret=st.booleans(),
    model=st.sampled_from(
        ["conductor", "conductor-quality", "conductor-thrifty", "conductor-local", REMOTE, LOCAL]
    ),
    stream=st.booleans(),
    place=st.sampled_from(sorted(PLACES)),
)
WORKLOADS = st.builds(
    Workload,
    items=st.lists(ITEMS, min_size=2, max_size=8).map(tuple),
    home=st.sampled_from(
        ["ok", "echo", "status-500", "cut-before-head", "cut-mid-stream", "malformed-json"]
    ),
    abroad=st.sampled_from(["ok", "echo", "status-503", "cut-mid-stream", "tool-call", "refusal"]),
)


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(workload=WORKLOADS, pair=st.sampled_from(sorted(PAIRS)))
async def test_whatever_the_workload(workload: Workload, pair: str) -> None:
    one, other = PAIRS[pair]
    assert await run(workload, one) == await run(workload, other)
