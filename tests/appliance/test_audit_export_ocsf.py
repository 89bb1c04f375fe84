"""OCSF exports against the facts of the schema, version 1.6.0, that they stand on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conductor.audit.export import export_to
from conductor.audit.record import hash_line
from conductor.audit.stretch import Stretch
from support.fullday import POLICY_SHA256, full_day

REQUIRED = {"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time",
            "type_uid"}  # fmt: skip
GENERAL = REQUIRED | {"activity_name", "duration", "message", "status_id", "status_detail",
                      "unmapped"}  # fmt: skip
SECURITY_CONTROL = {"action_id", "disposition_id", "firewall_rule", "policy", "is_alert"}
CLASSES: dict[int, tuple[int, set[int], set[str], set[str]]] = {
    # category, activities, further required attributes, others that we use
    0: (0, {0, 99}, set(), set()),
    2004: (2, {0, 1, 2, 3, 99}, {"finding_info"}, {"evidences", "resources", *SECURITY_CONTROL}),
    3004: (3, {*range(14), 99}, {"entity"}, {"actor", *SECURITY_CONTROL}),
    6002: (6, {*range(9), 99}, {"app"}, set()),
    6003: (6, {*range(5), 99}, {"actor", "api", "src_endpoint"},
           {"dst_endpoint", "resources", *SECURITY_CONTROL}),
}  # fmt: skip
OBJECTS: dict[str, tuple[set[str], set[str], set[str]]] = {
    # required, at least one of, others that we use
    "metadata": ({"product", "version"}, set(), {"log_name", "event_code", "sequence", "uid",
                 "original_time", "profiles", "correlation_uid"}),
    "product": (set(), {"name", "uid"}, {"vendor_name", "version"}),
    "app": (set(), {"name", "uid"}, {"vendor_name", "version"}),
    "api": ({"operation"}, set(), {"request", "service"}),
    "request": ({"uid"}, set(), set()),
    "service": (set(), {"name", "uid"}, set()),
    "actor": (set(), {"process", "user", "session", "app_name", "app_uid"}, set()),
    "user": (set(), {"account", "name", "uid"}, set()),
    "src_endpoint": (set(), {"ip", "uid", "name", "hostname", "svc_name"}, set()),
    "dst_endpoint": (set(), {"ip", "uid", "name", "hostname", "svc_name"}, set()),
    "resources": (set(), {"name", "uid"}, {"type", "labels"}),
    "policy": (set(), {"name", "uid", "type"}, {"version"}),
    "firewall_rule": (set(), {"name", "uid"}, set()),
    "finding_info": ({"uid"}, set(), {"title", "analytic", "created_time"}),
    "analytic": ({"type_id"}, {"name", "uid"}, set()),
    "evidences": (set(), {"actor", "data"}, set()),
    "entity": (set(), {"name", "uid", "policy"}, {"type", "type_id", "version"}),
}  # fmt: skip


def check_object(name: str, value: Any) -> None:
    """Attributes that the schema has and demands, all the way down; `unmapped` is free."""
    if isinstance(value, list):
        for one in value:
            check_object(name, one)
    elif isinstance(value, dict) and name != "unmapped":
        required, one_of, others = OBJECTS[name]
        assert required <= set(value) <= required | one_of | others, name
        assert not one_of or one_of & set(value), name
        for key, inner in value.items():
            check_object(key, inner)


def check(event: dict[str, Any]) -> None:
    category, activities, required, others = CLASSES[event["class_uid"]]
    assert REQUIRED | required <= set(event) <= GENERAL | required | others
    assert event["category_uid"] == category and event["activity_id"] in activities
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
    assert event["severity_id"] in range(7) and type(event["time"]) is int
    assert event["metadata"]["version"] == "1.6.0"
    profiles = event["metadata"].get("profiles", [])
    assert profiles == ["security_control"] or not SECURITY_CONTROL & set(event)
    for name, value in event.items():
        if isinstance(value, dict | list):
            check_object(name, value)


@pytest.fixture
def events(tmp_path: Path) -> list[dict[str, Any]]:
    log = full_day(tmp_path / "audit")
    export_to(Stretch(log.directory, None, None), "ocsf", tmp_path / "out")
    return [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]


def of(events: list[dict[str, Any]], code: str, class_uid: int) -> list[dict[str, Any]]:
    return [
        event
        for event in events
        if event["metadata"]["event_code"] == code and event["class_uid"] == class_uid
    ]


def test_every_event_has_what_the_schema_demands_and_nothing_it_lacks(
    events: list[dict[str, Any]],
) -> None:
    for event in events:
        check(event)
    assert {event["class_uid"] for event in events} == set(CLASSES)


def test_what_leaves_is_api_activity_with_destination_caller_rule_and_label(
    events: list[dict[str, Any]],
) -> None:
    sent = of(events, "egress", 6003)[0]
    assert sent["dst_endpoint"] == {"name": "us-place"}
    assert sent["actor"]["app_uid"] == "svc-app"
    assert sent["firewall_rule"] == {"uid": "allow-us"}
    assert sent["resources"][0]["labels"] == ["internal"]
    assert (sent["action_id"], sent["disposition_id"]) == (1, 1)
    assert sent["unmapped"]["bytes_out"] == 100


def test_a_refusal_and_a_denial_by_a_rule_are_findings_and_a_default_is_none(
    events: list[dict[str, Any]],
) -> None:
    found = [
        (event["metadata"]["correlation_uid"], event["firewall_rule"]["uid"], event["is_alert"])
        for event in of(events, "decision", 2004)
    ]
    assert found == [
        ("req-sent", "no-eu", False),
        ("req-refused", "baseline.remote", True),
        ("req-refused", "floor.clearance", True),
    ]
    uids = [event["finding_info"]["uid"] for event in of(events, "decision", 2004)]
    assert len(set(uids)) == 3


def test_a_policy_change_names_who_what_and_whether(events: list[dict[str, Any]]) -> None:
    applied, refused = of(events, "policy", 3004)
    assert applied["actor"] == {"user": {"uid": "0"}}
    assert applied["entity"]["uid"] == POLICY_SHA256 and applied["entity"]["version"] == "4"
    assert (applied["activity_id"], applied["status_id"], refused["status_id"]) == (10, 1, 2)
    assert applied["unmapped"]["approved"] == ["key-a", "key-b"]


def test_an_approval_names_who_approved_what_to_where(events: list[dict[str, Any]]) -> None:
    read, accepted, refused = of(events, "approval", 6003)
    assert read["actor"] == {"user": {"uid": "1000"}} and read["activity_id"] == 2
    assert accepted["actor"] == {"user": {"uid": "1000", "name": "anna"}}
    assert accepted["dst_endpoint"] == {"name": "us-place"}
    assert accepted["resources"][0]["labels"] == ["restricted", "pii"]
    assert accepted["api"] == {"operation": "approvals.accepted", "request": {"uid": "0f0f"}}
    assert [one["status_id"] for one in (read, accepted, refused)] == [1, 1, 2]


def test_events_carry_number_and_hash_of_their_record(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    (path,) = (tmp_path / "audit").glob("audit-*.jsonl")
    hashes = dict(enumerate(map(hash_line, path.read_bytes().splitlines()), 1))
    for event in events:
        assert event["metadata"]["uid"] == hashes[event["metadata"]["sequence"]]
