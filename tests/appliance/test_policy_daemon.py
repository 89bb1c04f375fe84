"""A policy's life in the appliance as it ships: real processes, their sockets, their files.

One `conductor up` serves most tests of this file; each takes the next revisions.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
import pytest_asyncio

from conductor.activation.store import Store
from conductor.audit.verify import verify
from conductor.config import POLICY
from support.appliedpolicies import TESTS
from support.policydaemon import SLOW, Daemon, daemon, policy, shut
from support.processes import limit_file_size
from support.soon import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
"""It starts whole processes, which a busy machine may give little time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Daemon]:
    async with daemon() as running:
        await running.settled()
        yield running


async def next_revision(box: Daemon) -> int:
    return int((await box.admin("GET", "/v1/policy"))["highest_revision"]) + 1


async def opened(box: Daemon) -> int:
    """A policy that lets ordinary work out is in force; its revision."""
    number = await next_revision(box)
    assert (await box.apply(policy(number)))["verdict"] == "active"
    return number


async def test_a_policy_counts_for_serve_and_egress_without_a_restart(box: Daemon) -> None:
    number = await opened(box)
    pids = {name: box.up.pid(name) for name in ("serve", "egress")}
    assert (await box.ask()).status_code == 200
    assert (await box.apply(shut(number + 1)))["verdict"] == "active"
    refused = await box.ask()
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "sensitivity_blocked")
    assert (await box.apply(policy(number + 2)))["verdict"] == "active"
    assert (await box.ask()).status_code == 200
    assert await box.revision() == number + 2
    assert {name: box.up.pid(name) for name in pids} == pids
    assert box.records("egress")[-1]["policy_revision"] == number + 2


async def test_a_request_ends_under_the_policy_that_it_began_with(box: Daemon) -> None:
    number = await opened(box)
    began = len(box.vendor.received)
    slow = asyncio.create_task(box.ask(SLOW, stream=True))
    await until(lambda: len(box.vendor.received) > began)
    assert (await box.apply(shut(number + 1)))["verdict"] == "active"
    assert not slow.done(), "the slow worker was too fast for this test"
    assert (await box.ask(SLOW)).status_code == 403
    answer = await slow
    assert answer.status_code == 200 and "data: [DONE]" in answer.text
    outcomes = {one["request_id"]: one for one in box.records("decision")}
    assert outcomes[answer.headers["x-request-id"]]["policy_revision"] == number


