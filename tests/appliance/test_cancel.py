"""A client that leaves: the worker's call ends within a second, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conductor.simulated.vendor import Received, SimulatedVendor
from support.appliance import LOCAL, REMOTE, Box, appliance, until
from support.configs import Tree, local_worker, remote_worker
from support.leaving import FIN, RST, RawClient, metrics, records, worker_status
from support.wire import ended

WITHIN_S = 1.0
"""What the product promises."""

ONE_AT_A_TIME = {"limits": {"max_in_flight": 1, "queue_wait_s": 30.0}}
BEFORE, MIDWAY = "stall", "stall-mid-stream"
"""The two windows at a worker, as the simulated models that hold a call there."""


@asynccontextmanager
async def box_of(local: str, remote: str, **changes: Any) -> AsyncIterator[Box]:
    """One worker here and one abroad, each with a single place."""
    workers: list[Tree] = [
        local_worker(LOCAL, port=0, model=local, **ONE_AT_A_TIME),
        remote_worker(REMOTE, "{vendor}", model=remote, **ONE_AT_A_TIME),
    ]
    async with appliance(workers=workers, **changes) as box:
        yield box


def upstream(box: Box, worker: str) -> SimulatedVendor:
    return box.local if worker == LOCAL else box.vendor


async def reached(server: SimulatedVendor, count: int = 1) -> Received:
    """Wait until the server has its `count`th request, and give it."""
    await until(lambda: len(server.requests) >= count)
    return server.requests[count - 1]


async def aborted(*requests: Received) -> None:
    """The upstream calls end within the promised time from now on, when the client has left."""
    await until(lambda: all(request.aborted for request in requests), WITHIN_S)


async def nothing_is_left(box: Box, model: str, worker: str, count: int = 1) -> None:
    """Outcome, metrics, place and breaker after `count` requests whose clients left."""
    await ended(box, count)
    assert [r["outcome"] for r in records(box, "outcome")] == ["aborted"] * count
    counted = await metrics(box)
    name = f'conductor_requests_total{{model="{model}",outcome="aborted",status="499"}}'
    assert counted[name] == count
    assert counted["conductor_requests_in_flight"] == 0
    status = worker_status(box, worker)
    assert (status["in_flight"], status["queued"], status["state"]) == (0, 0, "closed")


@pytest.mark.parametrize("way", [FIN, RST])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("window", [BEFORE, MIDWAY])
@pytest.mark.parametrize("worker", [LOCAL, REMOTE])
async def test_a_client_that_leaves_ends_the_call_of_its_worker(
    worker: str, window: str, stream: bool, way: str
) -> None:
    async with box_of(window, window) as box:
        for count in (1, 2):  # the second only gets a place if the first has given it back
            client = await RawClient.ask(box.server.port, worker, stream=stream)
            request = await reached(upstream(box, worker), count)
            if stream and window == MIDWAY:
                await client.until(b"simulated")
            client.leave(way)
            await aborted(request)
            await nothing_is_left(box, worker, worker, count)
        steps = records(box, "outcome")[0]["steps"]
        assert [a["outcome"] for a in steps[0]["attempts"]] == ["aborted"]


@pytest.mark.parametrize("way", [FIN, RST])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("worker", [LOCAL, REMOTE])
async def test_a_client_that_leaves_the_queue_is_never_sent(
    worker: str, stream: bool, way: str
) -> None:
    async with box_of(BEFORE, BEFORE) as box:
        first = await RawClient.ask(box.server.port, worker, stream=False)
        working = await reached(upstream(box, worker))
        waiting = await RawClient.ask(box.server.port, worker, stream=stream)
        await until(lambda: worker_status(box, worker)["queued"] == 1)
        waiting.leave(way)
        await until(lambda: worker_status(box, worker)["queued"] == 0, WITHIN_S)
        first.leave(way)
        await aborted(working)
        await nothing_is_left(box, worker, worker, 2)
        assert len(upstream(box, worker).requests) == 1


@pytest.mark.parametrize("way", [FIN, RST])
async def test_a_client_that_leaves_while_it_is_kept_waiting_ends_the_call(way: str) -> None:
    """The stream has been opened with comments, and not a word has come."""
    async with box_of(BEFORE, BEFORE, appliance={"api": {"hold_s": 0.05}}) as box:
        client = await RawClient.ask(box.server.port, LOCAL, stream=True)
        request = await reached(box.local)
        await client.until(b": keep-alive")
        client.leave(way)
        await aborted(request)
        await nothing_is_left(box, LOCAL, LOCAL)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_the_official_client_that_gives_up_ends_the_call(stream: bool) -> None:
    async with box_of(BEFORE, MIDWAY) as box:
        asking = asyncio.create_task(box.ask(model=LOCAL, stream=stream))
        request = await reached(box.local)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await aborted(request)
        await nothing_is_left(box, LOCAL, LOCAL)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_both_side_by_side_steps_end_when_the_client_leaves(stream: bool) -> None:
    async with box_of(BEFORE, BEFORE) as box:
        client = await RawClient.ask(box.server.port, "conductor-quality", stream=stream)
        here, abroad = await reached(box.local), await reached(box.vendor)
        client.leave(RST)
        await aborted(here, abroad)
        await nothing_is_left(box, "conductor-quality", LOCAL)
        assert worker_status(box, REMOTE)["in_flight"] == 0
        attempts = [step["attempts"] for step in records(box, "outcome")[0]["steps"]]
        assert [[a["outcome"] for a in each] for each in attempts] == [["aborted"]] * 2


@pytest.mark.parametrize("window", [BEFORE, MIDWAY])
async def test_an_earlier_step_ends_though_its_neighbour_is_done(window: str) -> None:
    async with box_of(window, "echo") as box:
        client = await RawClient.ask(box.server.port, "conductor-quality", stream=True)
        here = await reached(box.local)
        abroad = await reached(box.vendor)
        await until(lambda: abroad.answered)
        client.leave()
        await aborted(here)
        await nothing_is_left(box, "conductor-quality", LOCAL)
        await asyncio.sleep(0.05)
        assert len(box.vendor.requests) == 1, "the last step began though nobody waits for it"


async def test_a_second_request_on_the_connection_does_not_hide_that_it_closed() -> None:
    async with box_of(BEFORE, BEFORE) as box:
        client = await RawClient.ask(box.server.port, LOCAL, stream=False)
        request = await reached(box.local)
        client.send(LOCAL, stream=False)
        await asyncio.sleep(0.05)
        client.leave()
        await aborted(request)
        await asyncio.sleep(0.05)
        assert len(box.local.requests) == 1


@pytest.mark.parametrize("way", [FIN, RST])
@pytest.mark.parametrize("reads", [True, False], ids=["while reading", "without reading"])
async def test_a_client_that_leaves_amid_a_flood_counts_as_gone_and_not_as_a_failure(
    way: str, reads: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The write that finds the socket closed may come before the news that it is."""
    async with appliance(workers=[local_worker(LOCAL, port=0, model="long-20000")]) as box:
        for count in range(1, 5):
            client = await RawClient.ask(box.server.port, LOCAL, stream=True)
            request = await reached(box.local, count)
            if reads:
                await client.until(b"word")
            client.leave(way)
            await until(lambda: request.aborted or request.answered)  # noqa: B023
            await nothing_is_left(box, LOCAL, LOCAL, count)
    assert "unserved" not in capsys.readouterr().out


