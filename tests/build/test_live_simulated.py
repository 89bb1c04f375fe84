"""A simulated pool: what its workers answer, and what they react to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from conductor.core import Call, Candidate, PlanRequest
from conductor.plan.templates import Template
from conductor.run.exchange import Limits
from conductor.run.messages import Shown, answer_text, step_messages
from conductor_build.live.executed import Executed
from conductor_build.live.game import Game
from conductor_build.live.known import AnswerKey
from conductor_build.live.reactions import Fit, Reactions, checks, fit_of
from conductor_build.live.simulated import SimulatedPool
from conductor_build.tasks.common import Example, TaskError
from conductor_build.tasks.sketches import DOMAINS, Sketches
from support.plays import Sheep, played

TASK = Sketches(420, seed=4)


@dataclass(frozen=True)
class Worker:
    name: str
    skill: Any = field(default_factory=dict)
    usd_per_mtok: float = 0.0
    tokens: int = 100
    tokens_per_s: float = 50.0


GOOD = Worker("good", {"general": 0.9}, 8.0, 200)
POOR = Worker("poor", {"general": 0.4})
POOL = SimulatedPool([GOOD, POOR], AnswerKey.of([TASK]), seed=9)
WORKERS = {one.id: one for one in POOL.workers(DOMAINS, 50, seed=1)}


async def said(
    name: str, messages: list[dict[str, Any]], pool: SimulatedPool = POOL, **more
) -> str:
    call = Call("r", orjson.dumps({"messages": messages, **more}), stream=False)
    async with pool.call(WORKERS[name], call) as reply:
        return answer_text(await reply.json())


async def share(name: str, *, shown=(), subtask: str = "", question: bool = True) -> float:
    """How often it is right over the whole task. `shown` are what others said: right or wrong."""
    right = 0.0
    for place in range(len(TASK)):
        example = TASK[place]
        told = {True: str(example.facts["answer"]), False: str(example.facts["wrong"][0])}
        others = [Shown(n, "", f"Answer: {told[one]}") for n, one in enumerate(shown)]
        asked = [{"role": "user", "content": example.question}]
        messages = step_messages(asked, question=question, shown=others, subtask=subtask)
        right += TASK.score(example, await said(name, messages))
    return right / len(TASK)


async def test_the_same_call_always_gets_the_same_answer_and_another_seed_may_get_another():
    messages = [{"role": "user", "content": TASK[0].question}]
    again = SimulatedPool([GOOD, POOR], AnswerKey.of([TASK]), seed=9)
    assert await said("good", messages) == await said("good", messages, again)
    answers = {await said("poor", messages, seed=seed) for seed in range(40)}
    assert len(answers) > 1


async def test_the_more_skilled_worker_is_right_more_often():
    good, poor = await share("good"), await share("poor")
    assert 0.8 < good < 0.95
    assert 0.3 < poor < 0.5


FITTING = {
    "arithmetic": "Calculate the sum with care.",
    "dates": "Count the days of each month on a calendar.",
    "units": "Convert the units with the right factor.",
    "sorting": "Sort them alphabetically.",
    "code": "Trace the program loop by loop.",
    "words": "Spell each digit.",
    "logic": "Line the people up by age, oldest first.",
}


@pytest.mark.parametrize("domain", DOMAINS)
async def test_a_fitting_instruction_helps_and_one_about_something_else_hurts(domain):
    task = Sketches(120, seed=4, domains=[domain])
    pool = SimulatedPool([POOR], AnswerKey.of([task]), seed=9)
    elsewhere = FITTING[DOMAINS[DOMAINS.index(domain) - 1]]
    right = {}
    for subtask in (FITTING[domain], "", elsewhere):
        right[subtask] = 0.0
        for place in range(len(task)):
            asked = [{"role": "user", "content": task[place].question}]
            messages = step_messages(asked, question=True, shown=[], subtask=subtask)
            right[subtask] += task.score(task[place], await said("poor", messages, pool))
    assert right[FITTING[domain]] - 5 > right[""] > right[elsewhere] + 5


async def test_an_instruction_that_everybody_may_read_helps_a_little():
    assert await share("poor") < await share("poor", subtask=Template.CODE)


async def test_what_is_shown_helps_misleads_and_is_repaired_by_a_checker():
    bare = await share("poor")
    assert await share("poor", shown=[True]) > bare + 0.2
    assert await share("poor", shown=[False]) < bare - 0.1
    assert await share("poor", shown=[False], subtask=Template.VERIFY) > bare
    assert await share("poor", shown=[True], subtask=Template.VERIFY) > bare + 0.2


async def test_without_the_question_a_worker_passes_on_what_the_others_say():
    assert await share("good", question=False, shown=[True, True, False], subtask="Finish.") == 1.0
    assert await share("good", question=False, shown=[False], subtask="Finish.") == 0.0
    assert await share("good", question=False, subtask="Finish.") == 0.0


async def test_a_restated_problem_can_be_solved_by_who_does_not_see_the_question():
    example = TASK[0]
    asked = [{"role": "user", "content": example.question}]
    extracted = await said(
        "good", step_messages(asked, question=True, shown=[], subtask=Template.EXTRACT)
    )
    assert TASK.score(example, extracted) == 0.0 or str(example.facts["answer"]) in extracted
    messages = step_messages(
        [], question=False, shown=[Shown(0, "", extracted)], subtask=Template.SOLVE
    )
    seeds = [await said("good", messages, seed=seed) for seed in range(30)]
    assert sum(TASK.score(example, answer) for answer in seeds) > 15


async def test_answers_have_tokens_and_take_time_as_described():
    spent = []
    for place in range(200):
        body = {"messages": [{"role": "user", "content": TASK[place].question}]}
        call = Call("r", orjson.dumps(body), stream=False)
        async with POOL.call(WORKERS["good"], call) as reply:
            usage = await reply.json()
        assert usage["seconds"] == usage["usage"]["completion_tokens"] / GOOD.tokens_per_s
        spent.append(usage["usage"]["completion_tokens"])
    assert 180 < sum(spent) / len(spent) < 230
    assert len(set(spent)) > 50


def test_cards_look_measured_and_say_what_workers_can():
    good, poor = WORKERS["good"].card, WORKERS["poor"].card
    assert good.source == "measured"
    assert set(good.skill) == set(DOMAINS)
    assert sum(good.skill.values()) > sum(poor.skill.values())
    assert len(set(good.skill.values())) > 1  # the noise of fifty questions
    assert good.verbosity == pytest.approx(200 / 150, abs=0.01)
    assert POOL.workers(DOMAINS, 50, seed=1) == tuple(WORKERS.values())
    assert POOL.workers(DOMAINS, 50, seed=2) != tuple(WORKERS.values())
    assert WORKERS["good"].price.output_usd_per_mtok == 8.0


def test_a_task_that_holds_no_answers_cannot_be_simulated():
    with pytest.raises(TaskError, match="written down"):
        AnswerKey.of([Sheep()])


def test_answers_of_files_are_found_too():
    @dataclass
    class Lines(Sheep):
        facts: Any = None

        def __getitem__(self, index: int) -> Example:
            return Example("1", "How much?", self.facts)

    for facts, right in (({"number": 12.5}, "12.5"), ({"accepted": ("Rome",)}, "Rome")):
        known = AnswerKey.of([Lines(facts=facts)]).find(" how  much? ")
        assert known is not None
        assert known.right == right
        assert right not in known.wrong
        assert len(known.wrong) == 3


def test_chances_follow_from_what_is_told_and_shown():
    reactions = Reactions()

    def chance(fit=Fit.NONE, hard=3, right=0, wrong=0, checking=False) -> float:
        return reactions.chance(0.6, hard, fit, right=right, wrong=wrong, checks=checking)

    assert chance() == pytest.approx(0.6)
    assert chance(hard=5) < chance(hard=3) < chance(hard=1)
    assert chance(Fit.OFF_TOPIC) < chance(Fit.PLAIN) == chance() < chance(Fit.TEMPLATE)
    assert chance(Fit.TEMPLATE) < chance(Fit.FITTING)
    assert chance(wrong=1) < chance() < chance(right=1) < chance(right=1, checking=True)
    assert chance(wrong=1, checking=True) > chance()


@pytest.mark.parametrize(
    ("instruction", "fit"),
    [
        ("", Fit.NONE),
        (Template.SOLVE, Fit.TEMPLATE),
        ("Add the numbers up.", Fit.FITTING),
        ("Sort them.", Fit.OFF_TOPIC),
        ("Take care, and answer.", Fit.PLAIN),
    ],
)
def test_an_instruction_fits_by_its_words(instruction, fit):
    assert fit_of(instruction, "arithmetic", "Calculate 1 + 1. Answer alone.") is fit


def test_a_domain_without_words_of_its_own_goes_by_those_of_the_question():
    assert fit_of("Think of the capital.", "places", "Which capital has it?") is Fit.FITTING
    assert not checks("Solve it.")
    assert checks("Verify the result.")


# -- played through the executor ----------------------------------------------------------------


def dealt(place: int) -> Game:
    workers = tuple(WORKERS.values())
    example = TASK[place]
    candidates = tuple(Candidate(w.card, w.price, True, 8192) for w in workers)
    request = PlanRequest("r", example.question, candidates, 30, rounds_left=2)
    return Game(TASK, example, request, workers, Limits(), 0.03, seed=1)


async def test_plans_on_a_simulated_pool_are_worth_what_their_workers_can():
    environment = Executed(POOL, simulated=True)
    assert environment.simulated

    async def mean(text: str, places: int = 140) -> float:
        outcomes = [await played(environment, dealt(place), text) for place in range(places)]
        assert all(outcome.void is None for outcome in outcomes)
        return sum(outcome.quality or 0.0 for outcome in outcomes) / places

    poor, good = await mean("1 q -\n"), await mean("0 q -\n")
    assert poor + 0.3 < good
    checked = await mean(f"1 q -\n0 q,0 {Template.VERIFY}\n")
    assert checked > good
