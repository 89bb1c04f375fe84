"""One step's attempts: before each of them policy is asked again and a permit is minted.

An attempt may not begin unless, in this order: the verdict on the step's own label allows the
worker, its breaker lets the call through, the request's budget has room, a slot is free, and, for a
remote worker, the decision and the permit are durably recorded. Fallback runs through the same
gate, so a worker that may not see the data is never a fallback.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

from conductor.audit.log import AuditLog
from conductor.core import Body, Call, Caller, Failure, Reply, Usage, Worker
from conductor.errors import PolicyBlocked, WorkerError
from conductor.flow.standing import Standing
from conductor.metrics import Metrics
from conductor.policy.document import Policy
from conductor.run.answers import chained, until_content
from conductor.run.aside import aside
from conductor.run.audience import verdict_on
from conductor.run.budget import BYTES_PER_TOKEN_HIGH, Allowance, Budget, estimate_tokens
from conductor.run.failover import UNBILLED, Route, final_error
from conductor.run.obligations import Carried, Duties, Unmet
from conductor.run.permits import PermitDesk
from conductor.run.plain import shape_plain
from conductor.run.recording import shadow_facts
from conductor.run.register import Of, Register
from conductor.run.stream import ChunkShaper
from conductor.run.workflow import Workflow
from conductor.workers.pool import Pool

OK, ABORTED, DENIED = "ok", "aborted", "denied"


@dataclass(frozen=True)
class Tried:
    """One attempt, for accounting and audit. `outcome` is `ok`, a failure, `denied`, `aborted`."""

    worker: str
    outcome: str
    usage: Usage
    cost_usd: float
    duration_ms: int
    begun: bool = True
    """Whether the worker may have been given something."""


@dataclass(frozen=True)
class Ask:
    """What one step wants. `order` lists the workers to try, best first."""

    request_id: str
    decision_id: str
    step: int
    policy: Policy
    standing: Standing
    workflow: Workflow
    order: tuple[Worker, ...]
    body: Callable[[Worker, int], bytes]
    """Exact bytes for a worker and a bound on its output tokens."""
    prompt_bytes: int
    wanted_tokens: int | None
    choices: int
    """How many answers are wanted at once (`n`); each may have as many output tokens."""
    stream: bool
    answer_id: str
    created: int
    budget: Budget
    durable: asyncio.Future[None]
    """Resolves when the request's decision is on disk."""
    earlier: Usage
    """What other steps have used; the client is told the sum."""
    tried: list[Tried] = field(default_factory=list)


@dataclass(frozen=True)
class Begun:
    """A step whose answer has begun: a whole plain body, or chunks of which content is here."""

    worker: Worker
    body: Body | None = None
    chunks: AsyncIterator[Body] | None = None


@dataclass
class _Attempt:
    """State of one attempt, so that leaving it in whatever way settles it exactly once."""

    ask: Ask
    worker: Worker
    allowance: Allowance
    started_s: float
    outcome: str = ABORTED
    usage: Callable[[], Usage] | None = None
    sent: bool = False
    settled: bool = False

    def used(self) -> Usage:
        if self.usage is not None:
            return self.usage()
        # A vendor may bill what it has begun to work on.
        if self.sent and self.worker.remote and self.outcome not in UNBILLED:
            return Usage(estimate_tokens(self.ask.prompt_bytes), 0, estimated=True)
        return Usage()


