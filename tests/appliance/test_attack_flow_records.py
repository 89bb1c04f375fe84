"""Records stay short, however many workers and rules a site has and whatever a client sends; and
what is long stays off the event loop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from conductor.audit.record import MAX_RECORD_BYTES, canonical, checked
from conductor.core import Shadow, Usage, Verdict
from conductor.flow.standing import Standing
from conductor.run.aside import SHORT, aside
from conductor.run.attempts import Tried
from conductor.run.conduct import Conducted
from conductor.run.facts import MOST_UNBEGUN, step_facts
from conductor.run.job import StepRecord
from conductor.run.recording import MOST_SHADOWS, pieces, shadow_facts
from conductor.run.weakened import weakened
from support.configs import Tree, local_worker, policy_tree, remote_worker, small_site
from support.fakes import FakeAudit, Kit, kit, parsed

IBAN = "IT60X0542811101000000123456"
LONG = "a-name-as-long-as-names-can-be-so-that-nobody-can-make-it-longer"


async def answer(box: Kit, text: str) -> None:
    request, raw = parsed(text=text)
    async with box.conduct.answer(Conducted("r"), request, raw, box.key, None):
        pass


def many_workers() -> list[Tree]:
    local = [local_worker(f"{LONG[:59]}{n:03d}", port=9000 + n) for n in range(128)]
    return [*local, *(remote_worker(f"{LONG[:59]}{n:03d}") for n in range(128, 256))]


def many_shadows() -> Tree:
    deny = {"to": {"kind": "remote"}, "if": {"level_at_least": "internal"}}
    rules = [{"id": f"{LONG[:60]}-{n:02d}", "mode": "shadow", "deny": deny} for n in range(60)]
    return {**policy_tree(), "rules": [*rules, *policy_tree()["rules"]]}


def assert_fit(audit: FakeAudit) -> None:
    for record in audit.records:
        assert len(canonical(checked(record.event, record.fields))) < MAX_RECORD_BYTES - 512


async def test_256_workers_and_60_shadow_rules_fit_into_records(tmp_path: Path) -> None:
    box = kit(
        tmp_path, workers=many_workers(), plan="0 q -\n200 0 -\n",
        alternates=tuple(range(256)), policy=many_shadows(),
    )  # fmt: skip
    box.caller.answer = lambda made: f"Pay to {IBAN}" if len(box.caller.calls) == 1 else "fine"
    await answer(box, "What is it?")
    assert_fit(box.audit)
    (decision,) = box.audit.events("decision")
    parts = [decision, *(one for one in box.audit.events("more") if one["of"] == "decision")]
    judged = {worker for part in parts for worker in part.get("verdicts", {})}
    assert len(judged) == 256 and decision["more"] == len(parts) - 1
    assert box.diary.index("posted more") < box.diary.index("posted decision")
    assert box.diary.index("durable decision") < next(
        place for place, what in enumerate(box.diary) if what.startswith("call")
    )


async def test_a_small_site_has_one_record_for_each_decision(tmp_path: Path) -> None:
    box = kit(tmp_path)
    await answer(box, f"Account {IBAN}")
    assert not box.audit.events("more") and "more" not in box.audit.events("decision")[0]


def test_pieces_keep_order_and_lose_nothing() -> None:
    items = [f"{one}" * 9 for one in range(100)]
    dealt = list(pieces(items, room=60))
    assert [one for part in dealt for one in part] == items and len(dealt) > 10
    assert list(pieces(["x" * 100, "y"], room=10)) == [["x" * 100], ["y"]]
    assert list(pieces([])) == []


async def test_attempts_that_never_began_are_told_up_to_a_number(tmp_path: Path) -> None:
    run = kit(tmp_path).run("0 q -\n")
    nothing = [Tried(f"w{n}", "denied", Usage(), 0.0, 0, begun=False) for n in range(200)]
    begun = [Tried(f"v{n}", "refused", Usage(), 0.0, 5) for n in range(20)]
    run.records[0] = StepRecord(0, Standing.of(run.job.label), [*nothing, *begun])
    (facts,) = step_facts(run, run.job.policy.lattice)
    assert [one["worker"][0] for one in facts["attempts"]] == ["w"] * MOST_UNBEGUN + ["v"] * 20


def test_shadows_are_told_by_name_up_to_a_number() -> None:
    shadows = tuple(Shadow(f"r{n}", f"/etc/policy.yaml:{n}:1", "deny") for n in range(300))
    facts = shadow_facts(Verdict(True, "r", "p", "", shadow=shadows))
    assert len(facts) == MOST_SHADOWS and facts[0] == {"rule": "r0", "effect": "deny"}


async def test_long_work_is_done_beside_the_loop_and_short_work_at_once() -> None:
    here = threading.get_ident()
    assert await aside(SHORT, threading.get_ident) == here
    assert await aside(SHORT + 1, threading.get_ident) != here


def test_guardrails_that_are_not_in_force_protect_nothing(tmp_path: Path) -> None:
    tree = policy_tree()
    for guardrail in tree["guardrails"]:
        guardrail["mode"] = "shadow"
    assert "no-guardrails" in weakened(small_site(tmp_path, policy=tree))


@pytest.mark.parametrize(("seed", "named"), [("", False), ("random", False), ("0", True)])
def test_a_known_key_of_the_memory_is_a_weakened_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, named: bool
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", seed)
    found = weakened(small_site(tmp_path))
    assert ("answers-remembered-under-a-known-key" in found) is named


def test_every_weakened_control_is_named(tmp_path: Path) -> None:
    """The small site: nobody need approve guardrails, no names, a vendor over plain HTTP."""
    worker = remote_worker("x", "http://127.0.0.1:9/v1")
    assert weakened(small_site(tmp_path, workers=[worker])) == [
        "guardrails-change-without-approval",
        "names-not-sought",
        "vendor-without-tls",
    ]
    open_wide = {"api": {"host": "0.0.0.0", "port": 0, "admin_port": 0}}
    assert "api-without-tls" in weakened(small_site(tmp_path, appliance=open_wide))
