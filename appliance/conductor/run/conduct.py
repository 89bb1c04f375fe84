"""One request from label to outcome, apart from HTTP: judge, plan, record, reserve, run, settle.

The order is the guarantee. The decision record is posted before anything runs; remote calls and the
first byte of the answer wait until it is on disk; so it goes again with the record of every further
round (`rounds.py`). The outcome record follows in every case: an answer, a refusal, an error, or a
client that left.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from conductor.audit.log import AuditLog
from conductor.chat.request import ChatRequest
from conductor.errors import ApiError, AuditError, AuditUnavailable, UpstreamTimeout
from conductor.ledger import Ledger, Reservation, to_musd
from conductor.metrics import Metrics
from conductor.run.budget import Budget
from conductor.run.facts import (
    answer_facts,
    count_plan,
    count_rounds,
    finding_facts,
    plan_facts,
    step_facts,
    verdict_facts,
)
from conductor.run.intake import Drafted, Intake, Judged
from conductor.run.job import Answer, Job, Round, Run
from conductor.run.judgeable import Judgeable, Said
from conductor.run.recording import post
from conductor.run.rounds import Rounds
from conductor.run.sources import Sources
from conductor.run.workflow import Workflow
from conductor.settings import Key, RequestLimits


@dataclass
class Conducted:
    """A request under way: what has been decided so far and, at the end, the answer."""

    request_id: str
    decision_id: str = field(default_factory=lambda: secrets.token_hex(12))
    judged: Judged | None = None
    drafted: Drafted | None = None
    run: Run | None = None
    decided: bool = False
    """Whether the decision record was posted."""


class Conduct:
    """Conducts requests. One instance serves all of them."""

    def __init__(
        self,
        *,
        intake: Intake,
        rounds: Rounds,
        sources: Sources,
        audit: AuditLog,
        ledger: Ledger,
        metrics: Metrics,
        limits: RequestLimits,
        judgeable: Judgeable | None = None,
    ) -> None:
        self._intake = intake
        self._rounds = rounds
        self._sources = sources
        self._audit = audit
        self._ledger = ledger
        self._metrics = metrics
        self._limits = limits
        self._judgeable = judgeable

    @asynccontextmanager
    async def answer(
        self,
        state: Conducted,
        request: ChatRequest,
        raw: bytes,
        key: Key,
        declared: str | None,
        cost_weight: str | None = None,
    ) -> AsyncIterator[Answer]:
        """Enter with the begun answer. `declared` and `cost_weight` are the texts of two headers,
        see `Intake.judge`. Raises `ApiError`; fills `state` as decisions are made."""
        started_s = time.monotonic()
        outcome = "failed"
        try:
            async with (
                asyncio.timeout(self._limits.total_s),
                self._answer(state, request, raw, key, declared, cost_weight) as answer,
            ):
                said = Said.of(answer) if self._judgeable is not None else None
                yield answer if said is None else said.answer
            outcome = "completed"
            if said is not None:
                self._keep(state, request, key, said)
        except TimeoutError:
            raise UpstreamTimeout(
                "The request took longer than this appliance allows (limits.total_s)."
            ) from None
        except (asyncio.CancelledError, ConnectionError):  # the client left, seen early or late
            outcome = "aborted"
            raise
        except AuditError:
            raise AuditUnavailable(
                "The appliance cannot record its decision and so refuses the request. The operator "
                "must look at the audit log.",
                retry_after_s=5,
            ) from None
        except ApiError as error:
            outcome = "denied" if error.status in (401, 403) else "failed"
            raise
        finally:
            self._record_outcome(state, request, key, outcome, started_s)

    @asynccontextmanager
    async def _answer(
        self,
        state: Conducted,
        request: ChatRequest,
        raw: bytes,
        key: Key,
        declared: str | None,
        cost_weight: str | None,
    ) -> AsyncIterator[Answer]:
        began_s = time.monotonic()
        judged = state.judged = await self._intake.judge(request, raw, key, declared, cost_weight)
        self._metrics.scanned(time.monotonic() - began_s, judged.scan.unscanned)
        self._metrics.labelled(
            judged.policy.lattice.levels[judged.label.level], judged.label.compartments
        )
        self._metrics.shadowed(judged.verdicts.values())
        await self._sources.note(request, judged)
        spent = self._ledger.remaining_usd(key.id) == 0
        try:
            drafted = state.drafted = await self._intake.draft(
                request, judged, state.request_id, free_only=spent
            )
        except ApiError:
            if judged.denial is not None:
                self._metrics.blocked(judged.denial.rule)
            await self._decide(state, key, request.model, 0)
            raise
        count_plan(self._metrics, drafted)
        with self._reserve(key, drafted) as held:
            budget = Budget(replace(self._limits, max_cost_usd=held.musd / 1e6), time.monotonic)
            recorded = self._decide(state, key, request.model, held.musd)
            job = self._job(state, request, judged, budget)
            paid = job.workflow.reveals.spend(drafted.told_bits)
            run = state.run = Run(job, [Round(judged.label, drafted, recorded, paid)])
            try:
                async with self._rounds.answer(run, judged) as answer:
                    yield answer
            finally:
                job.workflow.end()
                held.settle(budget.cost_usd)
                count_rounds(self._metrics, run)

    def _keep(self, state: Conducted, request: ChatRequest, key: Key, said: Said) -> None:
        """The client has its answer: from now on it may be judged."""
        if self._judgeable is not None and state.judged is not None and state.run is not None:
            self._judgeable.note(request, state.judged, state.run, key, said.text)

    def _reserve(self, key: Key, drafted: Drafted) -> Reservation:
        """Put aside the most that this request may cost: nothing when all candidates are free,
        else its limit, or what the key has left today if that is less. Raises `BudgetExhausted`
        when that is nothing."""
        if all(worker.price.free for worker in drafted.candidates):
            return self._ledger.reserve(key.id, 0.0)
        left = self._ledger.remaining_usd(key.id)
        most = self._limits.max_cost_usd
        return self._ledger.reserve(key.id, min(left, most) if left else most)

    def _job(self, state: Conducted, request: ChatRequest, judged: Judged, budget: Budget) -> Job:
        return Job(
            request=request,
            request_id=state.request_id,
            decision_id=state.decision_id,
            answer_id=f"chatcmpl-{state.decision_id}",
            created=int(time.time()),
            label=judged.label,
            budget=budget,
            policy=judged.policy,
            workflow=Workflow.under(judged.policy, judged.fixed),
        )

    def _decide(
        self, state: Conducted, key: Key, model: str, reserved_musd: int
    ) -> asyncio.Future[None]:
        """Post the decision record; the future resolves when it is on disk."""
        judged, drafted = state.judged, state.drafted
        if judged is None:
            raise AuditError("nothing was judged")
        show = judged.policy.lattice.show
        posted = post(
            self._audit,
            "decision",
            {
                "detectors": finding_facts(judged.scan),
                "verdicts": verdict_facts(judged.verdicts),
            },
            request_id=state.request_id,
            decision_id=state.decision_id,
            key=key.id,
            model=model,
            label=show(judged.label),
            base_label=show(judged.fixed),
            declared=None if judged.declared is None else show(judged.declared),
            known_again=judged.known_again,
            unscanned=list(judged.scan.unscanned),
            policy_revision=judged.policy.revision,
            policy_sha256=judged.policy.sha256,
            reserved_musd=reserved_musd,
            **plan_facts(drafted),
        )  # fmt: skip
        state.decided = True
        return posted

    def _record_outcome(
        self, state: Conducted, request: ChatRequest, key: Key, outcome: str, started_s: float
    ) -> None:
        if state.judged is None:  # no decision was made, so there is none to close
            return
        if not state.decided:  # it ended between the two: out of budget, or the client left
            self._decide(state, key, request.model, 0)
        steps = step_facts(state.run, state.judged.policy.lattice) if state.run is not None else []
        post(
            self._audit,
            "outcome",
            {"steps": steps},
            request_id=state.request_id,
            decision_id=state.decision_id,
            key=key.id,
            outcome=outcome,
            cost_musd=to_musd(state.run.cost_usd) if state.run else 0,
            duration_ms=round((time.monotonic() - started_s) * 1000),
            **answer_facts(state.run),
        )
