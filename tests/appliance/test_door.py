"""Counting who is inside, so that a stopping appliance knows when it is empty."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from conductor.api.middleware import Door, declared_label


def test_a_door_is_empty_before_anybody_came() -> None:
    door = Door()
    assert door.empty.is_set() and door.inside == 0 and not door.draining


class Visitors:
    """Requests that stay inside until they are told to leave, well or with an error."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.inside: list[tuple[asyncio.Task[None], asyncio.Future[None]]] = []

    async def come(self) -> None:
        leave = asyncio.get_running_loop().create_future()
        self.inside.append((asyncio.create_task(self._visit(leave)), leave))
        await asyncio.sleep(0)

    async def go(self, place: int, how: int) -> None:
        task, leave = self.inside.pop(place % len(self.inside))
        if how == 0:
            leave.set_result(None)
        elif how == 1:
            leave.set_exception(KeyError())
        else:
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.exception(), KeyError | None)

    async def _visit(self, leave: asyncio.Future[None]) -> None:
        with self.door.passed():
            await leave


@pytest.mark.parametrize("how", [0, 1, 2], ids=["answered", "failed", "cancelled"])
async def test_it_is_empty_again_when_the_last_has_left_however_they_left(how: int) -> None:
    door = Door()
    visitors = Visitors(door)
    await visitors.come()
    await visitors.come()
    assert door.inside == 2 and not door.empty.is_set()
    await visitors.go(0, how)
    assert door.inside == 1 and not door.empty.is_set()
    await visitors.go(0, how)
    assert door.inside == 0 and door.empty.is_set()


@given(st.lists(st.integers(0, 9), max_size=60))
@settings(max_examples=30, deadline=None)
def test_it_is_empty_exactly_when_nobody_is_inside(moves: list[int]) -> None:
    async def live() -> None:
        door = Door()
        visitors = Visitors(door)
        for move in moves:
            if move < 5 or not visitors.inside:
                await visitors.come()
            else:
                await visitors.go(move, move % 3)
            assert door.inside == len(visitors.inside)
            assert door.empty.is_set() is (not visitors.inside)
        while visitors.inside:
            await visitors.go(0, 0)
        assert door.empty.is_set()

    asyncio.run(live())


async def test_whoever_waits_for_it_to_be_empty_is_woken_by_the_last_to_leave() -> None:
    door = Door()
    stay = asyncio.Event()

    async def visit() -> None:
        with door.passed():
            await stay.wait()

    visits = [asyncio.create_task(visit()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(door.empty.wait())
    visits[0].cancel()
    await asyncio.sleep(0)
    assert door.inside == 2 and not waiting.done()
    stay.set()
    await waiting
    await asyncio.gather(*visits, return_exceptions=True)
    assert door.inside == 0


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ([], None),
        (["restricted"], "restricted"),
        ([""], ""),
        (["public", "restricted"], "public, restricted"),
        (["restricted", "restricted"], "restricted, restricted"),
    ],
)
def test_a_label_sent_twice_is_not_read_as_its_first_half(
    sent: list[str], read: str | None
) -> None:
    headers = CIMultiDict([("X-Conductor-Label", text) for text in sent])
    assert declared_label(make_mocked_request("POST", "/", headers=headers)) == read
