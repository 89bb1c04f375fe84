"""The supervised start: plans that fit and make sense, spelled as they are written, imitated."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from conductor.core import PlanRequest
from conductor.errors import PlanError
from conductor.plan.language import Builtin, Plan, parse, show
from conductor.plan.validate import PlanPool, validate
from conductor_build.lm.draw import Dealer, Ground, Purpose
from conductor_build.lm.policy import PlanPolicy
from conductor_build.lm.recipe import Draw, Rounds, WarmStart
from conductor_build.lm.teacher import Teacher
from conductor_build.lm.warmstart import imitate, spelled
from support.lmgames import Named, workers
from support.lmmodels import requests
from support.lmtrainings import small_policy
from support.plans import candidate, request


def taught(asked: PlanRequest, count: int = 60, domain: str = "general") -> list[Plan]:
    return Teacher(asked, domain, np.random.default_rng(0)).plans(count)


def test_every_plan_fits_whatever_the_pool_and_the_permissions() -> None:
    ground = Ground(((Named(), 1.0),), workers())
    draw = Draw(pool=(1, 3), veiled=0.5, max_steps=(1, 5), max_calls=(1, 5))
    shapes: Counter[int] = Counter()
    for game in Dealer(ground, draw, Rounds(), 0).games(Purpose.WARM_START, 0, 150):
        for plan in taught(game.request, 4):
            validate(plan, PlanPool.of(game.request))
            shapes[len(plan.steps)] += 1
    assert {1, 2, 3, 4} <= shapes.keys()


def test_the_worker_whose_card_promises_most_is_asked_most() -> None:
    asked = request(candidate(general=0.2), candidate(general=0.9), candidate(general=0.5))
    alone = Counter(plan.steps[0].worker for plan in taught(asked) if len(plan.steps) == 1)
    assert alone[1] > 0.8 * alone.total()


def test_skill_in_the_questions_domain_counts_and_so_does_the_price() -> None:
    asked = request(candidate(general=0.9, code=0.1), candidate(general=0.2, code=0.9))
    alone = [plan.steps[0].worker for plan in taught(asked, domain="code") if len(plan.steps) == 1]
    assert alone.count(1) > 0.8 * len(alone)
    dear = request(candidate(price=50.0, general=0.9), candidate(general=0.8))
    thrifty = taught(replace(dear, cost_weight=2.0))
    alone = [plan.steps[0].worker for plan in thrifty if len(plan.steps) == 1]
    assert alone.count(1) > 0.8 * len(alone)


def test_plans_are_of_several_kinds() -> None:
    asked = request(candidate(general=0.6), candidate(general=0.6), candidate(general=0.6))
    plans = taught(asked, 120)
    assert {len(plan.steps) for plan in plans} >= {1, 2, 3, 4}
    assert any(Builtin.VOTE in [step.worker for step in plan.steps] for plan in plans)
    assert len({show(plan) for plan in plans}) > 25


def test_where_one_is_veiled_some_plans_go_by_way_of_a_redaction() -> None:
    ground = Ground(((Named(), 1.0),), workers())
    draw = Draw(pool=(3, 3), refused=0.0, veiled=1.0)
    game = Dealer(ground, draw, Rounds(), 0).game(Purpose.WARM_START, 1)
    assert game.request.flow is not None
    plans = taught(game.request, 80)
    assert any(Builtin.REDACT in [step.worker for step in plan.steps] for plan in plans)


# -- spelling -------------------------------------------------------------------------------------

TEXTS = (
    "0 q -\n",
    "1 q Check it, then say so.\n",
    "0 q -\n1 q,0 Solve it again, and correct it.\n",
    "0 q -\n1 q -\nvote 0,1 -\n",
)


@pytest.fixture(scope="module")
def made() -> PlanPolicy:
    return small_policy()


@pytest.mark.parametrize("text", TEXTS)
def test_a_plan_is_spelled_as_the_policy_would_write_it(made: PlanPolicy, text: str) -> None:
    ask = made.writer.ask(requests()[0])
    found = spelled(made.writer, ask, parse(text))
    assert made.writer.text(found.tokens) == found.text == text
    assert found.tokens[-1] in made.writer.tables.eos
    automaton, state = made.writer.automaton(ask), made.writer.automaton(ask).start()
    for token, forced in zip(found.tokens, found.forced, strict=True):
        assert not automaton.forced(state) or forced, "a choice where there is none"
        state = automaton.advance(state, token)


def test_a_plan_that_does_not_fit_is_refused(made: PlanPolicy) -> None:
    ask = made.writer.ask(requests()[0])
    with pytest.raises(PlanError):
        spelled(made.writer, ask, parse("7 q -\n"))


def test_imitated_plans_become_likelier() -> None:
    policy = small_policy()
    asks = [policy.writer.ask(one) for one in requests()]
    plans = [[spelled(policy.writer, ask, parse(text)) for text in TEXTS[:3]] for ask in asks]
    optimiser = torch.optim.AdamW(policy.parameters(), lr=0.02)
    settings = WarmStart(through="request")
    course = [imitate(policy, optimiser, list(zip(asks, plans, strict=True)), settings).loss
              for _ in range(8)]  # fmt: skip
    assert course[-1] < course[0] - 0.5


def test_how_far_back_the_gradient_goes_changes_what_is_learned() -> None:
    found = {}
    for through in ("prompt", "request", "plan"):
        policy = small_policy()
        ask = policy.writer.ask(requests()[0])
        plan = spelled(policy.writer, ask, parse(TEXTS[1]))
        optimiser = torch.optim.SGD(policy.parameters(), lr=0.1)
        settings = replace(WarmStart(), through=through, max_gradient=1000.0)
        imitate(policy, optimiser, [(ask, [plan])], settings)
        found[through] = torch.cat([one.flatten() for one in policy.state().values()])
    assert not torch.equal(found["prompt"], found["request"])
    assert not torch.equal(found["request"], found["plan"])
