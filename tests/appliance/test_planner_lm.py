"""The language-model engine: requests into ids, ids into plans, and when it gives up."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from conductor.core import Flow, PlanRequest
from conductor.errors import PlanError, StartError
from conductor.plan.automaton import Automaton, State
from conductor.plan.language import parse
from conductor.plan.validate import PlanPool, validate
from conductor.planner import wire
from conductor.planner.lm import Decoding, LmEngine, alternates, looks
from conductor.planner.lm_runner import RunnerFailed, Token, Wanted
from support.lmbundles import FakeRunner, engine, parts
from support.plans import candidate, heard, request
from support.soon import until

ASKED = request(
    candidate(price=0.0, general=0.4),
    candidate(price=9.0, general=0.9),
    candidate(price=0.5, general=0.8),
    question="How many apples are left?",
)
LATER = replace(ASKED, heard=heard("4", ""), rounds_left=1, calls_left=3)
TWO = "2 q Solve it.\n1 q,0 -\n"


# -- plans ------------------------------------------------------------------------------------


async def test_what_the_runner_writes_is_the_plan() -> None:
    planned = await engine(FakeRunner(TWO)).plan(ASKED)
    assert planned.plan == parse(TWO) and planned.engine == "lm"
    assert wire.check(planned, ASKED) is planned


async def test_a_plan_carries_the_chance_of_its_tokens_and_its_bundle() -> None:
    fake = FakeRunner(TWO)
    writing = await engine(fake).write(ASKED)
    assert writing.log_prob == pytest.approx(-0.25 * len(writing.tokens))
    planned = await engine(fake).plan(ASKED)
    assert planned.log_prob == writing.log_prob and planned.bundle == "ab" * 32
    assert wire.decode_planned(wire.encode_planned(planned)).log_prob == planned.log_prob


async def test_the_prompt_is_the_one_of_training() -> None:
    fake, ours = FakeRunner(), parts()
    await engine(fake).plan(ASKED)
    (wanted,) = fake.asked
    assert len(wanted.prefix) % 32 == 0
    text = ours.tokenizer.decode([*wanted.prefix, *wanted.rest], skip_special_tokens=False)
    assert text == ours.prompter.write(ASKED).text
    assert wanted.seed is None


async def test_the_mask_is_the_requests_own() -> None:
    flow = Flow(question=0, control=0, heard=(), joins=((0,),), redacted=(0,),
                sees=(frozenset({1}),))  # fmt: skip
    fake = FakeRunner("1 q -\n")
    labelled = replace(ASKED, flow=flow)
    validate((await engine(fake).plan(labelled)).plan, PlanPool.of(labelled))
    automaton = fake.asked[0].automaton
    with pytest.raises(PlanError, match="not allowed"):
        automaton.advance(automaton.start(), *parts().encode("0"))


async def test_a_later_round_is_numbered_on() -> None:
    planned = await engine(FakeRunner("1 q,0 -\n")).plan(LATER)
    assert (planned.plan.first, planned.plan.steps[0].access.steps) == (2, (0,))


async def test_no_line_at_all_keeps_the_answer_that_stands() -> None:
    planned = await engine(FakeRunner("")).plan(LATER)
    assert (planned.plan.steps, planned.look, planned.alternates) == ((), False, ())


async def test_where_nobody_can_be_asked_the_runner_is_not() -> None:
    fake = FakeRunner()
    nobody = replace(LATER, candidates=(), heard=heard("4", workers=(None,)))
    assert (await engine(fake).plan(nobody)).plan.steps == ()
    with pytest.raises(PlanError, match="no candidate"):
        await engine(fake).plan(replace(ASKED, candidates=()))
    blind = Flow(question=0, control=0, heard=(), joins=((0,),), redacted=(0,), sees=(frozenset(),))
    with pytest.raises(PlanError, match="no plan is possible"):
        await engine(fake).plan(replace(ASKED, flow=blind))
    assert fake.asked == []


async def test_draws_have_a_new_seed_each_time() -> None:
    fake = FakeRunner()
    drawing = engine(fake, sample=True, temperature=0.7)
    await asyncio.gather(*(drawing.plan(ASKED) for _ in range(4)))
    assert len({wanted.seed for wanted in fake.asked}) == 4
    assert {wanted.temperature for wanted in fake.asked} == {0.7}


# -- rules around the model -------------------------------------------------------------------

ONE = replace(ASKED, rounds_left=2)


@pytest.mark.parametrize(
    ("asked", "text", "rounds", "look"),
    [
        (ONE, TWO, 3, True),
        (ONE, TWO, 1, False),
        (ASKED, TWO, 3, False),
        (replace(ONE, one_step=True), "0 q -\n", 3, False),
        (LATER, "vote 0 -\n", 3, False),
    ],
    ids=["rounds left", "never learned", "no round left", "one step", "calls nobody"],
)
def test_it_looks_when_it_learned_to_and_can(
    asked: PlanRequest, text: str, rounds: int, look: bool
) -> None:
    assert looks(asked, parse(text, len(asked.heard)), rounds) is look


@pytest.mark.parametrize(
    ("text", "weight", "order"),
    [
        ("0 q -\n", 0.0, (1, 2)),
        ("0 q -\n", 0.1, (2, 1)),
        (TWO, 0.0, (0, 1, 2)),
        ("0 q -\n0 q,0 -\n", 0.0, (1, 2)),
        ("vote 0 -\n", 0.0, ()),
    ],
    ids=["by skill", "less price", "those asked last", "not for itself", "nobody asked"],
)
def test_stand_ins_are_the_others_by_skill_less_price(
    text: str, weight: float, order: tuple[int, ...]
) -> None:
    asked = replace(ASKED, cost_weight=weight)
    assert alternates(asked, parse(text, 1 if text.startswith("vote") else 0)) == order


# -- giving up --------------------------------------------------------------------------------


async def test_a_plan_that_takes_too_long_is_none_and_its_decoding_ends() -> None:
    fake = FakeRunner(gate=asyncio.Event())
    with pytest.raises(PlanError, match=r"within 0\.05 s"):
        await engine(fake, limit_s=0.05).plan(ASKED)
    assert fake.running == 0 and len(fake.asked) == 1


async def test_whoever_stops_waiting_ends_the_decoding() -> None:
    fake = FakeRunner(gate=asyncio.Event())
    task = asyncio.create_task(engine(fake).plan(ASKED))
    await until(lambda: fake.running)
    task.cancel()
    await until(lambda: not fake.running)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("room", range(1, 12))
async def test_a_plan_without_room_to_end_is_ended_in_the_shortest_way(room: int) -> None:
    fake = FakeRunner(TWO)
    planned = await engine(fake, max_tokens=room).plan(ASKED)
    assert wire.check(planned, ASKED) is planned
    assert planned.plan.steps[0].worker == 2 or room < 2


class Disobedient(FakeRunner):
    """A runner whose mask is broken, or whose memory is."""

    def __init__(self, ids: list[int], log_prob: float = -0.25) -> None:
        super().__init__()
        self._ids, self._log_prob = ids, log_prob

    async def write(self, wanted: Wanted) -> AsyncGenerator[Token, None]:
        for one in self._ids:
            yield Token(one, self._log_prob, False)


SEES_ONE = Flow(question=0, control=0, heard=(), joins=((0,),), redacted=(0,),
                sees=(frozenset({1}),))  # fmt: skip


@pytest.mark.parametrize(
    "ids",
    [
        parts().encode("0 q -\n"),
        [*parts().encode("1 q -\n"), *parts().tables.eos, 5],
        [-1],
        [10**9],
        [*parts().encode("1 q"), 0],
    ],
    ids=["whom the labels forbid", "beyond the end", "below all", "no token", "a control token"],
)
async def test_whatever_a_runner_writes_the_automaton_is_asked_again(ids: list[int]) -> None:
    labelled = replace(ASKED, flow=SEES_ONE)
    with pytest.raises(PlanError, match="not allowed"):
        await engine(Disobedient(ids)).plan(labelled)


@pytest.mark.parametrize("log_prob", [math.nan, -math.inf, math.inf])
async def test_a_chance_that_is_no_number_is_told_to_nobody(log_prob: float) -> None:
    with pytest.raises(PlanError, match="no number"):
        await engine(Disobedient(parts().encode("0 q -\n"), log_prob)).plan(ASKED)


async def test_a_runner_that_does_not_keep_to_the_automaton_is_found_at_the_start() -> None:
    with pytest.raises(StartError, match="writes no plan here"):
        await engine(Disobedient([0])).try_once()


async def test_a_runner_that_fails_is_not_taken_for_a_request_without_a_plan() -> None:
    with pytest.raises(RunnerFailed):
        await engine(FakeRunner(error=RunnerFailed("broken"))).plan(ASKED)


async def test_the_event_loop_goes_on_while_a_prompt_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_in = list[str]()
    real = Automaton.start

    def noting(automaton: Automaton) -> State:
        made_in.append(threading.current_thread().name)
        return real(automaton)

    monkeypatch.setattr(Automaton, "start", noting)
    await engine(FakeRunner()).plan(ASKED)
    assert made_in[0].startswith("lm prompts")


# -- the start --------------------------------------------------------------------------------


def test_a_model_that_knows_too_few_tokens_is_refused() -> None:
    with pytest.raises(StartError, match="not of one bundle"):
        engine(FakeRunner(vocabulary=699))
    assert isinstance(engine(FakeRunner(vocabulary=768)), LmEngine)


async def test_a_model_that_writes_no_plan_is_found_at_the_start() -> None:
    await engine(FakeRunner("0 q " + "word " * 190 + "x\n")).try_once()
    broken = RunnerFailed("the runner broke (OutOfMemoryError)")
    for error, said in ((broken, "OutOfMemoryError"), (PlanError("too long"), "PlanError")):
        with pytest.raises(StartError, match=f"writes no plan here .*{said}"):
            await engine(FakeRunner(error=error)).try_once()


@pytest.mark.parametrize("wrong", [{"limit_s": 0.0}, {"max_tokens": 0}, {"temperature": 0.0},
                                   {"temperature": float("nan")}])  # fmt: skip
def test_decoding_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(StartError, match="above 0"):
        Decoding(**wrong)  # type: ignore[arg-type]
