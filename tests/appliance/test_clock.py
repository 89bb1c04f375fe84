"""The wall clock is set: days and time stamps follow it, no permit, breaker or budget does."""

from __future__ import annotations

import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.audit.verify import verify
from conductor.egress.gate import PermitGate
from conductor.egress.permit import Permit, boottime_ns, digest, mint
from conductor.errors import PermitRefused
from support.appliance import CLEAN, LOCAL, REMOTE, Box, appliance, default_workers, until
from support.clearances import only
from support.leaving import worker_status
from support.vendor import LATTICE, remote_worker

DAY_S = 86_400.0


class WallClock:
    """The machine's wall clock as every module sees it, `ahead_s` of the true one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        true = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: true() + int(self.ahead_s * 1e9))
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)

    def rule(self, box: Box) -> None:
        """The ledger took its clock along when it was defined."""
        ledger: Any = box.server.parts.conduct._ledger
        ledger._clock = lambda: time.time()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


async def status_of(box: Box, model: str) -> int:
    messages = [{"role": "user", "content": CLEAN}]
    body = {"model": model, "messages": messages}
    return (await box.http().post("/v1/chat/completions", json=body)).status_code


async def test_permits_open_the_way_out_whatever_the_wall_clock_says(clock: WallClock) -> None:
    async with appliance() as box:
        clock.rule(box)
        for ahead_s in (0.0, -3 * DAY_S, 3 * DAY_S, -365 * DAY_S):
            clock.ahead_s = ahead_s
            assert await status_of(box, REMOTE) == 200
            assert await status_of(box, LOCAL) == 200


def test_a_permit_that_has_expired_stays_so_when_the_clock_is_set_back(clock: WallClock) -> None:
    key, worker = Ed25519PrivateKey.generate(), remote_worker(9)
    gate = PermitGate(key.public_key(), "e" * 32, only([worker], LATTICE))
    permit = Permit(
        id="1",
        body_sha256=digest(b"{}"),
        worker=worker.id,
        destination=worker.destination.id,
        label="internal",
        policy_revision=1,
        decision_id="1",
        epoch=gate.epoch,
        expires_boottime_ns=boottime_ns() + 20_000_000,
    )
    token = mint(key, permit)
    time.sleep(0.03)
    clock.ahead_s = -1.0
    with pytest.raises(PermitRefused, match="expired"):
        gate.check(token, b"{}", worker.id)


async def test_the_record_of_decisions_holds_and_tells_that_the_clock_was_set_back(
    clock: WallClock,
) -> None:
    async with appliance() as box:
        assert await status_of(box, LOCAL) == 200
        clock.ahead_s = -3 * DAY_S
        assert await status_of(box, LOCAL) == 200
        report = verify(box.site.appliance.paths.audit)
        assert report.ok
        assert report.clock_set_back == 1


async def test_a_breaker_opens_again_in_its_own_time(clock: WallClock) -> None:
    async with appliance() as box:
        await box.local.close()
        assert await status_of(box, LOCAL) == 503
        assert worker_status(box, LOCAL)["state"] == "open"
        clock.ahead_s = -DAY_S
        await until(lambda: worker_status(box, LOCAL)["state"] == "half_open")
        clock.ahead_s = DAY_S
        assert await status_of(box, LOCAL) == 503
        assert worker_status(box, LOCAL)["state"] == "open", "a later day is no reason to try"


async def test_a_clock_set_back_opens_no_spent_budget_and_a_new_day_does(
    clock: WallClock,
) -> None:
    """The day's money covers one request, and not the prompt of a second."""
    local, remote = default_workers()
    dear = {**remote, "price": {"input_usd_per_mtok": 1000.0, "output_usd_per_mtok": 4000.0}}
    keys = [{"id": "app", "secret": "file:app.key", "budget_usd_per_day": 0.045}]
    async with appliance(workers=[local, dear], appliance={"keys": keys}) as box:
        clock.rule(box)
        assert await status_of(box, REMOTE) == 200
        assert await status_of(box, REMOTE) == 429
        clock.ahead_s = -DAY_S
        assert await status_of(box, REMOTE) == 429
        clock.ahead_s = DAY_S
        assert await status_of(box, REMOTE) == 200
        clock.ahead_s = 0.0
        assert await status_of(box, REMOTE) == 429
