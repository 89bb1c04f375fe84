"""Runs one round's plan as a DAG: steps whose inputs are ready run side by side.

What must run, what a step is shown and which answer stands is said in `exchange.py`; here it
happens. In a look all steps run to their end and are held back; in a final round the last answers.

Labels flow with the data. What a step is shown is labelled as all of it together: the question,
the answers that its access list names, and, where the planner worded its instruction, what the plan
was made from (the round's control label); raised by what only shows where they meet and by what its
instructions say: a planner has seen other questions than this one. An answer carries its step's
label, raised by whatever detectors find in it. Only declassifiers lower a label: the step `redact`
here, obligations before an attempt. That a step was planned at all also tells something of the
question; what a plan tells that way is paid for out of the leak budget, or the step counts as
having seen what the planner saw.

Nothing of an earlier step reaches the client unless a later round accepts it; leaving `answer()`
or `look()` cancels every step and aborts every upstream call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import reduce

from conductor.chat.fields import WORDLESS_FIELDS
from conductor.chat.messages import last_text
from conductor.chat.request import ChatRequest, outgoing
from conductor.core import Body, Worker
from conductor.detect.scan import Scanner
from conductor.errors import ApiError, InternalError, UpstreamFailed
from conductor.flow.standing import Standing
from conductor.labels import LOWEST, Label, join_all
from conductor.plan.language import Builtin, Step, View
from conductor.plan.templates import is_template
from conductor.policy.decide import classify
from conductor.run.attempts import Ask, Attempts
from conductor.run.exchange import may_answer, needed, shown, stands, step_of, view
from conductor.run.job import Answer, Artifact, Round, Run, StepRecord
from conductor.run.memory import Memory
from conductor.run.messages import (
    Shown,
    added_bytes,
    answer_text,
    body_texts,
    conversation,
    seams,
    step_messages,
)
from conductor.run.plain import held_back, held_back_chunks, text_body
from conductor.run.redaction import Redaction, Source
from conductor.run.register import Of
from conductor.run.restoring import restored, restored_chunks
from conductor.run.sidebyside import all_of
from conductor.run.wholetexts import stated_by
from conductor.workers.builtin import vote


class Executor:
    """Runs rounds. One instance serves all requests."""

    def __init__(
        self, attempts: Attempts, scanner: Scanner, redaction: Redaction, memory: Memory
    ) -> None:
        self._attempts = attempts
        self._scanner = scanner
        self._redaction = redaction
        self._memory = memory

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
            await self._keep(run, last, self._elected(run, last, sees), run.records[last].standing)
            run.stands = last
            async with self.held(run) as answer:
                yield answer
            return
        ask = self._ask(run, last, sees, stream=run.job.request.stream)
        async with self._attempts.begin(ask) as begun:
            run.answered_by = run.records[last].worker = begun.worker.id
            run.answer_step = last
            await asyncio.shield(run.round.recorded)
            given = Answer(begun.worker.id, begun.body, begun.chunks)
            async with self._given(run, given) as answer:
                yield answer

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
            async with self._given(run, Answer(artifact.worker, body=body)) as answer:
                yield answer
            return
        async with (
            aclosing(_each(held_back_chunks(body))) as chunks,
            self._given(run, Answer(artifact.worker, chunks=chunks)) as answer,
        ):
            yield answer

    async def heard_label(self, run: Run) -> Label:
        """The label of all that whoever plans a further round is shown: the request, every answer
        so far, and what shows where they meet; also of the steps that gave none."""
        # In the order in which they are told, not that in which they happened to come.
        artifacts = [artifact for _, artifact in sorted(run.artifacts.items())]
        labels = [*(one.label for one in artifacts), *(one.label for one in run.records.values())]
        met = seams([last_text(run.job.request.body["messages"]), *(a.answer for a in artifacts)])
        known = Standing.of(join_all([run.round.label, *labels]))
        return (await self._raised(run, known, met)).label

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
        worker = step_of(run.round.plan, number).worker
        if worker is Builtin.VOTE:
            elected = self._elected(run, number, sees)
            await self._keep(run, number, elected, run.records[number].standing)
            return
        if worker is Builtin.REDACT:
            await self._redacted(run, number, sees)
            return
        ask = self._ask(run, number, sees, stream=False)
        async with self._attempts.begin(ask) as begun:
            run.records[number].worker = begun.worker.id
            if begun.body is None:
                raise InternalError("The appliance failed to put an answer together.")
            body = await restored(run.job, begun.body, run.records[number].label)
        standing = run.records[number].standing.answered()
        if body != begun.body:
            standing = standing.restored()
        await self._keep(run, number, (begun.worker.id, answer_text(body), body), standing)

    async def _redacted(self, run: Run, number: int, sees: View) -> None:
        job, record = run.job, run.records[number]
        record.worker = Builtin.REDACT
        artifacts = [run.artifacts[i] for i in sees.steps]
        question = conversation(job.request.body["messages"]) if sees.question else []
        here = not sees.question and [self._attempts.is_local(a.worker) for a in artifacts] == [
            True
        ]
        answers = [("", artifact.answer) for artifact in artifacts]
        source = Source((*question, *answers), here)
        of = Of(job.request_id, job.decision_id, number, job.policy, Builtin.REDACT)
        text, standing = await self._redaction.run(source, record.standing, of, job.workflow)
        body = text_body(text, id=job.answer_id, created=job.created)
        await self._keep(run, number, (Builtin.REDACT, text, body), standing)

    async def _keep(
        self, run: Run, number: int, answered: tuple[str, str, Body], standing: Standing
    ) -> None:
        worker, text, body = answered
        standing = await self._raised(run, standing, text)
        subtask = step_of(run.round.plan, number).subtask
        run.artifacts[number] = Artifact(subtask, text, standing, worker, body)
        await self._memory.note(run.job, body_texts(body), standing.label)

    @asynccontextmanager
    async def _given(self, run: Run, answer: Answer) -> AsyncIterator[Answer]:
        """The answer as the client gets it: with the values behind its tokens, and remembered."""
        job, label = run.job, run.label
        if answer.body is not None:
            body = await restored(job, answer.body, label)
            later = self._memory.is_common(job, label)
            if not later:
                await self._memory.note(job, body_texts(body), label)
            yield Answer(answer.worker, body=body)
            if later:
                await self._memory.note(job, body_texts(body), label)
            return
        if answer.chunks is None:
            raise InternalError("The appliance failed to put an answer together.")
        async with (
            aclosing(restored_chunks(job, answer.chunks, label)) as whole,
            aclosing(self._memory.noted(job, whole, label)) as chunks,
        ):
            yield Answer(answer.worker, chunks=chunks)

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
        if not _covers(record.standing, Standing.of(run.round.label)):
            request = _without_words(request)

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
            standing=record.standing,
            workflow=job.workflow,
            order=_order(run.round, number),
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
        standing = self._shown_as(run, step, sees, artifacts)
        question = [last_text(run.job.request.body["messages"])] if sees.question else []
        told = [*(artifact.subtask for artifact in artifacts), step.subtask]
        # In the order of `step_messages`: instructions and answers meet there as well.
        results = [text for one in artifacts for text in (one.subtask, one.answer)]
        read = [text for text in (*question, *results, step.subtask) if text]
        met = [*filter(None, told), *seams(read)]
        run.records[number] = StepRecord(number, await self._raised(run, standing, met))
        return sees

    @staticmethod
    def _shown_as(run: Run, step: Step, sees: View, artifacts: list[Artifact]) -> Standing:
        """How the whole of what a step is shown stands. `plan/mask.py` says the same in classes."""
        parts = [artifact.standing for artifact in artifacts]
        worded = bool(step.subtask) and not is_template(step.subtask)
        if sees.question or worded or not parts or not run.round.paid:
            parts.append(Standing.of(run.round.label))
        return reduce(Standing.join, parts)

    async def _raised(self, run: Run, standing: Standing, texts: str | list[str]) -> Standing:
        """`standing`, raised by what detectors find in the texts beside tokens of ours."""
        if not texts:
            return standing
        policy, plain = run.job.policy, run.job.workflow.pseudonyms.as_redacted
        bare = plain(texts) if isinstance(texts, str) else [*map(plain, texts)]
        scan = await self._scanner.scan(bare, None, policy.profile)
        workflow = run.job.workflow
        workflow.fixed = workflow.fixed.join(stated_by(scan, policy))
        return standing.raised(classify(policy, scan, LOWEST))

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
    """Whether a step's answer has any text, and is one to the request: `redact` gives none."""
    artifact = run.artifacts.get(number)
    return (
        artifact is not None and artifact.worker != Builtin.REDACT and bool(artifact.answer.strip())
    )


