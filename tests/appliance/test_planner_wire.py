"""Messages between `serve` and the planner are read strictly, and what can be asked can be sent."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import PlanRequest
from conductor.errors import PlanError
from conductor.planner import wire
from support.plans import candidate, request

ASKED = request(candidate(), candidate(price=0.5))
GOOD = orjson.loads(wire.encode_request(ASKED))

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
@given(st.sampled_from(["plan", "engine", "alternates"]), JSON)
def test_an_answer_of_any_shape_is_read_or_refused(name: str, value: object) -> None:
    good = {"plan": "0 q -\n", "engine": "x", "alternates": []}
    try:
        wire.decode_planned(orjson.dumps({**good, name: value}))
    except (wire.WireError, PlanError):
        return


texts = st.text(max_size=30)
cards = st.builds(candidate, price=st.floats(0, 100), local=st.booleans(), code=st.floats(0, 1))


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
    )
)
def test_a_request_survives_the_wire(asked: PlanRequest) -> None:
    assert wire.decode_request(wire.encode_request(asked)) == asked


def test_a_question_from_hell_can_still_be_sent() -> None:
    for question in ["\ud800" * 10, "\x00" * 100_000, "🙂" * 1_000_000, "a" * 32_769]:
        asked = wire.bounded(replace(ASKED, question=question, max_steps=99))
        raw = wire.encode_request(asked)
        assert len(raw) < wire.MAX_REQUEST_BYTES
        assert wire.decode_request(raw) == asked
