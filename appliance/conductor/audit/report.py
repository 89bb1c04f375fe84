"""What an auditor asks of a stretch of the log, counted in one pass: what left, to whom, under
which rule and revision; what was refused; who approved what; who changed the policy; which controls
were weak.

Counts by names that the site configured, so memory is bounded; of single events at most `MOST_ROWS`
are kept and the rest counted. How it reads: `reportmarkdown.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from conductor.audit.denials import denials
from conductor.audit.reading import number, text, texts
from conductor.audit.sendings import Requests, Sending, verdicts
from conductor.audit.stretch import Coverage, Entry, Stretch

MOST_ROWS = 1000
"""Policy changes, approvals and starts, of each, that are listed one by one."""


@dataclass
class Flow:
    """What one destination was given, of one label, under one rule."""

    sendings: int = 0
    bytes_out: int = 0
    lowered: int = 0
    """Of these, how many carried a higher label until a declassifier lowered it."""


@dataclass(frozen=True)
class PolicyChange:
    """Somebody changed, or tried to change, the policy."""

    seq: int
    ts: str
    action: str
    revision: int | None
    sha256: str
    uid: int | None
    """Of who asked, as the kernel told it."""
    way: str
    """How: `socket`, `offline` while the appliance was down, `start` of the very first one."""
    verdict: str
    approved: tuple[str, ...]
    """Ids of the approvers whose signatures held."""
    reasons: tuple[str, ...]
    """Why it was refused, as `stage:code`."""


@dataclass(frozen=True)
class Approving:
    """A person was shown what waits for approval, approved it, or was refused."""

    seq: int
    ts: str
    action: str
    approval: str
    """Id under which it waits."""
    approver: str
    uid: int | None
    """Of who asked, as the kernel told it."""
    destination: str
    label: str
    declassifier: str
    reason: str
    """Why it was refused."""


@dataclass(frozen=True)
class Begun:
    """A process began. `weakened`: controls that it said were weakened; None: it did not say."""

    seq: int
    ts: str
    mode: str
    build: str
    revision: int | None
    weakened: tuple[str, ...] | None


@dataclass
class Findings:
    """Everything that a report counts."""

    flows: dict[tuple[str, str, str, str], Flow] = field(default_factory=dict)
    """By where, destination, label and rule."""
    decisions: Counter[str] = field(default_factory=Counter)
    """By label."""
    outcomes: Counter[str] = field(default_factory=Counter)
    blocked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By rule and worker: decisions in which it kept data from it."""
    refused: Counter[str] = field(default_factory=Counter)
    """By rule: requests for which no worker was left."""
    shadow: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By rule in shadow and its effect: how often it would have applied."""
    declassified: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By declassifier and kind."""
    revisions: dict[int, str] = field(default_factory=dict)
    """Policy revisions that decided, and since when."""
    changes: list[PolicyChange] = field(default_factory=list)
    approvals: list[Approving] = field(default_factory=list)
    starts: list[Begun] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows of the lists above that were too many."""
    events: Counter[str] = field(default_factory=Counter)
    coverage: Coverage | None = None


def collect(stretch: Stretch) -> Findings:
    """Read a stretch and count; raises `AuditError`."""
    found, requests = Findings(), Requests()
    for entry in stretch.entries():
        for sent in requests.take(entry):
            _sent(found, sent)
        if entry.inside:
            _take(found, entry)
    for sent in requests.rest():
        _sent(found, sent)
    found.coverage = stretch.coverage()
    return found


def _sent(found: Findings, sent: Sending) -> None:
    place = (sent.where, sent.destination, sent.label, sent.rule)
    flow = found.flows.setdefault(place, Flow())
    flow.sendings += 1
    flow.bytes_out += sent.bytes_out or 0
    flow.lowered += sent.label_before != sent.label


def _take(found: Findings, entry: Entry) -> None:
    record = entry.record
    event = record["event"]
    found.events[event] += 1
    taker = _TAKERS.get(event)
    if taker is not None:
        taker(found, record)


def _decision(found: Findings, record: dict[str, Any]) -> None:
    if record["event"] == "decision":
        found.decisions[text(record.get("label")) or "unknown"] += 1
    revision = number(record.get("policy_revision"))
    if revision is not None:
        found.revisions.setdefault(revision, record["ts"])
    for denial in denials(record):
        found.blocked.update((denial.rule, worker) for worker in denial.workers)
        found.refused[denial.rule] += denial.refused
    _shadows(found, record)


def _shadows(found: Findings, record: dict[str, Any]) -> None:
    """Each of them counts once a record, as `{rule, effect}`, however many verdicts name it."""
    shadows = record.get("shadow")
    rows = list(shadows) if isinstance(shadows, list) else []
    rows += [shadow for _, verdict in verdicts(record) for shadow in verdict.shadows]
    named = {(text(r.get("rule")), text(r.get("effect"))) for r in rows if isinstance(r, dict)}
    found.shadow.update(named)


def _outcome(found: Findings, record: dict[str, Any]) -> None:
    found.outcomes[text(record.get("outcome")) or "unknown"] += 1


def _declassified(found: Findings, record: dict[str, Any]) -> None:
    found.declassified[text(record.get("declassifier")), text(record.get("kind"))] += 1


def _changed(found: Findings, record: dict[str, Any]) -> None:
    if len(found.changes) == MOST_ROWS:
        found.left_out["policy changes"] += 1
        return
    change = PolicyChange(
        seq=record["seq"],
        ts=record["ts"],
        action=text(record.get("action")),
        revision=number(record.get("revision")),
        sha256=text(record.get("sha256")),
        uid=number(record.get("uid")),
        way=text(record.get("way")),
        verdict=text(record.get("verdict")),
        approved=texts(record.get("approved")),
        reasons=texts(record.get("reasons")),
    )
    found.changes.append(change)


def _approving(found: Findings, record: dict[str, Any]) -> None:
    if len(found.approvals) == MOST_ROWS:
        found.left_out["approvals"] += 1
        return
    names = ("action", "approval", "approver", "destination", "label", "declassifier", "reason")
    texts_of = {name: text(record.get(name)) for name in names}
    uid = number(record.get("uid"))
    found.approvals.append(Approving(seq=record["seq"], ts=record["ts"], uid=uid, **texts_of))


def _started(found: Findings, record: dict[str, Any]) -> None:
    if len(found.starts) == MOST_ROWS:
        found.left_out["starts"] += 1
        return
    weakened = record.get("weakened")
    begun = Begun(
        seq=record["seq"],
        ts=record["ts"],
        mode=text(record.get("mode")),
        build=text(record.get("build")),
        revision=number(record.get("policy_revision")),
        weakened=texts(weakened) if isinstance(weakened, list) else None,
    )
    found.starts.append(begun)


_TAKERS = {
    "decision": _decision,
    "round": _decision,
    "egress": _shadows,
    "outcome": _outcome,
    "declassified": _declassified,
    "policy": _changed,
    "approval": _approving,
    "start": _started,
}
