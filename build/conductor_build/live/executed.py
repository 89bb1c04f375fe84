"""Plays games through the daemon's own executor: what a plan means is said in one place alone.

The rounds of `run/rounds.py` run in a task of their own; where they ask for a plan, the next
request comes out of `play`, and the plan that is played next goes in. So a further round is judged,
its candidates are chosen and its limits are counted by the very code that serves requests.

A worker that fails makes the play void, unless the plan is to blame: it showed the worker more than
its window holds. No other worker stands in: the answer would be credited to the wrong choice.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from conductor.core import Caller, Failure, PlanRequest
from conductor.errors import ApiError, InternalError
from conductor.plan.language import Plan
from conductor.planner import wire
from conductor.planner.client import PlannerClient
from conductor.planner.engine import Planned
from conductor.run.job import Run
from conductor.run.messages import answer_text
from conductor_build.live.environment import Outcome
from conductor_build.live.game import Game
from conductor_build.live.opening import DEFAULT, Sampling, judged_as, opened
from conductor_build.live.scoring import Score, Scoring
from conductor_build.live.stage import Stage, as_played
from conductor_build.live.tally import Tally
from conductor_build.live.turns import Turns

__all__ = ["Executed", "ExecutedSession", "Sampling"]

ENGINE = "trainer"
PLANS_FAULT = frozenset({Failure.CONTEXT_LENGTH})
"""Failures that tell of the plan, not of the worker: no answer then, and no void."""
_FAILURES = frozenset(map(str, Failure))


class Executed:
    """Implements `environment.Environment` over a caller: live, recorded or simulated workers."""

    def __init__(
        self,
        caller: Caller,
        *,
        simulated: bool,
        sampling: Sampling = DEFAULT,
        score_s: float = 60.0,
    ) -> None:
        """`score_s`: what a verifier may take for one answer."""
        self.simulated = simulated
        self.caller = caller
        self.sampling = sampling
        self.stage = Stage()
        self.scoring = Scoring(score_s)

    def open(self, game: Game) -> ExecutedSession:
        """Begin to play a game. Nothing is called before its first plan."""
        return ExecutedSession(self, game)


class ExecutedSession:
    """Implements `environment.Session`."""

    def __init__(self, environment: Executed, game: Game) -> None:
        self._environment, self._game = environment, game
        self._asked = game.request
        self._turns = Turns()
        self._tally = Tally(environment.caller, game.workers)
        most = environment.sampling.max_tokens
        pairs = zip(game.workers, game.request.candidates, strict=True)
        self._workers = tuple(as_played(worker, candidate, most) for worker, candidate in pairs)
        self._run: Run | None = None
        self._rounds: asyncio.Task[None] | None = None
        self._answer: str | None = None
        self._score: Score | None = None

    async def play(self, plan: Plan, look: bool) -> PlanRequest | None:
        """See `environment.Session`. Raises too what the caller raises beside `WorkerError`: the
        money is spent, or a replay has no such answer. A play that is left half way through is
        ended by `close`, or with the loop."""
        asked = self._asked
        look = look and plan.calls > 0 and asked.rounds_left > 0 and not asked.one_step
        planned = wire.check(Planned(plan, ENGINE, look=look), asked)
        if self._rounds is None:
            self._begin(planned)
        else:
            self._turns.give(planned)
        further = await self._next()
        void = self._void()
        if further is not None and void is None:
            self._asked = wire.bounded(self._as_dealt(further))
            return self._asked
        await self.close()
        self._score = Score(None, void) if void is not None else await self._scored()
        return None

    def outcome(self) -> Outcome:
        """See `environment.Session`."""
        run, score = self._run, self._score
        if run is None or score is None:
            raise RuntimeError("the game is not over")
        return Outcome(
            quality=score.quality,
            void=score.void,
            cost_usd_per_1k=1000 * run.cost_usd,
            prompt_tokens=run.usage.prompt_tokens,
            output_tokens=run.usage.completion_tokens,
            calls=run.job.budget.calls,
            rounds=len(run.rounds),
            seconds=self._tally.seconds(run),
            used=self._tally.used,
        )

    @property
    def answer(self) -> str | None:
        """The text of the answer, once there is one: for showing plans, never for logs."""
        return self._answer

    async def close(self) -> None:
        """End a play that is not over."""
        if self._rounds is not None and not self._rounds.done():
            self._rounds.cancel()
            await asyncio.wait({self._rounds})
            if not self._rounds.cancelled():
                self._rounds.exception()  # seen: whoever ends a play asks for nothing more

    async def _next(self) -> PlanRequest | None:
        assert self._rounds is not None
        try:
            asked = await self._turns.next_of(self._rounds)
        except asyncio.CancelledError:
            await self.close()
            raise
        if asked is None:
            self._rounds.result()
        return asked

    def _begin(self, planned: Planned) -> None:
        game = self._game
        run = self._run = opened(game, self._workers, planned, self._environment.sampling)
        judged = judged_as(game, self._workers, run)
        rounds = self._environment.stage.rounds(
            self._workers, self._tally, cast(PlannerClient, self._turns), game.limits
        )

        async def answered() -> None:
            try:
                async with rounds.answer(run, judged) as answer:
                    self._answer = answer_text(answer.body or {})
            except InternalError:
                raise
            except ApiError:
                return  # every worker failed, or a limit was reached: no answer

        self._rounds = asyncio.create_task(answered(), name="play")

    def _as_dealt(self, asked: PlanRequest) -> PlanRequest:
        """The daemon's question in the words of the game: a candidate of a further round is as it
        was dealt, also where the executor takes it for something else. Veiled ones have none."""
        dealt = [one for one in self._game.request.candidates if not one.veiled]
        if len(asked.candidates) != len(dealt):
            raise AssertionError("whoever sees the question may take part in every round")
        return replace(
            asked, candidates=tuple(dealt), prompt_tokens=self._game.request.prompt_tokens
        )

    def _void(self) -> str | None:
        """Why a play is void already, if it is: a step's worker failed, whatever came after."""
        failures = _failures(self._run) - PLANS_FAULT
        return f"worker:{min(failures)}" if failures else None

    async def _scored(self) -> Score:
        if self._answer is None:
            return Score(0.0)
        return await self._environment.scoring.of(self._game.task, self._game.example, self._answer)


def _failures(run: Run | None) -> frozenset[Failure]:
    """How steps failed in the end: a second try that went well is none."""
    records = run.records.values() if run is not None else ()
    last = [record.tried[-1].outcome for record in records if record.tried]
    return frozenset(Failure(outcome) for outcome in last if outcome in _FAILURES)