async def test_money_put_aside_for_a_client_that_left_comes_back() -> None:
    """The day's budget holds two reservations, but not three."""
    keys = [{"id": "app", "secret": "file:app.key", "budget_usd_per_day": 1.0}]
    changes = {"keys": keys, "limits": {"max_cost_usd": 0.5}}
    async with box_of(BEFORE, MIDWAY, appliance=changes) as box:
        for count in (1, 2, 3):
            client = await RawClient.ask(box.server.port, REMOTE, stream=True)
            request = await reached(box.vendor, count)
            await client.until(b"simulated")
            client.leave()
            await aborted(request)
            await nothing_is_left(box, REMOTE, REMOTE, count)


@pytest.mark.parametrize("window", [BEFORE, MIDWAY])
async def test_what_a_vendor_may_bill_for_a_client_that_left_is_booked(window: str) -> None:
    """The day's money covers the prompt of one request, and not that of a second."""
    keys = [{"id": "app", "secret": "file:app.key", "budget_usd_per_day": 0.02}]
    price = {"input_usd_per_mtok": 1000.0, "output_usd_per_mtok": 1.0}
    workers = [remote_worker(REMOTE, "{vendor}", model=window, price=price)]
    async with appliance(workers=workers, appliance={"keys": keys}) as box:
        client = await RawClient.ask(box.server.port, REMOTE, stream=True)
        request = await reached(box.vendor)
        if window == MIDWAY:
            await client.until(b"simulated")
        client.leave()
        await aborted(request)
        await nothing_is_left(box, REMOTE, REMOTE)
        outcome = records(box, "outcome")[0]
        assert outcome["steps"][0]["prompt_tokens"] > 0
        assert outcome["cost_musd"] >= outcome["steps"][0]["prompt_tokens"] * 1000
        again = await RawClient.ask(box.server.port, REMOTE, stream=True)
        assert await again.error() == (429, "insufficient_quota")


async def test_a_probe_whose_client_leaves_lets_the_next_one_probe() -> None:
    async with box_of(BEFORE, BEFORE) as box:
        await box.local.close()
        client = await RawClient.ask(box.server.port, LOCAL, stream=False)
        await client.until(b"no_local_backend")
        client.leave()
        await until(lambda: worker_status(box, LOCAL)["state"] == "half_open")
        endpoint: Any = box.server.parts.pool.by_id[LOCAL].endpoint
        await box.local.start_tcp(port=endpoint.port)
        for count in (1, 2):
            client = await RawClient.ask(box.server.port, LOCAL, stream=False)
            request = await reached(box.local, count)
            client.leave(RST)
            await aborted(request)
            await until(lambda: worker_status(box, LOCAL)["in_flight"] == 0)
        assert worker_status(box, LOCAL)["state"] == "half_open"


async def test_a_crowd_that_leaves_at_once_leaves_nothing() -> None:
    places = {"limits": {"max_in_flight": 40, "max_queued": 200, "queue_wait_s": 30.0}}
    workers = [local_worker(LOCAL, port=0, model=MIDWAY, **places)]
    async with appliance(workers=workers) as box:
        clients = [
            await RawClient.ask(box.server.port, LOCAL, stream=bool(i % 2)) for i in range(100)
        ]
        await reached(box.local, 40)
        await until(lambda: worker_status(box, LOCAL)["queued"] == 60)
        for i, client in enumerate(clients):
            client.leave(RST if i % 3 else FIN)
        await aborted(*box.local.requests)
        await nothing_is_left(box, LOCAL, LOCAL, 100)
        assert len(box.local.requests) == 40
        assert box.local.open_connections == 0
