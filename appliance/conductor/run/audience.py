"""Who may see data that stands so: now, once something is done to it, or after a redaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conductor.core import Flow, Verdict, Worker
from conductor.flow.classes import flow_of
from conductor.flow.standing import Standing
from conductor.labels import Label
from conductor.policy.decide import decide
from conductor.policy.document import Policy
from conductor.run.redaction import rewriter_of
from conductor.run.rewriting import lowered_by


def verdict_on(policy: Policy, standing: Standing, worker: Worker) -> Verdict:
    """What policy says of data that stands so, on its way to a worker."""
    return decide(
        policy,
        standing.label,
        worker,
        origin=standing.origin,
        discharged=standing.discharged,
    )


def permitted(workers: Sequence[Worker], verdicts: Mapping[str, Verdict]) -> tuple[Worker, ...]:
    """Who may see the request as it is, now or once something is done to it. Who needs a person's
    approval is asked only where there is nobody else: it would keep the client waiting."""
    able = [w for w in workers if verdicts[w.id].allow or verdicts[w.id].promise]
    soon = [w for w in able if all(one.kind != "approve" for one in verdicts[w.id].promise)]
    return tuple(soon or able)


def veiled(
    policy: Policy, label: Label, fixed: Label, workers: Sequence[Worker]
) -> tuple[Worker, ...]:
    """Those of `workers`, who may not see data labelled so, that may see what the step `redact`
    makes of it. `fixed` as in `Workflow`."""
    if rewriter_of(policy) is None:
        return ()
    after = _redacted(policy, fixed, Standing.of(label))
    return tuple(worker for worker in workers if _sees(policy, worker, after))


def flow(
    policy: Policy, label: Label, fixed: Label, candidates: Sequence[Worker], heard: int
) -> Flow:
    """Who may see what, for the planner. What was heard counts as labelled like the round: only a
    first round is planned with veiled workers."""
    standing = Standing.of(label)
    return flow_of(
        standing,
        standing,
        [standing] * heard,
        redacted=lambda one: _redacted(policy, fixed, one),
        sees=lambda place, one: _sees(policy, candidates[place], one),
        candidates=len(candidates),
    )


def _sees(policy: Policy, worker: Worker, standing: Standing) -> bool:
    verdict = verdict_on(policy, standing, worker)
    return verdict.allow or bool(verdict.promise)


def _redacted(policy: Policy, fixed: Label, standing: Standing) -> Standing:
    """What `redact` makes of data, if nothing is left over."""
    declassifier = rewriter_of(policy)
    return standing if declassifier is None else lowered_by(standing, declassifier, fixed)
