"""How sure a conductor was of a plan, and of which bundle it is: computed, and told to `serve`."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pytest

from conductor.plan.language import parse
from conductor.planner import wire
from conductor.planner.engine import Planned
from conductor.planner.features import State
from conductor.planner.graph import Seen
from conductor.planner.greedy import Kind, chances, decide, legal

POOL, BUNDLE = 3, "0a" * 32
PLANNED = Planned(parse("0 q -\n"), "pocket", log_prob=-1.5, bundle=BUNDLE)
START = State(
    prompt=np.zeros(4, np.float32),
    skill=np.full((POOL, 1), 0.5, np.float32),
    cost=np.zeros((POOL, 1), np.float32),
    present=np.ones(POOL, np.bool_),
    asked=np.zeros(POOL, np.bool_),
    answer=np.full(POOL, -1),
    pending=np.zeros(POOL, np.bool_),
    weight=np.float32(0.03),
    rounds_left=np.int64(2),
    calls_left=np.int64(4),
    steps_left=np.int64(5),
)  # fmt: skip
NOBODY = np.zeros(POOL, np.bool_)


def network(state: State) -> Seen:
    """Two side by side, then a look: the second choice is the surer one."""
    scores = np.zeros((4, POOL), np.float32)
    scores[(Kind.LOOK, 2) if state.pending.any() else (Kind.MORE, 1)] = 2 + state.pending.sum()
    half = np.full(POOL, 0.5, np.float32)
    return Seen(scores.ravel(), half, half, half, half[:1], np.zeros(5, np.float32))


def test_the_chance_of_a_plan_is_that_of_all_its_choices() -> None:
    decision = decide(network, START, NOBODY)
    assert decision is not None and decision.asks == (1, 2)
    pending = np.array([False, True, False])
    then = START._replace(pending=pending, calls_left=np.int64(3), steps_left=np.int64(4))
    first, second = (chances(network(s), legal(s, NOBODY)) for s in (START, then))
    assert first is not None and second is not None
    expected = math.log(first[Kind.MORE, 1]) + math.log(second[Kind.LOOK, 2])
    assert decision.log_prob == pytest.approx(expected) and expected < -0.1


def test_serve_is_told_both_and_plans_of_rules_have_neither() -> None:
    told = wire.decode_planned(wire.encode_planned(PLANNED))
    assert (told.log_prob, told.bundle) == (-1.5, BUNDLE)
    bare = wire.encode_planned(Planned(parse("0 q -\n"), "default"))
    assert b"log_prob" not in bare and b"bundle" not in bare
    assert wire.decode_planned(bare).log_prob is None


@pytest.mark.parametrize(
    "changed",
    [{"log_prob": 0.5}, {"log_prob": "sure"}, {"log_prob": True}, {"log_prob": -1e9},
     {"bundle": "x"}, {"bundle": 7}, {"bundle": "A" * 64}, {"bundle": "0" * 65}],
)  # fmt: skip
def test_what_is_no_such_number_or_id_is_refused(changed: dict[str, object]) -> None:
    fields = orjson.loads(wire.encode_planned(PLANNED))
    with pytest.raises(wire.WireError):
        wire.decode_planned(orjson.dumps({**fields, **changed}))
