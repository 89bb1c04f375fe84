"""Records as events of the Open Cybersecurity Schema Framework, version 1.6.0.

Written against the compiled schema of OCSF 1.6.0 (schema.ocsf.io/1.6.0): API Activity 6003 for
decisions, rounds, what is let out, declassified, approved, and how requests end; Detection Finding
2004 for denials; Entity Management 3004 for changes of the policy; Application Lifecycle 6002 for
start and stop; Base Event 0 for the rest. Of the profiles only `security_control` is used:
`ai_operation` came with 1.8.0. Our own fields, which the schema has no place for, stand under
`unmapped`.

Pure: one record, made whole, in; one or more events out. What had no room in it is an event of its
own, and stands under `unmapped` there alone. `time` is in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from conductor import __version__
from conductor.audit.denials import Denial, denials
from conductor.audit.reading import number, text
from conductor.audit.record import hash_line
from conductor.audit.sendings import Known
from conductor.audit.times import epoch_ms
from conductor.audit.whole import MORE

SCHEMA = "1.6.0"
Event = dict[str, Any]

_INFORMATIONAL, _LOW, _MEDIUM = 1, 2, 3
_SUCCESS, _FAILURE = 1, 2
_ALLOWED = {"action_id": 1, "disposition_id": 1}
_BLOCKED = {"action_id": 2, "disposition_id": 2}
_CREATE, _READ, _UPDATE, _ACTIVATE, _OTHER = 1, 2, 3, 10, 99
_CATEGORIES = {6003: 6, 6002: 6, 2004: 2, 3004: 3, 0: 0}
_PROFILED = frozenset({6003, 2004, 3004})
_HEADER = frozenset({"seq", "ts", "event", "prev", "mac", "mono_ns", "boot_id"})
_POLICY_ACTIVITIES = {"first": _ACTIVATE, "apply": _ACTIVATE, "rollback": _ACTIVATE,
                      "emergency": _ACTIVATE}  # fmt: skip


def events(record: dict[str, Any], line: bytes, known: Known) -> Iterator[Event]:
    """The events of one record. `known`: what is known of its request."""
    make = _MAKERS.get(record["event"], _plain)
    yield make(record, line, known)
    for number_, denial in enumerate(denials(record)):
        yield _finding(record, line, known, denial, number_)


def _base(record: dict[str, Any], line: bytes, class_uid: int, activity: int) -> Event:
    """What every event has. The record's hash binds it to the chain it comes from."""
    as_it_stands = orjson.loads(line) if MORE in record else record
    metadata: Event = {
        "version": SCHEMA,
        "product": {"name": "Conductor", "vendor_name": "Conductor", "version": __version__},
        "log_name": "audit",
        "event_code": record["event"],
        "sequence": record["seq"],
        "uid": hash_line(line),
        "original_time": record["ts"],
    }
    if class_uid in _PROFILED:
        metadata["profiles"] = ["security_control"]
    if request_id := text(record.get("request_id")):
        metadata["correlation_uid"] = request_id
    return {
        "class_uid": class_uid,
        "category_uid": _CATEGORIES[class_uid],
        "activity_id": activity,
        "type_uid": class_uid * 100 + activity,
        "severity_id": _INFORMATIONAL,
        "time": epoch_ms(record["ts"]),
        "metadata": metadata,
        "unmapped": {name: value for name, value in as_it_stands.items() if name not in _HEADER},
    }


def _api(record: dict[str, Any], line: bytes, known: Known, activity: int, operation: str) -> Event:
    key = known.key or text(record.get("key"))
    event = _base(record, line, 6003, activity)
    event["api"] = {
        "operation": operation,
        "request": {"uid": text(record.get("request_id")) or text(record.get("decision_id"))},
    }
    event["actor"] = {"app_name": key or "unknown", **({"app_uid": key} if key else {})}
    event["src_endpoint"] = {"svc_name": key or "unknown"}
    if label := text(record.get("label") or record.get("label_after")):
        labels = label.split("+")
        event["resources"] = [{"name": "request data", "type": "data", "labels": labels}]
    if (revision := number(record.get("policy_revision"))) is not None:
        event["policy"] = {"name": "routing policy", "version": str(revision)}
    return event


def _decision(record: dict[str, Any], line: bytes, known: Known) -> Event:
    event = _api(record, line, known, _CREATE, "chat.completions")
    refused = any(denial.refused for denial in denials(record))
    event |= _BLOCKED if refused else _ALLOWED
    event["status_id"] = _FAILURE if refused else _SUCCESS
    event["dst_endpoint"] = {"svc_name": "conductor"}
    return event


