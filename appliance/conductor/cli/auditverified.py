"""How a check of the audit log reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conductor.audit.sealcheck import Sealing
from conductor.audit.verify import Report

_ANCHOR_STATES = {
    "holds": "is part of this log",
    "differs": "IS NOT OF THIS LOG: it was written anew",
    "cut": "SHOWS THAT THE END OF THIS LOG WAS CUT OFF",
    "removed": "IS OLDER THAN WHAT IS LEFT of this log",
    "unsigned": "IS SIGNED BY NO KEY of this log",
}


def describe(report: Report) -> str:
    """The report for people."""
    return "\n".join(
        [
            *_counted(report),
            *_sealed(report.sealing),
            *_noted(report),
            *_wrong(report),
            "the chain holds" if report.ok else "the log cannot be trusted from there on",
        ]
    )


def _counted(report: Report) -> Iterator[str]:
    after = f" (numbers {report.first_seq} to {report.last_seq})" if report.first_seq > 1 else ""
    yield f"records   {report.records}{after}"
    yield f"of which  {_counts(report.events)}"
    yield f"from      {report.first_ts or '-'}"
    yield f"to        {report.last_ts or '-'}"
    yield f"head      {report.head}"


def _sealed(sealing: Sealing | None) -> Iterator[str]:
    if sealing is None:
        yield "sealed    no: the log was written without a key"
        return
    yield f"sealed    {sealing.origin}, {sealing.checkpoints} checkpoints"
    yield f"signed    up to record {sealing.signed_to}"
    for key in sealing.keys:
        yield f"key       {key}"
    if sealing.macs:
        yield f"MACs      {sealing.macs} checked"


def _noted(report: Report) -> Iterator[str]:
    if report.trusted is not None:
        yield f"signed-by {'holds' if report.trusted else 'NO CHECKPOINT IS SIGNED BY THIS KEY'}"
    for anchor in report.anchors:
        yield f"anchor    of {anchor.size} records {_ANCHOR_STATES[anchor.state]}"
    if report.head_found is False:
        yield "HEAD      the given head is not part of this log: it was cut or rewritten"


def _wrong(report: Report) -> Iterator[str]:
    if report.torn_bytes:
        yield f"torn      {report.torn_bytes} bytes at the end: unfinished, no tampering"
    if report.clock_set_back:
        yield f"clock     was set back {report.clock_set_back} times"
    fault = report.tampering
    if fault is not None:
        yield f"TAMPERED  at record {fault.seq} ({fault.segment}:{fault.line}), {fault.kind}"
        yield f"          {fault.explanation}"


def _counts(events: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {event}" for event, count in events.items() if count) or "-"
