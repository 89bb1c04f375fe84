"""Attacks on what follows the data: labels that are to be washed off, obligations that are to count
for other bytes than those they were carried out on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor.core import Failure, Obligation
from conductor.errors import PolicyBlocked, WorkerError
from conductor.flow.artifacts import ArtifactStore
from conductor.flow.standing import Standing
from conductor.labels import Label
from conductor.run.conduct import Conducted
from conductor.run.memory import Memory
from conductor.run.messages import answer_texts, body_texts
from conductor.run.workflow import Workflow
from support.configs import Tree, policy_tree
from support.fakes import Act, Kit, Made, kit, parsed

IBAN, MAIL = "IT60X0542811101000000123456", "anna.rossi@example.org"
STORY = "The patient in room twelve ought to be moved to the hospice before the holidays begin."
HOME, ABROAD = "0 q -\n", "2 q -\n"
PII = {"compartments": ["pii", "payment"], "level": "internal"}
PSEUDONYMS: Tree = {
    "id": "pseudonyms", "kind": "pseudonymise", "types": ["email", "iban"], "removes": PII,
    "steps": True,
}  # fmt: skip


async def answer(
    box: Kit, text: str = "What is it?", declared: str | None = None, **fields: Any
) -> str:
    """The client's answer, of its stream the contents."""
    request, raw = parsed(text=text, **fields)
    key = replace(box.key, declare_labels=True)
    said = []
    async with box.conduct.answer(Conducted("r"), request, raw, key, declared) as begun:
        if begun.body is not None:
            return "".join(body_texts(begun.body))
        assert begun.chunks is not None
        async for chunk in begun.chunks:
            said += [text for one in chunk["choices"] for _, text in answer_texts(one["delta"])]
    return "".join(said)


async def label_of(box: Kit, text: str, **fields: Any) -> Label:
    return (await box.intake.judge(*parsed(text=text, **fields), box.key, None)).label


def sent(box: Kit, worker: str) -> str:
    return "\n".join(json.dumps(made.body) for made in box.caller.calls if made.worker == worker)


def policy(**more: Any) -> Tree:
    return {**policy_tree(), "declassifiers": [PSEUDONYMS], **more}


# -- labels that clients try to wash off ------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_to_a_declared_question_keeps_that_label(
    tmp_path: Path, stream: bool
) -> None:
    box = kit(tmp_path, {"a": Act(STORY)}, plan=HOME)
    await answer(box, "What now?", "restricted+pii", stream=stream)
    assert await label_of(box, f"Translate: {STORY}") == box.label("restricted+pii")


@pytest.mark.parametrize(
    "place",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "description": STORY}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": STORY}}},
        {"stop": [STORY]},
        {"metadata": {"note": STORY}},
    ],
    ids=lambda place: next(iter(place)),
)
async def test_text_is_known_again_anywhere_in_a_request(tmp_path: Path, place: Tree) -> None:
    box = kit(tmp_path, {"a": Act(STORY)}, plan=HOME)
    await answer(box, f"Account {IBAN}")
    assert await label_of(box, "Hello", **place) == box.label("confidential+payment+pii")


def test_reasoning_refusals_further_choices_and_arguments_are_answers_too() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
    message = {"role": "assistant", "content": "one", "refusal": None, "tool_calls": [call]}
    other = {"role": "assistant", "content": "two", "reasoning_content": "three"}
    body = {"choices": [{"index": 0, "message": message}, {"index": 1, "message": other}]}
    assert [*body_texts(body)] == ["one", "f", '{"x": "y"}', "two", "three"]


async def test_a_streamed_call_is_known_again_when_its_arguments_come_back(tmp_path: Path) -> None:
    box = kit(tmp_path)
    memory = Memory(ArtifactStore())
    run = box.run(HOME)
    text = json.dumps({"note": STORY})

    async def chunks() -> Any:
        for start in range(0, len(text), 7):
            function = {"arguments": text[start : start + 7]}
            delta = {"tool_calls": [{"index": 0, "function": function}]}
            yield {"choices": [{"index": 1, "delta": delta}]}

    async for _ in memory.noted(run.job, chunks(), box.label("restricted")):
        pass
    known = await memory.known(parsed(text=STORY)[0], box.site.policy.lattice)
    assert known is not None and known.label == box.label("restricted")


async def test_what_was_refused_is_known_again_as_well(tmp_path: Path) -> None:
    box = kit(tmp_path)
    with pytest.raises(PolicyBlocked):
        await answer(box, STORY, "restricted+pii", model="x")
    assert await label_of(box, STORY[:80]) == box.label("restricted+pii")


async def test_messages_that_show_something_only_together_are_all_remembered(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path)
    halves = [f"{STORY} {IBAN[:13]}", f"{IBAN[13:]} is all there is to say about this matter."]
    messages = [{"role": "user", "content": half} for half in halves]
    await answer(box, messages=messages, model="a")
    assert "pii" in (await label_of(box, STORY)).compartments


async def test_what_somebody_stated_no_program_lowers_when_it_comes_back(tmp_path: Path) -> None:
    box = kit(tmp_path, {"a": Act(STORY)}, plan=HOME, policy=policy())
    await answer(box, "What now?", "confidential+pii")
    again = await box.intake.judge(*parsed(text=f"Translate: {STORY}"), box.key, None)
    assert again.fixed == box.label("confidential+pii") and again.veiled == ()
    with pytest.raises(PolicyBlocked):
        await answer(box, f"Translate: {STORY}", model="x")