def _egress(record: dict[str, Any], line: bytes, known: Known) -> Event:
    event = _api(record, line, known, _CREATE, "chat.completions")
    worker = text(record.get("worker"))
    rule = text(record.get("rule")) or known.rules.get(worker, "")
    event |= _ALLOWED
    event["src_endpoint"] = {"svc_name": "conductor"}
    event["dst_endpoint"] = {"name": text(record.get("destination")) or "unknown"}
    if worker:
        event["api"]["service"] = {"name": worker}
    if rule:
        event["firewall_rule"] = {"uid": rule}
    return event


def _declassified(record: dict[str, Any], line: bytes, known: Known) -> Event:
    kind = text(record.get("kind")) or "declassify"
    event = _api(record, line, known, _UPDATE, f"declassify.{kind}")
    event["status_id"] = _SUCCESS
    return event


def _outcome(record: dict[str, Any], line: bytes, known: Known) -> Event:
    outcome = text(record.get("outcome"))
    event = _api(record, line, known, _READ, "chat.completions")
    event["status_id"] = _SUCCESS if outcome == "completed" else _FAILURE
    event["status_detail"] = outcome or "unknown"
    if (duration := number(record.get("duration_ms"))) is not None:
        event["duration"] = duration
    return event


def _approval(record: dict[str, Any], line: bytes, _known: Known) -> Event:
    """A person at the administrators' socket, known by the user's id."""
    action, uid = text(record.get("action")), number(record.get("uid"))
    event = _base(record, line, 6003, _READ if action == "read" else _UPDATE)
    event["api"] = {
        "operation": f"approvals.{action or 'unknown'}",
        "request": {"uid": text(record.get("approval")) or "unknown"},
    }
    approver = text(record.get("approver"))
    user = {"uid": "unknown" if uid is None else str(uid)}
    event["actor"] = {"user": {**user, **({"name": approver} if approver else {})}}
    event["src_endpoint"] = {"svc_name": "administrator"}
    event["dst_endpoint"] = {"name": text(record.get("destination")) or "unknown"}
    if label := text(record.get("label")):
        event["resources"] = [{"name": "request data", "type": "data", "labels": label.split("+")}]
    event["status_id"] = _FAILURE if action == "refused" else _SUCCESS
    event["status_detail"] = text(record.get("reason")) or action or "unknown"
    event["severity_id"] = _LOW
    return event


def _policy(record: dict[str, Any], line: bytes, _known: Known) -> Event:
    action, verdict = text(record.get("action")), text(record.get("verdict"))
    event = _base(record, line, 3004, _POLICY_ACTIVITIES.get(action, _OTHER))
    event["activity_name"] = action or "unknown"
    event["entity"] = _entity(record)
    event["status_id"] = _FAILURE if verdict in _REFUSALS else _SUCCESS
    event["status_detail"] = verdict or "unknown"
    event["severity_id"] = _LOW
    if (uid := number(record.get("uid"))) is not None:
        event["actor"] = {"user": {"uid": str(uid)}}
    return event


_REFUSALS = frozenset({"refused", "failed"})


def _entity(record: dict[str, Any]) -> Event:
    entity: Event = {"name": "routing policy", "type": "Policy", "type_id": 5}
    if sha256 := text(record.get("sha256")):
        entity["uid"] = sha256
    if (revision := number(record.get("revision"))) is not None:
        entity["version"] = str(revision)
    return entity


def _lifecycle(record: dict[str, Any], line: bytes, _known: Known) -> Event:
    event = _base(record, line, 6002, 3 if record["event"] == "start" else 4)
    event["app"] = {"name": "Conductor", "vendor_name": "Conductor"}
    if build := text(record.get("build")):
        event["app"]["version"] = build
    return event


def _plain(record: dict[str, Any], line: bytes, _known: Known) -> Event:
    event = _base(record, line, 0, _OTHER)
    event["activity_name"] = record["event"]
    if record["event"] == "log_recovered":
        event["severity_id"] = _MEDIUM
    return event


def _finding(
    record: dict[str, Any], line: bytes, known: Known, denial: Denial, place: int
) -> Event:
    event = _base(record, line, 2004, _CREATE)
    event |= _BLOCKED
    event["severity_id"] = _MEDIUM if denial.refused else _LOW
    event["is_alert"] = denial.refused
    event["status_id"] = 1  # new
    event["finding_info"] = {
        "uid": f"{hash_line(line)}-{place}",
        "title": "Request refused by policy" if denial.refused else "Destination denied by policy",
        "analytic": {"name": denial.rule, "uid": denial.rule, "type_id": 1},
        "created_time": epoch_ms(record["ts"]),
    }
    event["firewall_rule"] = {"uid": denial.rule}
    event["evidences"] = [{"actor": {"app_name": known.key or "unknown"}}]
    event["resources"] = [{"name": worker, "type": "worker"} for worker in denial.workers]
    return event


_MAKERS = {
    "decision": _decision,
    "round": _decision,
    "egress": _egress,
    "declassified": _declassified,
    "outcome": _outcome,
    "policy": _policy,
    "approval": _approval,
    "start": _lifecycle,
    "stop": _lifecycle,
}
