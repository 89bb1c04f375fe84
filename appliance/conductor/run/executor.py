"""Runs one round's plan as a DAG: steps whose inputs are ready run side by side.

What must run, what a step is shown and which answer stands is said in `exchange.py`; here it
happens. In a look all steps run to their end and are held back; in a final round the last answers.

Labels flow with the data. A plan is made from the question, and in a later round from all that was
heard, so every step's input is labelled at least so (the round's control label); it is joined with
the labels of all answers that its access list shows it, and raised by what only shows where they
meet and by what its instructions say: a planner has seen other questions than this one. An answer
carries its step's label, raised by whatever detectors find in it. Only a declassifier could lower a
label, and none exists yet.

Nothing of an earlier step reaches the client unless a later round accepts it; leaving `answer()`
or `look()` cancels every step and aborts every upstream call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from conductor.chat.messages import last_text
from conductor.chat.request import ChatRequest, outgoing
from conductor.core import Body, Worker
from conductor.detect.scan import Scanner
from conductor.errors import ApiError, InternalError, UpstreamFailed
from conductor.labels import Label, join_all
from conductor.plan.language import Builtin, Step, View
from conductor.policy.decide import classify
from conductor.run.attempts import Ask, Attempts
from conductor.run.exchange import may_answer, needed, shown, stands, step_of, view
from conductor.run.job import Answer, Artifact, Round, Run, StepRecord
from conductor.run.messages import Shown, added_bytes, answer_text, seams, step_messages
from conductor.run.plain import held_back, held_back_chunks
from conductor.run.sidebyside import all_of
from conductor.workers.builtin import vote


class Executor:
    """Runs rounds. One instance serves all requests."""

    def __init__(self, attempts: Attempts, scanner: Scanner) -> None:
        self._attempts = attempts
        self._scanner = scanner

    @asynccontextmanager
    async def answer(self, run: Run) -> AsyncIterator[Answer]:
        """Run a final round: all earlier steps, then enter with the last one's answer.

        Raises `ApiError` when a step that the answer needs failed at every permitted worker,
        `AuditError` when what must be recorded cannot be.
        """
        plan = run.round.plan
        if not plan.steps:
            async with self.held(run) as answer:
                yield answer
            return
        *earlier, last = needed(plan, look=False)
        await self._all(run, earlier)
        sees = await self._open(run, last)
        if step_of(plan, last).worker is Builtin.VOTE:
            await self._keep(run, last, self._elected(run, last, sees))
            run.stands = last
            async with self.held(run) as answer:
                yield answer
            return
        ask = self._ask(run, last, sees, stream=run.job.request.stream)
        async with self._attempts.begin(ask) as begun:
            run.answered_by = run.records[last].worker = begun.worker.id
            run.answer_step = last
            await asyncio.shield(run.round.recorded)
            yield Answer(begun.worker.id, begun.body, begun.chunks)

    async def look(self, run: Run) -> None:
        """Run all steps of a round to their end and hold their answers back.

        A step that fails at every worker is left out, as long as another one of the round was
        answered or an answer stands from before; else its error is raised.
        """
        failed: list[ApiError] = []
        steps = needed(run.round.plan, look=True)
        await self._all(run, steps, failed)
        # An empty text is no answer to stand by, though it spares the client an error for now.
        said = [number for number in steps if _said(run, number)]
        run.stands = stands(run.round.plan, True, said, run.stands)
        if failed and run.stands is None and not run.artifacts.keys() & set(steps):
            raise failed[0]

    @asynccontextmanager
    async def held(self, run: Run) -> AsyncIterator[Answer]:
        """Enter with the answer that stands, in the form that the client asked for."""
        if run.stands is None:
            raise InternalError("The plan keeps an answer, and there is none.")
        await asyncio.shield(run.round.recorded)
        artifact = run.artifacts[run.stands]
        run.answered_by, run.answer_step = artifact.worker, run.stands
        body = held_back(artifact.body, artifact.worker, run.usage)
        if not run.job.request.stream:
            yield Answer(artifact.worker, body=body)
            return
        async with aclosing(_each(held_back_chunks(body))) as chunks:
            yield Answer(artifact.worker, chunks=chunks)

    async def heard_label(self, run: Run) -> Label:
        """The label of all that whoever plans a further round is shown: the request, every answer
        so far, and what shows where they meet; also of the steps that gave none."""
        # In the order in which they are told, not that in which they happened to come.
        artifacts = [artifact for _, artifact in sorted(run.artifacts.items())]
        labels = [*(one.label for one in artifacts), *(one.label for one in run.records.values())]
        met = seams([last_text(run.job.request.body["messages"]), *(a.answer for a in artifacts)])
        return await self._raised(run, join_all([run.round.label, *labels]), met)

    async def _all(
        self, run: Run, steps: Iterable[int], failed: list[ApiError] | None = None
    ) -> None:
        """Run steps to their end. With `failed`, collect there what can be done without."""
        done: dict[int, asyncio.Task[None]] = {}
        for number in steps:
            done[number] = asyncio.create_task(self._one(run, number, done, failed))
        await all_of(done.values())

    async def _one(
        self,
        run: Run,
        number: int,
        done: Mapping[int, asyncio.Task[None]],
        failed: list[ApiError] | None,
    ) -> None:
        for earlier in view(run.round.plan, number).steps:
            if earlier in done:
                await asyncio.shield(done[earlier])
        try:
            await self._step(run, number)
        except InternalError:
            raise
        except ApiError as error:
            if failed is None:
                raise
            failed.append(error)

    async def _step(self, run: Run, number: int) -> None:
        sees = await self._open(run, number)
        if step_of(run.round.plan, number).worker is Builtin.VOTE:
            await self._keep(run, number, self._elected(run, number, sees))
            return
        ask = self._ask(run, number, sees, stream=False)
        async with self._attempts.begin(ask) as begun:
            run.records[number].worker = begun.worker.id
            if begun.body is None:
                raise InternalError("The appliance failed to put an answer together.")
            text = answer_text(begun.body)
        await self._keep(run, number, (begun.worker.id, text, begun.body))

    async def _keep(self, run: Run, number: int, answered: tuple[str, str, Body]) -> None:
        worker, text, body = answered
        label = await self._raised(run, run.records[number].label, text)
        subtask = step_of(run.round.plan, number).subtask
        run.artifacts[number] = Artifact(subtask, text, label, worker, body)

    def _ask(self, run: Run, number: int, sees: View, *, stream: bool) -> Ask:
        job, plan = run.job, run.round.plan
        step = step_of(plan, number)
        others = [Shown(i, run.artifacts[i].subtask, run.artifacts[i].answer) for i in sees.steps]
        messages = step_messages(
            job.request.body["messages"], question=sees.question, shown=others, subtask=step.subtask
        )
        record = run.records[number]
        bounded = number in may_answer(plan, run.round.drafted.look)
        request = job.request if bounded else _for_draft(job.request)

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
            step=number,
            policy=job.policy,
            label=record.label,
            order=_order(run.round, step),
            body=body,
            prompt_bytes=request.prompt_bytes + added_bytes(others, step.subtask),
            wanted_tokens=request.max_tokens,
            choices=request.body.get("n", 1),
            stream=stream,
            answer_id=job.answer_id,
            created=job.created,
            budget=job.budget,
            durable=run.round.recorded,
            earlier=run.usage,
            tried=record.tried,
        )

    async def _open(self, run: Run, number: int) -> View:
        """Open the record of a step with the label of all that it is shown, which is returned."""
        plan, look = run.round.plan, run.round.drafted.look
        step, sees = step_of(plan, number), shown(plan, number, look, run.artifacts)
        if sees is None:
            raise UpstreamFailed("No model gave an answer that the next one was to work on.")
        artifacts = [run.artifacts[i] for i in sees.steps]
        label = join_all([run.round.label, *(artifact.label for artifact in artifacts)])
        question = [last_text(run.job.request.body["messages"])] if sees.question else []
        told = [*(artifact.subtask for artifact in artifacts), step.subtask]
        # In the order of `step_messages`: instructions and answers meet there as well.
        results = [text for one in artifacts for text in (one.subtask, one.answer)]
        read = [text for text in (*question, *results, step.subtask) if text]
        met = [*filter(None, told), *seams(read)]
        run.records[number] = StepRecord(number, await self._raised(run, label, met))
        return sees

    async def _raised(self, run: Run, label: Label, texts: str | list[str]) -> Label:
        """`label`, raised by what detectors find in the texts."""
        if not texts:
            return label
        return classify(run.job.policy, await self._scanner.scan(texts), label)

    def _elected(self, run: Run, number: int, sees: View) -> tuple[str, str, Body]:
        """Who is said to give the answer that a vote elects, its text, and all of it. An answer
        that stands alone is accepted rather than elected, and stays its worker's."""
        run.records[number].worker = Builtin.VOTE
        answers = [run.artifacts[one] for one in sees.steps]
        elected = answers[vote([artifact.answer for artifact in answers])]
        asked = view(run.round.plan, number).steps
        return elected.worker if len(asked) == 1 else Builtin.VOTE, elected.answer, elected.body


async def _each(chunks: Iterable[Body]) -> AsyncGenerator[Body, None]:
    for chunk in chunks:
        yield chunk


def _said(run: Run, number: int) -> bool:
    """Whether a step's answer has any text."""
    return number in run.artifacts and bool(run.artifacts[number].answer.strip())


def _order(round: Round, step: Step) -> tuple[Worker, ...]:
    """Who may do a step: its own worker, then the plan's stand-ins."""
    if isinstance(step.worker, Builtin):  # `redact`: no model may stand in for it
        raise InternalError("The plan asks for a step that this appliance cannot run.")
    drafted = round.drafted
    ordinals = [step.worker, *(a for a in drafted.planned.alternates if a != step.worker)]
    return tuple(drafted.candidates[ordinal] for ordinal in ordinals)


def _for_draft(request: ChatRequest) -> ChatRequest:
    """The request as an earlier step's worker gets it: what bounds the answer that the client
    sees must not cut short what leads to it."""
    body = {name: value for name, value in request.body.items() if name != "stop"}
    return replace(request, body=body, max_tokens=None)
