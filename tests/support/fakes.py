"""Stand-ins for what surrounds `run/`: workers, the audit log, the permit desk, the planner.

Everything pure is real: policy, pool, budget, ledger, metrics, scanner. `kit` puts them together
around the fakes; every fake notes what happens to it in one shared `Diary`, so that a test can ask
what came before what.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from conductor.active import Active
from conductor.audit.log import AuditLog
from conductor.chat.request import ChatRequest, parse_chat
from conductor.config import Site
from conductor.core import Body, Call, Caller, PlanRequest, Reply, Worker
from conductor.declassify.approvals import ApprovalBook
from conductor.detect.scan import Scanner
from conductor.errors import AuditError, PlanError, WorkerError
from conductor.flow.artifacts import ArtifactStore
from conductor.labels import Label
from conductor.ledger import Ledger
from conductor.metrics import Metrics
from conductor.plan.language import parse
from conductor.planner.client import PlannerClient
from conductor.planner.engine import Planned
from conductor.policy.document import Policy
from conductor.run.attempts import Attempts
from conductor.run.budget import Budget
from conductor.run.conduct import Conduct
from conductor.run.executor import Executor
from conductor.run.intake import Drafted, Intake
from conductor.run.job import Job, Round, Run
from conductor.run.memory import Memory
from conductor.run.obligations import Duties
from conductor.run.permits import PermitDesk
from conductor.run.redaction import Redaction
from conductor.run.register import Register
from conductor.run.rewriting import Rewriter
from conductor.run.rounds import Rounds
from conductor.run.sources import Sources
from conductor.run.workflow import Workflow
from conductor.settings import CostWeights, Key, RequestLimits
from conductor.workers.pool import Pool
from support.configs import Tree, local_worker, remote_worker, small_site

Diary = list[str]
ROOMY = RequestLimits(max_calls=20, max_tokens=100_000, max_cost_usd=1.0, total_s=60.0)


# -- workers ----------------------------------------------------------------------------------


@dataclass
class Act:
    """What a fake worker does with one call: answer `text`, or fail; streamed word by word."""

    text: str = "fine"
    fails: WorkerError | None = None
    """Instead of an answer."""
    breaks_off: WorkerError | None = None
    """After the text of a streamed answer."""
    gate: asyncio.Event | None = None
    """Waited for before the answer begins."""
    hangs: bool = False
    """A streamed answer that says its text and then nothing any more."""
    usage: tuple[int, int] | None = (10, 5)


@dataclass(frozen=True)
class Made:
    """A call that was made."""

    worker: str
    body: Body
    permit: str | None
    stream: bool
    total_s: float

    @property
    def seen(self) -> str:
        """All text that the worker was shown."""
        return "\n".join(message["content"] for message in self.body["messages"])


class FakeCaller:
    """Implements `core.Caller`. `acts` gives each worker's acts in order, the last one repeated."""

    def __init__(self, acts: Mapping[str, Act | Sequence[Act]], diary: Diary) -> None:
        self._acts = {
            worker: [act] if isinstance(act, Act) else list(act) for worker, act in acts.items()
        }
        self._diary = diary
        self.calls: list[Made] = []
        self.answer: Callable[[Made], str] | None = None
        """Makes the text of an answer, in place of the acts' own."""
        self.open = 0
        self.peak = 0
        self.streams_open = 0

    @property
    def workers(self) -> list[str]:
        return [made.worker for made in self.calls]

    @asynccontextmanager
    async def call(self, worker: Worker, call: Call) -> AsyncIterator[Reply]:
        body = json.loads(call.body)
        self.calls.append(Made(worker.id, body, call.permit, call.stream, call.total_s))
        self._diary.append(f"call {worker.id}")
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            act = self._next(worker.id)
            if self.answer is not None:
                act = replace(act, text=self.answer(self.calls[-1]))
            if act.gate is not None:
                await act.gate.wait()
            if act.fails is not None:
                raise act.fails
            yield FakeReply(act, self)
        finally:
            self.open -= 1
            self._diary.append(f"left {worker.id}")

    def _next(self, worker: str) -> Act:
        acts = self._acts.get(worker, [Act()])
        return acts.pop(0) if len(acts) > 1 else acts[0]


