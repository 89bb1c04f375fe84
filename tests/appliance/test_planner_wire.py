"""Messages between `serve` and the planner are read strictly, and what can be asked can be sent."""

from __future__ import annotations

import json
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Candidate, Card, Heard, PlanRequest, Price
from conductor.errors import PlanError
from conductor.plan.agreement import key
from conductor.plan.language import (
    MAX_STEPS,
    MAX_SUBTASK_BYTES,
    MAX_TOTAL_STEPS,
    MAX_WORKERS,
    Access,
    Plan,
    Step,
)
from conductor.planner import wire
from conductor.planner.engine import Insight, Planned
from support.plans import candidate, heard, plans, request

ASKED = replace(request(candidate(), candidate(price=0.5)), heard=heard("4", "five"))
GOOD = orjson.loads(wire.encode_request(ASKED))
PLANNED = Planned(
    Plan((Step(0, Access(question=True)),)), "x", (1, 0), look=True,
    insight=Insight((0.5, 0.25), (1.0, 0.0), 0.0, 0.001, 0.5),
)  # fmt: skip
ANSWERED = orjson.loads(wire.encode_planned(PLANNED))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(GOOD)), JSON)
def test_a_field_of_any_shape_is_read_or_refused(name: str, value: object) -> None:
    try:
        wire.decode_request(orjson.dumps({**GOOD, name: value}))
    except wire.WireError:
        return


@settings(deadline=None)
@given(st.sampled_from(sorted(GOOD["heard"][0])), JSON)
def test_an_answer_heard_of_any_shape_is_read_or_refused(name: str, value: object) -> None:
    first, second = GOOD["heard"]
    try:
        read = wire.decode_request(
            orjson.dumps({**GOOD, "heard": [{**first, name: value}, second]})
        )
    except wire.WireError:
        return
    assert isinstance(read.heard[0].answer, str)
    assert read.heard[0].worker in (None, 0, 1)


@settings(deadline=None)
@given(st.sampled_from(sorted(ANSWERED)), JSON)
def test_an_answer_of_any_shape_is_read_or_refused(name: str, value: object) -> None:
    try:
        wire.decode_planned(orjson.dumps({**ANSWERED, name: value}))
    except (wire.WireError, PlanError):
        return


@settings(deadline=None)
@given(st.sampled_from(sorted(ANSWERED["insight"])), JSON)
def test_insight_of_any_shape_is_numbers_or_refused(name: str, value: object) -> None:
    insight = {**ANSWERED["insight"], name: value}
    try:
        planned = wire.decode_planned(orjson.dumps({**ANSWERED, "insight": insight}))
    except wire.WireError:
        return
    assert planned.insight is not None
    for read in (planned.insight.right, planned.insight.chosen):
        assert all(0 <= number <= 1 for number in read)
    assert 0 <= planned.insight.expected_cost_usd < float("inf")


texts = st.text(max_size=30)


@pytest.mark.parametrize("value", [0, 0.001, 101, -1, True, "1", None])
def test_a_card_is_as_wordy_as_can_be_or_the_request_is_refused(value: object) -> None:
    fields = orjson.loads(wire.encode_request(request(candidate())))
    fields["candidates"][0]["verbosity"] = value
    with pytest.raises(wire.WireError, match=r"'verbosity' must hold numbers from 0\.01 to 100"):
        wire.decode_request(orjson.dumps(fields))


cards = st.builds(
    candidate,
    price=st.floats(0, 100),
    local=st.booleans(),
    verbosity=st.floats(0.01, 100),
    code=st.floats(0, 1),
)
answers = st.lists(
    st.tuples(st.none() | st.integers(0, 2), texts, st.integers(0, 10**6)), max_size=MAX_TOTAL_STEPS
).map(lambda said: tuple(Heard(step, *told) for step, told in enumerate(said)))


@settings(deadline=None)
@given(
    st.builds(
        PlanRequest,
        request_id=texts,
        question=texts,
        candidates=st.lists(cards, min_size=3, max_size=5).map(tuple),
        preference=st.sampled_from(["thrifty", "balanced", "quality"]),
        max_steps=st.integers(1, 5),
        one_step=st.booleans(),
        prompt_tokens=st.integers(0, 10**9),
        cost_weight=st.floats(0, 1000),
        heard=answers,
        rounds_left=st.integers(0, 5),
        calls_left=st.integers(0, 1000),
    )
)
def test_a_request_survives_the_wire(asked: PlanRequest) -> None:
    assert wire.decode_request(wire.encode_request(asked)) == asked


