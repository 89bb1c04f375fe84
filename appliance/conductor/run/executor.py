"""Runs a plan as a DAG: steps whose inputs are ready run side by side, the last one answers.

Labels flow with the data. The plan itself was made from the question, so every step's input is
labelled at least as the request was (its control label); it is joined with the labels of all
answers that its access list shows it. An answer carries its step's label, raised by whatever
detectors find in it. Only a declassifier could lower a label, and none exists yet.

Steps that the last one does not depend on are not run. Nothing of an earlier step reaches the
client; leaving `answer()` cancels every step and aborts every upstream call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from conductor.chat.request import ChatRequest, outgoing
from conductor.core import Body, Usage, Worker
from conductor.detect.scan import Scanner
from conductor.errors import ApiError
from conductor.labels import Label, join_all
from conductor.plan.language import Builtin, Step, resolve
from conductor.planner.engine import Planned
from conductor.policy.decide import classify
from conductor.policy.document import Policy
from conductor.run.answers import Said, add_usage, with_usage
from conductor.run.attempts import Ask, Attempts, Tried
from conductor.run.budget import Budget
from conductor.run.messages import Shown, answer_text, step_messages
from conductor.workers.builtin import vote


@dataclass(frozen=True)
class Job:
    """One judged and planned request, ready to run. Ordinals in the plan index `candidates`."""

    request: ChatRequest
    request_id: str
    decision_id: str
    answer_id: str
    created: int
    label: Label
    candidates: tuple[Worker, ...]
    planned: Planned
    budget: Budget
    durable: asyncio.Future[None]


@dataclass
class StepRecord:
    """Accounting of one step."""

    step: int
    label: Label
    tried: list[Tried] = field(default_factory=list)
    worker: str = ""

    @property
    def usage(self) -> Usage:
        return sum((t.usage for t in self.tried), Usage())


@dataclass
class Answer:
    """The last step's answer, begun. Exactly one of `body` and `chunks` is set."""

    worker: str
    body: Body | None = None
    chunks: AsyncIterator[Body] | None = None


@dataclass
class Run:
    """A job and what has become of it so far; readable at any time, also after a failure."""

    job: Job
    records: dict[int, StepRecord] = field(default_factory=dict)
    artifacts: dict[int, Artifact] = field(default_factory=dict)
    answered_by: str = ""

    @property
    def usage(self) -> Usage:
        """What all steps together have used so far."""
        return sum((record.usage for record in self.records.values()), Usage())

    @property
    def cost_usd(self) -> float:
        return self.job.budget.cost_usd


@dataclass(frozen=True)
class Artifact:
    """An earlier step's answer, with the label it carries."""

    subtask: str
    answer: str
    label: Label


class Executor:
    """Runs jobs. One instance serves all requests."""

    def __init__(self, attempts: Attempts, scanner: Scanner, policy: Policy) -> None:
        self._attempts = attempts
        self._scanner = scanner
        self._policy = policy

    @asynccontextmanager
    async def answer(self, run: Run) -> AsyncIterator[Answer]:
        """Run all earlier steps, then enter with the last one's answer.

        Raises `ApiError` when a step that the answer needs failed at every permitted worker.
        """
        steps = run.job.planned.plan.steps
        last = len(steps) - 1
        await self._earlier(run, _needed(steps) - {last})
        if steps[last].worker is Builtin.VOTE:
            await asyncio.shield(run.job.durable)
            yield self._vote(run, last)
            return
        async with self._attempts.begin(self._ask(run, last, final=True)) as begun:
            run.answered_by = run.records[last].worker = begun.worker.id
            await asyncio.shield(run.job.durable)
            earlier = sum((r.usage for i, r in run.records.items() if i != last), Usage())
            yield Answer(
                begun.worker.id,
                begun.body and with_usage(begun.body, earlier),
                begun.chunks and add_usage(begun.chunks, earlier),
            )

    async def _earlier(self, run: Run, wanted: set[int]) -> None:
        if not wanted:
            return
        done: dict[int, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for index in sorted(wanted):
                    done[index] = group.create_task(self._step(run, index, done))
        except* ApiError as failed:
            raise _first(failed) from None

    async def _step(self, run: Run, index: int, done: Mapping[int, asyncio.Task[None]]) -> None:
        step = run.job.planned.plan.steps[index]
        for earlier in resolve(step.access, index).steps:
            await asyncio.shield(done[earlier])
        if step.worker is Builtin.VOTE:
            text = self._elect(run, index).answer
        else:
            async with self._attempts.begin(self._ask(run, index, final=False)) as begun:
                run.records[index].worker = begun.worker.id
                text = answer_text(begun.body or {})
        label = classify(self._policy, await self._scanner.scan(text), run.records[index].label)
        run.artifacts[index] = Artifact(step.subtask, text, label)

    def _ask(self, run: Run, index: int, *, final: bool) -> Ask:
        job, step = run.job, run.job.planned.plan.steps[index]
        seen = resolve(step.access, index)
        shown = [Shown(i, run.artifacts[i].subtask, run.artifacts[i].answer) for i in seen.steps]
        messages = step_messages(
            job.request.body["messages"], question=seen.question, shown=shown, subtask=step.subtask
        )
        record = self._record(run, index)
        stream = final and job.request.stream

        def body(worker: Worker, max_tokens: int) -> bytes:
            return outgoing(
                job.request,
                model=worker.model,
                stream=stream,
                remote=worker.remote,
                messages=messages,
                max_tokens=max_tokens,
            )

        return Ask(
            request_id=job.request_id,
            decision_id=job.decision_id,
            step=index,
            label=record.label,
            order=self._order(job, step),
            body=body,
            prompt_bytes=job.request.prompt_bytes + sum(len(s.answer) for s in shown),
            wanted_tokens=job.request.max_tokens if final else None,
            stream=stream,
            answer_id=job.answer_id,
            created=job.created,
            budget=job.budget,
            durable=job.durable,
            tried=record.tried,
        )

    def _order(self, job: Job, step: Step) -> tuple[Worker, ...]:
        ordinals = [step.worker, *(a for a in job.planned.alternates if a != step.worker)]
        return tuple(job.candidates[o] for o in ordinals if isinstance(o, int))

    def _record(self, run: Run, index: int) -> StepRecord:
        seen = resolve(run.job.planned.plan.steps[index].access, index)
        label = join_all([run.job.label, *(run.artifacts[i].label for i in seen.steps)])
        return run.records.setdefault(index, StepRecord(index, label))

    def _elect(self, run: Run, index: int) -> Artifact:
        self._record(run, index).worker = "vote"
        seen = resolve(run.job.planned.plan.steps[index].access, index)
        answers = [run.artifacts[i] for i in seen.steps]
        return answers[vote([artifact.answer for artifact in answers])]

    def _vote(self, run: Run, index: int) -> Answer:
        text, job = self._elect(run, index).answer, run.job
        run.answered_by = "vote"
        said = Said(job.answer_id, job.created, "vote", text, run.usage)
        if job.request.stream:
            return Answer("vote", chunks=said.chunks())
        return Answer("vote", body=said.body())


def _needed(steps: tuple[Step, ...]) -> set[int]:
    """Indices of the last step and of all that it depends on."""
    needed: set[int] = set()
    waiting = [len(steps) - 1]
    while waiting:
        index = waiting.pop()
        if index not in needed:
            needed.add(index)
            waiting += resolve(steps[index].access, index).steps
    return needed


def _first(group: BaseExceptionGroup[ApiError]) -> ApiError:
    """The first API error in a group, however deep."""
    error = group.exceptions[0]  # a group is never empty
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
