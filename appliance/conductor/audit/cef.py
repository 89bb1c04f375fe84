"""Records as lines of the Common Event Format, version 0, for a SIEM that reads no JSON.

ArcSight, "Implementing ArcSight Common Event Format": in the header `|` and `\\` are escaped, in
values of the extension `=`, `\\` and line breaks. Keys are those of its dictionary; what has none
stands in `cs1` to `cs6`, `cn1`, `cn2` and `flexString1`, each with its label.

Pure: one record, made whole, in; one line out.
"""

from __future__ import annotations

from typing import Any

from conductor import __version__
from conductor.audit.denials import denials
from conductor.audit.reading import number, text, texts
from conductor.audit.record import hash_line
from conductor.audit.sendings import Known
from conductor.audit.times import epoch_ms

_LONGEST = 4000
"""Bytes of a custom string; the dictionary's limit for `cs1` to `cs6`."""

_NAMES = {
    "decision": "Request judged by policy",
    "round": "Request judged again by policy",
    "egress": "Data let out",
    "declassified": "Label lowered by a declassifier",
    "outcome": "Request ended",
    "policy": "Policy changed",
    "approval": "Approval of exact bytes",
    "mode": "Mode switched",
    "attestation": "Isolation attested",
    "more": "Part of a longer record",
    "start": "Appliance started",
    "stop": "Appliance stopped",
    "log_recovered": "Audit log recovered",
}
_INFORMATIONAL, _NOTABLE, _DENIED = 2, 5, 6
_NOTED = frozenset({"policy", "approval", "declassified", "log_recovered", "mode"})


def line(record: dict[str, Any], raw: bytes, known: Known) -> str:
    """The line of one record, without a break. `raw`: it as it stands in the log."""
    event = record["event"]
    denied_by = denials(record)
    refused = any(denial.refused for denial in denied_by)
    header = (
        "CEF:0",
        "Conductor",
        "Conductor",
        _header(__version__),
        _header(event),
        _header(_NAMES.get(event, event)),
        str(_severity(event, refused=refused)),
    )
    rule = _rule(record, known) or ",".join(denial.rule for denial in denied_by)
    fields = {**_common(record, raw), **_facts(record, known, rule), **_act(event, refused=refused)}
    extension = " ".join(f"{key}={_value(value)}" for key, value in fields.items() if value != "")
    return "|".join((*header, extension))


def _severity(event: str, *, refused: bool) -> int:
    if refused:
        return _DENIED
    return _NOTABLE if event in _NOTED else _INFORMATIONAL


def _act(event: str, *, refused: bool) -> dict[str, str]:
    if event in ("decision", "round"):
        return {"act": "blocked" if refused else "allowed"}
    return {"act": "allowed"} if event == "egress" else {}


def _common(record: dict[str, Any], raw: bytes) -> dict[str, str]:
    return {
        "rt": str(epoch_ms(record["ts"])),
        "externalId": str(record["seq"]),
        "cat": record["event"],
        "deviceProcessName": "conductor",
        "flexString1Label": "recordHash",
        "flexString1": hash_line(raw),
    }


def _rule(record: dict[str, Any], known: Known) -> str:
    """The rule that let something out, where the record is of that."""
    allowed = known.rules.get(text(record.get("worker")), "") if record["event"] == "egress" else ""
    return text(record.get("rule")) or allowed


def _facts(record: dict[str, Any], known: Known, rule: str) -> dict[str, str]:
    worker = text(record.get("worker"))
    fields = {
        "suser": known.key or text(record.get("key") or record.get("approver")),
        "suid": _count(record.get("uid")),
        "destinationServiceName": text(record.get("destination")),
        "out": _count(record.get("bytes_out")),
        "outcome": text(record.get("outcome") or record.get("verdict")),
        "reason": _reason(record),
    }
    custom = (
        ("cs1", "rule", rule),
        ("cs2", "label", text(record.get("label") or record.get("label_after"))),
        ("cs3", "requestId", text(record.get("request_id") or record.get("approval"))),
        ("cs4", "labelBefore", text(record.get("label_before") or record.get("base_label"))),
        ("cs5", "detectors", _detectors(record)),
        ("cs6", "worker", worker or text(record.get("declassifier"))),
        ("cn1", "policyRevision", _count(record.get("policy_revision", record.get("revision")))),
        ("cn2", "step", _count(record.get("step"))),
    )
    for key, label, value in custom:
        if value != "":
            fields |= {f"{key}Label": label, key: value}
    return fields


def _reason(record: dict[str, Any]) -> str:
    """Why, where the record says so; otherwise what was done."""
    reasons = ",".join(texts(record.get("reasons")))
    return reasons or text(record.get("reason") or record.get("action") or record.get("kind"))


def _detectors(record: dict[str, Any]) -> str:
    found = record.get("detectors")
    rows = [d for d in found if isinstance(d, dict)] if isinstance(found, list) else []
    kinds = [text(row.get("id")) for row in rows]
    unscanned = [f"unscanned:{why}" for why in texts(record.get("unscanned"))]
    return ",".join([*dict.fromkeys(kinds), *unscanned])


def _count(value: Any) -> str:
    found = number(value)
    return "" if found is None else str(found)


def _header(value: str) -> str:
    flat = " ".join(value.splitlines())
    return flat.replace("\\", "\\\\").replace("|", "\\|")


def _value(value: str) -> str:
    escaped = value[:_LONGEST].replace("\\", "\\\\").replace("=", "\\=")
    return escaped.replace("\r", "\\r").replace("\n", "\\n")
