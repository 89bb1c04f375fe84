"""From a request to a job: its label, the verdict for every worker, and a plan. Nothing is called.

The same code serves a chat completion, `POST /v1/plan` and `conductor plan`, so that an explanation
cannot differ from what would happen; and every further round of a request, which is judged anew by
the label of all that was heard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from conductor.active import Active
from conductor.chat.request import ChatRequest
from conductor.core import Candidate, Flow, Heard, PlanRequest, Scan, Verdict, Worker
from conductor.detect.scan import Scanner
from conductor.errors import (
    ApiError,
    BadRequest,
    CostWeightNotAllowed,
    LabelNotAllowed,
    PlanError,
    PolicyBlocked,
    UpstreamFailed,
)
from conductor.flow.choices import choice_bits
from conductor.labels import LOWEST, Label, join_all
from conductor.plan.language import Access, Plan, Step
from conductor.plan.validate import PlanPool, may_stand_in
from conductor.planner.client import PlannerClient
from conductor.planner.engine import Planned
from conductor.policy.decide import classify, decide_all
from conductor.policy.document import Policy
from conductor.run import audience
from conductor.run.budget import estimate_tokens
from conductor.run.exchange import Limits, Used, goes_on, room
from conductor.run.failover import unreachable
from conductor.run.memory import Memory
from conductor.run.wholetexts import stated_by
from conductor.selection import Selection, select
from conductor.settings import MAX_COST_WEIGHT, CostWeights, Key, RequestLimits
from conductor.workers.pool import Pool

DIRECT = "direct"
"""What stands in an engine's place when the client named the worker."""

DIRECT_PLAN = Plan((Step(0, Access(question=True)),))
"""One step by the one candidate, shown the question."""

KEPT = "kept"
"""What stands in an engine's place when there is nobody left to ask a further answer of."""

_WEIGHT = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Judged:
    """A labelled request and what policy says of every worker that model name and key include.
    `cost_weight` is what engines are told of cost, see `core.PlanRequest`."""

    policy: Policy
    """The revision that counted when the request came in; it counts to the request's end."""
    selection: Selection
    scan: Scan
    label: Label
    verdicts: Mapping[str, Verdict]
    permitted: tuple[Worker, ...]
    """Who may see it all, some of them only once the obligations of their verdict are met."""
    cost_weight: float
    fixed: Label = LOWEST
    """What the request was labelled before any detector: see `workflow.Workflow`."""
    found: Label = LOWEST
    """What it would be labelled without `known_again`."""
    declared: Label | None = None
    veiled: tuple[Worker, ...] = ()
    """Who may see no more of it than what the step `redact` makes of it."""
    known_again: bool = False
    """Part of it is text that the appliance gave out under a higher label."""

    @property
    def denial(self) -> Verdict | None:
        """The first verdict that denies, in pool order."""
        return next((v for v in self.verdicts.values() if not v.allow), None)


@dataclass(frozen=True)
class Drafted:
    """A judged request with a round's plan; ordinals index `candidates`: those that were planned
    over, then those that could not be reached, which may stand in last if they are back by then.
    `look`: the round is one to look at."""

    candidates: tuple[Worker, ...]
    planned: Planned
    look: bool = False
    told_bits: float = 0.0
    """What the choice of this plan tells workers that may not see what it was made from."""
    pool: PlanPool | None = None
    """What the plan was made over, where some candidates may not see everything."""

    def stand_ins(self, number: int) -> Iterator[int]:
        """Ordinals of who may do the step of that number when its own worker cannot."""
        for ordinal in self.planned.alternates:
            # Those that could not be reached when it was planned are no part of the pool.
            if self.pool is None or ordinal >= self.pool.workers:
                yield ordinal
                continue
            if may_stand_in(self.planned.plan, number, ordinal, self.pool):
                yield ordinal


@dataclass(frozen=True)
class Told:
    """What a step of an earlier round answered, for the planner. `worker` is the id of who did;
    the answer is empty when there is none."""

    step: int
    worker: str
    answer: str
    output_tokens: int


@dataclass(frozen=True)
class Before:
    """What the earlier rounds of a request left, for planning a further one."""

    told: tuple[Told, ...]
    used: Used

    @property
    def answered(self) -> bool:
        return any(told.answer for told in self.told)