class FakeReply:
    """Implements `core.Reply`."""

    def __init__(self, act: Act, caller: FakeCaller) -> None:
        self._act = act
        self._caller = caller

    async def json(self) -> Body:
        message = {"role": "assistant", "content": self._act.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"choices": [choice], **self._usage()}

    async def events(self) -> AsyncGenerator[Body, None]:
        self._caller.streams_open += 1
        try:
            for word in self._act.text.split(" "):
                yield _chunk({"content": word}, None)
            if self._act.hangs:
                await asyncio.Event().wait()
            if self._act.breaks_off is not None:
                raise self._act.breaks_off
            yield _chunk({}, "stop")
            yield {"choices": [], **self._usage()}
        finally:
            self._caller.streams_open -= 1

    def _usage(self) -> Body:
        if self._act.usage is None:
            return {}
        prompt, completion = self._act.usage
        return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def _chunk(delta: Body, finish: str | None) -> Body:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


# -- audit, permits, planner ------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    event: str
    fields: Mapping[str, Any]
    durable: asyncio.Future[None]


class FakeAudit:
    """An audit log whose records become durable when the test says so: `held` keeps them back
    (True for all, or the events named), `release` lets them through, `broken` fails them."""

    def __init__(
        self,
        diary: Diary,
        *,
        held: bool | frozenset[str] = False,
        broken: frozenset[str] = frozenset(),
    ) -> None:
        self._diary = diary
        self._held = held
        self._broken = broken
        self.records: list[Recorded] = []

    def post(self, event: str, **fields: object) -> asyncio.Future[None]:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.records.append(Recorded(event, fields, durable))
        self._diary.append(f"posted {event}")
        if event in self._broken:
            durable.set_exception(AuditError("the audit log cannot be written"))
            durable.exception()
        elif self._held is False or (self._held is not True and event not in self._held):
            self._settle(self.records[-1])
        return durable

    async def append(self, event: str, **fields: object) -> None:
        await self.post(event, **fields)

    def release(self, event: str) -> None:
        """Make every record of that kind durable."""
        for record in self.records:
            if record.event == event and not record.durable.done():
                self._settle(record)

    def events(self, event: str) -> list[Mapping[str, Any]]:
        return [record.fields for record in self.records if record.event == event]

    @property
    def counts(self) -> Counter[str]:
        return Counter(record.event for record in self.records)

    def _settle(self, record: Recorded) -> None:
        record.durable.set_result(None)
        self._diary.append(f"durable {record.event}")


