"""Putting the values of a request's pseudonyms back: in answers that are kept and in the last one.

The client sent those values, or a worker that was shown them did: it may see them all. An answer
that is kept gets back no more than its step was shown, so that its label need not rise.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from conductor.core import Body
from conductor.declassify.stream import Restorer, restore_body
from conductor.labels import Label
from conductor.run.aside import aside
from conductor.run.job import Job
from conductor.run.messages import answer_text
from conductor.run.workflow import towards


async def restored(job: Job, body: Body, label: Label) -> Body:
    """A plain answer for a sink that everything up to `label` is meant for."""
    if not job.workflow.masked:
        return body
    pseudonyms, size = job.workflow.pseudonyms, len(answer_text(body))
    return await aside(
        size, restore_body, body, pseudonyms, towards(label), json_content=_json(job)
    )


async def restored_chunks(
    job: Job, chunks: AsyncIterator[Body], label: Label
) -> AsyncGenerator[Body, None]:
    """The same for a streamed one: a token is held back until it is whole, and nothing else."""
    if not job.workflow.masked:
        async for chunk in chunks:
            yield chunk
        return
    restorer = Restorer(job.workflow.pseudonyms, towards(label), json_content=_json(job))
    async for chunk in chunks:
        for one in restorer.feed(chunk):
            yield one
    for one in restorer.flush():
        yield one


def _json(job: Job) -> bool:
    """Whether the client asked for JSON, so that what is put in must be escaped."""
    wanted = job.request.body.get("response_format") or {}
    return str(wanted.get("type", "text")) != "text"
