"""Approving at the administrators' socket: what is on record, and before what."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.activation.adminclient import SOCKET, AdminRefused, ask
from conductor.active import Active
from conductor.api.admin import administered
from conductor.api.approvals import ApprovalsHandler
from conductor.audit.verify import EVENTS
from conductor.config import Site
from conductor.core import Worker
from conductor.declassify.approvals import ApprovalBook, Matter
from conductor.declassify.approved import Approval, mint
from conductor.detect.scan import Scanner
from conductor.flow.standing import Standing
from conductor.labels import Label
from conductor.policy.decide import decide
from conductor.policy.document import Policy
from conductor.run.obligations import Carried, Duties, Unmet
from conductor.run.rewriting import Rewriter
from conductor.run.workflow import Workflow
from support.appliedpolicies import policy_bytes, site_folder, site_under
from support.fakes import FakeAudit
from support.planner import socket_folder
from support.soon import until

ANNA, BEA = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
SECRET = b'{"messages":[{"content":"IT60X0542811101000000123456"}]}'
MATTER = Matter.of("by-hand", SECRET, "confidential+pii", "frontier")
NAMES = {"declassifier": "by-hand", "destination": "frontier", "label": "confidential+pii"}


def site(folder: Path, annas: Ed25519PrivateKey = ANNA, revision: int = 1) -> Site:
    """Remote workers get anything that Anna has approved; Bea is an approver of other things."""
    people = {"anna": annas, "bea": Ed25519PrivateKey.from_private_bytes(bytes(32))}
    rule = {
        "id": "in-return",
        "allow": {"to": {"kind": "remote"}},
        "obligations": [{"approve": {"by": "by-hand"}}],
    }
    by_hand = {
        "id": "by-hand",
        "kind": "approved",
        "approvers": ["anna"],
        "removes": {"compartments": ["pii"], "level": "internal"},
    }
    approvers = [
        {"id": name, "public_key": b64encode(key.public_key().public_bytes_raw()).decode()}
        for name, key in people.items()
    ]
    changes = {"rules": [rule], "declassifiers": [by_hand], "approvers": approvers, "tests": []}
    return site_under(folder, policy_bytes(revision, **changes))


@dataclass
class Office:
    """The socket, and what is behind it."""

    book: ApprovalBook
    active: Active
    audit: FakeAudit
    folder: Path

    async def ask(self, method: str, path: str, body: object | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(ask, self.folder, method, f"/v1/approvals{path}", body)

    async def approve(self, token: str) -> dict[str, Any]:
        return await self.ask("POST", "", {"token": token})

    def waits(self) -> Approval:
        return self.book.ask(MATTER, SECRET, 60)

    def told(self) -> list[dict[str, Any]]:
        return [dict(fields) for fields in self.audit.events("approval")]


@asynccontextmanager
async def office(tmp_path: Path, **audit: Any) -> AsyncIterator[Office]:
    book, active = ApprovalBook(), Active(site(site_folder(tmp_path)))
    log = FakeAudit([], **audit)
    with socket_folder() as folder:
        handler = ApprovalsHandler(book, active, log)
        async with administered(folder / SOCKET, Nobody(), explained, handler):
            yield Office(book, active, log, folder)


class Nobody:
    """No life of a policy is asked for here."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def explained(*_asked: Any) -> dict[str, Any]:
    return {}


