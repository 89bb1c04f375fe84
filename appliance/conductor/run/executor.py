"""Runs a plan as a DAG: steps whose inputs are ready run side by side, the last one answers.

Labels flow with the data. The plan itself was made from the question, so every step's input is
labelled at least as the request was (its control label); it is joined with the labels of all
answers that its access list shows it, and raised by what only shows where they meet and by what
its instructions say: a planner has seen other questions than this one. An answer
carries its step's label, raised by whatever detectors find in it. Only a declassifier could lower a
label, and none exists yet.

Steps that the last one does not depend on are not run. Nothing of an earlier step reaches the
client; leaving `answer()` cancels every step and aborts every upstream call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

from conductor.chat.messages import last_text
from conductor.chat.request import ChatRequest, outgoing
from conductor.core import Body, Usage, Worker
from conductor.detect.scan import Scanner
from conductor.errors import ConductorError, InternalError
from conductor.labels import Label, join_all
from conductor.plan.language import Builtin, Step, resolve
from conductor.planner.engine import Planned
from conductor.policy.decide import classify
from conductor.policy.document import Policy
from conductor.run.answers import Said
from conductor.run.attempts import Ask, Attempts, Tried
from conductor.run.budget import Budget
from conductor.run.messages import Shown, added_bytes, answer_text, seams, step_messages
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


@dataclass(frozen=True)
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

        Raises `ApiError` when a step that the answer needs failed at every permitted worker,
        `AuditError` when what must be recorded cannot be.
        """
        steps = run.job.planned.plan.steps
        last = len(steps) - 1
        await self._earlier(run, _needed(steps) - {last})
        await self._label(run, last)
        if steps[last].worker is Builtin.VOTE:
            await asyncio.shield(run.job.durable)
            async with self._vote(run, last) as answer:
                yield answer
            return
        async with self._attempts.begin(self._ask(run, last, final=True)) as begun:
            run.answered_by = run.records[last].worker = begun.worker.id
            await asyncio.shield(run.job.durable)
            yield Answer(begun.worker.id, begun.body, begun.chunks)

    async def _earlier(self, run: Run, wanted: set[int]) -> None:
        if not wanted:
            return
        done: dict[int, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for index in sorted(wanted):
                    done[index] = group.create_task(self._step(run, index, done))
        except* ConductorError as failed:
            raise _first(failed) from None

    async def _step(self, run: Run, index: int, done: Mapping[int, asyncio.Task[None]]) -> None:
        step = run.job.planned.plan.steps[index]
        for earlier in resolve(step.access, index).steps:
            await asyncio.shield(done[earlier])
        await self._label(run, index)
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
        record = run.records[index]
        request = job.request if final else _for_draft(job.request)
        stream = final and job.request.stream

        def body(worker: Worker, max_tokens: int) -> bytes:
            return outgoing(
                request,
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
            order=_order(job, step),
            body=body,
            prompt_bytes=request.prompt_bytes + added_bytes(shown, step.subtask),
            wanted_tokens=request.max_tokens,
            choices=request.body.get("n", 1),
            stream=stream,
            answer_id=job.answer_id,
            created=job.created,
            budget=job.budget,
            durable=job.durable,
            earlier=run.usage,
            tried=record.tried,
        )

    async def _label(self, run: Run, index: int) -> None:
        """Open the record of a step with the label of all that it is shown."""
        job, step = run.job, run.job.planned.plan.steps[index]
        seen = resolve(step.access, index)
        artifacts = [run.artifacts[i] for i in seen.steps]
        label = join_all([job.label, *(artifact.label for artifact in artifacts)])
        question = [last_text(job.request.body["messages"])] if seen.question else []
        told = [*(artifact.subtask for artifact in artifacts), step.subtask]
        met = seams([*question, *(artifact.answer for artifact in artifacts)])
        met += [text for text in (*told, *seams(told)) if text]
        if met:
            label = classify(self._policy, await self._scanner.scan(met), label)
        run.records[index] = StepRecord(index, label)

    def _elect(self, run: Run, index: int) -> Artifact:
        run.records[index].worker = Builtin.VOTE
        seen = resolve(run.job.planned.plan.steps[index].access, index)
        answers = [run.artifacts[i] for i in seen.steps]
        return answers[vote([artifact.answer for artifact in answers])]

    @asynccontextmanager
    async def _vote(self, run: Run, index: int) -> AsyncIterator[Answer]:
        text, job = self._elect(run, index).answer, run.job
        run.answered_by = Builtin.VOTE
        said = Said(job.answer_id, job.created, Builtin.VOTE, text, run.usage)
        if not job.request.stream:
            yield Answer(Builtin.VOTE, body=said.body())
            return
        async with aclosing(said.chunks()) as chunks:
            yield Answer(Builtin.VOTE, chunks=chunks)


def _order(job: Job, step: Step) -> tuple[Worker, ...]:
    """Who may do a step: its own worker, then the plan's stand-ins."""
    if isinstance(step.worker, Builtin):  # `redact`: no model may stand in for it
        raise InternalError("The plan asks for a step that this appliance cannot run.")
    ordinals = [step.worker, *(a for a in job.planned.alternates if a != step.worker)]
    return tuple(job.candidates[ordinal] for ordinal in ordinals)


def _for_draft(request: ChatRequest) -> ChatRequest:
    """The request as an earlier step's worker gets it: what bounds the answer that the client
    sees must not cut short what leads to it."""
    body = {name: value for name, value in request.body.items() if name != "stop"}
    return replace(request, body=body, max_tokens=None)


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


def _first(group: BaseExceptionGroup[ConductorError]) -> ConductorError:
    """The first error of ours in a group, however deep."""
    error = group.exceptions[0]  # a group is never empty
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
