"""Recording declassifications: a lowered label is on disk before anybody sees the data."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from conductor.audit.log import AuditLog
from conductor.metrics import Metrics
from conductor.policy.document import Policy


@dataclass(frozen=True)
class Change:
    """One declassification: names, labels and what `Workflow.digest` calls the data."""

    declassifier: str
    kind: str
    label_before: str
    label_after: str
    input: str
    output: str
    places: int
    """Places in the data that were rewritten."""
    approver: str = ""


@dataclass(frozen=True)
class Of:
    """What a declassification was part of. `towards` is the worker that it was for, or a step."""

    request_id: str
    decision_id: str
    step: int
    policy: Policy
    towards: str


class Register:
    """Writes them down, and counts them."""

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics

    async def declassified(self, of: Of, change: Change) -> None:
        """Return once it is on disk. Raises `AuditError`."""
        self._metrics.declassified(change.kind)
        await self._audit.append(
            "declassified",
            request_id=of.request_id,
            decision_id=of.decision_id,
            step=of.step,
            towards=of.towards,
            policy_revision=of.policy.revision,
            **asdict(change),
        )

    def left_over(self, kind: str) -> None:
        """Count a declassifier whose output still held something."""
        self._metrics.residue(kind)
