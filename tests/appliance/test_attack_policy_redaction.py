"""What a redaction may not lower: halves that meet in the question, and what a document says of
itself, also once somebody has retold it without its banner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.attacks import Arena, arena
from support.attacks_oracle import Oracle
from support.attacks_secrets import KINDS
from support.places import user

DIRECT = "redact q -\n{veiled} 0 -\n"
BY_EXTRACT = "{home} q -\nredact 0 -\n{veiled} 1 -\n"
MASKED_NEXT = "{home} q -\n{abroad} 0 -\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def it() -> AsyncIterator[Arena]:
    async with arena() as started:
        yield started


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", KINDS)
async def test_halves_in_two_messages_do_not_leave_by_a_redaction(it: Arena, kind: str) -> None:
    secret, it.oracle = it.mint.make(kind), Oracle()
    it.deal_out(kind, secret.parts)
    it.engine.script = [(DIRECT, False)]
    turns = [{"role": "user", "content": part} for part in secret.parts]
    await it.send({"messages": turns}, "conductor")
    assert it.arrived() == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("plan", [BY_EXTRACT, MASKED_NEXT])
@pytest.mark.parametrize("marking", ["TLP:RED", "CONFIDENTIAL", "SECRET//NOFORN"])
async def test_a_marked_document_retold_at_home_does_not_leave(
    it: Arena, marking: str, plan: str
) -> None:
    phrase, it.oracle = it.mint.make("phrase").text, Oracle()
    it.oracle.seek(f"{marking} {plan}", phrase)
    it.lines.say["home"] = lambda body: phrase
    it.engine.script = [(plan, False)]
    await it.send(user(f"{marking}\n\n{phrase}\n\nThe end."), "conductor")
    assert it.arrived() == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("worker", ["masked", "cut", "conductor"])
async def test_nor_does_a_part_of_it_that_comes_back(it: Arena, worker: str) -> None:
    phrase, it.oracle = it.mint.make("phrase").text, Oracle()
    it.lines.say.clear()
    it.engine.script.clear()
    await it.send(user(f"TLP:RED\n\n{phrase}\n"), "home")
    it.oracle.seek(f"washed, {worker}", phrase)
    await it.send(user(f"Translate this: {phrase}"), worker)
    assert it.arrived() == []
