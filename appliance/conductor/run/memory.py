"""What answers carried, so that a client cannot wash a label off by sending the text back.

Every answer that is labelled above its request's own starting point is remembered, each step's and
the client's; the others teach the memory what is common. Of what a client itself sent, labelled by
its caller or by detectors, the messages are remembered that raised it (`sources.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Protocol

from conductor.chat.messages import text_of
from conductor.chat.request import ChatRequest
from conductor.core import Body
from conductor.declassify.leaftexts import leaves
from conductor.flow.artifacts import ArtifactStore
from conductor.labels import Label, Lattice
from conductor.policy.document import Policy
from conductor.run.workflow import Workflow, towards

_SHORT = 64 << 10
"""Characters looked up at once; more are, in a thread: some 40 ms a MiB."""

MAX_REMEMBERED_CHARS = 1 << 20
"""Of a streamed answer. Longer ones are remembered by their beginning."""


class Origin(Protocol):
    """The request that an answer is to: what of a `job.Job` counts here."""

    @property
    def request(self) -> ChatRequest: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def workflow(self) -> Workflow: ...


class Memory:
    """The seam between requests and the store. One instance serves all of them."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    async def label_of(self, request: ChatRequest, lattice: Lattice) -> Label | None:
        """The label of what a request repeats of earlier answers and labelled texts; None if it
        repeats nothing."""
        texts = leaves(request.body["messages"])
        if sum(map(len, texts)) <= _SHORT:
            return self._store.label_of(texts, lattice)
        return await asyncio.to_thread(self._store.label_of, texts, lattice)

    def keep(self, texts: Iterable[str], label: Label, lattice: Lattice) -> None:
        """Remember texts that a client sent, which are labelled so."""
        for text in texts:
            self._store.remember(text, lattice.show(label))

    def note(self, job: Origin, text: str, label: Label) -> None:
        """Take in a whole answer."""
        if label.flows_to(towards(job.workflow.fixed)):
            self._store.learn(text, [text_of(one) for one in job.request.body["messages"]])
        else:
            self._store.remember(text, job.policy.lattice.show(label))

    async def noted(
        self, job: Origin, chunks: AsyncIterator[Body], label: Label
    ) -> AsyncGenerator[Body, None]:
        """Pass a streamed answer on, and take in as much of it as came."""
        parts: list[str] = []
        size = 0
        try:
            async for chunk in chunks:
                yield chunk
                if size < MAX_REMEMBERED_CHARS and (text := _said(chunk)):
                    parts.append(text)
                    size += len(text)
        finally:
            if parts:
                self.note(job, "".join(parts), label)


def _said(chunk: Body) -> str:
    """What the first choice says in a chunk: contents and refusals."""
    for entry in chunk["choices"]:
        if entry["index"] == 0:
            delta = entry["delta"]
            return "".join(str(delta[key]) for key in ("content", "refusal") if delta.get(key))
    return ""