async def test_what_detectors_found_a_program_may_lower_again_when_it_comes_back(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, {"a": Act(STORY)}, plan=HOME, policy=policy())
    await answer(box, f"Account {IBAN}")
    again = await box.intake.judge(*parsed(text=f"Translate: {STORY}"), box.key, None)
    assert again.known_again and again.fixed == box.label("internal")
    assert [worker.id for worker in again.veiled] == ["x", "y"]


async def test_a_flood_of_sensitive_texts_does_not_push_out_what_was_stated(tmp_path: Path) -> None:
    box = kit(tmp_path)
    memory = Memory(ArtifactStore(1000), ArtifactStore(1000))
    declared, found = box.label("restricted+pii"), box.label("confidential+pii")
    await memory.keep([STORY], declared, box.site.policy, declared)
    for one in range(100):
        await memory.keep([f"{one} {STORY[::-1]} {one * 7}"], found, box.site.policy)
    known = await memory.known(parsed(text=STORY)[0], box.site.policy.lattice)
    assert known is not None and known.stated == declared


async def test_a_text_that_was_only_repeated_is_not_common_wherever_it_stood(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path, {"a": Act(STORY)}, plan=HOME)
    tool = {"type": "function", "function": {"name": "f", "description": STORY}}
    await answer(box, "Repeat the description.", tools=[tool])  # taught to be harmless?
    await answer(box, f"Account {IBAN}")
    assert "pii" in (await label_of(box, STORY)).compartments


# -- obligations count for the bytes they were carried out on ---------------------------------

IN_RETURN = {
    "id": "in-return",
    "allow": {"to": {"kind": "remote"}, "if": {"level_at_most": "internal"}},
    "obligations": [{"pseudonymise": {"by": "pseudonyms"}}],
}
HARMLESS = {"id": "all", "when": {"detector": ["email", "iban"]}, "raise": {"level": "public"}}
ALWAYS = policy(rules=[IN_RETURN], classify=[HARMLESS])
"""Whatever leaves goes under pseudonyms, though nothing raises its label."""


def repeats(made: Made) -> str:
    return f"You said: {made.seen}"


@pytest.mark.parametrize("last", ["2 1 -\n", "3 1 -\n", "vote 1 -\n2 2 -\n"])
async def test_values_that_were_put_back_do_not_go_out_as_pseudonymised(
    tmp_path: Path, last: str
) -> None:
    box = kit(tmp_path, plan=f"redact q -\n2 0 -\n{last}", policy=ALWAYS)
    box.caller.answer = repeats
    said = await answer(box, f"Write to {MAIL}")
    assert MAIL in said and MAIL not in sent(box, "x") + sent(box, "y")


@pytest.mark.parametrize("field", [{"stop": [MAIL]}, {"reasoning_effort": MAIL}])
async def test_the_client_s_own_words_are_no_part_of_what_was_redacted(
    tmp_path: Path, field: Tree
) -> None:
    box = kit(tmp_path, plan="redact q -\n2 0 -\n", policy=ALWAYS)
    await answer(box, f"Write to {MAIL}", **field)
    assert box.caller.workers == ["x"] and MAIL not in sent(box, "x")


def test_what_is_found_afterwards_was_not_taken_out() -> None:
    done = Obligation("pseudonymise", "pseudonyms")
    standing = Standing.of(Label(1, frozenset({"pii"}))).lowered(Label(1), done)
    assert standing.raised(Label(0)) == standing
    assert standing.raised(Label(0, frozenset({"pii"}))).discharged == frozenset()


async def test_a_veiled_worker_that_came_back_stands_in_for_nobody(tmp_path: Path) -> None:
    """What the plan tells it was not counted when the plan was made."""
    box = kit(tmp_path, plan="0 q -\nredact 0 -\n2 1 -\n", policy=policy())
    down = WorkerError(Failure.REFUSED)
    for _ in range(10):
        box.pool.report(box.worker("y"), down)
    request, raw = parsed(text=f"Write to {MAIL}")
    judged = await box.intake.judge(request, raw, box.key, None)
    drafted = await box.intake.draft(request, judged, "r")
    assert [worker.id for worker in drafted.candidates] == ["a", "b", "x"]


YES_NO: Tree = {
    "id": "yes-no", "kind": "constrained", "domain": {"bool": True},
    "removes": {"compartments": ["pii", "payment"], "level": "internal"},
}  # fmt: skip


async def test_that_an_answer_is_none_of_a_few_words_is_paid_for(tmp_path: Path) -> None:
    rules = policy(declassifiers=[YES_NO, PSEUDONYMS], leak_budget_bits=64)
    box = kit(tmp_path, {"a": Act("neither")}, plan="0 q -\nredact 0 -\n0 1 -\n", policy=rules)
    kept: list[Workflow] = []
    under = Workflow.under

    def watched(*given: Any) -> Workflow:
        kept.append(under(*given))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workflow, "under", watched)
        await answer(box, f"Write to {MAIL}")
    assert kept[0].reveals.spent_bits == pytest.approx(1.585, abs=0.001)


async def test_a_workflow_that_has_ended_names_nothing(tmp_path: Path) -> None:
    workflow = Workflow.under(kit(tmp_path).site.policy, Label(1))
    workflow.end()
    with pytest.raises(ValueError, match="ended"):
        workflow.digest(b"x")
