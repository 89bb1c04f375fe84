"""What the log answers is what happened: a real appliance, and a vendor that counts."""

from __future__ import annotations

import asyncio

import openai
import pytest

from conductor.audit.query import Answer, Found, Question
from conductor.audit.sendings import Sending
from conductor.audit.stretch import Stretch
from support.appliance import CLEAN, IBAN, LOCAL, REMOTE, Box, appliance


async def asked(box: Box, question: Question) -> tuple[Answer, list[Found]]:
    def read() -> tuple[Answer, list[Found]]:
        answer = Answer(Stretch(box.site.appliance.paths.audit), question)
        return answer, list(answer.rows())

    return await asyncio.to_thread(read)


async def stayed(box: Box) -> list[Sending]:
    _, found = await asked(box, Question())
    return [f.sending for f in found if f.sending.where == "inside"]


async def test_the_log_lists_exactly_what_the_vendor_was_sent() -> None:
    async with appliance() as box:
        for text in (CLEAN, "And of France?"):
            await box.ask(text, model=REMOTE)
        await box.ask(f"Pay to {IBAN}")
        with pytest.raises(openai.PermissionDeniedError):
            await box.ask(f"Pay to {IBAN}", model=REMOTE)
        answer, abroad = await asked(box, Question(remote=True))
        assert len(abroad) == len(box.vendor.requests) == 2
        assert {f.sending.destination for f in abroad} == {"frontier"}
        assert {f.sending.key for f in abroad} == {box.site.appliance.keys[0].id}
        assert all("pii" not in f.sending.label and f.sending.rule for f in abroad)
        assert answer.coverage.complete


async def test_the_log_lists_what_stayed_inside_with_its_label() -> None:
    async with appliance() as box:
        await box.ask(f"Pay to {IBAN}")
        for _ in range(1200):  # its end is recorded after it is answered
            inside = await stayed(box)
            if len(inside) == len(box.local.requests):
                break
            await asyncio.sleep(0.05)
        assert len(inside) == len(box.local.requests) > 0
        assert all(s.destination == LOCAL and "pii" in s.label for s in inside)
        assert all(s.attempts == ("ok",) and s.outcome == "completed" for s in inside)