class FakeDesk:
    """Mints permits that name their number and the epoch, which `forget_epoch` advances."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self.minted: list[tuple[str, bytes, Label]] = []
        self.epoch = 0

    async def mint(
        self, policy: Policy, worker: Worker, body: bytes, label: Label, decision_id: str
    ) -> tuple[str, str]:
        self.minted.append((worker.id, body, label))
        self._diary.append(f"permit {worker.id}")
        return f"p{len(self.minted)}", f"token-{len(self.minted)}-epoch-{self.epoch}"

    def forget_epoch(self) -> None:
        self.epoch += 1


class FakePlanner:
    """Answers every question with one plan, or with `PlanError` when there is none. `script` says
    otherwise for as many questions: a plan, and whether its answers are to be looked at."""

    def __init__(self, plan: str | None, alternates: tuple[int, ...] = ()) -> None:
        self.plan_text = plan
        self.alternates = alternates
        self.script: list[tuple[str, bool]] = []
        self.asked: list[PlanRequest] = []
        self.gate: asyncio.Event | None = None

    async def plan(self, request: PlanRequest) -> Planned:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        text, look = self.script.pop(0) if self.script else (self.plan_text, False)
        if text is None:
            raise PlanError("no plan")
        return Planned(parse(text, len(request.heard)), "fake", self.alternates, look=look)


# -- all together -----------------------------------------------------------------------------


@dataclass
class Kit:
    """`run/` around fakes."""

    site: Site
    caller: FakeCaller
    audit: FakeAudit
    desk: FakeDesk
    planner: FakePlanner
    pool: Pool
    ledger: Ledger
    attempts: Attempts
    executor: Executor
    intake: Intake
    conduct: Conduct
    limits: RequestLimits
    diary: Diary
    key: Key = field(default_factory=lambda: Key("app", None, None))

    def worker(self, name: str) -> Worker:
        return self.pool.by_id[name]

    def label(self, text: str = "internal") -> Label:
        return self.site.policy.lattice.parse(text)

    def run(
        self,
        plan: str,
        *,
        alternates: tuple[int, ...] = (),
        label: str = "internal",
        candidates: Sequence[str] | None = None,
        durable: asyncio.Future[None] | None = None,
        **request: Any,
    ) -> Run:
        """A judged and planned request. Ordinals index `candidates`, by default the whole pool."""
        workers = self.pool.workers if candidates is None else map(self.worker, candidates)
        if durable is None:
            durable = asyncio.get_running_loop().create_future()
            durable.set_result(None)
        job = Job(
            request=chat(**request),
            request_id="req_1",
            decision_id="d1",
            answer_id="chatcmpl-d1",
            created=7,
            label=self.label(label),
            budget=Budget(self.limits, asyncio.get_running_loop().time),
            policy=self.site.policy,
            workflow=Workflow.under(self.site.policy, self.site.policy.default_label),
        )
        drafted = Drafted(tuple(workers), Planned(parse(plan), "fake", alternates))
        return Run(job, [Round(job.label, drafted, durable)])


def chat(**fields: Any) -> ChatRequest:
    """A checked request; by default one user message for the model `conductor`."""
    return parsed(**fields)[0]


def parsed(**fields: Any) -> tuple[ChatRequest, bytes]:
    """The same, with the bytes that it was parsed from."""
    messages = [{"role": "user", "content": fields.pop("text", "What is it?")}]
    raw = json.dumps({"model": "conductor", "messages": messages, **fields}).encode()
    return parse_chat(raw), raw


def kit(
    directory: Path,
    acts: Mapping[str, Act | Sequence[Act]] | None = None,
    *,
    workers: Sequence[Tree] | None = None,
    plan: str | None = "0 q -\n",
    alternates: tuple[int, ...] = (),
    limits: RequestLimits = ROOMY,
    held: bool | frozenset[str] = False,
    broken: frozenset[str] = frozenset(),
    budget_usd: float | None = None,
    policy: Tree | None = None,
) -> Kit:
    """By default two local workers, `a` and `b`, and two remote ones, `x` and `y`."""
    site = small_site(directory, workers=workers or four_workers(), policy=policy)
    diary: Diary = []
    caller, audit = FakeCaller(acts or {}, diary), FakeAudit(diary, held=held, broken=broken)
    desk, planner = FakeDesk(diary), FakePlanner(plan, alternates)
    pool, ledger = Pool(site.workers), Ledger({"app": budget_usd})
    scanner, log = Scanner(), cast(AuditLog, audit)
    metrics = Metrics([w.id for w in site.workers], [], [], site.policy.lattice.levels)
    rewriter, register = Rewriter(scanner), Register(log, metrics)
    memory = Memory(ArtifactStore())
    attempts = Attempts(
        pool=pool,
        caller=cast(Caller, caller),
        duties=Duties(rewriter, ApprovalBook()),
        register=register,
        desk=cast(PermitDesk, desk),
        audit=log,
        metrics=metrics,
    )
    executor = Executor(attempts, scanner, Redaction(rewriter, register), memory)
    intake = Intake(
        active=Active(site),
        pool=pool,
        scanner=scanner,
        planner=cast(PlannerClient, planner),
        memory=memory,
        limits=limits,
        cost_weights=CostWeights(),
    )
    rounds = Rounds(intake=intake, executor=executor, audit=log, metrics=metrics)
    conduct = Conduct(
        intake=intake,
        rounds=rounds,
        sources=Sources(scanner, memory),
        audit=log,
        ledger=ledger,
        metrics=metrics,
        limits=limits,
    )
    return Kit(
        site, caller, audit, desk, planner, pool, ledger, attempts, executor, intake, conduct,
        limits, diary,
    )  # fmt: skip


def four_workers() -> list[Tree]:
    return [
        local_worker("a", port=9001),
        local_worker("b", port=9002),
        remote_worker("x"),
        remote_worker("y"),
    ]


async def settled() -> None:
    """Let everything that can go on without the test go on."""
    for _ in range(20):
        await asyncio.sleep(0)