FAILING = {
    "name": "it may go by itself",
    "given": {"text": "hello", "to": "frontier"},
    "expect": {"decision": "allow"},
}
REFUSED: dict[str, tuple[Any, str]] = {
    "no YAML": (lambda _: b"revision: [", "read"),
    "an unknown key": (lambda number: policy(number, bogus=1), "read"),
    "a rule without a test": (lambda number: policy(number, tests=[]), "lint"),
    "a failing test": (
        lambda number: policy(number, default_label="restricted", tests=[*TESTS, FAILING]),
        "tests",
    ),
    "a lower revision": (lambda number: policy(number - 1), "revision"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_candidate_changes_nothing_whatever_is_killed(
    box: Daemon, name: str
) -> None:
    number = await opened(box)
    make, stage = REFUSED[name]
    candidate = make(number + 1)
    (box.directory / POLICY).write_bytes(candidate)
    told = await box.typed("policy", "apply", "--json")
    assert told.returncode == 1, told.stderr
    verdict = json.loads(told.stdout)
    assert (verdict["verdict"], stage in {one["stage"] for one in verdict["problems"]}) == (
        "refused",
        True,
    )
    assert box.records()[-1]["verdict"] == "refused"
    assert await box.revision() == number
    if name == "no YAML":  # once: each kill costs seconds
        await box.kill("serve")
        await box.kill("egress")
        assert await box.revision() == number
        assert (await box.ask()).status_code == 200


async def test_a_hang_up_reloads_nothing_and_says_what_does(box: Daemon) -> None:
    number = await opened(box)
    (box.directory / POLICY).write_bytes(shut(number + 1))
    psutil.Process(box.up.pid("serve")).send_signal(signal.SIGHUP)
    await until(lambda: "no_reload" in box.up.log.read_text())
    assert "conductor policy apply" in box.up.log.read_text()
    assert await box.revision() == number


async def test_of_two_at_once_with_one_number_one_counts(box: Daemon) -> None:
    number = await opened(box) + 1
    both = (policy(number, leak_budget_bits=8), policy(number, leak_budget_bits=16))
    told = await asyncio.gather(*map(box.apply, both))
    assert sorted(one["verdict"] for one in told) == ["active", "refused"]
    refused = next(one for one in told if one["verdict"] == "refused")
    assert [one["stage"] for one in refused["problems"]] == ["revision"]
    winner = next(one for one in told if one["verdict"] == "active")
    held = Store(box.directory / "s").held().copy
    assert held is not None and held.sha256 == winner["sha256"]


async def test_a_full_disk_refuses_and_leaves_what_was(box: Daemon) -> None:
    number = await opened(box)
    pid = box.up.pid("serve")
    limit_file_size(pid, 512)
    try:
        with pytest.raises(Exception, match=r"cannot record|cannot be kept"):
            told = await box.apply(policy(number + 1))
            assert told["verdict"] == "refused"
            raise AssertionError(told["problems"][0]["message"])
    finally:
        limit_file_size(pid)
    assert await box.revision() == number
    assert Store(box.directory / "s").held().highest == number

    await box.settled()
    assert (await box.apply(policy(number + 1)))["verdict"] == "active"


async def test_going_back_history_and_status_over_the_socket(box: Daemon) -> None:
    number = await opened(box)
    assert (await box.apply(shut(number + 1)))["verdict"] == "active"
    back = await box.typed("policy", "rollback")
    assert back.returncode == 0 and "in force" in back.stdout
    assert (await box.ask()).status_code == 200
    listed = json.loads((await box.typed("policy", "history", "--json")).stdout)["data"]
    assert [(one["revision"], one["how"]) for one in listed[:2]] == [
        (number + 2, "rollback"),
        (number + 1, "apply"),
    ]
    shown = await box.typed("policy", "status")
    assert shown.returncode == 0 and f"revision {number + 2}" in shown.stdout
    page = await box.api.status()
    assert page["policy"]["revision"] == number + 2 and page["policy"]["degraded"] is None


async def test_what_happened_can_be_decided_anew(box: Daemon) -> None:
    number = await opened(box)
    assert (await box.ask()).status_code == 200
    (box.directory / "shut.yaml").write_bytes(shut(number + 1))
    told = await box.typed("policy", "replay", str(box.directory / "shut.yaml"), "--json")
    facts = json.loads(told.stdout)
    assert told.returncode == 0 and facts["changed"] and not facts["looser"]
    assert facts["unreadable_records"] == 0


@pytest.mark.parametrize("moment_s", [0.0, 0.3, 0.6, 0.9, 1.2, 1.5])
async def test_killed_around_an_apply_it_starts_under_the_one_or_the_other(
    box: Daemon, moment_s: float
) -> None:
    number = await opened(box)
    asked = asyncio.create_task(box.apply(shut(number + 1)))
    await asyncio.sleep(moment_s)
    old = box.up.kill("serve")
    told = (await asyncio.gather(asked, return_exceptions=True))[0]
    await box.up.again("serve", old)
    await box.settled()
    after = await box.revision()
    assert after in (number, number + 1)
    if isinstance(told, dict) and told["verdict"] == "active":
        assert after == number + 1, "what was told is what counts"
    assert (await box.ask()).status_code == (200 if after == number else 403)
    if after == number + 1:
        assert "accepted" in {
            one["verdict"] for one in box.records() if one["revision"] == number + 1
        }


async def test_the_record_of_all_that_holds(box: Daemon) -> None:
    """Whatever was killed above."""
    assert verify(box.directory / "a").ok
