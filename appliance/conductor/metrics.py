"""Everything that is counted, under every name it has. Prometheus text form.

What the OpenTelemetry GenAI conventions define carries their name in Prometheus spelling; they are
still in development, so the names stand here alone. The rest is `conductor_*`. Label values come
from configured sets and closed lists, anything else is counted as `other`: neither a client's
spelling of a model nor a scanner's path can grow the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from conductor.core import Failure, Usage, Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
DECLASSIFIERS = ("redact", "pseudonymise", "constrained", "approve")
FEEDBACK = ("recorded", "dropped", "unknown", "again")
"""What became of a judgement."""
UNMET = ("residue", "tools", "retention", "approval", "policy")
"""Why an obligation was not carried out."""
OUTCOMES = ("completed", "failed", "aborted")
STATUSES = tuple(
    str(status) for status in (200, 204, 400, 401, 403, 404, 405, 413, 429, 499, 500, 502, 503, 504)
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10)
_ROUNDS = (1, 2, 3, 4, 5)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

M = TypeVar("M", Counter, Gauge, Histogram)


class _Family(Generic[M]):
    """One metric whose label values are admitted from sets, with its children resolved once."""

    def __init__(self, metric: M, *admitted: Iterable[str]) -> None:
        self._metric: M = metric
        self._admitted = [frozenset(values) for values in admitted]
        self._children: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        child = self._children.get(values)
        return child if child is not None else self._resolve(values)

    def admit(self, place: int, values: Iterable[str]) -> None:
        """Take in further values of the label at `place`."""
        self._admitted[place] |= frozenset(values)
        # What was `other` so far may have a name of its own now.
        self._children = {k: v for k, v in self._children.items() if OTHER not in k}

    def _resolve(self, values: tuple[str, ...]) -> M:
        bounded = tuple(
            value if value in admitted else OTHER
            for value, admitted in zip(values, self._admitted, strict=True)
        )
        # Kept under the bounded values only, or else the cache would grow with what clients send.
        child: M = self._children.get(bounded) or self._metric.labels(*bounded)
        self._children[bounded] = child
        return child


class Metrics:
    """The metrics of one `serve` process, in a registry of their own.

    `rules` are the policy's rule ids, `reasons` the planner client's closed list of why an engine
    planned, `unscanned` the scanner's closed list of why something was not read.
    """

    def __init__(
        self,
        worker_ids: Iterable[str],
        model_names: Iterable[str],
        engines: Iterable[str],
        levels: Iterable[str],
        *,
        compartments: Iterable[str] = (),
        rules: Iterable[str] = (),
        reasons: Iterable[str] = (),
        unscanned: Iterable[str] = (),
    ) -> None:
        self._registry = CollectorRegistry()
        self._before_render: list[Callable[[], None]] = []
        self._models = tuple(model_names)
        self._workers = tuple(worker_ids)
        self._make_request_metrics()
        self._make_worker_metrics()
        self._make_decision_metrics(engines, rules, reasons, unscanned)
        self._make_label_metrics(levels, compartments, rules)

    # -- requests ---------------------------------------------------------------------------

    def request_began(self) -> None:
        """Count a request as in progress, until `request_done`."""
        self._in_flight.inc()

    def request_done(
        self,
        model: str,
        status: int,
        outcome: str,
        *,
        total_s: float,
        own_s: float,
        first_byte_s: float | None = None,
        output_tokens: int = 0,
    ) -> None:
        """Count a request that left. `own_s` is the total less what workers took; `first_byte_s`
        is the time to the first content, None when none came."""
        self._in_flight.dec()
        self._requests(model, str(status), outcome).inc()
        self._duration(model).observe(total_s)
        self._own.observe(max(0.0, own_s))
        if first_byte_s is None:
            return
        self._first_token(model).observe(first_byte_s)
        if output_tokens > 1:
            self._per_token(model).observe((total_s - first_byte_s) / (output_tokens - 1))

    def _make_request_metrics(self) -> None:
        models = self._models
        self._requests = _Family(
            self._counter("conductor_requests", "Requests answered.", "model", "status", "outcome"),
            models,
            STATUSES,
            OUTCOMES,
        )
        self._duration = _Family(
            self._seconds("gen_ai_server_request_duration", "Admission to last byte.", "model"),
            models,
        )
        self._first_token = _Family(
            self._seconds("gen_ai_server_time_to_first_token", "Admission to content.", "model"),
            models,
        )
        self._per_token = _Family(
            self._seconds(
                "gen_ai_server_time_per_output_token",
                "Time per token after the first.",
                "model",
                buckets=_TOKEN_SECONDS,
            ),
            models,
        )
        self._own = self._seconds(
            "conductor_own_overhead",
            "Time of a request that no worker took: queueing, JSON, policy, audit.",
            buckets=_SHORT_SECONDS,
        )
        self._in_flight = self._gauge("conductor_requests_in_flight", "Requests in progress.")

    # -- workers ----------------------------------------------------------------------------

    def attempt(self, worker: str, outcome: str, seconds: float) -> None:
        """Count one attempt at a worker; `outcome` is a `Failure`, `ok`, `aborted` (the client
        left) or `denied` (policy, at the last moment)."""
        self._attempts(worker, outcome).inc()
        self._attempt_seconds(worker).observe(seconds)

    def spent(self, worker: str, usage: Usage, cost_usd: float) -> None:
        """Add the tokens and the cost of one attempt."""
        self._tokens(worker, "input").inc(usage.prompt_tokens)
        self._tokens(worker, "output").inc(usage.completion_tokens)
        self._cost(worker).inc(cost_usd)

    def worker_state(self, worker: str, *, open: bool, in_flight: int, queued: int) -> None:
        """Tell how a worker stands; `open` is its breaker's. Meant for a `before_render` hook."""
        self._breaker(worker).set(open)
        self._worker_in_flight(worker).set(in_flight)
        self._queued(worker).set(queued)

    def _make_worker_metrics(self) -> None:
        workers = self._workers
        self._attempts = _Family(
            self._counter("conductor_attempts", "Attempts at workers.", "worker", "outcome"),
            workers,
            ("ok", "aborted", "denied", *Failure),
        )
        self._attempt_seconds = _Family(
            self._seconds("gen_ai_client_operation_duration", "One attempt.", "worker"), workers
        )
        self._tokens = _Family(
            self._counter("conductor_tokens", "Tokens used.", "worker", "direction"),
            workers,
            ("input", "output"),
        )
        self._cost = _Family(
            self._counter("conductor_cost_usd", "What attempts cost.", "worker"), workers
        )
        self._breaker = _Family(
            self._gauge("conductor_breaker_open", "1 while a worker is not tried.", "worker"),
            workers,
        )
        self._worker_in_flight = _Family(
            self._gauge("conductor_worker_in_flight", "Calls a worker is busy with.", "worker"),
            workers,
        )
        self._queued = _Family(
            self._gauge("conductor_worker_queued", "Calls waiting for a worker.", "worker"),
            workers,
        )

    # -- decisions --------------------------------------------------------------------------

    def planned(self, engine: str, where: str, why: str = "", *, look: bool = False) -> None:
        """Count a plan: which engine, in which process, why there (empty: the usual way), and
        whether its answers are looked at before one is accepted."""
        self._plans(engine, where, why).inc()
        if look:
            self._looks(engine).inc()

    def rounds(self, count: int, accepted_by: str = "", *, stood_in: bool = False) -> None:
        """Count a planned request that ended after `count` rounds. `accepted_by` is the engine
        that then kept or elected an answer without asking for a further one, if it did;
        `stood_in` tells that an earlier answer was given in place of an error."""
        self._rounds.observe(count)
        if accepted_by:
            self._accepts(accepted_by).inc()
        if stood_in:
            self._stood_in.inc()

    def admit(
        self, levels: Iterable[str], compartments: Iterable[str], rules: Iterable[str]
    ) -> None:
        """Take in the words of a policy that is put in force."""
        self._labels.admit(0, levels)
        self._compartments.admit(0, compartments)
        for family in (self._blocked, self._shadow):
            family.admit(0, tuple(rules))

    def labelled(self, level: str, compartments: Iterable[str] = ()) -> None:
        """Count a request by the level of its label, and by each of its compartments."""
        self._labels(level).inc()
        for compartment in compartments:
            self._compartments(compartment).inc()

    def shadowed(self, verdicts: Iterable[Verdict]) -> None:
        """Count what rules in shadow would have changed for one request: denies of what is allowed,
        allows of what is denied."""
        seen = {
            (one.rule, one.effect)
            for verdict in verdicts
            for one in verdict.shadow
            if verdict.allow is (one.effect == "deny")
        }
        for rule, effect in seen:
            self._shadow(rule, effect).inc()

    def declassified(self, kind: str) -> None:
        """Count a label that was lowered, by the kind of declassifier."""
        self._declassified(kind).inc()

    def residue(self, kind: str) -> None:
        """Count a text that still held something after a declassifier had done its work."""
        self._residue(kind).inc()

    def unmet(self, why: str) -> None:
        """Count an allow that was void because what it asked for could not be done."""
        self._unmet(why).inc()

    def blocked(self, rule: str) -> None:
        """Count a request, or a worker's part in it, that a rule refused."""
        self._blocked(rule).inc()

    def scanned(self, seconds: float, unscanned: Iterable[str] = ()) -> None:
        """Count a scan, and each reason why a part of the body was not read."""
        self._scan.observe(seconds)
        for why in unscanned:
            self._unscanned(why).inc()

    def feedback(self, outcome: str) -> None:
        """Count a judgement of an answer."""
        self._feedback(outcome).inc()

    def audit_state(self, *, healthy: bool, commits: int) -> None:
        """Tell how the audit log stands. Meant for a `before_render` hook."""
        self._audit_healthy.set(healthy)
        self._audit_commits.set(commits)

    def policy_in_force(self, revision: int) -> None:
        """Tell which policy counts now."""
        self._policy_revision.set(revision)

    def policy_refused(self) -> None:
        """Count a candidate that was not put in force."""
        self._policy_refused.inc()

    def _make_decision_metrics(
        self,
        engines: Iterable[str],
        rules: Iterable[str],
        reasons: Iterable[str],
        unscanned: Iterable[str],
    ) -> None:
        self._plans = _Family(
            self._counter("conductor_plans", "Plans made.", "engine", "where", "why"),
            engines,
            ("planner", "serve"),
            ("", *reasons),
        )
        self._looks = _Family(
            self._counter("conductor_looks", "Rounds whose answers are looked at.", "engine"),
            engines,
        )
        self._accepts = _Family(
            self._counter(
                "conductor_early_accepts", "Later rounds that asked nobody any more.", "engine"
            ),
            engines,
        )
        self._rounds = Histogram(
            "conductor_rounds",
            "Rounds of a request.",
            registry=self._registry,
            buckets=_ROUNDS,
        )
        self._stood_in = self._counter(
            "conductor_stood_in", "Answers of an earlier round given in place of an error."
        )
        self._blocked = _Family(
            self._counter("conductor_blocked", "Requests refused by policy.", "rule"), rules
        )
        self._scan = self._seconds(
            "conductor_scan", "Scanning one request.", buckets=_SHORT_SECONDS
        )
        self._unscanned = _Family(
            self._counter("conductor_unscanned", "Parts that no detector read.", "why"), unscanned
        )
        self._feedback = _Family(
            self._counter("conductor_feedback", "Judgements of answers.", "outcome"), FEEDBACK
        )
        self._audit_healthy = self._gauge(
            "conductor_audit_healthy", "0 while decisions cannot be recorded."
        )
        self._audit_commits = self._gauge(
            "conductor_audit_commits", "Group commits of the audit log since the start."
        )
        self._policy_revision = self._gauge(
            "conductor_policy_revision", "Revision of the policy in force."
        )
        self._policy_refused = self._counter(
            "conductor_policy_refused", "Candidates that were not put in force."
        )

    def _make_label_metrics(
        self, levels: Iterable[str], compartments: Iterable[str], rules: Iterable[str]
    ) -> None:
        self._labels = _Family(
            self._counter("conductor_labels", "Requests by sensitivity level.", "level"), levels
        )
        self._compartments = _Family(
            self._counter("conductor_compartments", "Requests by compartment.", "compartment"),
            compartments,
        )
        self._shadow = _Family(
            self._counter(
                "conductor_shadow", "Requests that a rule in shadow would change.", "rule", "effect"
            ),
            rules,
            ("allow", "deny"),
        )
        self._declassified = _Family(
            self._counter("conductor_declassified", "Labels that were lowered.", "kind"),
            DECLASSIFIERS,
        )
        self._residue = _Family(
            self._counter("conductor_residue", "Texts not clean after a declassifier.", "kind"),
            DECLASSIFIERS,
        )
        self._unmet = _Family(
            self._counter("conductor_unmet", "Allows void for want of an obligation.", "why"), UNMET
        )

    # -- rendering --------------------------------------------------------------------------

    def before_render(self, hook: Callable[[], None]) -> None:
        """Call `hook` at each `render`: for gauges that others know the value of."""
        self._before_render.append(hook)

    def render(self) -> bytes:
        """The whole registry as `CONTENT_TYPE`."""
        for hook in self._before_render:
            hook()
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry)

    def _seconds(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"{name}_seconds", text, labels, registry=self._registry, buckets=buckets)
