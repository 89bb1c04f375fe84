"""From a request to a job: its label, the verdict for every worker, and a plan. Nothing is called.

The same code serves a chat completion, `POST /v1/plan` and `conductor plan`, so that an explanation
cannot differ from what would happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from conductor.chat.request import ChatRequest
from conductor.core import Candidate, PlanRequest, Scan, Verdict, Worker
from conductor.detect.scan import Scanner
from conductor.errors import (
    ApiError,
    LabelNotAllowed,
    PlanError,
    PolicyBlocked,
    UpstreamFailed,
)
from conductor.labels import Label
from conductor.plan.language import Access, Plan, Step
from conductor.planner.client import PlannerClient
from conductor.planner.engine import Planned
from conductor.policy.decide import classify, decide_all
from conductor.policy.document import Policy
from conductor.run.budget import estimate_tokens
from conductor.run.failover import unreachable
from conductor.selection import Selection, select
from conductor.settings import Key
from conductor.workers.pool import Pool

DIRECT = "direct"
"""What stands in an engine's place when the client named the worker."""

DIRECT_PLAN = Plan((Step(0, Access(question=True)),))
"""One step by the one candidate, shown the question."""


@dataclass(frozen=True)
class Judged:
    """A labelled request and what policy says of every worker that model name and key include."""

    selection: Selection
    scan: Scan
    label: Label
    verdicts: Mapping[str, Verdict]
    permitted: tuple[Worker, ...]

    @property
    def denial(self) -> Verdict | None:
        """The first verdict that denies, in pool order."""
        return next((v for v in self.verdicts.values() if not v.allow), None)


@dataclass(frozen=True)
class Drafted:
    """A judged request with its plan; ordinals index `candidates`: those that were planned over,
    then those that could not be reached, which may stand in last if they are back by then."""

    candidates: tuple[Worker, ...]
    planned: Planned


class Intake:
    """Steps 2 to 4 of a request. One instance serves all requests."""

    def __init__(
        self,
        *,
        policy: Policy,
        pool: Pool,
        scanner: Scanner,
        planner: PlannerClient,
        max_steps: int,
    ) -> None:
        self._policy = policy
        self._pool = pool
        self._scanner = scanner
        self._planner = planner
        self._max_steps = max_steps

    async def judge(
        self, request: ChatRequest, raw: bytes, key: Key, declared: str | None
    ) -> Judged:
        """Label the request and judge all workers.

        `raw` is the text that the request was parsed from; a long one is scanned as it stands, in
        another process. `declared` is the text of a label header. Raises `ModelNotFound`,
        `ModelNotAllowed` and `LabelNotAllowed`; a request that nobody may see is no error here.
        """
        selection = select(request.model, self._pool.by_id, key.models)
        base = self._base(key, declared)
        scan = await self._scanner.scan(request.body, raw)
        label = classify(self._policy, scan, base)
        workers = [worker for worker in self._pool.workers if selection.includes(worker)]
        verdicts = decide_all(self._policy, label, workers)
        permitted = tuple(worker for worker in workers if verdicts[worker.id].allow)
        return Judged(selection, scan, label, verdicts, permitted)

    def _base(self, key: Key, declared: str | None) -> Label:
        base = key.default_label or self._policy.default_label
        if declared is None:
            return base
        if not key.declare_labels:
            raise LabelNotAllowed(
                "This key may not declare labels. Remove the header x-conductor-label, or have an "
                "administrator set declare_labels for the key."
            )
        try:
            return base.join(self._policy.lattice.parse(declared))
        except ValueError as error:
            raise LabelNotAllowed(f"The header x-conductor-label is {error}.") from None

    async def draft(
        self, request: ChatRequest, judged: Judged, request_id: str, *, free_only: bool = False
    ) -> Drafted:
        """Plan over the permitted workers that can be reached; with `free_only` over those of them
        that cost nothing, if there are any.

        Raises `PolicyBlocked` when none is permitted, 503 when none of them can be reached.
        """
        if not judged.permitted:
            raise self._blocked(judged)
        candidates = judged.permitted
        if free_only:
            candidates = tuple(w for w in candidates if w.price.free) or candidates
        reached = tuple(w for w in candidates if self._pool.routable(w))
        if not reached:
            raise self._unreachable(candidates)
        if judged.selection.worker is not None:
            return Drafted(reached, Planned(DIRECT_PLAN, DIRECT))
        asked = PlanRequest(
            request_id=request_id,
            question=request.question,
            candidates=tuple(_candidate(worker) for worker in reached),
            preference=judged.selection.preference,
            max_steps=self._max_steps,
            one_step=request.one_step,
            prompt_tokens=estimate_tokens(request.prompt_bytes),
        )
        try:
            planned = await self._planner.plan(asked)
        except PlanError:
            raise UpstreamFailed("No plan could be made for this request.") from None
        resting = tuple(w for w in candidates if w not in reached)
        last = range(len(reached), len(reached) + len(resting))
        return Drafted(reached + resting, replace(planned, alternates=(*planned.alternates, *last)))

    def _blocked(self, judged: Judged) -> PolicyBlocked:
        verdict = judged.denial
        rule = verdict.rule if verdict else "baseline"
        return PolicyBlocked(
            f"No model is permitted to see this request, labelled "
            f"{self._policy.lattice.show(judged.label)} (rule {rule}). Remove the sensitive data, "
            "or ask an administrator which models are cleared for it."
        )

    def _unreachable(self, permitted: tuple[Worker, ...]) -> ApiError:
        return unreachable(
            only_local=not any(worker.remote for worker in permitted),
            retry_after_s=max(1.0, min(self._pool.reopen_in_s(worker) for worker in permitted)),
        )


def _candidate(worker: Worker) -> Candidate:
    return Candidate(
        card=worker.card,
        price=worker.price,
        local=not worker.remote,
        context_tokens=worker.limits.context_tokens,
    )
