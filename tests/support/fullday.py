"""One day of an appliance in its audit log, with a record of every event."""

from __future__ import annotations

from pathlib import Path

from support.recordedlog import RecordedLog

POLICY_SHA256 = "ab" * 32


def full_day(directory: Path) -> RecordedLog:
    """Requests that left, stayed, were lowered, refused and denied; a policy change by two; an
    approval."""
    log = RecordedLog(directory)
    log.add("2026-08-01T08:00", "start", mode="connected", build="0.1", policy_revision=3,
            levels=["public", "internal", "confidential"], compartments=["pii", "unscanned"],
            weakened=["scan.names_off"], files={})  # fmt: skip
    log.request("2026-08-01T09:00", "sent", sent={"us": "internal"}, kept={"qwen": "internal+pii"},
                denied={"eu": "no-eu", "far": "baseline.remote"})  # fmt: skip
    log.request("2026-08-01T09:10", "lowered", label="internal+pii", sent={"us": "internal"},
                label_before="internal+pii", obligations=["redact:redact-v2"])  # fmt: skip
    log.add("2026-08-01T09:11", "declassified", request_id="req-lowered", decision_id="dec-lowered",
            step=0, declassifier="redact-v2", kind="redact", label_before="internal+pii",
            label_after="internal", input="00" * 16, output="11" * 16, places=2, towards="us",
            approver="", policy_revision=3)  # fmt: skip
    log.request("2026-08-01T09:20", "refused", label="confidential+pii", key="hr",
                denied={"us": "floor.clearance", "eu": "baseline.remote"})  # fmt: skip
    log.add("2026-08-01T10:00", "policy", action="apply", revision=4, sha256=POLICY_SHA256,
            uid=0, way="socket", verdict="active", approved=["key-a", "key-b"],
            approvals_needed=2, reasons=[], warnings=0)  # fmt: skip
    log.add("2026-08-01T10:05", "policy", action="apply", revision=2, sha256=POLICY_SHA256,
            uid=1000, way="socket", verdict="refused", approved=[], approvals_needed=2,
            reasons=["revision:old-revision", "of|=\nx"], warnings=1)  # fmt: skip
    waits = {"approval": "0f0f", "declassifier": "read-by-anna", "destination": "us-place",
             "label": "restricted+pii"}  # fmt: skip
    for action, approver in (("read", ""), ("accepted", "anna")):
        log.add("2026-08-01T10:30", "approval", action=action, **waits, approver=approver,
                uid=1000, reason="")  # fmt: skip
    log.add("2026-08-01T10:31", "approval", action="refused", **dict.fromkeys(waits, ""),
            approver="", uid=0, reason="malformed")  # fmt: skip
    log.add("2026-08-01T11:00", "log_recovered", lost=0, reason="torn")
    log.add("2026-08-01T11:30", "something_new", of={"a": [1]})
    log.add("2026-08-01T12:00", "stop")
    return log
