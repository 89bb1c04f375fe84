"""Nothing labelled above a destination's clearance arrives there, whatever is tried.

Thousands of attacks on the real daemon: real sockets, real egress, a vendor that keeps every byte.
`python -m attacks.run` prints how many of how many arrived.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.attacks import ABROAD, Arena, arena, guarded_policy
from support.attacks_by_client import failures
from support.attacks_names import names
from support.attacks_run import KINDS, failing, lets_through, outcome

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
LEAST = {"positions and disguises": 1000, "dealt out over parts and messages": 600}
"""Attacks made; of other kinds a few dozen."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def it() -> AsyncIterator[Arena]:
    async with arena() as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
async def test_every_vendor_gets_what_may_leave(it: Arena) -> None:
    assert await lets_through(it) == list(ABROAD)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")  # litellm's own
@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_arrives(it: Arena, kind: str) -> None:
    found = await outcome(it, KINDS[kind])
    assert found.made >= LEAST.get(kind, 30)
    assert (found.arrived, found.wrong) == ((), ())


async def test_nothing_arrives_when_everybody_at_home_fails() -> None:
    async with failing() as it:
        assert await lets_through(it) == list(ABROAD)
        found = await outcome(it, failures)
        assert found.made >= 60
        assert (found.arrived, found.wrong) == ((), ())


@pytest.mark.model
async def test_no_name_arrives_where_a_model_looks_for_names() -> None:
    policy = guarded_policy(names=True)
    async with arena(policy=policy, paths={"models": str(MODELS)}) as it:
        assert await lets_through(it) == list(ABROAD)
        found = await outcome(it, names)
        assert found.made >= 90
        assert (found.arrived, found.wrong) == ((), ())
