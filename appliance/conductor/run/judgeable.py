"""What is kept of an answered request until its caller judges it (`feedback/`).

Nothing is, unless the site names a label up to which questions may be kept, and both the question
and the answer are labelled so low. An answer is an outcome of one worker: the one that wrote it,
also where a vote elected it or a later round kept it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from conductor.active import Active
from conductor.chat.request import ChatRequest
from conductor.core import Body
from conductor.feedback.book import FeedbackBook
from conductor.feedback.record import Answered, PlannedRound
from conductor.plan.conclusion import READ_CHARS, ends
from conductor.plan.language import Builtin, show
from conductor.run.intake import Judged
from conductor.run.job import Answer, Round, Run, StepRecord
from conductor.run.messages import answer_text
from conductor.run.workflow import towards
from conductor.settings import Key

_HELD_CHARS = 16 * READ_CHARS
"""Of a streamed answer, before its middle is let go."""


@dataclass
class Said:
    """An answer on its way to the client, and the two ends of what it has said so far."""

    answer: Answer
    _text: str = field(default="", repr=False)

    @classmethod
    def of(cls, answer: Answer) -> Said:
        """`self.answer` is the one to give to the client; it may be read once."""
        said = cls(answer)
        if answer.body is not None:
            said._add(answer_text(answer.body))
        elif answer.chunks is not None:
            said.answer = Answer(answer.worker, chunks=_Heard(answer.chunks, said))
        return said

    @property
    def text(self) -> str:
        """`READ_CHARS` at most."""
        return ends(self._text, READ_CHARS)

    def _add(self, text: str) -> None:
        self._text += text
        if len(self._text) > _HELD_CHARS:
            self._text = ends(self._text, 2 * READ_CHARS)

    def _hear(self, chunk: Body) -> None:
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") or choice["delta"].get("refusal")
            if choice["index"] == 0 and isinstance(text, str):
                self._add(text)


@dataclass
class _Heard:
    """Chunks passed on as they come."""

    chunks: AsyncIterator[Body]
    said: Said

    def __aiter__(self) -> AsyncIterator[Body]:
        return self

    async def __anext__(self) -> Body:
        chunk = await anext(self.chunks)
        self.said._hear(chunk)
        return chunk


class Judgeable:
    """Hands answered requests to the book. One instance serves all requests."""

    def __init__(self, active: Active, book: FeedbackBook) -> None:
        self._active = active
        self._book = book

    def note(self, request: ChatRequest, judged: Judged, run: Run, key: Key, said: str) -> None:
        """Keep what may be kept of a request whose client has its whole answer, `said`."""
        record = _written_by(run)
        if record is None or not request.question.strip() or not self._may_keep(judged, run):
            return
        self._book.keep(
            Answered(
                request_id=run.job.request_id,
                key_id=key.id,
                question=request.question,
                answer=said,
                worker=record.worker,
                step=record.step,
                round=run.round_of(record.step),
                output_tokens=record.usage.completion_tokens,
                cost_usd=run.cost_usd,
                cost_weight=judged.cost_weight,
                rounds=tuple(map(_planned, run.rounds)),
            )
        )

    def _may_keep(self, judged: Judged, run: Run) -> bool:
        """Also no when a policy was swapped meanwhile: its labels may mean something else."""
        site = self._active.site
        most = site.appliance.feedback.max_label
        if most is None or site.policy is not judged.policy:
            return False
        return judged.label.join(run.label).flows_to(towards(most))


def _written_by(run: Run) -> StepRecord | None:
    """The step of the worker who wrote the answer."""
    if run.answer_step is None:
        return None
    given = run.records[run.answer_step]
    if not isinstance(given.worker, Builtin):
        return given
    text = run.artifacts[run.answer_step].answer
    for number, artifact in sorted(run.artifacts.items()):
        record = run.records[number]
        if artifact.answer == text and not isinstance(record.worker, Builtin):
            return record
    return None


def _planned(one: Round) -> PlannedRound:
    drafted = one.drafted
    return PlannedRound(
        plan=show(one.plan),
        candidates=tuple(worker.id for worker in drafted.candidates),
        engine=drafted.planned.engine,
        where=drafted.planned.where,
        bundle=drafted.planned.bundle,
        look=drafted.look,
        log_prob=drafted.planned.log_prob,
    )
