"""Label, verdicts and plan of a request: what raises a label, who may see it, who is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor.core import Failure
from conductor.errors import (
    LabelNotAllowed,
    ModelNotAllowed,
    ModelNotFound,
    NoLocalBackend,
    PolicyBlocked,
    UpstreamFailed,
    WorkerError,
)
from conductor.policy.decide import decide
from conductor.run.intake import DIRECT, DIRECT_PLAN, Judged
from conductor.settings import Key
from support.fakes import Kit, kit, parsed

IBAN = "IT60X0542811101000000123456"
TRUSTED = Key("trusted", None, None, declare_labels=True)


async def judged(
    box: Kit, key: Key | None = None, declared: str | None = None, **fields: Any
) -> Judged:
    request, text = parsed(**fields)
    return await box.intake.judge(request, text, key or box.key, declared)


def shown(box: Kit, found: Judged) -> str:
    return box.site.policy.lattice.show(found.label)


# -- the label --------------------------------------------------------------------------------


async def test_without_findings_a_request_has_the_sites_default_label(tmp_path: Path) -> None:
    box = kit(tmp_path)
    found = await judged(box)
    assert shown(box, found) == "internal"
    assert [worker.id for worker in found.permitted] == ["a", "b", "x", "y"]
    assert found.denial is None


async def test_a_finding_raises_it_and_keeps_the_request_at_home(tmp_path: Path) -> None:
    box = kit(tmp_path)
    found = await judged(box, text=f"Pay to {IBAN}.")
    assert shown(box, found) == "confidential+payment+pii"
    assert [worker.id for worker in found.permitted] == ["a", "b"]
    assert found.denial is not None and found.denial.rule == "floor.clearance"


@pytest.mark.parametrize(
    ("default", "declared", "label"),
    [
        (None, None, "internal"),
        ("public", None, "public"),
        ("restricted", None, "restricted"),
        (None, "public", "internal"),
        (None, "confidential", "confidential"),
        (None, " confidential+pii ", "confidential+pii"),
        ("restricted", "public+secret", "restricted+secret"),
        ("public", "public", "public"),
        (None, "internal+unscanned", "internal+unscanned"),
    ],
)
async def test_a_declared_label_only_raises(
    tmp_path: Path, default: str | None, declared: str | None, label: str
) -> None:
    box = kit(tmp_path)
    key = replace(TRUSTED, default_label=None if default is None else box.label(default))
    assert shown(box, await judged(box, key, declared)) == label


@pytest.mark.parametrize(
    "declared",
    ["", " ", "secret", "Internal", "internal+", "+pii", "internal,pii", "internal+nope",
     "public, restricted", "internal\0", "9", "\udcff", "a" * 10_000],
)  # fmt: skip
async def test_a_label_that_cannot_be_read_is_refused_and_not_repeated(
    tmp_path: Path, declared: str
) -> None:
    box = kit(tmp_path)
    with pytest.raises(LabelNotAllowed) as refused:
        await judged(box, TRUSTED, declared)
    assert len(refused.value.message) < 500 and "levels public, internal" in refused.value.message
    refused.value.message.encode()


@pytest.mark.parametrize("declared", ["", "public", "internal", "restricted", "nonsense"])
async def test_a_key_that_may_not_declare_labels_is_refused_whatever_it_declares(
    tmp_path: Path, declared: str
) -> None:
    box = kit(tmp_path)
    with pytest.raises(LabelNotAllowed, match="may not declare"):
        await judged(box, declared=declared)


texts = st.sampled_from(
    ["hello", IBAN, "joe@example.org", "AKIAIOSFODNN7EXAMPLE", "4111111111111111"]
)


@given(
    st.lists(texts, min_size=1, max_size=3),
    st.sampled_from([None, "public", "internal+pii", "restricted"]),
    st.sampled_from(["public", "internal", "confidential+secret"]),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_nothing_that_is_added_to_a_request_ever_lowers_its_label(
    tmp_path: Path, said: list[str], declared: str | None, default: str
) -> None:
    async def check() -> None:
        box = kit(tmp_path)
        key = replace(TRUSTED, default_label=box.label(default))
        less = await judged(box, key, declared, text=" and ".join(said[:-1]) or "x")
        more = await judged(box, key, declared, text=" and ".join(said))
        assert less.label.join(more.label) == more.label
        assert box.label(default).join(more.label) == more.label
        assert {worker.id for worker in more.permitted} <= {worker.id for worker in less.permitted}
        for worker in more.permitted:
            assert decide(box.site.policy, more.label, worker).allow

    asyncio.run(check())


# -- the model --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "judged_workers"),
    [
        ("conductor", ["a", "b", "x", "y"]),
        ("conductor-local", ["a", "b"]),
        ("conductor-quality", ["a", "b", "x", "y"]),
        ("x", ["x"]),
        ("b", ["b"]),
    ],
)
async def test_only_workers_that_the_model_name_includes_are_judged(
    tmp_path: Path, model: str, judged_workers: list[str]
) -> None:
    assert list((await judged(kit(tmp_path), model=model)).verdicts) == judged_workers


async def test_a_model_that_is_not_there_or_not_allowed_is_told_before_any_scan(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path)
    with pytest.raises(ModelNotFound):
        await judged(box, model="gpt-4o")
    with pytest.raises(ModelNotAllowed):
        await judged(box, replace(box.key, models=("a",)), model="x")


async def test_naming_a_remote_worker_does_not_open_it(tmp_path: Path) -> None:
    box = kit(tmp_path)
    request, text = parsed(model="x", text=IBAN)
    found = await box.intake.judge(request, text, box.key, None)
    assert found.permitted == ()
    with pytest.raises(PolicyBlocked) as refused:
        await box.intake.draft(request, found, "req_1")
    assert "confidential+payment+pii" in refused.value.message and IBAN not in str(refused.value)


# -- the plan ---------------------------------------------------------------------------------


async def draft(box: Kit, **fields: Any) -> Any:
    request, text = parsed(**fields)
    return await box.intake.draft(
        request, await box.intake.judge(request, text, box.key, None), "req_1"
    )


async def test_the_planner_is_shown_the_permitted_workers_that_can_be_reached(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path)
    box.pool.report(box.worker("b"), WorkerError(Failure.REFUSED))
    drafted = await draft(box, model="conductor-thrifty")
    assert [worker.id for worker in drafted.candidates] == ["a", "x", "y", "b"]
    assert drafted.planned.alternates[-1] == 3  # it may be back when all else has failed
    (asked,) = box.planner.asked
    assert [one.local for one in asked.candidates] == [True, False, False]
    assert (asked.preference, asked.max_steps, asked.one_step) == ("thrifty", 5, False)
    assert asked.question == "What is it?" and asked.prompt_tokens > 0


async def test_the_planner_never_sees_who_may_not_see_the_request(tmp_path: Path) -> None:
    box = kit(tmp_path)
    drafted = await draft(box, text=IBAN)
    assert [worker.id for worker in drafted.candidates] == ["a", "b"]
    assert all(one.local for one in box.planner.asked[0].candidates)


async def test_a_named_worker_is_not_planned_and_has_no_stand_in(tmp_path: Path) -> None:
    box = kit(tmp_path)
    drafted = await draft(box, model="x")
    assert [worker.id for worker in drafted.candidates] == ["x"] and box.planner.asked == []
    assert (drafted.planned.plan, drafted.planned.engine) == (DIRECT_PLAN, DIRECT)
    assert drafted.planned.alternates == ()


async def test_tools_make_it_one_step(tmp_path: Path) -> None:
    box = kit(tmp_path)
    await draft(box, tools=[{"type": "function", "function": {"name": "f"}}])
    assert box.planner.asked[0].one_step


@pytest.mark.parametrize("text", [IBAN, "hello"])
async def test_when_all_permitted_workers_are_down_the_true_wait_is_told(
    tmp_path: Path, text: str
) -> None:
    box = kit(tmp_path)
    for name, wait in (("a", 30.0), ("b", 20.0), ("x", 50.0), ("y", 40.0)):
        box.pool.report(box.worker(name), WorkerError(Failure.RATE_LIMITED, retry_after_s=wait))
    with pytest.raises(NoLocalBackend if text == IBAN else UpstreamFailed) as refused:
        await draft(box, text=text)
    assert refused.value.headers["Retry-After"] == "20" and box.planner.asked == []


async def test_a_remote_worker_that_is_up_does_not_stand_in_for_local_ones_that_are_down(
    tmp_path: Path,
) -> None:
    box = kit(tmp_path)
    for name in "ab":
        box.pool.report(box.worker(name), WorkerError(Failure.REFUSED))
    with pytest.raises(NoLocalBackend):
        await draft(box, text=IBAN)
    assert [worker.id for worker in (await draft(box)).candidates] == ["x", "y", "a", "b"]
    assert not any(one.local for one in box.planner.asked[-1].candidates)


async def test_no_plan_at_all_is_an_error_of_ours_and_not_of_the_client(tmp_path: Path) -> None:
    with pytest.raises(UpstreamFailed):
        await draft(kit(tmp_path, plan=None))