chances = st.lists(st.floats(0, 1), max_size=3).map(tuple)


@settings(deadline=None)
@given(
    st.builds(
        Planned,
        plan=plans(),
        engine=st.from_regex(r"[a-z0-9._-]{1,32}", fullmatch=True),
        alternates=st.lists(st.integers(0, 255), unique=True, max_size=3).map(tuple),
        look=st.booleans(),
        insight=st.none()
        | st.builds(
            Insight,
            right=chances,
            chosen=chances,
            accept=st.floats(0, 1),
            expected_cost_usd=st.floats(0, 1e6),
            expected_quality=st.floats(0, 1),
        ),
    )
)
def test_an_answer_survives_the_wire(planned: Planned) -> None:
    assert wire.decode_planned(wire.encode_planned(planned), planned.plan.first) == planned


def test_a_question_from_hell_can_still_be_sent() -> None:
    for text in ["\ud800" * 10, "\x00" * 100_000, "🙂" * 1_000_000, "a" * 32_769]:
        asked = wire.bounded(replace(ASKED, question=text, max_steps=99, heard=heard(text, text)))
        raw = wire.encode_request(asked)
        assert len(raw) < wire.MAX_REQUEST_BYTES
        assert wire.decode_request(raw) == asked


# -- the largest messages -------------------------------------------------------------------------

LONGEST = 2.2250738585072014e-308
"""A number from 0 to 1 that takes as many characters as any."""


def largest_request() -> PlanRequest:
    skill = {f"{'d' * 30}{n:02}": LONGEST for n in range(64)}
    card = Card(skill, LONGEST, "measured")
    one = Candidate(card, Price(LONGEST, LONGEST), False, 2**53)
    said = "\x01" * wire.MAX_ANSWER_CHARS
    return PlanRequest(
        request_id="\x01" * 512,
        question="\x01" * wire.MAX_QUESTION_CHARS,
        candidates=(one,) * MAX_WORKERS,
        prompt_tokens=2**53,
        cost_weight=LONGEST,
        heard=tuple(Heard(n, MAX_WORKERS - 1, said, 2**53) for n in range(MAX_TOTAL_STEPS)),
        rounds_left=MAX_TOTAL_STEPS,
        calls_left=2**53,
    )


def largest_answer(subtask: str) -> Planned:
    first = MAX_TOTAL_STEPS - MAX_STEPS
    steps = tuple(
        Step(MAX_WORKERS - 1, Access(True, tuple(range(first + place))), subtask)
        for place in range(MAX_STEPS)
    )
    each = (LONGEST,) * MAX_WORKERS
    return Planned(
        Plan(steps, first), "e" * 32, tuple(range(MAX_WORKERS)), look=True,
        insight=Insight(each, each, LONGEST, LONGEST, LONGEST),
    )  # fmt: skip


def test_the_largest_request_fits() -> None:
    asked = largest_request()
    assert wire.bounded(asked) == asked
    raw = wire.encode_request(asked)
    assert len(raw) < wire.MAX_REQUEST_BYTES
    assert wire.decode_request(raw) == asked


@pytest.mark.parametrize("letter", ['"', "é", "漢", "🙂"])
def test_the_largest_answer_fits_however_its_json_is_written(letter: str) -> None:
    planned = largest_answer(letter * (MAX_SUBTASK_BYTES // len(letter.encode())))
    raw = wire.encode_planned(planned)
    escaped = json.dumps(orjson.loads(raw)).encode()
    assert max(len(raw), len(escaped)) < wire.MAX_REPLY_BYTES
    for text in (raw, escaped):
        assert wire.decode_planned(text, planned.plan.first) == planned


# -- what is cut ----------------------------------------------------------------------------------


def test_of_a_long_answer_both_ends_are_shown() -> None:
    long = "No, it is not. " + "Because so it is. " * 5000 + "So the answer is no."
    [told] = wire.bounded(replace(ASKED, heard=heard(long))).heard
    assert told.answer.startswith("No, it is not. ")
    assert told.answer.endswith("So the answer is no.")
    assert len(told.answer) <= wire.MAX_ANSWER_CHARS
    assert told.output_tokens == len(long)


@settings(deadline=None)
@given(st.text(max_size=50), st.text(max_size=50), st.integers(0, 5000))
def test_an_answer_has_one_key_before_it_is_cut_and_after(start: str, end: str, gap: int) -> None:
    said = (start + "lorem " * gap + end).encode("utf-8", "replace").decode()
    [told] = wire.bounded(replace(ASKED, heard=heard(said))).heard
    assert key(told.answer) == key(said)
