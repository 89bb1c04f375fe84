"""The kept policy is damaged: nothing remote is reached until a new one is applied."""

from __future__ import annotations

import pytest

from conductor.activation.store import Store
from conductor.config import POLICY
from support.policydaemon import FAST, daemon, policy
from support.soon import until

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""


async def test_a_damaged_policy_is_recovered_from_without_a_restart() -> None:
    async with daemon() as box:
        await box.settled()
        assert (await box.apply(policy(2)))["verdict"] == "active"
        store = Store(box.directory / "s")
        store.path(2).write_bytes(b"{}")
        (box.directory / POLICY).write_bytes(policy(99))  # it must not be taken for a kept one
        await box.kill("serve")
        await box.kill("egress")
        status = await box.typed("policy", "status")
        assert status.returncode == 1 and "DEGRADED" in status.stdout
        assert (await box.api.status())["policy"]["degraded"]
        assert (await box.ask()).status_code == 403
        assert (await box.ask("near")).status_code == 200
        assert (await box.apply(policy(3)))["verdict"] == "active"
        await box.api.answers(FAST)  # egress may still be starting
        assert (await box.typed("policy", "status")).returncode == 0


async def test_status_page_and_metrics_tell_of_policies() -> None:
    async with daemon() as box:
        await box.settled()
        assert (await box.apply(policy(7)))["verdict"] == "active"
        assert (await box.apply(policy(7)))["verdict"] == "refused"
        told = (await box.api.status())["policy"]
        assert (told["revision"], told["refused"]["reasons"]) == (7, ["revision:old-revision"])
        scraped = (await box.api.get("/metrics")).text
        assert "conductor_policy_revision 7.0" in scraped
        assert "conductor_policy_refused_total 1.0" in scraped


async def test_egress_reads_a_new_policy_before_a_permit_asks_for_it() -> None:
    async with daemon() as box:
        await box.settled()
        assert (await box.apply(policy(2)))["verdict"] == "active"
        await until(lambda: '"event":"policy_followed"' in box.up.log.read_text())