async def test_who_read_and_who_approved_is_on_record_without_a_word_of_it(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        waiting = made.waits()
        shown = await made.ask("GET", f"/{waiting.request}")
        assert b64decode(shown["body_base64"]) == SECRET
        answer = await made.approve(mint(ANNA, "anna", waiting, SECRET))
        assert answer["request"] == waiting.request
        common = {"approval": waiting.request, **NAMES, "uid": os.getuid(), "reason": ""}
        assert made.told() == [
            {"action": "read", "approver": "", **common},
            {"action": "accepted", "approver": "anna", **common},
        ]
        assert "IT60" not in repr(made.told()) and "approval" in EVENTS


@pytest.mark.parametrize(
    ("key", "name", "reason", "told"),
    [
        (BEA, "anna", "signature", "anna"),
        (BEA, "bea", "key", "bea"),
        (ANNA, "a word of a prompt", "key", ""),
    ],
)
async def test_a_refused_approval_is_on_record_by_names_that_are_known(
    tmp_path: Path, key: Ed25519PrivateKey, name: str, reason: str, told: str
) -> None:
    async with office(tmp_path) as made:
        waiting = made.waits()
        with pytest.raises(AdminRefused, match=reason):
            await made.approve(mint(key, name, waiting, SECRET))
        (refused,) = made.told()
        assert (refused["action"], refused["reason"]) == ("refused", reason)
        assert (refused["approver"], refused["approval"]) == (told, waiting.request)
        assert made.book.waiting() == [waiting]


@pytest.mark.parametrize("waits", [True, False])
async def test_what_is_no_approval_of_what_waits_names_nothing(tmp_path: Path, waits: bool) -> None:
    async with office(tmp_path) as made:
        gone = Approval("words of a prompt", **MATTER._asdict())
        token = mint(ANNA, "anna", gone, SECRET) if waits else "words of a prompt"
        with pytest.raises(AdminRefused, match="unknown" if waits else "malformed"):
            await made.approve(token)
        (refused,) = made.told()
        assert [refused[name] for name in ("approval", *NAMES)] == [""] * 4
        assert "prompt" not in repr(refused)


async def test_looking_for_what_does_not_wait_leaves_no_record(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        with pytest.raises(AdminRefused, match="Nothing waits"):
            await made.ask("GET", "/0123456789abcdef")
        await made.ask("GET", "")
        assert made.told() == []


async def test_what_cannot_be_recorded_is_neither_shown_nor_counts(tmp_path: Path) -> None:
    async with office(tmp_path, broken=frozenset({"approval"})) as made:
        waiting = made.waits()
        for asked in (
            made.ask("GET", f"/{waiting.request}"),
            made.approve(mint(ANNA, "anna", waiting, SECRET)),
        ):
            with pytest.raises(AdminRefused, match="cannot record") as caught:
                await asked
            assert "IT60" not in str(caught.value)
        keys = {"anna": ANNA.public_key().public_bytes_raw()}
        assert made.book.take(MATTER, keys) is None and made.book.waiting() == [waiting]


async def test_an_approval_counts_only_once_its_record_is_on_disk(tmp_path: Path) -> None:
    async with office(tmp_path, held=frozenset({"approval"})) as made:
        token = mint(ANNA, "anna", made.waits(), SECRET)
        asked = asyncio.create_task(made.approve(token))
        await until(made.told)
        keys = {"anna": ANNA.public_key().public_bytes_raw()}
        assert made.book.take(MATTER, keys) is None and not asked.done()
        made.audit.release("approval")
        await asked
        assert made.book.take(MATTER, keys) == "anna"


# -- carried out ---------------------------------------------------------------------------------


@dataclass
class Asked:
    """An attempt under some policy."""

    policy: Policy
    standing: Standing
    workflow: Workflow


async def carried_out(duties: Duties, under: Site) -> Carried:
    """What data of Anna's says goes to the remote worker. Raises `Unmet`."""
    policy, worker = under.policy, remote(under)
    label = policy.lattice.parse("confidential+pii")
    asked = Asked(policy, Standing(label, label), Workflow.under(policy, Label(0)))
    return await duties.carry_out(asked, worker, decide(policy, label, worker), SECRET)


def remote(under: Site) -> Worker:
    return next(worker for worker in under.workers if worker.remote)


@pytest.mark.parametrize(("annas", "goes"), [(ANNA, True), (BEA, False)])
async def test_an_approval_goes_with_the_key_that_gave_it(
    tmp_path: Path, annas: Ed25519PrivateKey, goes: bool
) -> None:
    """The same name with another key, in a policy applied since, is another person."""
    async with office(tmp_path) as made:
        duties = Duties(Rewriter(Scanner()), made.book)
        with pytest.raises(Unmet, match="approval"):
            await carried_out(duties, made.active.site)
        (waiting,) = made.book.waiting()
        await made.approve(mint(ANNA, "anna", waiting, SECRET))
        made.active.swap(site(tmp_path, annas, revision=2))
        if goes:
            (change,) = (await carried_out(duties, made.active.site)).changes
            assert change.approver == "anna"
            return
        with pytest.raises(Unmet, match="approval"):
            await carried_out(duties, made.active.site)
        assert [one.request for one in made.book.waiting()] != [waiting.request]
