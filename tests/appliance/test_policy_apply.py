"""Putting a policy in force: every gate, what is left when one holds, and going back."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.activation import checker
from conductor.activation.approvals import Approval, approve
from conductor.activation.desk import NoSuchRevision, Outcome
from conductor.activation.report import Report
from conductor.activation.startup import starting
from conductor.config import POLICY
from conductor.errors import AuditError
from support.appliedpolicies import TESTS, policy_bytes, site_folder
from support.configs import policy_tree
from support.desk import WHO, Office, office
from support.soon import until

ANNA, BERT, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
APPROVERS = [
    {"id": name, "public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode()}
    for name, key in (("anna", ANNA), ("bert", BERT))
]
FOUR_EYES: dict[str, Any] = {
    "approvers": APPROVERS,
    "activation": {"guardrail_approvals": 2},
}
GUARDRAILS = policy_tree()["guardrails"]
MORE_GUARDED: dict[str, Any] = {
    **FOUR_EYES,
    "guardrails": [*GUARDRAILS, {"id": "no-pii-abroad", "deny": {
        "to": {"kind": "remote"}, "if": {"compartments_any": ["pii"]}}}],
    "tests": [
        *json.loads(policy_bytes())["tests"],
        {"name": "no pii", "given": {"label": "internal+pii", "to": "frontier"},
         "expect": {"decision": "deny", "rule": "no-pii-abroad"}},
    ],
}  # fmt: skip


def reasons(outcome: Outcome) -> set[tuple[str, str]]:
    return {(problem.stage, problem.code) for problem in outcome.report.problems}


def signed(policy: bytes, *keys: Ed25519PrivateKey) -> list[Approval]:
    sha256, revision = hashlib.sha256(policy).hexdigest(), json.loads(policy)["revision"]
    return [approve(key, sha256, revision) for key in keys]


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., AbstractContextManager[Office]]:
    """An office whose policy, revision 1, has these changes."""

    def open_(**changes: Any) -> AbstractContextManager[Office]:
        return office(site_folder(tmp_path, policy_bytes(1, **changes)))

    return open_


def run(made: Any) -> Any:
    return asyncio.run(made)


def test_a_good_candidate_is_recorded_kept_and_swapped_in(opened: Any) -> None:
    with opened() as here:
        outcome = run(here.apply(policy_bytes(2)))
        assert outcome.in_force, outcome.report.problems
        assert (here.in_force, here.swapped) == (2, [2])
        assert here.audit.told == [("apply", "accepted", 2), ("apply", "active", 2)]
        assert here.store.active() == policy_bytes(2)
        assert here.audit.records[0]["uid"] == WHO.uid
        assert [copy["revision"] for copy in here.desk.history()] == [2, 1]


RULES = policy_tree()["rules"]
BROKEN: dict[str, tuple[bytes, tuple[str, str]]] = {
    "no YAML": (b"revision: [", ("read", "bad-yaml")),
    "no UTF-8": (b"\xff", ("read", "bad-encoding")),
    "an unknown key": (policy_bytes(2, bogus=1), ("read", "unknown-key")),
    "a worker's destination is gone": (
        policy_bytes(2, destinations={"frontier": None}, tests=[]),
        ("read", "unknown-destination"),
    ),
    "a failing test": (
        policy_bytes(2, tests=[{"name": "wrong", "given": {"label": "public", "to": "frontier"},
                                "expect": {"decision": "deny"}}]),
        ("tests", "test-failed"),
    ),
    "a rule without a test": (
        policy_bytes(2, rules=[*RULES, {"id": "more", "deny": {"to": {"region": "us"},
                                        "if": {"level_at_least": "restricted"}}}]),
        ("lint", "untested"),
    ),
    "the same revision": (policy_bytes(1), ("revision", "old-revision")),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_candidate_changes_nothing_now_or_at_the_next_start(
    opened: Any, tmp_path: Path, name: str
) -> None:
    candidate, reason = BROKEN[name]
    with opened() as here:
        outcome = run(here.apply(candidate))
        assert not outcome.in_force and reason in reasons(outcome)
        assert (here.in_force, here.swapped) == (1, [])
        assert [verdict for _, verdict, _ in here.audit.told] == ["refused"]
        assert f"{reason[0]}:{reason[1]}" in here.audit.records[0]["reasons"]
        assert here.desk.status()["last"]["verdict"] == "refused"
    (tmp_path / POLICY).write_bytes(candidate)
    assert starting(tmp_path).site.policy.revision == 1


def test_a_status_page_tells_of_a_refusal_until_the_next_good_one(opened: Any) -> None:
    with opened() as here:
        assert here.desk.summary()["refused"] is None
        run(here.apply(BROKEN["an unknown key"][0]))
        told = here.desk.summary()
        assert (told["revision"], told["refused"]["reasons"]) == (1, ["read:unknown-key"])
        run(here.apply(policy_bytes(2)))
        assert (here.desk.summary()["revision"], here.desk.summary()["refused"]) == (2, None)
        assert here.refused == 1


def test_all_reasons_are_told_at_once(opened: Any) -> None:
    with opened() as here:
        outcome = run(here.apply(BROKEN["a failing test"][0].replace(b": 2,", b": 1,", 1)))
    assert {stage for stage, _ in reasons(outcome)} == {"lint", "tests", "revision"}


def test_going_back_brings_old_content_under_a_new_number(opened: Any) -> None:
    with opened() as here:
        assert run(here.apply(policy_bytes(5, leak_budget_bits=8))).in_force
        outcome = run(here.desk.rollback(None, WHO))
        assert outcome.in_force, outcome.report.problems
        assert here.store.active() == policy_bytes(6)
        assert here.audit.told[-1] == ("rollback", "active", 6)
        assert not run(here.apply(policy_bytes(5))).in_force
        assert run(here.desk.rollback(5, WHO)).in_force
        assert here.store.active() == policy_bytes(7, leak_budget_bits=8)
        with pytest.raises(NoSuchRevision):
            run(here.desk.rollback(3, WHO))


def test_without_an_audit_record_nothing_changes(opened: Any) -> None:
    with opened() as here:
        here.audit.full = True
        with pytest.raises(AuditError):
            run(here.apply(policy_bytes(2)))
        assert (here.in_force, here.store.held().highest) == (1, 1)


def test_a_log_that_fails_after_the_swap_does_not_deny_it(opened: Any) -> None:
    with opened() as here:
        here.audit.full_after = 1
        assert run(here.apply(policy_bytes(2))).in_force
        assert here.in_force == here.store.held().highest == 2
        assert here.audit.told == [("apply", "accepted", 2)]


def test_what_the_disk_refuses_does_not_count(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with opened() as here:
        monkeypatch.setattr("conductor.activation.store._put", full)
        outcome = run(here.apply(policy_bytes(2)))
        assert reasons(outcome) == {("store", "not-kept")}
        assert (here.in_force, here.store.held().highest) == (1, 1)
        assert here.audit.told[-1] == ("apply", "failed", 2)


def test_who_leaves_in_the_middle_does_not_split_disk_and_memory(opened: Any) -> None:
    async def leaving(here: Office) -> None:
        asked = asyncio.create_task(here.apply(policy_bytes(2)))
        await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: here.desk.last is not None)

    with opened() as here:
        run(leaving(here))
        assert here.in_force == here.store.held().highest == 2


# -- approvals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "in_force"),
    [((), False), ((ANNA,), False), ((ANNA, ANNA), False), ((ANNA, EVE), False),
     ((ANNA, BERT), True)],
)  # fmt: skip
def test_guardrails_change_by_two_approvers(opened: Any, keys: Any, in_force: bool) -> None:
    candidate = policy_bytes(2, **MORE_GUARDED)
    with opened(**FOUR_EYES) as here:
        outcome = run(here.apply(candidate, *signed(candidate, *keys)))
        assert outcome.in_force is in_force
        assert outcome.report.approvals_needed == 2
        if in_force:
            assert here.store.held().copy.approved == ("anna", "bert")


def test_a_signature_for_other_bytes_is_none(opened: Any) -> None:
    candidate = policy_bytes(2, **MORE_GUARDED)
    with opened(**FOUR_EYES) as here:
        outcome = run(here.apply(candidate + b"\n", *signed(candidate, ANNA, BERT)))
    assert reasons(outcome) == {("approvals", "approvals-missing")}


def test_a_candidate_cannot_appoint_its_own_approvers(opened: Any) -> None:
    eve = base64.b64encode(EVE.public_key().public_bytes_raw()).decode()
    approvers = [APPROVERS[0], {"id": "eve", "public_key": eve}]
    candidate = policy_bytes(2, **{**FOUR_EYES, "approvers": approvers})
    with opened(**FOUR_EYES) as here:
        assert not run(here.apply(candidate, *signed(candidate, ANNA, EVE))).in_force
        assert run(here.apply(candidate, *signed(candidate, ANNA, BERT))).in_force


def test_rules_change_without_approvers(opened: Any) -> None:
    with opened(**FOUR_EYES) as here:
        assert run(here.apply(policy_bytes(2, **FOUR_EYES, leak_budget_bits=8))).in_force


# -- emergencies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "keys", "in_force"),
    [
        (MORE_GUARDED, (ANNA,), True),
        (MORE_GUARDED, (), False),
        (MORE_GUARDED, (EVE,), False),
        ({**FOUR_EYES, "leak_budget_bits": 65}, (ANNA,), False),
        ({**FOUR_EYES, "default_label": "public"}, (ANNA,), False),
        ({"approvers": APPROVERS, "activation": {"guardrail_approvals": 1}}, (ANNA,), False),
    ],
)
def test_one_approver_may_only_tighten(
    opened: Any, changes: Any, keys: Any, in_force: bool
) -> None:
    candidate = policy_bytes(2, **changes)
    with opened(**FOUR_EYES) as here:
        made = here.apply(candidate, *signed(candidate, *keys), emergency=True)
        outcome = run(made)
        assert outcome.in_force is in_force, outcome.report.problems
        assert here.audit.told[-1][0] == "emergency"


def test_an_emergency_takes_no_guardrail_away_even_where_the_floor_holds(opened: Any) -> None:
    """By one key the guardrail, by none the clearance: two steps that nobody else would see."""
    cleared = {"clearance": {"level": "internal", "compartments": ["pii"]}}
    both, one = (
        [{**GUARDRAILS[0], "deny": {"to": {"kind": "remote"}, "if": {"compartments_any": some}}}]
        for some in (["pii", "secret"], ["pii"])
    )
    tests = [{**TESTS[0], "given": {"label": "public+pii", "to": "frontier"}}, TESTS[1]]
    same = {**FOUR_EYES, "destinations": {"frontier": cleared}, "tests": tests}
    candidate = policy_bytes(2, **same, guardrails=one)
    with opened(**same, guardrails=both) as here:
        outcome = run(here.apply(candidate, *signed(candidate, ANNA), emergency=True))
    assert not outcome.in_force
    assert reasons(outcome) == {("emergency", "looser")}


# -- degraded, and the process that checks ------------------------------------------------------


def test_a_damaged_store_recovers_by_a_new_revision(tmp_path: Path) -> None:
    folder = site_folder(tmp_path, policy_bytes(1, **FOUR_EYES))
    with office(folder) as here:
        assert run(here.apply(policy_bytes(2, **FOUR_EYES))).in_force
        here.store.path(2).write_bytes(b"{}")
    with office(folder) as here:
        assert here.desk.status()["degraded"]
        assert run(here.apply(policy_bytes(3, **FOUR_EYES))).in_force
        assert not here.desk.status()["degraded"]
        assert [worker.id for worker in here.active.site.workers] == ["near", "far"]


def test_a_file_beside_a_damaged_copy_appoints_no_approvers(tmp_path: Path) -> None:
    folder = site_folder(tmp_path, policy_bytes(1, **FOUR_EYES))
    with office(folder) as here:
        assert run(here.apply(policy_bytes(2, **FOUR_EYES))).in_force
        here.store.path(2).write_bytes(b"{}")
    (folder / POLICY).write_bytes(policy_bytes(3))
    with office(folder) as here:
        outcome = run(here.apply(policy_bytes(3)))
        assert reasons(outcome) == {("approvals", "approvals-missing")}


def test_a_process_of_its_own_checks_alike(tmp_path: Path) -> None:
    """What it logs is no part of its report."""
    with office(site_folder(tmp_path), checker.ask) as here:
        refused = run(here.apply(BROKEN["a failing test"][0]))
        assert {("tests", "test-failed")} <= reasons(refused)
        assert run(here.apply(policy_bytes(2))).in_force


def test_a_checker_that_takes_too_long_knows_nothing(tmp_path: Path) -> None:
    async def hasty(question: Any) -> Report:
        return await checker.ask(question, timeout_s=0.01)

    with office(site_folder(tmp_path), hasty) as here:
        assert reasons(run(here.apply(policy_bytes(2)))) == {("check", "not-checked")}
