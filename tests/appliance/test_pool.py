"""Slots, queues and breakers of a running pool."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from conductor.core import Failure, TcpEndpoint, Worker
from conductor.errors import WorkerError
from conductor.workers.pool import Pool
from support.rawpeer import local_worker, remote_worker

ENDPOINT = TcpEndpoint("127.0.0.1", 9)


def worker(**limits: float) -> Worker:
    return local_worker(ENDPOINT, **{"max_in_flight": 1, "queue_wait_s": 60.0, **limits})


class Holder:
    """Holds a slot in a task of its own until told to let go."""

    def __init__(self, pool: Pool, member: Worker) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.task = asyncio.create_task(self._hold(pool, member))

    async def _hold(self, pool: Pool, member: Worker) -> None:
        async with pool.slot(member):
            self.entered.set()
            await self.release.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def refused(pool: Pool, member: Worker) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        async with pool.slot(member):
            pytest.fail("a slot was given")
    return caught.value


def counts(pool: Pool) -> tuple[int, int]:
    status = pool.status()[0]
    return status["in_flight"], status["queued"]


async def test_no_more_than_max_in_flight_hold_a_slot():
    member = worker(max_in_flight=3)
    pool = Pool([member])
    holders = [Holder(pool, member) for _ in range(10)]
    await settle()
    assert sum(holder.entered.is_set() for holder in holders) == 3
    assert counts(pool) == (3, 7)
    for holder in holders:
        holder.release.set()
    await asyncio.gather(*(holder.task for holder in holders))
    assert counts(pool) == (0, 0)


async def test_those_who_wait_are_served_in_their_order():
    member = worker()
    pool = Pool([member])
    order: list[int] = []

    async def call(number: int) -> None:
        async with pool.slot(member):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_full_queue_refuses_at_once_with_an_estimate():
    member = worker(max_queued=1)
    pool = Pool([member])
    holders = [Holder(pool, member) for _ in range(2)]
    await settle()
    error = await refused(pool, member)
    assert error.failure is Failure.OVERLOADED
    assert error.retry_after_s is not None and error.retry_after_s >= 1.0
    for holder in holders:
        holder.release.set()
    await asyncio.gather(*(holder.task for holder in holders))


async def test_waiting_in_the_queue_ends_after_queue_wait_s():
    member = worker(queue_wait_s=0.05)
    pool = Pool([member])
    holder = Holder(pool, member)
    await settle()
    assert (await refused(pool, member)).failure is Failure.OVERLOADED
    assert counts(pool) == (1, 0)
    holder.release.set()
    await holder.task
    assert counts(pool) == (0, 0)


async def test_a_waiter_that_is_cancelled_frees_its_place_and_takes_no_slot():
    member = worker()
    pool = Pool([member])
    first, second, third = (Holder(pool, member) for _ in range(3))
    await settle()
    second.task.cancel()
    await settle()
    assert counts(pool) == (1, 1)
    first.release.set()
    await third.entered.wait()
    assert not second.entered.is_set()
    third.release.set()
    await asyncio.gather(first.task, third.task)
    assert counts(pool) == (0, 0)


async def test_a_slot_handed_to_a_waiter_in_the_moment_of_its_cancellation_is_not_lost():
    member = worker()
    pool = Pool([member])
    first, second = Holder(pool, member), Holder(pool, member)
    await settle()
    first.release.set()
    await asyncio.sleep(0)  # first leaves, and hands its slot over
    second.task.cancel()
    await asyncio.gather(first.task, second.task, return_exceptions=True)
    assert counts(pool) == (0, 0)
    async with pool.slot(member):
        assert counts(pool) == (1, 0)


async def test_ten_thousand_calls_that_come_and_leave_at_random_leave_nothing_behind():
    member = worker(max_in_flight=4, max_queued=20_000, queue_wait_s=0.2)
    pool = Pool([member])

    async def call(number: int) -> None:
        async with pool.slot(member):
            assert pool.status()[0]["in_flight"] <= 4
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(call(number)) for number in range(10_000)]
    await asyncio.sleep(0.01)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert counts(pool) == (0, 0)


async def test_an_open_breaker_refuses_before_the_queue_and_says_for_how_long():
    member = worker()
    pool = Pool([member], clock=lambda: 100.0)
    pool.report(member, WorkerError(Failure.REFUSED))
    assert not pool.routable(member)
    assert pool.reopen_in_s(member) == 1.0
    error = await refused(pool, member)
    assert (error.failure, error.retry_after_s) == (Failure.OPEN, 1.0)
    assert counts(pool) == (0, 0)


async def test_a_breaker_that_opens_while_a_call_waits_refuses_that_call():
    member = worker()
    pool = Pool([member])
    first, second = Holder(pool, member), Holder(pool, member)
    await settle()
    pool.report(member, WorkerError(Failure.REFUSED))
    first.release.set()
    await first.task
    with pytest.raises(WorkerError) as caught:
        await second.task
    assert caught.value.failure is Failure.OPEN
    assert counts(pool) == (0, 0)


async def test_one_probe_goes_and_its_success_lets_all_go():
    now = [0.0]
    member = worker(max_in_flight=4)
    pool = Pool([member], clock=lambda: now[0])
    pool.report(member, WorkerError(Failure.REFUSED))
    now[0] = 1.0
    assert pool.routable(member)
    async with pool.slot(member):
        assert not pool.routable(member)
        assert (await refused(pool, member)).failure is Failure.OPEN
        pool.report(member, None)
    async with pool.slot(member), pool.slot(member):
        assert pool.routable(member)


async def test_a_probe_whose_client_left_lets_the_next_one_probe():
    now = [0.0]
    member = worker()
    pool = Pool([member], clock=lambda: now[0])
    pool.report(member, WorkerError(Failure.REFUSED))
    now[0] = 1.0
    holder = Holder(pool, member)
    await holder.entered.wait()
    holder.task.cancel()
    await asyncio.gather(holder.task, return_exceptions=True)
    assert pool.routable(member)


async def test_our_own_full_queue_does_not_open_the_breaker():
    member = worker(max_queued=0)
    pool = Pool([member])
    holder = Holder(pool, member)
    await settle()
    pool.report(member, await refused(pool, member))
    assert pool.routable(member)
    pool.report(member, WorkerError(Failure.OVERLOADED))
    assert not pool.routable(member)
    holder.release.set()
    await holder.task


async def test_a_long_call_that_ends_does_not_free_the_place_of_a_probe():
    now = [0.0]
    member = worker(max_in_flight=2)
    pool = Pool([member], clock=lambda: now[0])
    old = Holder(pool, member)
    await old.entered.wait()
    pool.report(member, WorkerError(Failure.REFUSED))
    now[0] = 1.0
    probe = Holder(pool, member)
    await probe.entered.wait()
    old.release.set()
    await old.task
    assert not pool.routable(member)
    probe.release.set()
    await probe.task


def test_a_worker_without_another_of_its_kind_is_probed_often():
    alone, far, farther = worker(), remote_worker("a"), remote_worker("b")
    now = [0.0]
    pool = Pool([alone, far, farther], clock=lambda: now[0])
    waits: dict[str, float] = {}
    for _ in range(8):
        for member in pool.workers:
            pool.report(member, WorkerError(Failure.REFUSED))
            waits[member.id] = pool.reopen_in_s(member)
        now[0] += 60.0
    assert waits == {"w": 2.0, "a": 60.0, "b": 60.0}


def test_status_names_the_state_and_holds_no_address():
    pool = Pool([worker(), remote_worker()], clock=lambda: 100.0)
    pool.report(pool.workers[1], WorkerError(Failure.RATE_LIMITED, retry_after_s=7.0))
    near, far = pool.status()
    assert near["state"] == "closed" and near["routable"] and near["reason"] is None
    assert far["state"] == "open" and not far["routable"] and far["reason"] == "rate_limited"
    assert far["reopen_in_s"] == 7.0
    assert "127.0.0.1" not in str(pool.status()) and "invalid" not in str(pool.status())


def test_workers_are_found_by_id_in_the_order_of_the_file():
    pool = Pool([worker(), remote_worker()])
    assert [w.id for w in pool.workers] == list(pool.by_id) == ["w", "far"]
    assert pool.by_id["far"] is pool.workers[1]
    assert "nobody" not in pool.by_id
    with pytest.raises(ValueError, match="same id"):
        Pool([worker(), replace(remote_worker(), id="w")])