class Attempts:
    """Opens attempts for steps. One instance serves all requests."""

    def __init__(
        self,
        *,
        pool: Pool,
        caller: Caller,
        duties: Duties,
        register: Register,
        desk: PermitDesk | None,
        audit: AuditLog,
        metrics: Metrics,
    ) -> None:
        self.pool = pool
        self.caller = caller
        self.duties = duties
        self.register = register
        self.desk = desk
        self.audit = audit
        self.metrics = metrics

    @asynccontextmanager
    async def begin(self, ask: Ask) -> AsyncIterator[Begun]:
        """Enter with an answer that has begun, from the first worker in `ask.order` that gives one.

        Leaving the context aborts what still runs and settles the budget. Raises `ApiError` when no
        permitted worker answered; a failure after content began comes out of `Begun.chunks`.
        """
        route = Route(ask.order)
        while True:
            route.waiting = self._permitted(ask, route.waiting)
            async with AsyncExitStack() as stack:
                try:
                    begun = await self._enter(stack, ask, route.waiting[0])
                except Unmet as unmet:
                    self.metrics.blocked(unmet.verdict.rule)
                    self.metrics.unmet(unmet.why)
                    route.waiting = route.waiting[1:]
                    if route.waiting:
                        continue
                    raise self._final(route) if route.failed else unmet.told(ask.step) from None
                except WorkerError as error:
                    failed = error
                else:
                    yield begun
                    return
            if not route.goes_on_after(failed):
                raise self._final(route) from failed

    def _permitted(self, ask: Ask, workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
        """Those that policy allows for what this step shows, now or once something is carried out;
        raises when there is none."""
        verdicts = [(worker, verdict_on(ask.policy, ask.standing, worker)) for worker in workers]
        for worker, verdict in verdicts:
            if not (verdict.allow or verdict.promise):
                ask.tried.append(Tried(worker.id, DENIED, Usage(), 0.0, 0, begun=False))
                self.metrics.blocked(verdict.rule)
        allowed = tuple(worker for worker, verdict in verdicts if verdict.allow or verdict.promise)
        if not allowed:
            rule = verdicts[0][1].rule if verdicts else "baseline"
            raise PolicyBlocked(
                f"No model is permitted to see what step {ask.step + 1} would show it "
                f"(rule {rule}). Ask an administrator, or remove the sensitive data."
            )
        return allowed

    def is_local(self, worker: str) -> bool:
        """Whether a worker of that id is on this machine."""
        known = self.pool.by_id.get(worker)
        return known is not None and not known.remote

    async def _enter(self, stack: AsyncExitStack, ask: Ask, worker: Worker) -> Begun:
        unfit = self._unfit(ask, worker)
        if unfit is not None:
            ask.tried.append(Tried(worker.id, unfit.failure, Usage(), 0.0, 0, begun=False))
            raise unfit
        allowance = ask.budget.open(worker, ask.prompt_bytes, ask.wanted_tokens, ask.choices)
        attempt = _Attempt(ask, worker, allowance, time.monotonic())
        stack.callback(self._settle, attempt)
        try:
            return await self._send(stack, attempt)
        except Unmet:
            attempt.outcome = DENIED
            ask.budget.not_called()
            raise
        except WorkerError as error:
            attempt.outcome = error.failure
            self.pool.report(worker, error)
            if error.failure is Failure.PERMIT and self.desk is not None:
                self.desk.forget_epoch()
            raise

    def _unfit(self, ask: Ask, worker: Worker) -> WorkerError | None:
        """Why the worker is not even tried: its breaker is open, or the prompt cannot fit, which
        its tokeniser need not find out. Comes before the budget: a prompt is too long for a model
        first, and too long for the site's limits after that."""
        if not self.pool.routable(worker):
            return WorkerError(Failure.OPEN, retry_after_s=self.pool.reopen_in_s(worker))
        window = worker.limits.context_tokens
        if ask.prompt_bytes > window * BYTES_PER_TOKEN_HIGH:
            tokens = estimate_tokens(ask.prompt_bytes)
            return WorkerError(Failure.CONTEXT_LENGTH, "estimated", window=(window, tokens))
        return None

    async def _send(self, stack: AsyncExitStack, attempt: _Attempt) -> Begun:
        ask, worker = attempt.ask, attempt.worker
        carried = await self._carried(attempt)
        await stack.enter_async_context(self.pool.slot(worker))
        permit = await self._permit(ask, worker, carried) if worker.remote else None
        call = Call(ask.request_id, carried.body, ask.stream, permit, ask.budget.seconds_left())
        attempt.sent = True
        reply = await stack.enter_async_context(self.caller.call(worker, call))
        if ask.stream:
            return await self._streamed(stack, attempt, reply)
        plain, usage = shape_plain(
            await reply.json(),
            id=ask.answer_id,
            created=ask.created,
            model=worker.id,
            prompt_tokens=estimate_tokens(ask.prompt_bytes),
            earlier=ask.earlier,
        )
        self._succeeded(attempt, lambda: usage)
        return Begun(worker, body=plain)

    async def _streamed(self, stack: AsyncExitStack, attempt: _Attempt, reply: Reply) -> Begun:
        """Read up to the first content. Every generator is closed with the attempt, not by chance:
        what a client left unread must not run on."""
        ask, worker = attempt.ask, attempt.worker
        shaper = ChunkShaper(
            id=ask.answer_id,
            created=ask.created,
            model=worker.id,
            include_usage=True,
            prompt_tokens=estimate_tokens(ask.prompt_bytes),
        )
        events = await stack.enter_async_context(aclosing(reply.events()))
        chunks = await stack.enter_async_context(aclosing(self._chunks(attempt, shaper, events)))
        head = await until_content(chunks)
        attempt.usage = lambda: shaper.usage
        rest = await stack.enter_async_context(aclosing(chained(head, chunks)))
        return Begun(worker, chunks=rest)

    async def _carried(self, attempt: _Attempt) -> Carried:
        """The bytes that may go, once all that policy asks for was carried out on them and that is
        on disk. Raises `Unmet`."""
        ask, worker = attempt.ask, attempt.worker
        tokens = attempt.allowance.output_tokens
        body = await aside(ask.prompt_bytes, ask.body, worker, tokens)
        verdict = verdict_on(ask.policy, ask.standing, worker)
        if verdict.allow:
            return Carried(body, ask.standing, verdict)
        carried = await self.duties.carry_out(ask, worker, verdict, body)
        of = Of(ask.request_id, ask.decision_id, ask.step, ask.policy, worker.id)
        await asyncio.gather(*(self.register.declassified(of, one) for one in carried.changes))
        return carried

    async def _permit(self, ask: Ask, worker: Worker, carried: Carried) -> str:
        """Mint a permit once the decision, and the intent to send, are both on disk."""
        if self.desk is None:
            raise WorkerError(Failure.EGRESS_DOWN, "local-only")
        permit_id, token = await self.desk.mint(
            ask.policy, worker, carried.body, carried.standing.label, ask.decision_id
        )
        await asyncio.gather(
            asyncio.shield(ask.durable),
            self.audit.append(
                "egress",
                request_id=ask.request_id,
                decision_id=ask.decision_id,
                step=ask.step,
                permit_id=permit_id,
                worker=worker.id,
                destination=worker.destination.id,
                label=ask.policy.lattice.show(carried.standing.label),
                label_before=ask.policy.lattice.show(ask.standing.origin),
                rule=carried.verdict.rule,
                obligations=[str(one) for one in sorted(carried.standing.discharged)],
                shadow=shadow_facts(carried.verdict),
                policy_revision=ask.policy.revision,
                bytes_out=len(carried.body),
            ),
        )
        return token

    async def _chunks(
        self, attempt: _Attempt, shaper: ChunkShaper, events: AsyncIterator[Body]
    ) -> AsyncGenerator[Body, None]:
        try:
            async for event in events:
                for chunk in shaper.feed(event):
                    yield chunk
            closing = shaper.finish(attempt.ask.earlier)
        except WorkerError as error:
            attempt.outcome = error.failure
            if attempt.usage is not None:  # earlier failures are reported by _enter
                self.pool.report(attempt.worker, error)
            raise
        self._succeeded(attempt, lambda: shaper.usage)
        for chunk in closing:
            yield chunk

    def _succeeded(self, attempt: _Attempt, usage: Callable[[], Usage]) -> None:
        attempt.outcome, attempt.usage = OK, usage
        self.pool.report(attempt.worker, None)
        self._settle(attempt)

    def _settle(self, attempt: _Attempt) -> None:
        """Book what the attempt used: once, at its success or when it is left."""
        if attempt.settled:
            return
        attempt.settled = True
        usage = attempt.used()
        worker = attempt.worker
        cost = attempt.ask.budget.settle(attempt.allowance, worker.price, usage)
        seconds = time.monotonic() - attempt.started_s
        attempt.ask.tried.append(
            Tried(
                worker.id, attempt.outcome, usage, cost, round(seconds * 1000), begun=attempt.sent
            )
        )
        self.metrics.attempt(worker.id, attempt.outcome, seconds)
        self.metrics.spent(worker.id, usage, cost)

    def _final(self, route: Route) -> Exception:
        return final_error(
            route.errors,
            only_local=not any(worker.remote for worker, _ in route.failed),
            retry_after_s=max(1.0, min(self._wait_s(route, worker) for worker, _ in route.failed)),
        )

    def _wait_s(self, route: Route, worker: Worker) -> float:
        """When `worker` may be tried again: by its breaker, and by its own word."""
        stated = [error.retry_after_s or 0.0 for tried, error in route.failed if tried is worker]
        return max(self.pool.reopen_in_s(worker), *stated)
