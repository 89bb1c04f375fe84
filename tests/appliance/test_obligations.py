"""Obligations and the step `redact`: what reaches whom, how it is labelled, what is recorded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor.errors import ApprovalRequired, PolicyBlocked
from conductor.run.conduct import Conducted
from support.configs import Tree, policy_tree
from support.fakes import Kit, Made, kit, parsed

IBAN = "IT60X0542811101000000123456"
MAIL = "anna.rossi@example.org"
SECRET = f"Write to {MAIL} about account {IBAN}."
TOKEN = re.compile("⟦[A-Z]+:[a-z]+⟧")

PSEUDONYMS: Tree = {
    "id": "pseudonyms",
    "kind": "pseudonymise",
    "types": ["email", "iban"],
    "removes": {"compartments": ["pii", "payment"], "level": "internal"},
}
REDACTED: Tree = {**PSEUDONYMS, "id": "redacted", "kind": "redact"}
ABROAD, HOME = "2 q -\n", "0 q -\n"


def policy(*obligations: Any, declassifiers: tuple[Tree, ...] = (PSEUDONYMS,), **more: Any) -> Tree:
    """The usual policy; remote workers get anything, once the obligations are carried out."""
    rule = {"id": "in-return", "allow": {"to": {"kind": "remote"}}, "obligations": [*obligations]}
    return {**policy_tree(), "rules": [rule], "declassifiers": [*declassifiers], **more}


WITH_PSEUDONYMS = policy({"pseudonymise": {"by": "pseudonyms"}})


async def answer(box: Kit, text: str = SECRET, **fields: Any) -> str:
    """The client's answer, plain or put together from its stream."""
    request, raw = parsed(text=text, **fields)
    parts = []
    async with box.conduct.answer(Conducted("req_1"), request, raw, box.key, None) as begun:
        if begun.body is not None:
            return str(begun.body["choices"][0]["message"]["content"])
        assert begun.chunks is not None
        async for chunk in begun.chunks:
            parts += [entry["delta"].get("content") or "" for entry in chunk["choices"]]
    return "".join(parts)


def sent(box: Kit, *workers: str) -> str:
    """Everything that these workers got."""
    return "\n".join(json.dumps(made.body) for made in box.caller.calls if made.worker in workers)


def repeats(made: Made) -> str:
    """An answer that says what it was shown."""
    return f"You said: {made.seen}"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_vendor_sees_pseudonyms_and_the_client_the_values(
    tmp_path: Path, stream: bool
) -> None:
    box = kit(tmp_path, plan=ABROAD, policy=WITH_PSEUDONYMS)
    box.caller.answer = repeats
    said = await answer(box, stream=stream)
    assert MAIL in said and IBAN in said and not TOKEN.search(said)
    assert MAIL not in sent(box, "x") and IBAN not in sent(box, "x")
    assert len(set(TOKEN.findall(box.caller.calls[0].seen))) == 2


async def test_what_left_under_pseudonyms_is_on_record_before_it_left(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=ABROAD, policy=WITH_PSEUDONYMS)
    await answer(box)
    (change,), (egress,) = box.audit.events("declassified"), box.audit.events("egress")
    assert change["declassifier"] == "pseudonyms" and change["places"] == 2
    assert (change["label_before"], change["label_after"]) == (
        "confidential+payment+pii",
        "internal",
    )
    assert (egress["label_before"], egress["label"]) == ("confidential+payment+pii", "internal")
    assert egress["obligations"] == ["pseudonymise:pseudonyms"] and egress["rule"] == "in-return"
    assert box.diary.index("posted declassified") < box.diary.index("call x")
    assert IBAN not in repr(box.audit.records) and MAIL not in repr(box.audit.records)


async def test_the_permit_is_for_the_masked_bytes_and_their_label(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=ABROAD, policy=WITH_PSEUDONYMS)
    await answer(box)
    ((worker, body, label),) = box.desk.minted
    assert worker == "x" and label == box.label("internal")
    assert json.loads(body) == box.caller.calls[0].body and IBAN.encode() not in body


@pytest.mark.parametrize(
    "hidden",
    [
        "A K I A I O S F O D N N 7 E X A M P L Z",  # another compartment, which nothing removes
        "aWJhbiBJVDYwWDA1NDI4MTExMDEwMDAwMDAxMjM0NTY=",  # an IBAN in base64
        "IT60 X054\u200b2811 1010 0000 0123 456",
    ],
)
async def test_what_cannot_be_cut_out_does_not_leave(tmp_path: Path, hidden: str) -> None:
    box = kit(tmp_path, plan=ABROAD, policy=WITH_PSEUDONYMS)
    try:
        await answer(box, f"{SECRET} {hidden}", model="x")
    except PolicyBlocked:
        assert box.caller.calls == []
    else:
        squeezed = re.sub(r"[\W_]", "", sent(box, "x", "y"))
        assert IBAN not in squeezed and re.sub(r"\W", "", hidden) not in squeezed


async def test_who_needs_no_promise_stands_in_for_who_cannot_keep_one(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=ABROAD, alternates=(0,), policy=WITH_PSEUDONYMS)
    secret = "aWJhbiBJVDYwWDA1NDI4MTExMDEwMDAwMDAxMjM0NTY="
    assert await answer(box, f"{SECRET} {secret}") == "fine"
    assert box.caller.workers == ["a"] and not box.audit.events("egress")


async def test_redaction_is_for_good(tmp_path: Path) -> None:
    rules = policy({"redact": {"by": "redacted"}}, declassifiers=(REDACTED,))
    box = kit(tmp_path, plan=ABROAD, policy=rules)
    box.caller.answer = repeats
    said = await answer(box)
    assert "[email removed]" in said and MAIL not in said and IBAN not in said


