"""A person approves what would be sent, with the real commands against the real appliance."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from support.appliedpolicies import TESTS
from support.policydaemon import Daemon, approver, daemon, policy

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]
"""It starts whole processes, which a busy machine may give little time."""

IBAN = "IT60X0542811101000000123456"
QUESTION = [{"role": "user", "content": f"Why was {IBAN} charged twice?"}]
RULE = "accounts-once-read"


def asking(*approvers: dict[str, str]) -> bytes:
    """A policy under which accounts may go once Anna has read what would be sent."""
    rules = json.loads(policy(1))["rules"]
    allow = {"to": {"kind": "remote"}, "if": {"compartments_any": ["payment"]}}
    rule = {"id": RULE, "allow": allow, "obligations": [{"approve": {"by": "read-by-anna"}}]}
    declassifier = {
        "id": "read-by-anna",
        "kind": "approved",
        "approvers": ["anna"],
        "expires_s": 600,
        "removes": {"compartments": ["pii", "payment"], "level": "internal"},
    }
    test = {
        "name": "an account waits for a person",
        "given": {"text": f"Why was {IBAN} charged twice?", "to": "frontier"},
        "expect": {"decision": "promise", "rule": RULE},
    }
    return policy(
        1,
        approvers=[*approvers],
        declassifiers=[declassifier],
        rules=[*rules, rule],
        tests=[*TESTS, test],
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Daemon]:
    keys = tmp_path_factory.mktemp("keys")
    people = [approver(keys, name) for name in ("anna", "bert")]
    async with daemon(asking(*people)) as running:
        running.keys = keys
        await running.settled()
        yield running


async def waiting(box: Daemon) -> str:
    """Ask for what must be approved; the id under which it waits."""
    refused = await box.ask(messages=QUESTION)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "approval_required")
    name = refused.headers["x-conductor-approval"]
    assert name in refused.json()["error"]["message"]
    return str(name)


async def approve(box: Daemon, name: str, *more: str, who: str = "anna") -> Any:
    words = ("approvals", "approve", name, "--key", str(box.keys / f"{who}.key"), "--as", who)
    return await box.typed(*words, *more)


async def test_what_a_person_approved_goes_once(box: Daemon) -> None:
    name = await waiting(box)
    assert IBAN.encode() not in box.vendor.received
    assert await waiting(box) == name, "the same request waits once"
    listed = await box.typed("approvals", "list")
    assert listed.returncode == 0 and name in listed.stdout and IBAN not in listed.stdout
    shown = await box.typed("approvals", "show", name)
    assert shown.returncode == 0 and IBAN in shown.stdout
    done = await approve(box, name, "--yes")
    assert done.returncode == 0, done.stderr
    assert name not in (await box.typed("approvals", "list")).stdout
    answer = await box.ask(messages=QUESTION)
    assert answer.status_code == 200, answer.text
    assert box.vendor.received.count(IBAN.encode()) == 1
    assert (await waiting(box)) != name
    assert box.vendor.received.count(IBAN.encode()) == 1
    (change,) = box.records("declassified")
    assert (change["declassifier"], change["approver"]) == ("read-by-anna", "anna")


async def test_who_is_not_named_cannot_approve(box: Daemon) -> None:
    name = await waiting(box)
    refused = await approve(box, name, "--yes", who="bert")
    assert refused.returncode == 1 and "does not count" in refused.stderr
    assert name in (await box.typed("approvals", "list")).stdout
    assert (await box.ask(messages=QUESTION)).status_code == 403


async def test_other_bytes_are_not_approved(box: Daemon) -> None:
    name = await waiting(box)
    assert (await approve(box, name, "--yes")).returncode == 0
    other = [{"role": "user", "content": f"{QUESTION[0]['content']} Be brief."}]
    assert (await box.ask(messages=other)).status_code == 403
    assert (await box.ask(messages=QUESTION)).status_code == 200


async def test_what_no_longer_waits_is_told(box: Daemon) -> None:
    for words in (("show", "0123456789abcdef"), ("approve", "0123456789abcdef")):
        more = (
            ("--key", str(box.keys / "anna.key"), "--as", "anna") if words[0] == "approve" else ()
        )
        done = await box.typed("approvals", *words, *more)
        assert done.returncode == 1 and "Nothing waits" in done.stderr


async def test_before_yes_the_bytes_are_shown_and_no_is_respected(box: Daemon) -> None:
    name = await waiting(box)
    done = await approve(box, name)  # standard input is empty: nobody says yes
    assert done.returncode == 1 and IBAN in done.stdout
    assert name in (await box.typed("approvals", "list")).stdout
