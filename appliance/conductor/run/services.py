"""What `conductor serve` is made of, started in order and stopped in reverse.

Nothing listens yet when this is entered: the port opens (`api/server.py`) only after the audit log,
the scanner and the clients stand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import structlog

from conductor import __version__
from conductor.activation.checker import ask
from conductor.activation.desk import Desk
from conductor.activation.store import Store
from conductor.active import Active
from conductor.audit import keys
from conductor.audit.log import AuditLog
from conductor.audit.segments import read_since
from conductor.config import Site
from conductor.core import Body, Caller
from conductor.declassify.approvals import ApprovalBook
from conductor.detect.scan import REASONS, Scanner
from conductor.egress.client import EgressLink
from conductor.egress.permit import generate, load_private
from conductor.feedback.book import FeedbackBook, open_book
from conductor.flow.artifacts import ArtifactStore
from conductor.ledger import Ledger
from conductor.metrics import Metrics
from conductor.planner.client import PlannerClient
from conductor.planner.default import DefaultEngine
from conductor.planner.engine import Detour, PlanEngine
from conductor.policy.decide import rule_ids
from conductor.process.unixsocket import check_folder
from conductor.run.attempts import Attempts
from conductor.run.attesting import Attester
from conductor.run.conduct import Conduct
from conductor.run.executor import Executor
from conductor.run.intake import DIRECT, KEPT, Intake
from conductor.run.judgeable import Judgeable
from conductor.run.memory import Memory
from conductor.run.obligations import Duties
from conductor.run.permits import PermitDesk
from conductor.run.redaction import Redaction
from conductor.run.register import Register
from conductor.run.rewriting import Rewriter
from conductor.run.rounds import Rounds
from conductor.run.sources import Sources
from conductor.run.weakened import weakened
from conductor.selection import CONDUCTOR_MODELS
from conductor.settings import Appliance
from conductor.workers.http import HttpCaller
from conductor.workers.pool import Pool

log = structlog.get_logger()


@dataclass(frozen=True)
class Services:
    """The running parts of `serve`."""

    active: Active
    desk: Desk
    metrics: Metrics
    audit: AuditLog
    ledger: Ledger
    scanner: Scanner
    pool: Pool
    planner: PlannerClient
    intake: Intake
    conduct: Conduct
    approvals: ApprovalBook
    feedback: FeedbackBook | None
    attester: Attester

    @property
    def site(self) -> Site:
        """The configuration that counts now."""
        return self.active.site

    def status(self) -> Body:
        """Whether a request would be served; every worker's state and every key's money today."""
        workers = self.pool.status()
        reasons = []
        if not self.audit.healthy:
            reasons.append("audit log cannot be written")
        if not any(worker["routable"] for worker in workers):
            reasons.append("no worker can be reached")
        if not self.scanner.ready:
            reasons.append("the scanner is not ready")
        reasons.extend(f"air gap: {why}" for why in self.attester.open_gap)
        return {
            "ready": not reasons,
            "reasons": reasons,
            "mode": self.site.appliance.mode,
            "isolation": self._isolation(),
            "policy": self.desk.summary(),
            "planner": self.planner.state,
            "workers": workers,
            "keys": [
                {
                    "id": key.id,
                    "spent_usd": self.ledger.spent_usd(key.id),
                    "remaining_usd": self.ledger.remaining_usd(key.id),
                }
                for key in self.site.appliance.keys
            ],
        }

    def _isolation(self) -> Body:
        latest = self.attester.latest
        return {
            "air_gapped": self.site.declared.air_gapped,
            "verdict": latest.verdict if latest else None,
            "reasons": list(self.attester.open_gap),
            "set_aside": list(self.site.set_aside),
        }


def make_scanner(appliance: Appliance) -> Scanner:
    """The scanner as configured, not started."""
    return Scanner(
        inline_bytes=appliance.scan.inline_bytes,
        processes=appliance.scan.processes,
        timeout_s=appliance.scan.timeout_s,
        max_text_bytes=appliance.scan.max_text_bytes,
        names_model=appliance.paths.models,
    )


def make_planner(appliance: Appliance, fallback: PlanEngine | None = None) -> PlannerClient:
    """The client of the planner process, not started; it falls back on the default engine, or
    another one."""
    return PlannerClient(
        appliance.paths.planner_socket, appliance.planner.timeout_s, fallback or DefaultEngine()
    )


@asynccontextmanager
async def services(site: Site, degraded: str = "") -> AsyncIterator[Services]:
    """Start everything that `serve` needs; raises `ConductorError` when a part cannot start.

    `degraded` says why nothing remote may be reached under this site's policy, if so.
    """
    appliance = site.appliance
    paths = appliance.paths
    check_folder(paths.run)
    async with AsyncExitStack() as stack:
        store = Store(paths.published)
        writer = stack.enter_context(store.writing())
        keys.ensure(paths.audit_key, paths.audit)  # of a log that is not there yet, by a new key
        audit = AuditLog.open(
            paths.audit,
            max_batch=appliance.audit.max_batch,
            key=keys.load(paths.audit_key),
            checkpoint_s=appliance.audit.checkpoint_s,
            retention_days=appliance.audit.retention_days,
            start={
                "mode": appliance.mode,
                "build": __version__,
                "policy_revision": site.policy.revision,
                "levels": list(site.policy.lattice.levels),
                "compartments": sorted(site.policy.lattice.compartments),
                "weakened": weakened(site),
                "files": dict(site.sha256),
            },
        )
        stack.push_async_callback(audit.close)
        metrics = _metrics(site)
        ledger = Ledger({key.id: key.budget_usd_per_day for key in appliance.keys})
        ledger.restore(read_since(paths.audit, ledger.today))
        scanner = make_scanner(appliance)
        await scanner.start()
        stack.push_async_callback(scanner.close)
        remote = any(worker.remote for worker in site.workers)
        caller = HttpCaller(paths.egress_socket if remote else None)
        stack.push_async_callback(caller.close)
        planner = make_planner(appliance)
        await planner.start()
        stack.push_async_callback(planner.close)
        link = EgressLink(paths.egress_socket) if remote else None
        pool = Pool(site.workers)
        _watch(metrics, pool, audit)
        active = Active(site)

        async def swap(changed: Site) -> None:
            metrics.admit(*_words(changed))
            active.swap(changed)
            metrics.policy_in_force(changed.policy.revision)

        desk = Desk(
            active=active,
            store=store,
            writer=writer,
            audit=audit,
            check=ask,
            swap=swap,
            degraded=degraded,
            refused=metrics.policy_refused,
        )
        metrics.policy_in_force(site.policy.revision)
        if store.held().condition == "empty":
            await desk.begin(site)
        book = open_book(appliance.feedback, paths.feedback, metrics.feedback)
        if book is not None:
            stack.push_async_callback(book.close)
        attester = Attester(active, audit)
        await stack.enter_async_context(attester.attesting())
        parts = _Parts(
            *(active, desk, metrics, audit, ledger, scanner, pool, caller, planner, link, book),
            attester,
        )
        yield parts.assemble()


@dataclass(frozen=True)
class _Parts:
    """What has been started, to be put together."""

    active: Active
    desk: Desk
    metrics: Metrics
    audit: AuditLog
    ledger: Ledger
    scanner: Scanner
    pool: Pool
    caller: Caller
    planner: PlannerClient
    link: EgressLink | None
    feedback: FeedbackBook | None
    attester: Attester
    approvals: ApprovalBook = field(default_factory=ApprovalBook)

    def assemble(self) -> Services:
        appliance = self.active.site.appliance
        rewriter, register = Rewriter(self.scanner), Register(self.audit, self.metrics)
        memory = Memory(ArtifactStore())
        attempts = Attempts(
            pool=self.pool,
            caller=self.caller,
            duties=Duties(rewriter, self.approvals),
            register=register,
            desk=self._desk(appliance),
            audit=self.audit,
            metrics=self.metrics,
        )
        intake = Intake(
            active=self.active,
            pool=self.pool,
            scanner=self.scanner,
            planner=self.planner,
            memory=memory,
            limits=appliance.limits,
            cost_weights=appliance.planner.cost_weight,
        )
        rounds = Rounds(
            intake=intake,
            executor=Executor(attempts, self.scanner, Redaction(rewriter, register), memory),
            audit=self.audit,
            metrics=self.metrics,
        )
        conduct = Conduct(
            intake=intake,
            rounds=rounds,
            sources=Sources(self.scanner, memory),
            audit=self.audit,
            ledger=self.ledger,
            metrics=self.metrics,
            limits=appliance.limits,
            judgeable=Judgeable(self.active, self.feedback) if self.feedback else None,
        )
        return Services(
            active=self.active,
            desk=self.desk,
            metrics=self.metrics,
            audit=self.audit,
            ledger=self.ledger,
            scanner=self.scanner,
            pool=self.pool,
            planner=self.planner,
            intake=intake,
            conduct=conduct,
            approvals=self.approvals,
            feedback=self.feedback,
            attester=self.attester,
        )

    def _desk(self, appliance: Appliance) -> PermitDesk | None:
        if self.link is None:
            return None
        paths = appliance.paths
        if not paths.permit_key.exists() and not paths.permit_public.exists():
            generate(paths.permit_key, paths.permit_public)
            log.info("permit_keys_made")
        key = load_private(paths.permit_key)
        return PermitDesk(key, self.link, appliance.egress.permit_ttl_s)


def _words(site: Site) -> tuple[Iterable[str], Iterable[str], Iterable[str]]:
    """The label values that a policy's metrics may have: levels, compartments, rules."""
    policy = site.policy
    shadows = [rule.id for rule in policy.guardrails + policy.rules if rule.mode == "shadow"]
    return policy.lattice.levels, policy.lattice.compartments, [*rule_ids(policy), *shadows]


def _metrics(site: Site) -> Metrics:
    levels, compartments, rules = _words(site)
    workers = [worker.id for worker in site.workers]
    return Metrics(
        workers,
        [*CONDUCTOR_MODELS, *workers],
        {DefaultEngine().name, DIRECT, KEPT, site.appliance.planner.engine},
        levels,
        compartments=compartments,
        rules=rules,
        reasons=list(Detour),
        unscanned=REASONS,
    )


def _watch(metrics: Metrics, pool: Pool, audit: AuditLog) -> None:
    """Have the gauges read at each scrape."""

    def gauges() -> None:
        for worker in pool.status():
            metrics.worker_state(
                worker["id"],
                open=not worker["routable"],
                in_flight=worker["in_flight"],
                queued=worker["queued"],
            )
        metrics.audit_state(healthy=audit.healthy, commits=audit.commits)

    metrics.before_render(gauges)