def _order(round: Round, number: int) -> tuple[Worker, ...]:
    """Who may do a step: its own worker, then the plan's stand-ins."""
    step = step_of(round.plan, number)
    if isinstance(step.worker, Builtin):  # no model may stand in for it
        raise InternalError("The plan asks for a step that this appliance cannot run.")
    drafted = round.drafted
    ordinals = [step.worker, *(a for a in drafted.stand_ins(number) if a != step.worker)]
    return tuple(drafted.candidates[ordinal] for ordinal in ordinals)


def _covers(standing: Standing, other: Standing) -> bool:
    """Whether data that stands so, joined with such other data, still stands so: nothing was done
    to the one that was not done to the other."""
    return standing.join(other) == standing


def _without_words(request: ChatRequest) -> ChatRequest:
    """The request for a step that may not see all of it: numbers of how to sample, and nothing that
    a client put into words."""
    body = {name: value for name, value in request.body.items() if name in WORDLESS_FIELDS}
    body["messages"] = request.body["messages"]  # a step puts its own in their place
    return replace(request, body=body, prompt_bytes=0)


def _for_draft(request: ChatRequest) -> ChatRequest:
    """The request as an earlier step's worker gets it: what bounds the answer that the client
    sees must not cut short what leads to it."""
    body = {name: value for name, value in request.body.items() if name != "stop"}
    return replace(request, body=body, max_tokens=None)
