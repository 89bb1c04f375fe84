"""The built-in step `redact`: what it is shown, with what is sensitive taken out, for workers that
may see no more.

A site says which declassifiers a plan may use by itself (`steps: true` in policy.yaml); the first
that applies does it. An answer that is one of a few words, given by a local worker, is passed on by
a `constrained` one, as long as the request's leak budget lasts; any other text is rewritten. When
something is left over, the result keeps its label, and whoever may not see it does not get it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from conductor.core import Obligation
from conductor.declassify import constrained
from conductor.errors import InternalError
from conductor.flow.standing import Standing
from conductor.policy.declassifiers import Declassifier
from conductor.policy.document import Policy
from conductor.run.aside import aside
from conductor.run.register import Change, Of, Register
from conductor.run.rewriting import Rewriter
from conductor.run.workflow import Workflow


@dataclass(frozen=True)
class Source:
    """What a redaction is made of: texts as they are, so that they are read as their reader would,
    each with what is put before it afterwards. `said_here`: it is the one answer of a local worker.
    """

    parts: tuple[tuple[str, str], ...]
    said_here: bool = False

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.parts]

    def joined(self, texts: Iterable[str]) -> str:
        """One text of these, each after its head."""
        heads = (head for head, _ in self.parts)
        return "\n\n".join(head + text for head, text in zip(heads, texts, strict=True))

    @property
    def size(self) -> int:
        """In characters."""
        return sum(map(len, self.texts))


class Redaction:
    """Runs `redact` steps. One instance serves all requests."""

    def __init__(self, rewriter: Rewriter, register: Register) -> None:
        self._rewriter = rewriter
        self._register = register

    async def run(
        self, source: Source, standing: Standing, of: Of, workflow: Workflow
    ) -> tuple[str, Standing]:
        """The text that comes of it, and how that stands; recorded before this returns.

        Raises `InternalError` under a policy that lets no plan redact.
        """
        revealed = _revealed(source, standing, of.policy, workflow)
        if revealed is None:
            text, after, by, places = await self._rewritten(source, standing, of.policy, workflow)
        else:
            (text, after, by), places = revealed, 0
        if after != standing:
            show = of.policy.lattice.show
            change = Change(
                declassifier=by.id,
                kind=by.kind,
                label_before=show(standing.label),
                label_after=show(after.label),
                input=await aside(source.size, workflow.digest, "\0".join(source.texts).encode()),
                output=await aside(len(text), workflow.digest, text.encode()),
                places=places,
            )
            await self._register.declassified(of, change)
        return text, after

    async def _rewritten(
        self, source: Source, standing: Standing, policy: Policy, workflow: Workflow
    ) -> tuple[str, Standing, Declassifier, int]:
        by = rewriter_of(policy)
        if by is None:
            raise InternalError("The plan asks for a step that this appliance cannot run.")
        rewritten = await self._rewriter.rewrite(
            source.texts, source.size, standing, by, policy, workflow
        )
        if not rewritten.left.clean:
            self._register.left_over(by.kind)
        return source.joined(rewritten.value), rewritten.standing, by, rewritten.cut


def rewriter_of(policy: Policy) -> Declassifier | None:
    """The declassifier that rewrites texts for a plan."""
    kinds = ("pseudonymise", "redact")
    known = policy.declassifiers.values()
    return next((one for one in known if one.steps and one.kind in kinds), None)


def _revealed(
    source: Source, standing: Standing, policy: Policy, workflow: Workflow
) -> tuple[str, Standing, Declassifier] | None:
    if not source.said_here or len(source.texts) != 1:
        return None
    for one in policy.declassifiers.values():
        if one.kind != "constrained" or not one.steps or one.domain is None:
            continue
        # Paid for before it is read: that the answer was none of these tells something, too.
        if not workflow.reveals.spend(constrained.bits(one.domain)):
            continue
        answer = constrained.read(one.domain, source.texts[0])
        if answer is not None:
            label = one.removes.from_label(standing.label)
            return answer, standing.lowered(label, Obligation("redact", one.id)), one
    return None
