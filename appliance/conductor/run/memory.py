"""What answers carried, so that a client cannot wash a label off by sending the text back.

Every answer that is labelled above an unlabelled text is remembered, each step's and the client's;
the others teach the memory what is common. Of what a client itself sent, labelled by its caller or
by detectors, the messages are remembered that raised it (`sources.py`).

What somebody had stated of a text, by its key or in a header, is remembered apart: no program
lowers it (`workflow.py`), now as little as then. And so nobody can push it out of the memory with
texts that only look sensitive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from conductor.chat.request import ChatRequest
from conductor.core import Body
from conductor.declassify.leaftexts import leaves
from conductor.flow.artifacts import MAX_LEARNED_LETTERS, ArtifactStore, own_words
from conductor.labels import LOWEST, Label, Lattice
from conductor.policy.document import Policy
from conductor.run.messages import Place, answer_texts
from conductor.run.workflow import Workflow, part_of, towards

_SHORT = 64 << 10
"""Bytes looked up at once; more are, in a thread: some 40 ms a MiB."""
_SHORT_KEPT = 16 << 10
"""Characters taken in at once, in 8 ms."""

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


@dataclass(frozen=True)
class Known:
    """How texts were labelled that are known again; `stated` is what somebody had said of them."""

    label: Label
    stated: Label = LOWEST


class Memory:
    """The seam between requests and the store. One instance serves all of them."""

    def __init__(self, store: ArtifactStore, stated: ArtifactStore | None = None) -> None:
        self._store = store
        self._stated = stated or ArtifactStore()

    async def known(self, request: ChatRequest, lattice: Lattice) -> Known | None:
        """What a request repeats of earlier answers and labelled texts, anywhere in its body; None
        if it repeats nothing."""
        if request.size <= _SHORT:
            return self._known(request.body, lattice)
        return await asyncio.to_thread(self._known, request.body, lattice)

    def _known(self, body: Body, lattice: Lattice) -> Known | None:
        texts = leaves(body)
        found = self._store.label_of(texts, lattice)
        stated = self._stated.label_of(texts, lattice)
        if stated is None:
            return None if found is None else Known(found)
        return Known(stated if found is None else stated.join(found), stated)

    async def keep(
        self, texts: Iterable[str], label: Label, policy: Policy, stated: Label = LOWEST
    ) -> None:
        """Remember texts that are labelled so. `stated` is what of it no detector has found."""
        show, usual = policy.lattice.show, towards(policy.default_label)
        kept = part_of(stated, label)
        for text in texts:
            if not kept.flows_to(usual):
                await _taken(self._stated.remember, text, show(kept))
            await _taken(self._store.remember, text, show(label))

    async def note(self, job: Origin, texts: Iterable[str], label: Label) -> None:
        """Take in the texts of an answer."""
        if self.is_common(job, label):
            self._learn(job.request, texts)
        else:
            await self.keep(texts, label, job.policy, job.workflow.fixed)

    @staticmethod
    def is_common(job: Origin, label: Label) -> bool:
        """Whether an answer labelled so teaches what is common. That may wait until it is given;
        one that is remembered may come back at once."""
        return label.flows_to(towards(job.policy.default_label))

    def _learn(self, request: ChatRequest, texts: Iterable[str]) -> None:
        """What an answer to an ordinary request says by itself is common; not what it repeats of
        any part of that request."""
        if request.size > 4 * MAX_LEARNED_LETTERS:
            return
        shown = leaves(request.body)
        for text in map(_read, texts):
            found = own_words(text, shown)
            self._store.know(found)
            self._stated.know(found)

    async def noted(
        self, job: Origin, chunks: AsyncIterator[Body], label: Label
    ) -> AsyncGenerator[Body, None]:
        """Pass a streamed answer on, and take in as much of it as came."""
        parts: dict[Place, list[str]] = {}
        size = 0
        try:
            async for chunk in chunks:
                yield chunk
                if size < MAX_REMEMBERED_CHARS:
                    for place, text in _said(chunk):
                        parts.setdefault(place, []).append(text)
                        size += len(text)
        finally:
            if parts:
                await self.note(job, map("".join, parts.values()), label)


def _said(chunk: Body) -> Iterator[tuple[Place, str]]:
    """What a chunk says, with a name for the text that each piece continues."""
    for entry in chunk["choices"]:
        for place, text in answer_texts(entry["delta"]):
            yield (entry["index"], *place), text


def _read(text: str) -> str:
    """As it will be looked up: JSON is read, since a client may send back what it holds."""
    return "\n".join(leaves([text]))


async def _taken(take: Callable[[str, str], None], text: str, label: str) -> None:
    if len(text) <= _SHORT_KEPT:
        take(_read(text), label)
    else:
        await asyncio.to_thread(lambda: take(_read(text), label))
