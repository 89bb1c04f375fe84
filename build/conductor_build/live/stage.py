"""The daemon's own parts, put together for plays as `run/services.py` does it for requests.

Real are: executor, rounds, attempts, intake, budget, redaction, scanner, messages, decisions.
Stand-ins that keep nothing take the places of the audit log and of the memory of answers, and
whoever plays takes that of the planner: a play leaves no record beyond its outcome, and what an
answer says is never washed of a label by coming back in another request.

Policy permits everything on the workers of a game, but that a veiled one may not see the question
before the step `redact` has passed it on: data of the question is in a compartment that only a
declassifier takes off. Nothing is cut out then, for training questions name nobody. To the
executor all workers are local, since it mints no permits: remote ones are reached through the
running appliance, which does. Slots and breakers hold nobody up here: `calls.py` limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from conductor.active import Active
from conductor.audit.log import AuditLog
from conductor.core import Caller, Candidate, Destination, Worker
from conductor.declassify.approvals import ApprovalBook
from conductor.detect.detectors import DETECTORS, NAMES
from conductor.detect.scan import Scanner
from conductor.errors import WorkerError
from conductor.flow.artifacts import ArtifactStore
from conductor.labels import LOWEST, UNSCANNED, Clearance, Label, Lattice
from conductor.metrics import Metrics
from conductor.planner.client import PlannerClient
from conductor.policy.classifiers import Classifier, Classifiers
from conductor.policy.declassifiers import Declassifier, Removes
from conductor.policy.document import Policy
from conductor.run.attempts import Attempts
from conductor.run.exchange import Limits
from conductor.run.executor import Executor
from conductor.run.intake import Intake
from conductor.run.memory import Memory, Origin
from conductor.run.obligations import Duties
from conductor.run.redaction import Redaction
from conductor.run.register import Register
from conductor.run.rewriting import Rewriter
from conductor.run.rounds import Rounds
from conductor.settings import CostWeights, RequestLimits
from conductor.workers.pool import Pool

VEIL = "veil"
LATTICE = Lattice(("open",), frozenset({VEIL, UNSCANNED}))
VEILED = Label(0, frozenset({VEIL}))
"""Of a question that some worker may see only after a redaction."""
_SEES_ALL = Clearance(0, frozenset({VEIL, UNSCANNED}))
_SEES_REDACTED = Clearance(0, frozenset({UNSCANNED}))
_HERE = Destination("play", "local", _SEES_ALL, {"kind": "local"}, "")

POLICY = Policy(
    revision=1,
    sha256="",
    lattice=LATTICE,
    default_label=LOWEST,
    destinations={},
    classifiers=Classifiers((Classifier("harmless", DETECTORS - NAMES, LOWEST),)),
    guardrails=(),
    rules=(),
    declassifiers={
        "redact": Declassifier("redact", "redact", Removes(frozenset({VEIL})), "", steps=True)
    },
)
_ANY = 10**9
_DAY_S = 86_400.0
"""No limit of a play: what a worker may take is `calls.Settings.total_s`."""


class Stage:
    """What all plays share."""

    def __init__(self) -> None:
        self._audit = cast(AuditLog, _Unrecorded())
        self._scanner = Scanner()
        self._metrics = Metrics([], [], [], LATTICE.levels)
        rewriter, self._register = Rewriter(self._scanner), Register(self._audit, self._metrics)
        self._duties = Duties(rewriter, ApprovalBook())
        self._redaction = Redaction(rewriter, self._register)
        self._memory = _Forgetful(ArtifactStore())

    def rounds(
        self, workers: Sequence[Worker], caller: Caller, planner: PlannerClient, limits: Limits
    ) -> Rounds:
        """What plays one game."""
        pool = _AlwaysOpen(workers)
        attempts = Attempts(
            pool=pool,
            caller=caller,
            duties=self._duties,
            register=self._register,
            desk=None,
            audit=self._audit,
            metrics=self._metrics,
        )
        intake = Intake(
            active=cast(Active, None),  # asked when a request comes in: a play's is judged already
            pool=pool,
            scanner=self._scanner,
            planner=planner,
            memory=self._memory,
            limits=request_limits(limits),
            cost_weights=CostWeights(),
        )
        executor = Executor(attempts, self._scanner, self._redaction, self._memory)
        return Rounds(intake=intake, executor=executor, audit=self._audit, metrics=self._metrics)


def request_limits(limits: Limits) -> RequestLimits:
    """Of steps, calls and rounds as the game says; nothing else runs out in a play."""
    return RequestLimits(
        max_steps=limits.max_steps,
        max_calls=limits.max_calls,
        max_rounds=limits.max_rounds,
        max_tokens=_ANY,
        max_cost_usd=_ANY,
        total_s=_DAY_S,
    )


def as_played(worker: Worker, candidate: Candidate, max_tokens: int) -> Worker:
    """The worker as the executor sees it: at the candidate's price, and with room for any number
    of plays. `max_tokens` bounds each of its answers."""
    most = min(max_tokens, worker.limits.max_output_tokens)
    limits = replace(
        worker.limits,
        max_in_flight=_ANY,
        max_output_tokens=most,
        context_tokens=candidate.context_tokens,
    )
    return replace(
        worker,
        destination=_HERE,
        clearance=_SEES_REDACTED if candidate.veiled else _SEES_ALL,
        card=candidate.card,
        price=candidate.price,
        limits=limits,
    )


class _Unrecorded:
    """In the place of `AuditLog`: everything is recorded at once, nowhere."""

    def post(self, event: str, **fields: object) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def append(self, event: str, **fields: object) -> None:
        return None


class _AlwaysOpen(Pool):
    """Never leaves a worker out: one play's failure is void, and the next one asks again."""

    def report(self, worker: Worker, error: WorkerError | None) -> None:
        return None


class _Forgetful(Memory):
    """Takes in no answer, and so never grows."""

    async def note(self, job: Origin, texts: Iterable[str], label: Label) -> None:
        return None