async def test_tools_void_an_allow_that_asks_for_none(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=ABROAD, policy=policy("no_tools"))
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
    with pytest.raises(PolicyBlocked, match="tools"):
        await answer(box, "What is it?", tools=[tool])
    assert box.caller.calls == []
    assert await answer(box, "What is it?") == "fine"


@pytest.mark.parametrize(("stated", "goes"), [({"zero_retention": True}, True), ({}, False)])
async def test_retention_is_a_fact_of_the_destination(
    tmp_path: Path, stated: Tree, goes: bool
) -> None:
    rules = policy("zero_retention")
    rules["destinations"]["frontier"].update(stated)
    box = kit(tmp_path, plan=ABROAD, policy=rules)
    if goes:
        assert await answer(box, "What is it?") == "fine"
        return
    with pytest.raises(PolicyBlocked, match="retention"):
        await answer(box, "What is it?")
    assert box.caller.calls == []


APPROVER = {"id": "officer", "public_key": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="}
APPROVED: Tree = {
    "id": "by-hand",
    "kind": "approved",
    "approvers": ["officer"],
    "removes": {"compartments": ["pii", "payment"], "level": "internal"},
}


async def test_a_person_is_asked_for_exactly_these_bytes(tmp_path: Path) -> None:
    rules = policy({"approve": {"by": "by-hand"}}, declassifiers=(APPROVED,), approvers=[APPROVER])
    box = kit(tmp_path, plan=ABROAD, policy=rules)
    with pytest.raises(ApprovalRequired) as caught:
        await answer(box, model="x")
    assert box.caller.calls == [] and caught.value.headers["x-conductor-approval"]


# -- the step `redact` ------------------------------------------------------------------------

ORDINARY = {
    "id": "ordinary",
    "allow": {"to": {"kind": "remote"}, "if": {"level_at_most": "internal"}},
}
BY_PLAN: Tree = {
    **policy_tree(),
    "rules": [ORDINARY],
    "declassifiers": [{**PSEUDONYMS, "steps": True}],
}
DETOUR = "0 q -\nredact 0 -\n2 1 -\n0 q,2 -\n"


def tells(made: Made) -> str:
    """The local worker repeats; the remote one works with what it was given."""
    return f"solved: {made.seen}" if made.worker == "x" else f"{MAIL} owes 5 from {IBAN}"


async def test_a_plan_may_go_by_way_of_a_redaction(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=DETOUR, policy=BY_PLAN)
    box.caller.answer = tells
    await answer(box)
    assert box.caller.workers == ["a", "x", "a"]
    assert (
        MAIL not in sent(box, "x") and IBAN not in sent(box, "x") and SECRET not in sent(box, "x")
    )
    assert "owes 5" in sent(box, "x")
    assert [record["towards"] for record in box.audit.events("declassified")] == ["redact"]
    (egress,) = box.audit.events("egress")
    assert egress["label"] == "internal"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_answer_of_a_step_that_saw_tokens_reaches_the_client_whole(
    tmp_path: Path, stream: bool
) -> None:
    box = kit(tmp_path, plan="0 q -\nredact 0 -\n2 1 -\n", policy=BY_PLAN)
    box.caller.answer = tells
    said = await answer(box, stream=stream)
    assert said.startswith("solved:") and MAIL in said and IBAN in said


async def test_without_the_redaction_the_same_step_is_refused(tmp_path: Path) -> None:
    box = kit(tmp_path, plan="0 q -\n2 0 -\n", policy=BY_PLAN)
    with pytest.raises(PolicyBlocked):
        await answer(box)
    assert box.caller.workers == ["a"]


async def test_words_of_the_client_do_not_ride_along(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=DETOUR, policy=BY_PLAN)
    box.caller.answer = tells
    await answer(box, stop=["Rossi family"], user="anna", temperature=0.5)
    made = next(made for made in box.caller.calls if made.worker == "x")
    assert "Rossi family" not in json.dumps(made.body) and made.body["temperature"] == 0.5


async def test_words_of_the_planner_carry_what_it_was_shown(tmp_path: Path) -> None:
    plan = "0 q -\nredact 0 -\n2 1 Solve it for the Rossi family\n"
    box = kit(tmp_path, plan=plan, policy=BY_PLAN)
    box.caller.answer = tells
    with pytest.raises(PolicyBlocked):
        await answer(box)
    assert box.caller.workers == ["a"]


async def test_a_label_that_somebody_declared_is_not_lowered_by_a_program(tmp_path: Path) -> None:
    box = kit(tmp_path, policy=BY_PLAN)
    key = replace(box.key, declare_labels=True)
    found = await box.intake.judge(*parsed(text=SECRET), key, None)
    assert [worker.id for worker in found.veiled] == ["x", "y"]
    declared = await box.intake.judge(*parsed(text=SECRET), key, "internal+pii")
    assert declared.veiled == () and [one.id for one in declared.permitted] == ["a", "b"]


# -- labels that clients try to wash off ------------------------------------------------------


async def test_an_answer_that_comes_back_is_labelled_as_it_was(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=HOME)
    box.caller.answer = lambda made: "The patient in room twelve ought to be moved to the hospice."
    said = await answer(box, SECRET)
    with pytest.raises(PolicyBlocked):
        await answer(box, f"Please translate into French: {said}", model="x")
    assert "x" not in box.caller.workers


async def test_ordinary_answers_may_come_back(tmp_path: Path) -> None:
    box = kit(tmp_path, plan=HOME)
    said = await answer(box, "Tell me a long story about a ship that sails around the world.")
    assert await answer(box, f"Please translate into French: {said}", model="x") == "fine"
