"""Plans played through the daemon's own executor: what is shown, counted, scored, and void."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from conductor.core import Failure
from conductor.errors import PlanError, WorkerError
from conductor.plan.language import parse
from conductor.plan.templates import Template
from conductor.run.exchange import Limits
from conductor_build.live import scoring
from conductor_build.live.executed import Executed, Sampling
from conductor_build.live.game import Game
from conductor_build.tasks.common import Void, VoidReason
from support.fakes import Act, kit
from support.plays import FAR, QUESTION, Saying, Sheep, game, played, worker


def over(caller: Saying, **settings) -> Executed:
    return Executed(caller, simulated=True, **settings)


async def test_a_step_without_instruction_is_sent_the_question_as_it_is():
    caller = Saying()
    outcome = await played(over(caller), game(2), "1 q -\n")
    ((name, body),) = caller.made
    assert name == "w1"
    assert body == {
        "model": "model-of-w1", "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0.2, "seed": 7, "max_tokens": 1024, "stream": False,
    }  # fmt: skip
    assert (outcome.quality, outcome.void, outcome.used) == (1.0, None, (1,))


async def test_cost_tokens_calls_and_time_are_counted_over_all_steps():
    outcome = await played(over(Saying()), game(3), "0 q -\n1 q -\n2 0,1 Choose the better one.\n")
    assert (outcome.prompt_tokens, outcome.output_tokens, outcome.calls) == (120, 60, 3)
    assert outcome.cost_usd_per_1k == pytest.approx(1000 * (120 * 1 + 60 * 4) / 1e6)
    assert outcome.seconds == 1.0  # the first two side by side
    assert outcome.used == (0, 1, 2)
    assert outcome.rounds == 1


async def test_the_price_is_that_of_the_candidate_and_not_of_the_worker():
    dealt = game(1)
    (candidate,) = dealt.request.candidates
    free = replace(candidate, price=replace(candidate.price, output_usd_per_mtok=0.0))
    dealt = replace(dealt, request=replace(dealt.request, candidates=(free,)))
    outcome = await played(over(Saying()), dealt, "0 q -\n")
    assert outcome.cost_usd_per_1k == pytest.approx(1000 * 40 / 1e6)


async def test_a_step_that_nobody_needs_is_not_run():
    caller = Saying()
    await played(over(caller), game(3), "0 q -\n1 q Do something else.\n2 0 Finish.\n")
    assert sorted(caller.workers) == ["w0", "w2"]


async def test_a_plan_that_does_not_fit_is_refused_before_anybody_is_called():
    caller = Saying()
    session = over(caller).open(game(2))
    for text in ("2 q -\n", "", "vote q -\n"):
        with pytest.raises(PlanError):
            await session.play(parse(text), look=False)
    assert not caller.made
    assert await session.play(parse("0 q -\n"), look=False) is None
    assert session.outcome().quality == 1.0


async def test_a_game_that_is_not_over_has_no_outcome():
    session = over(Saying()).open(game(2))
    with pytest.raises(RuntimeError):
        session.outcome()
    await session.play(parse("0 q -\n"), look=True)
    with pytest.raises(RuntimeError):
        session.outcome()
    await session.close()


async def test_a_look_asks_for_a_further_plan_with_what_was_heard():
    caller = Saying({"w0": "41"})
    dealt = game((worker("w0"), worker("w1", FAR)), limits=Limits(max_rounds=3, max_calls=5))
    session = over(caller).open(dealt)
    asked = await session.play(parse("0 q -\n1 q -\n"), look=True)
    assert asked is not None
    assert [(one.step, one.worker, one.answer) for one in asked.heard] == [
        (0, 0, "41"), (1, 1, "42"),
    ]  # fmt: skip
    assert (asked.rounds_left, asked.calls_left) == (1, 3)
    assert asked.candidates == dealt.request.candidates
    assert await session.play(parse("0 1 Check it.\n", 2), look=False) is None
    outcome = session.outcome()
    assert (outcome.quality, outcome.rounds, outcome.calls) == (0.0, 2, 3)
    assert "42" in caller.shown(2)


async def test_an_empty_plan_keeps_the_answer_that_stands():
    outcome = await played(over(Saying({"w0": "42"})), game(2), "0 q -\n", "")
    assert (outcome.quality, outcome.rounds, outcome.calls) == (1.0, 2, 1)


async def test_a_vote_elects_as_in_the_daemon():
    caller = Saying({"w0": "41", "w1": "The answer is 42.", "w2": "42"})
    outcome = await played(over(caller), game(3), "0 q -\n1 q -\n2 q -\nvote 0,1,2 -\n")
    assert outcome.quality == 1.0


@pytest.mark.parametrize(
    "plan",
    [
        "0 q -\n",
        "0 q -\n1 q Work it out.\n0 q,0,1 Choose.\n",
        f"0 q {Template.EXTRACT}\n1 0 {Template.SOLVE}\n0 * {Template.PUT_BACK}\n",
    ],
)
async def test_workers_are_shown_what_the_daemon_shows_them(plan, tmp_path):
    served = kit(tmp_path, {"a": Act("42"), "b": Act("42")})
    async with served.executor.answer(served.run(plan, text=QUESTION)):
        pass
    caller = Saying()
    await played(over(caller), game(2), plan)
    names = {"a": "w0", "b": "w1"}
    theirs = [(names[made.worker], made.body["messages"]) for made in served.caller.calls]
    assert sorted(map(str, theirs)) == sorted(str((n, body["messages"])) for n, body in caller.made)


# -- what is asked twice ------------------------------------------------------------------------


async def test_a_worker_asked_the_same_twice_samples_a_second_answer():
    caller = Saying()
    await played(over(caller), game(1), "0 q -\n0 q -\nvote 0,1 -\n")
    assert sorted(body["seed"] for _, body in caller.made) == [7, 8]


async def test_without_temperature_there_is_no_seed():
    caller = Saying()
    await played(over(caller, sampling=Sampling(temperature=0, max_tokens=9)), game(1), "0 q -\n")
    assert "seed" not in caller.made[0][1]
    assert caller.made[0][1]["max_tokens"] == 9


# -- veiled workers -----------------------------------------------------------------------------


async def test_a_veiled_worker_is_shown_the_question_after_a_redaction_alone():
    caller = Saying()
    dealt = game(3, veiled=2)
    with pytest.raises(PlanError):
        await over(caller).open(dealt).play(parse("2 q -\n"), look=False)
    text = f"redact q -\n2 0 {Template.SOLVE}\n"
    outcome = await played(over(caller), dealt, text)
    assert (outcome.quality, outcome.used) == (1.0, (2,))
    assert caller.shown(0).startswith("Result of step 1:\nA farmer has 17")


async def test_whether_a_worker_is_veiled_is_a_matter_of_each_game():
    environment, text = over(Saying()), "2 q -\n"
    for _ in range(2):
        with pytest.raises(PlanError):
            await played(environment, game(3, veiled=2), text)
        assert (await played(environment, game(3), text)).quality == 1.0
        free = "redact q -\n2 0,1 -\n"
        with pytest.raises(PlanError):
            await played(environment, game(3, veiled=2), free)


async def test_a_veiled_worker_is_no_candidate_of_a_further_round():
    session = over(Saying()).open(game(3, veiled=2))
    asked = await session.play(parse(f"redact q -\n2 0 {Template.SOLVE}\n0 q -\n"), look=True)
    assert asked is not None
    assert [candidate.veiled for candidate in asked.candidates] == [False, False]
    assert [one.worker for one in asked.heard] == [None, None, 0]
    assert await session.play(parse("1 q,1 -\n", 3), look=False) is None
    assert session.outcome().used == (0, 1, 2)


# -- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Failure.REFUSED, Failure.MALFORMED, Failure.AUTH])
async def test_a_worker_that_fails_makes_the_play_void_and_nobody_stands_in(failure):
    caller = Saying({"w0": WorkerError(failure)})
    outcome = await played(over(caller), game(2), "0 q -\n")
    assert (outcome.quality, outcome.void) == (None, f"worker:{failure}")
    assert set(caller.workers) == {"w0"}


async def test_a_worker_that_fails_in_a_look_ends_the_game():
    caller = Saying({"w0": WorkerError(Failure.CUT)})
    session = over(caller).open(game(2))
    assert await session.play(parse("0 q -\n1 q -\n"), look=True) is None
    assert session.outcome().void == "worker:cut"


async def test_a_second_try_of_the_daemon_that_goes_well_is_no_void():
    class Once(Saying):
        def call(self, worker, call):
            self.texts = {} if self.made else {"w0": WorkerError(Failure.SERVER_ERROR)}
            return super().call(worker, call)

    outcome = await played(over(Once()), game(1), "0 q -\n")
    assert (outcome.quality, outcome.void, outcome.calls) == (1.0, None, 2)


async def test_showing_a_worker_more_than_its_window_holds_is_the_plans_own_fault():
    caller = Saying({"w0": "word " * 400})
    dealt = game((worker("w0"), worker("w1", context_tokens=16)))
    outcome = await played(over(caller), dealt, "0 q -\n1 q,0 Shorten it.\n")
    assert (outcome.quality, outcome.void) == (0.0, None)


async def test_a_plan_with_more_calls_than_are_left_is_refused():
    session = over(Saying()).open(game(2, limits=Limits(max_calls=1)))
    assert await session.play(parse("1 q -\n"), look=True) is not None
    with pytest.raises(PlanError, match="at most 0 workers"):
        await session.play(parse("0 q -\n", 1), look=False)
    assert await session.play(parse("", 1), look=False) is None
    assert session.outcome().calls == 1


async def test_a_look_that_cannot_be_is_a_final_round():
    assert (await played(over(Saying()), game(1, limits=Limits(max_rounds=1)), "0 q -\n", "")).calls
    session = over(Saying()).open(game(2))
    await session.play(parse("0 q -\n1 q -\n"), look=True)
    assert await session.play(parse("vote 0,1 -\n", 2), look=True) is None


async def test_an_empty_answer_is_worth_nothing_and_no_verifier_is_asked():
    def broken(answer: str) -> float:
        raise AssertionError

    outcome = await played(over(Saying({"w0": " "})), game(1, task=Sheep(broken)), "0 q -\n")
    assert (outcome.quality, outcome.void) == (0.0, None)


def crashing(answer: str) -> float:
    raise ZeroDivisionError


def timing_out(answer: str) -> float:
    raise Void(VoidReason.TIMEOUT)


def hanging(answer: str) -> float:
    time.sleep(1)
    return 1.0


@pytest.mark.parametrize(
    ("judge", "void"),
    [
        (crashing, "crashed"),
        (timing_out, "timeout"),
        (hanging, "timeout"),
        (lambda a: 2, "crashed"),
    ],
)
async def test_a_verifier_that_breaks_or_hangs_makes_the_play_void(judge, void):
    environment = over(Saying(), score_s=0.05)
    outcome = await played(environment, game(1, task=Sheep(judge)), "0 q -\n")
    assert (outcome.quality, outcome.void) == (None, f"verifier:{void}")


async def test_verifiers_that_hang_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(scoring, "MOST_HUNG", 2)
    begun = []

    def hangs(answer: str) -> float:
        begun.append(answer)
        time.sleep(1)
        return 1.0

    environment = over(Saying(), score_s=0.02)
    voids = [
        (await played(environment, game(1, task=Sheep(hangs), seed=seed), "0 q -\n")).void
        for seed in range(5)
    ]
    assert voids == ["verifier:timeout"] * 5
    assert len(begun) == 2


async def test_an_answer_is_judged_once_for_a_whole_group():
    asked = []
    task = Sheep(lambda answer: float(not asked.append(answer)))
    environment = over(Saying())
    for seed in range(3):
        assert (await played(environment, game(1, task=task, seed=seed), "0 q -\n")).quality == 1
    assert asked == ["42"]


async def test_an_error_of_the_caller_that_is_no_failure_comes_out_of_play():
    class Spent(Saying):
        def call(self, worker, call):
            raise KeyError("spent")

    with pytest.raises(KeyError):
        await played(over(Spent()), game(1), "0 q -\n")


async def test_a_play_that_is_cancelled_leaves_nothing_running():
    reached = asyncio.Event()

    class Hanging(Saying):
        @asynccontextmanager
        async def call(self, worker, call):
            reached.set()
            await asyncio.Event().wait()
            yield None

    session = over(Hanging()).open(game(1))
    playing = asyncio.create_task(session.play(parse("0 q -\n"), look=False))
    await reached.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "play"]


def test_a_game_whose_lists_do_not_belong_together_is_refused():
    dealt = game(2)
    with pytest.raises(ValueError, match="one candidate"):
        replace(dealt, workers=dealt.workers[:1])
    with pytest.raises(ValueError, match="same id"):
        replace(dealt, workers=(dealt.workers[0],) * 2)
    assert isinstance(dealt, Game)


async def test_the_executor_takes_a_small_part_of_a_training_step():
    """64 plays of three steps against answers that are there at once: about 2 ms each, where a step
    of training takes seconds. The bound is ten times that, for machines that are busy."""
    environment = over(Saying())
    text = "0 q -\n1 q Work out how many there are.\n2 q,0,1 Compare both and give the number.\n"
    await played(environment, game(3), text)
    begun = time.process_time()
    await asyncio.gather(*(played(environment, game(3, seed=s), text) for s in range(64)))
    assert time.process_time() - begun < 64 * 0.02


async def test_a_text_too_long_to_be_scanned_on_the_loop_is_shown_all_the_same():
    long = "a long answer " * 3000 + "42"
    caller = Saying({"w0": long})
    pool = (worker("w0"), worker("w1", context_tokens=100_000))
    outcome = await played(over(caller), game(pool), "0 q -\n1 q,0 -\n")
    assert (outcome.quality, outcome.void) == (1.0, None)
    assert long in caller.shown(1)
