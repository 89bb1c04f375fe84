"""Whether a candidate may be put in force: every gate, so that all that is wrong is told at once.

    read        the file, and whether workers and keys still fit it
    lint        errors refuse (a guardrail or rule without a test is one), warnings are told
    tests       those in the file: all pass
    revision    above the highest ever in force
    approvals   signatures of approvers of the active policy, where guarded parts change
    emergency   one signature, and the candidate lets nothing through that was not before

Pure but for reading the audit log in an emergency. Takes up to seconds for a large file, so that
the daemon asks a process of its own (`checker.py`).
"""

from __future__ import annotations

import hashlib
from itertools import islice

from conductor.activation.approvals import approved_by
from conductor.activation.given import compared
from conductor.activation.question import Question
from conductor.activation.report import Findings, Report
from conductor.activation.sites import site_of
from conductor.activation.testing import tried_whole
from conductor.config import POLICY, Site
from conductor.errors import ConfigError
from conductor.policy.flows import unguarded_flows
from conductor.policy.lint import lint
from conductor.policy.records import DecisionLog
from conductor.policy.replay import replay
from conductor.policy.tighten import guarded_changes, loosenings

_MOST_TOLD = 50
"""Problems of one kind that are told; nobody reads more."""
_MOST_FLOWS = 5


def check(question: Question) -> Report:
    """Check a candidate. Raises nothing for a bad one; `ConfigError` when the active site itself
    cannot be read."""
    sha256 = hashlib.sha256(question.candidate).hexdigest()
    active = site_of(question.directory, question.active)
    found = Findings()
    try:
        site = site_of(question.directory, {**question.active, POLICY: question.candidate})
    except ConfigError as error:
        for fault in error.faults[:_MOST_TOLD]:
            where = f"{fault.file}:{fault.line}:{fault.column}"
            found.refuse("read", fault.code, fault.message, where)
        return Report(sha256, problems=tuple(found.problems))
    passed, missed = _gates(site, found)
    revision = site.policy.revision
    if revision <= question.highest:
        where = f"{POLICY}: revision"
        message = f"{revision} is not above {question.highest}, which was in force: raise it"
        found.refuse("revision", "old-revision", message, where)
    approvers = {item.id: item.public_key for item in active.policy.approvers}
    approved = approved_by(question.approvals, sha256, revision, approvers)
    guarded = guarded_changes(active.policy, site.policy)
    needed = _needed(question, active, guarded)
    if len(approved) < needed:
        found.refuse("approvals", "approvals-missing", _missing(needed, approved, guarded))
    if question.emergency:
        _only_tightens(question, active, site, found)
    return Report(
        sha256,
        revision,
        tuple(found.problems),
        tuple(found.warnings),
        passed,
        missed,
        guarded,
        needed,
        approved,
    )


def _gates(site: Site, found: Findings) -> tuple[int, int]:
    """Lint and the file's own tests; how many of these passed and failed."""
    for item in lint(site.policy, site):
        tell = found.refuse if item.severity == "error" else found.warn
        tell("lint", item.code, item.message, item.position)
    results = tried_whole(site)
    missed = [result for result in results if not result.passed]
    for result in missed[:_MOST_TOLD]:
        message = f"{result.name}: expected {result.expected}; got {result.got}"
        found.refuse("tests", "test-failed", message, result.position)
    return len(results) - len(missed), len(missed)


def _needed(question: Question, active: Site, guarded: tuple[str, ...]) -> int:
    """How many must have signed."""
    if question.emergency:
        return 1
    return active.policy.guardrail_approvals if guarded else 0


def _missing(needed: int, approved: tuple[str, ...], guarded: tuple[str, ...]) -> str:
    why = f"; {'; '.join(guarded[:3])}" if guarded else ""
    by = f" (by {', '.join(approved)})" if approved else ""
    return f"{needed} approvers must have signed, {len(approved)} have{by}{why}"


def _only_tightens(question: Question, active: Site, site: Site, found: Findings) -> None:
    told = [*loosenings(active.policy, site.policy)]
    # Whatever else stops them now may be changed later by somebody whom no approver watches.
    told += [
        f"{flow}: no guardrail forbids it any more"
        for flow in islice(unguarded_flows(active.policy, site.policy), _MOST_FLOWS)
    ]
    told += [
        f"test data is let through: {one.name}" for one in compared(active, site) if one.looser
    ]
    if question.audit is not None:
        replayed = replay(DecisionLog(question.audit), site, active)
        if replayed.looser:
            told.append(f"{replayed.looser} recorded decisions are looser")
    for sentence in told[:_MOST_TOLD]:
        message = f"{sentence}: an emergency change may only tighten"
        found.refuse("emergency", "looser", message)
