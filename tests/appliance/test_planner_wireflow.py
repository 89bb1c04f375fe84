"""Who may be shown what reaches the planner whole, or the request is refused."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Flow
from conductor.plan.mask import MAX_CLASSES
from conductor.planner import wire
from support.plans import candidate, flows, heard, request

ASKED = replace(
    request(candidate(), replace(candidate(), veiled=True)),
    heard=heard("4"),
    may_redact=True,
    flow=Flow(
        question=1,
        control=1,
        heard=(0,),
        joins=((0, 1), (1, 1)),
        redacted=(0, 0),
        sees=(frozenset({0, 1}), frozenset({0})),
    ),
)
GOOD = orjson.loads(wire.encode_request(ASKED))


@settings(deadline=None)
@given(flows(1, workers=2), st.booleans(), st.booleans())
def test_a_flow_survives_the_wire(flow: Flow, veiled: bool, may_redact: bool) -> None:
    pair = (candidate(), replace(candidate(), veiled=veiled))
    asked = replace(ASKED, flow=flow, may_redact=may_redact, candidates=pair)
    assert wire.decode_request(wire.encode_request(asked)) == asked


@pytest.mark.parametrize(
    "fault",
    [
        {"question": 2}, {"question": -1}, {"control": None}, {"control": True},
        {"heard": [2]}, {"heard": ["0"]}, {"heard": [0] * 11},
        {"joins": [[0, 1]]}, {"joins": [[0, 1], [1]]}, {"joins": [[0, 1], [1, 2]]},
        {"joins": [[0, 1], [1, 1], [1, 1]]}, {"joins": [[0, 1], 1]},
        {"redacted": [0]}, {"redacted": [0, 2]}, {"redacted": "00"},
        {"sees": []}, {"sees": [[0], [2]]}, {"sees": [[0], [0, 0]]}, {"sees": [[0]]},
        {"sees": [[]] * (MAX_CLASSES + 1)}, {"levels": ["secret"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_flow_that_does_not_hold_together_is_refused(fault: dict[str, object]) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_request(orjson.dumps({**GOOD, "flow": {**GOOD["flow"], **fault}}))


@pytest.mark.parametrize("value", ["", [], {}, 1, True])
def test_a_flow_is_an_object_or_null(value: object) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_request(orjson.dumps({**GOOD, "flow": value}))


def test_no_flow_is_what_it_was() -> None:
    assert wire.decode_request(orjson.dumps({**GOOD, "flow": None})).flow is None
