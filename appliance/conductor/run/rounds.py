"""The rounds of one request: look at what was answered, plan on with it, and answer in the end.

Every round is judged by what its plan is made from. The answers that were heard join the label;
policy is asked again for every worker, so that one which may not see them is no candidate any more;
and a record of its own is on disk before the round calls anybody abroad or gives the client a byte.

An answer beats an error: once one stands, a later round that fails before its first byte, finds the
money spent or runs out of time gives the one that stands instead. Only what must be recorded and
cannot be is an error all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from conductor.audit.log import AuditLog
from conductor.errors import ApiError, UpstreamTimeout
from conductor.metrics import Metrics
from conductor.plan.language import Builtin
from conductor.run.executor import Executor
from conductor.run.facts import count_plan, plan_facts, verdict_facts
from conductor.run.intake import Before, Drafted, Intake, Judged, Told
from conductor.run.job import Answer, Round, Run
from conductor.run.recording import post

LAST_WORD_S = 1.0
"""Time put aside at the end of a request, for giving the answer that stands."""
LAST_WORD_SHARE = 0.05
"""The most of `limits.total_s` that this may be."""


class Rounds:
    """Runs requests round by round. One instance serves all of them."""

    def __init__(
        self,
        *,
        intake: Intake,
        executor: Executor,
        audit: AuditLog,
        metrics: Metrics,
    ) -> None:
        self._intake = intake
        self._executor = executor
        self._audit = audit
        self._metrics = metrics

    @asynccontextmanager
    async def answer(self, run: Run, judged: Judged) -> AsyncIterator[Answer]:
        """Enter with the begun answer of the last round. Leaving aborts whatever still runs.

        Raises `ApiError` when there is no answer, `AuditError` when a decision cannot be recorded.
        """
        async with AsyncExitStack() as stack:
            yield await self._begin(stack, run, judged)

    async def _begin(self, stack: AsyncExitStack, run: Run, judged: Judged) -> Answer:
        marks = _marks()
        try:
            async with asyncio.timeout(None) as time:
                while run.round.drafted.look:
                    await self._executor.look(run)
                    if run.stands is not None:
                        time.reschedule(_last_moment(run))
                    run.rounds.append(await self._further(run, judged))
                return await stack.enter_async_context(self._executor.answer(run))
        except (ApiError, TimeoutError) as error:
            if run.stands is None or _marks() > marks:
                raise
            run.stood_in_for = _code(error)
        return await stack.enter_async_context(self._executor.held(run))

    async def _further(self, run: Run, judged: Judged) -> Round:
        """Judge again by all that was heard, plan, and post the record of it."""
        await asyncio.shield(run.round.recorded)
        label = await self._executor.heard_label(run)
        again = self._intake.judge_again(judged, label, run.round.drafted.candidates)
        request = run.job.request
        drafted = await self._intake.draft(request, again, run.job.request_id, _before(run))
        count_plan(self._metrics, drafted)
        paid = run.job.workflow.reveals.spend(drafted.told_bits)
        return Round(label, drafted, self._record(run, again, drafted), paid)

    def _record(self, run: Run, again: Judged, drafted: Drafted) -> asyncio.Future[None]:
        policy = run.job.policy
        show = policy.lattice.show
        heard = [
            {"step": step, "worker": artifact.worker, "label": show(artifact.label)}
            for step, artifact in sorted(run.artifacts.items())
        ]
        return post(
            self._audit,
            "round",
            {"heard": heard, "verdicts": verdict_facts(again.verdicts)},
            request_id=run.job.request_id,
            decision_id=run.job.decision_id,
            round=len(run.rounds),
            label=show(again.label),
            policy_revision=policy.revision,
            **plan_facts(drafted),
        )  # fmt: skip


def _before(run: Run) -> Before:
    """All steps of the rounds so far, as the planner is to be told of them."""
    return Before(tuple(_told(run, step) for step in range(run.used.steps)), run.used)


def _told(run: Run, step: int) -> Told:
    artifact, record = run.artifacts.get(step), run.records.get(step)
    text = artifact.answer if artifact and artifact.answer.strip() else ""
    worker = record.worker if record and not isinstance(record.worker, Builtin) else ""
    return Told(step, worker, text, record.usage.completion_tokens if record else 0)


def _code(error: ApiError | TimeoutError) -> str:
    known = error if isinstance(error, ApiError) else UpstreamTimeout
    return known.code or known.type


def _marks() -> int:
    """How often this task was told to end. An error at the same moment may have come out first:
    nobody waits for an answer then."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _last_moment(run: Run) -> float:
    """When, on the loop's clock, the answer that stands must be given."""
    budget = run.job.budget
    aside = min(LAST_WORD_S, LAST_WORD_SHARE * budget.limits.total_s)
    return asyncio.get_running_loop().time() + budget.seconds_left() - aside
