"""Carrying out, on the exact bytes of one attempt, what an allow asks for in return.

A promise becomes a permit only here: what is to be cut out is cut out, the rest is checked, policy
is asked again about what came of it, and only then may the bytes go. What cannot be carried out
voids the allow; the data then goes to a worker that needs no promise, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from conductor.core import Body, Obligation, Verdict, Worker
from conductor.declassify.approvals import ApprovalBook, Matter, keys_of
from conductor.errors import ApprovalRequired, PolicyBlocked
from conductor.flow.standing import Standing
from conductor.policy.document import Policy
from conductor.run.aside import aside
from conductor.run.audience import verdict_on
from conductor.run.register import Change
from conductor.run.rewriting import Rewriter
from conductor.run.workflow import Workflow

_TOOL_FIELDS = ("tools", "functions", "web_search_options")


class Unmet(Exception):
    """The allow is void. `why` is one of `metrics.UNMET`."""

    def __init__(self, verdict: Verdict, why: str, request: str = "") -> None:
        super().__init__(why)
        self.verdict, self.why, self.request = verdict, why, request

    def told(self, step: int) -> PolicyBlocked:
        """What the client sees when this was the last worker."""
        if self.why == "approval":
            return ApprovalRequired(
                f"A person must approve what step {step + 1} would send (rule "
                f"{self.verdict.rule}). It waits for that as {self.request}: send the request "
                "again once it is approved.",
                headers={"x-conductor-approval": self.request},
            )
        return PolicyBlocked(
            f"What step {step + 1} would send may go only after "
            f"{', '.join(map(str, self.verdict.promise))}, and that could not be done "
            f"({self.why}; rule {self.verdict.rule})."
        )


class Asking(Protocol):
    """What is asked of an attempt: the parts of `attempts.Ask` that count here."""

    @property
    def policy(self) -> Policy: ...
    @property
    def standing(self) -> Standing: ...
    @property
    def workflow(self) -> Workflow: ...


@dataclass
class Carried:
    """The bytes that may go now, and how they stand."""

    body: bytes
    standing: Standing
    verdict: Verdict
    changes: list[Change] = field(default_factory=list)


class Duties:
    """Carries out obligations. One instance serves all requests."""

    def __init__(self, rewriter: Rewriter, approvals: ApprovalBook) -> None:
        self._rewriter = rewriter
        self._approvals = approvals

    async def carry_out(
        self, ask: Asking, worker: Worker, verdict: Verdict, body: bytes
    ) -> Carried:
        """`body` as it may go to `worker`. Raises `Unmet`."""
        carried = Carried(body, ask.standing, verdict)
        for obligation in _in_order(verdict.promise):
            await self._one(ask, worker, carried, obligation)
            done = carried.standing.discharged | {obligation}
            carried.standing = Standing(carried.standing.label, carried.standing.origin, done)
        carried.verdict = verdict_on(ask.policy, carried.standing, worker)
        if not carried.verdict.allow:
            raise Unmet(verdict, "policy")
        return carried

    async def _one(
        self, ask: Asking, worker: Worker, carried: Carried, obligation: Obligation
    ) -> None:
        if obligation.kind == "no_tools":
            await _without_tools(carried)
        elif obligation.kind == "zero_retention":
            # Said by the destination's facts, which the security officer wrote: nothing in a
            # request can make a vendor keep less.
            if worker.destination.facts.get("zero_retention") is not True:
                raise Unmet(carried.verdict, "retention")
        elif obligation.kind == "approve":
            await self._approved(ask, worker, carried, obligation)
        else:
            await self._rewritten(ask, carried, obligation)

    async def _rewritten(self, ask: Asking, carried: Carried, obligation: Obligation) -> None:
        declassifier = ask.policy.declassifiers[obligation.by]
        size = len(carried.body)
        tree: Body = await aside(size, orjson.loads, carried.body)
        ours = {
            name: tree.pop(name) for name in ("model", "stream", "stream_options") if name in tree
        }
        rewritten = await self._rewriter.rewrite(
            tree, size, carried.standing, declassifier, ask.policy, ask.workflow
        )
        if not rewritten.left.clean:
            raise Unmet(carried.verdict, "residue")
        whole = {**rewritten.value, **ours}
        body = await aside(size, orjson.dumps, whole, option=orjson.OPT_SORT_KEYS)
        await self._note(ask, carried, obligation, rewritten.standing, body, rewritten.cut)

    async def _approved(
        self, ask: Asking, worker: Worker, carried: Carried, obligation: Obligation
    ) -> None:
        declassifier = ask.policy.declassifiers[obligation.by]
        label = ask.policy.lattice.show(carried.standing.label)
        body, to = carried.body, worker.destination.id
        matter = await aside(len(body), Matter.of, declassifier.id, body, label, to)
        # Whoever approved may have been struck off since, or have another key.
        keys = keys_of(ask.policy.approvers, declassifier.approvers)
        approver = self._approvals.take(matter, keys)
        if approver is None:
            waiting = self._approvals.ask(matter, body, declassifier.expires_s)
            raise Unmet(carried.verdict, "approval", waiting.request)
        after = carried.standing.lowered(
            declassifier.removes.from_label(carried.standing.label), obligation
        )
        await self._note(ask, carried, obligation, after, carried.body, 0, approver)

    @staticmethod
    async def _note(
        ask: Asking,
        carried: Carried,
        obligation: Obligation,
        after: Standing,
        body: bytes,
        places: int,
        approver: str = "",
    ) -> None:
        show = ask.policy.lattice.show
        carried.changes.append(
            Change(
                declassifier=obligation.by,
                kind=obligation.kind,
                label_before=show(carried.standing.label),
                label_after=show(after.label),
                input=await aside(len(carried.body), ask.workflow.digest, carried.body),
                output=await aside(len(body), ask.workflow.digest, body),
                places=places,
                approver=approver,
            )
        )
        carried.body, carried.standing = body, after


async def _without_tools(carried: Carried) -> None:
    """Tools change what a model may do; dropping them in silence would change what was asked."""
    tree: Body = await aside(len(carried.body), orjson.loads, carried.body)
    if any(tree.get(name) for name in _TOOL_FIELDS):
        raise Unmet(carried.verdict, "tools")


def _in_order(obligations: Iterable[Obligation]) -> list[Obligation]:
    """Checks first, then cutting out, a person's approval of the exact bytes last."""
    turns = ("no_tools", "zero_retention", "redact", "pseudonymise", "approve")
    return sorted(obligations, key=lambda one: (turns.index(one.kind), one.by))