FIRST = Before((), Used())
"""Before a first round."""


class Intake:
    """Steps 2 to 4 of a request. One instance serves all requests."""

    def __init__(
        self,
        *,
        active: Active,
        pool: Pool,
        scanner: Scanner,
        planner: PlannerClient,
        memory: Memory,
        limits: RequestLimits,
        cost_weights: CostWeights,
    ) -> None:
        self._memory = memory
        self._active = active
        self._pool = pool
        self._scanner = scanner
        self._planner = planner
        self._limits = limits
        self._cost_weights = cost_weights

    async def judge(
        self,
        request: ChatRequest,
        raw: bytes,
        key: Key,
        declared: str | None,
        cost_weight: str | None = None,
    ) -> Judged:
        """Label the request and judge all workers.

        `raw` is the text that the request was parsed from; a long one is scanned as it stands, in
        another process. `declared` and `cost_weight` are the texts of the headers for a label and
        for a cost weight. Raises `ModelNotFound`, `ModelNotAllowed`, `LabelNotAllowed`,
        `CostWeightNotAllowed` and `BadRequest`; a request that nobody may see is no error here.
        """
        site = self._active.site
        policy = site.policy
        selection = select(request.model, site.worker_by_id, key.models)
        stated = _declared(policy, key, declared)
        base = (site.key(key.id) or key).default_label or policy.default_label
        weight = self._weight(key, selection, cost_weight)
        scan = await self._scanner.scan(request.body, raw, policy.profile)
        fixed = join_all([base, stated or base, stated_by(scan, policy)])
        label = found = classify(policy, scan, base, caller=key.id, declared=stated)
        again = await self._memory.known(request, policy.lattice)
        if again is not None:
            label, fixed = label.join(again.label), fixed.join(again.stated)
        workers = [worker for worker in site.workers if selection.includes(worker)]
        verdicts = decide_all(policy, label, workers)
        allowed = audience.permitted(workers, verdicts)
        others = [worker for worker in workers if worker not in allowed]
        return Judged(
            policy,
            selection,
            scan,
            label,
            verdicts,
            allowed,
            weight,
            fixed=fixed,
            found=found,
            declared=stated,
            known_again=again is not None,
            veiled=audience.veiled(policy, label, fixed, others),
        )

    def judge_again(self, judged: Judged, label: Label, candidates: tuple[Worker, ...]) -> Judged:
        """The request with a label that was raised since, and what policy now says of the
        `candidates` of its earlier round: no round has more than the one before."""
        verdicts = decide_all(judged.policy, label, candidates)
        permitted = audience.permitted(candidates, verdicts)
        return replace(judged, label=label, verdicts=verdicts, permitted=permitted, veiled=())

    def _weight(self, key: Key, selection: Selection, given: str | None) -> float:
        if given is None:
            return self._cost_weights.of(selection.preference)
        if not key.set_cost_weight:
            raise CostWeightNotAllowed(
                "This key may not set a cost weight. Remove the header x-conductor-cost-weight, "
                "choose one of the models conductor-thrifty and conductor-quality instead, or have "
                "an administrator set set_cost_weight for the key."
            )
        if not _WEIGHT.fullmatch(given) or float(given) > MAX_COST_WEIGHT:
            raise BadRequest(
                f"The header x-conductor-cost-weight must be one decimal number from 0 to "
                f"{MAX_COST_WEIGHT:g}, such as 0.03."
            )
        return float(given)

    async def draft(
        self,
        request: ChatRequest,
        judged: Judged,
        request_id: str,
        before: Before = FIRST,
        *,
        free_only: bool = False,
    ) -> Drafted:
        """Plan a round over the permitted workers that can be reached; with `free_only` over those
        of them that cost nothing, if there are any.

        Raises `PolicyBlocked` when none is permitted, 503 when none of them can be reached; after
        an earlier round that was answered, that answer is kept instead.
        """
        candidates = judged.permitted + judged.veiled
        if judged.selection.worker is not None:
            candidates = judged.permitted
        if free_only:
            candidates = tuple(w for w in candidates if w.price.free) or candidates
        reached = tuple(w for w in candidates if self._pool.routable(w))
        limits = self._limits_of(request)
        if before.answered and not (reached and room(limits, before.used).max_steps):
            return Drafted((), Planned(Plan((), before.used.steps), KEPT))
        if not candidates:
            raise self._blocked(judged)
        if not reached:
            raise self._unreachable(candidates)
        if judged.selection.worker is not None:
            return Drafted(reached, Planned(DIRECT_PLAN, DIRECT))
        try:
            asked = self._asked(request, judged, request_id, reached, before)
            planned = await self._planner.plan(asked)
        except PlanError:
            raise UpstreamFailed("No plan could be made for this request.") from None
        pool = None if asked.flow is None else PlanPool.of(asked)
        # Only who may see everything: what the plan tells others was counted without these.
        resting = tuple(w for w in candidates if w not in reached and w in judged.permitted)
        last = range(len(reached), len(reached) + len(resting))
        return Drafted(
            reached + resting,
            replace(planned, alternates=(*planned.alternates, *last)),
            goes_on(planned.plan, planned.look, limits, before.used),
            0.0 if pool is None else choice_bits(planned.plan, pool, planned.alternates),
            pool,
        )

    def _asked(
        self,
        request: ChatRequest,
        judged: Judged,
        request_id: str,
        reached: tuple[Worker, ...],
        before: Before,
    ) -> PlanRequest:
        left = room(self._limits_of(request), before.used)
        veiled = {worker.id for worker in judged.veiled}
        flow = (
            self._flow(judged, reached, before)
            if not veiled.isdisjoint(w.id for w in reached)
            else None
        )
        return PlanRequest(
            request_id=request_id,
            question=request.question,
            candidates=tuple(_candidate(worker, worker.id in veiled) for worker in reached),
            preference=judged.selection.preference,
            max_steps=left.max_steps,
            one_step=request.one_step,
            prompt_tokens=estimate_tokens(request.prompt_bytes),
            cost_weight=judged.cost_weight,
            heard=_heard(before, reached),
            rounds_left=left.rounds_left,
            calls_left=left.calls_left,
            may_redact=flow is not None,
            flow=flow,
        )

    @staticmethod
    def _flow(judged: Judged, candidates: tuple[Worker, ...], before: Before) -> Flow:
        heard = len(before.told)
        return audience.flow(judged.policy, judged.label, judged.fixed, candidates, heard)

    def _limits_of(self, request: ChatRequest) -> Limits:
        """What must come from a single worker is not compared with what others say."""
        limits = self._limits
        rounds = 1 if request.one_step else limits.max_rounds
        return Limits(limits.max_steps, rounds, limits.max_calls)

    @staticmethod
    def _blocked(judged: Judged) -> PolicyBlocked:
        verdict = judged.denial
        rule = verdict.rule if verdict else "baseline"
        return PolicyBlocked(
            f"No model is permitted to see this request, labelled "
            f"{judged.policy.lattice.show(judged.label)} (rule {rule}). Remove the sensitive data, "
            "or ask an administrator which models are cleared for it."
        )

    def _unreachable(self, permitted: tuple[Worker, ...]) -> ApiError:
        return unreachable(
            only_local=not any(worker.remote for worker in permitted),
            retry_after_s=max(1.0, min(self._pool.reopen_in_s(worker) for worker in permitted)),
        )


def _declared(policy: Policy, key: Key, declared: str | None) -> Label | None:
    """The label that the caller declares, if it may declare one."""
    if declared is None:
        return None
    if not (key.declare_labels and policy.classifiers.believes(key.id)):
        raise LabelNotAllowed(
            "This key may not declare labels. Remove the header x-conductor-label, or have an "
            "administrator set declare_labels for the key."
        )
    try:
        return policy.lattice.parse(declared)
    except ValueError as error:
        raise LabelNotAllowed(f"The header x-conductor-label is {error}.") from None


def _heard(before: Before, candidates: tuple[Worker, ...]) -> tuple[Heard, ...]:
    """Earlier answers with their workers' places among the candidates, for those that have one."""
    places = {worker.id: place for place, worker in enumerate(candidates)}
    return tuple(
        Heard(told.step, places.get(told.worker), told.answer, told.output_tokens)
        for told in before.told
    )


def _candidate(worker: Worker, veiled: bool) -> Candidate:
    return Candidate(
        card=worker.card,
        price=worker.price,
        local=not worker.remote,
        context_tokens=worker.limits.context_tokens,
        veiled=veiled,
    )
