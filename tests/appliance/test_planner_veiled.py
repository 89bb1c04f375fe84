"""When a plan goes by way of a redaction, and that nobody else is told of veiled workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Candidate, Flow, PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import Plan, show
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate
from conductor.planner import wire
from conductor.planner.default import plan_by_rules
from conductor.planner.encoder import WIDTH
from conductor.planner.engine import Insight, Planned
from conductor.planner.facts import Domain, Facts
from conductor.planner.features import State
from conductor.planner.graph import Seen
from conductor.planner.greedy import Kind
from conductor.planner.lexical import FEATURES as LEXICAL
from conductor.planner.pocket import PocketEngine
from conductor.planner.veiled import GAIN, planned
from support.plans import candidate, heard, request

WEAK = candidate(price=0.0, general=0.4)
WEAKER = candidate(price=0.0, general=0.3)
ABROAD = candidate(price=1.0, local=False, general=0.6)
EXPERT = candidate(price=2.0, local=False, general=0.9)
PROBLEM = "Anna pays x, where x^2 - 17x + 60 = 0 and x > 10. Solve for x."
LETTER = "Write one polite sentence to Anna."
DESIGN = f"1 q {Template.EXTRACT}\nredact 0 -\n0 1 {Template.SOLVE}\n1 q,2 {Template.PUT_BACK}\n"


def veil(one: Candidate) -> Candidate:
    return replace(one, veiled=True)


def asked(*candidates: Candidate, sees_redacted: bool = True, **changes: object) -> PlanRequest:
    """A first round; class 1 is the question, class 0 what is redacted."""
    cleared = frozenset(i for i, one in enumerate(candidates) if not one.veiled)
    everybody = frozenset(range(len(candidates)))
    flow = Flow(
        question=1,
        control=1,
        heard=(),
        joins=((0, 1), (1, 1)),
        redacted=(0, 0),
        sees=(everybody if sees_redacted else cleared, cleared),
    )
    made = replace(
        request(*candidates), question=PROBLEM, may_redact=True, flow=flow, cost_weight=0.01
    )
    return replace(made, **changes)


def planned_text(one: PlanRequest) -> str:
    return show(wire.check(plan_by_rules(one), one).plan)


def test_a_far_abler_worker_is_asked_by_way_of_a_redaction() -> None:
    plan = plan_by_rules(asked(veil(EXPERT), WEAK))
    assert show(plan.plan) == DESIGN
    assert plan.alternates == (1,)
    assert plan.engine == "default" and plan.look is False


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(asked(EXPERT, WEAK), id="it may see the question anyway"),
        pytest.param(asked(veil(EXPERT), candidate(general=0.7)), id="it is not much abler"),
        pytest.param(asked(veil(EXPERT), WEAK, cost_weight=1000.0), id="it costs too much"),
        pytest.param(asked(veil(EXPERT), WEAK, may_redact=False), id="nothing can be redacted"),
        pytest.param(asked(veil(EXPERT), WEAK, sees_redacted=False), id="not even redacted"),
        pytest.param(asked(veil(EXPERT), WEAK, question=LETTER), id="no problem is in it"),
        pytest.param(asked(veil(EXPERT), WEAK, one_step=True), id="one worker must answer"),
        pytest.param(asked(veil(EXPERT), WEAK, max_steps=3), id="no room for four steps"),
        pytest.param(asked(veil(EXPERT), WEAK, calls_left=2), id="no room for three calls"),
    ],
)
def test_otherwise_it_is_not(one: PlanRequest) -> None:
    text = planned_text(one)
    assert "redact" not in text
    assert text == ("0 q -\n" if not one.candidates[0].veiled else "1 q -\n")


@pytest.mark.parametrize(("above", "goes"), [(0.01, True), (-0.01, False)])
def test_the_margin_is_what_is_left_after_cost(above: float, goes: bool) -> None:
    expert = veil(candidate(price=0.0, local=False, general=0.4 + GAIN + above))
    assert ("redact" in planned_text(asked(WEAK, expert))) is goes
    priced = replace(expert, price=EXPERT.price)
    tokens = request().prompt_tokens + 400
    weight = above / (1000 * tokens * 2e-6) if above > 0 else 0.0
    assert "redact" not in planned_text(asked(WEAK, priced, cost_weight=1.01 * weight))


def test_what_stays_is_done_at_home_and_the_best_of_the_veiled_solves() -> None:
    one = asked(veil(ABROAD), veil(EXPERT), WEAKER, WEAK, candidate(local=False, general=0.45))
    text = planned_text(one)
    assert text.startswith("3 q ") and "\n1 1 " in text and "\n3 q,2 " in text
    assert plan_by_rules(one).alternates == (0, 4, 3, 2)


def test_if_nobody_may_see_the_question_the_redacted_one_is_asked() -> None:
    for question in (PROBLEM, LETTER):
        one = asked(veil(ABROAD), veil(EXPERT), question=question)
        assert planned_text(one) == "redact q -\n1 0 -\n"
    for lost in [{"may_redact": False}, {"sees_redacted": False}, {"max_steps": 1}]:
        with pytest.raises(PlanError):
            plan_by_rules(asked(veil(EXPERT), **lost))


def test_in_a_further_round_an_answer_is_kept() -> None:
    one = asked(veil(EXPERT), WEAK)
    told = heard("4", workers=(1,))
    again = replace(one, heard=told, flow=replace(one.flow, heard=(1,)))
    assert plan_by_rules(again).plan == Plan(first=1)


def test_an_engine_is_shown_the_others_alone_and_answers_in_their_ordinals() -> None:
    told = heard("4", "", "5", workers=(2, 0, None))
    one = asked(veil(ABROAD), WEAK, WEAKER)
    again = replace(one, heard=told, flow=replace(one.flow, heard=(1, 0, 1)))
    seen: list[PlanRequest] = []

    def ask(shown: PlanRequest) -> Planned:
        seen.append(shown)
        plan = replace(plan_by_rules(request(WEAKER, WEAK)).plan, first=3)
        return Planned(plan, "x", (0,), insight=Insight((0.3, 0.4), (0.0, 1.0), 0.0, 0.1, 0.4))

    answer = planned(again, "x", ask)
    (shown,) = seen
    assert shown.candidates == (WEAK, WEAKER)
    assert [one.worker for one in shown.heard] == [1, None, None]
    assert not shown.may_redact and shown.flow is None
    assert show(answer.plan) == "2 q -\n" and answer.alternates == (1,)
    assert answer.insight is not None
    assert answer.insight.right == (0.0, 0.3, 0.4) and answer.insight.chosen == (0.0, 0.0, 1.0)


cards = st.builds(candidate, price=st.floats(0, 50), local=st.booleans(), general=st.floats(0, 1))


@settings(deadline=None)
@given(
    st.lists(st.tuples(cards, st.booleans()), min_size=1, max_size=5),
    st.sampled_from(["thrifty", "balanced", "quality"]),
    st.floats(0, 1),
    st.integers(1, 5),
    st.integers(1, 8),
    st.booleans(),
)
def test_every_plan_is_one_that_the_mask_permits(
    drawn, preference, cost_weight, max_steps, calls_left, may_redact
) -> None:
    one = asked(
        *(veil(card) if hidden else card for card, hidden in drawn),
        preference=preference,
        cost_weight=cost_weight,
        max_steps=max_steps,
        calls_left=calls_left,
        may_redact=may_redact,
    )
    try:
        answer = plan_by_rules(one)
    except PlanError:
        assert all(hidden for _, hidden in drawn) and (not may_redact or max_steps < 2)
        return
    validate(answer.plan, PlanPool.of(one))
    wire.check(answer, one)


class Widest:
    """A network that wants the last candidate it is shown, and remembers how many there were."""

    def __init__(self) -> None:
        self.shown: list[int] = []

    def __call__(self, state: State) -> Seen:
        present = len(state.present)
        self.shown.append(present)
        scores = np.zeros((4, present), np.float32)
        scores[Kind.LAST, -1] = 10.0
        level = np.ones(present, np.float32) / 2
        return Seen(scores.ravel(), level, level * 0, level * 0, np.ones(1, np.float32), level[:0])


def test_the_pocket_conductor_sees_the_cleared_alone_and_follows_the_same_rule() -> None:
    facts = Facts(WIDTH, LEXICAL, (Domain("all", "general", 200.0, 0.5),), (0.003, 2.0), 6, 5)
    network = Widest()
    engine = PocketEngine(network, facts, lambda text: np.ones(WIDTH, np.float32))
    one = asked(WEAK, veil(ABROAD), WEAKER, veil(WEAK))
    answer = wire.check(engine.plan_now(one), one)
    assert show(answer.plan) == "2 q -\n" and set(network.shown) == {2}
    assert answer.insight is not None and len(answer.insight.right) == 4
    detour = engine.plan_now(asked(veil(EXPERT), WEAK))
    assert show(detour.plan) == DESIGN and detour.engine == "pocket"
