"""The auditor's report, and times as auditors write them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conductor.audit import report
from conductor.audit.denials import denials
from conductor.audit.report import collect
from conductor.audit.reportmarkdown import markdown
from conductor.audit.stretch import Stretch
from conductor.audit.times import epoch_ms, moment
from support.fullday import POLICY_SHA256, full_day
from support.recordedlog import RecordedLog

SHADOW = {"effect": "deny", "rule": "soon"}
NOW = datetime(2026, 8, 10, 12, 30, 15, 250_000, tzinfo=UTC)


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of each section's table, as cells."""
    found: dict[str, list[list[str]]] = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = [line for line in body.splitlines() if line.startswith("|")][2:]
        found[title] = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return found


@pytest.fixture
def text(tmp_path: Path) -> str:
    log = full_day(tmp_path / "audit")
    return markdown(collect(Stretch(log.directory, None, None)))


def test_a_report_says_what_left_to_whom_under_which_rule(text: str) -> None:
    found = tables(text)
    assert found["What left the appliance"] == [["us-place", "internal", "2", "200", "1"]]
    assert found["By the rule that allowed it"] == [
        ["allow-qwen", "inside", "qwen", "1"],
        ["allow-us", "remote", "us-place", "2"],
    ]
    assert found["Labels lowered"] == [["redact-v2", "redact", "1"]]


def test_a_report_says_what_was_blocked_by_which_rule(text: str) -> None:
    found = tables(text)
    assert found["Blocked by rule"] == [
        ["baseline.remote", "eu", "1"],
        ["floor.clearance", "us", "1"],
        ["no-eu", "eu", "1"],
    ]
    assert found["Requests refused, by rule"] == [
        ["baseline.remote", "1"],
        ["floor.clearance", "1"],
    ]
    assert found["Requests by label"][-1] == ["internal+pii", "1"]


def test_a_report_says_who_changed_the_policy_and_who_approved(text: str) -> None:
    applied, refused = tables(text)["Changes of the policy"]
    assert applied == ["2026-08-01T10:00:00.000Z", "11", "apply", "4", "active", "-", "0", "socket",
                       "key-a, key-b", POLICY_SHA256]  # fmt: skip
    assert refused[4:9] == ["refused", "revision:old-revision, of\\|= x", "1000", "socket", "none"]


def test_a_report_says_who_read_and_approved_what_to_where(text: str) -> None:
    read, accepted, refused = tables(text)["Read and approved by persons"]
    matter = ["us-place", "restricted+pii", "read-by-anna", "0f0f"]
    assert read[2:] == ["read", "-", "1000", *matter, "-"]
    assert accepted[2:] == ["accepted", "anna", "1000", *matter, "-"]
    assert refused[2:] == ["refused", "-", "0", "-", "-", "-", "-", "malformed"]


def test_a_report_names_controls_weakened_at_a_start(tmp_path: Path, text: str) -> None:
    assert tables(text)["Starts, and controls weakened"][0][-1] == "scan.names_off"
    old = RecordedLog(tmp_path / "old")
    old.add("2026-08-01", "start", mode="local-only")
    shown = tables(markdown(collect(Stretch(old.directory, None, None))))
    assert shown["Starts, and controls weakened"][0][-1] == "not recorded"


def test_a_report_says_first_whether_it_is_complete(tmp_path: Path, text: str) -> None:
    assert "is **complete** for" in text.partition("## ")[0]
    stretch = Stretch(tmp_path / "audit", None, "2027-01-01T00:00:00.000Z")
    head = markdown(collect(stretch)).partition("## ")[0]
    assert "**NOT COMPLETE**" in head and "the log ends at 2026-08-01T12:00:00.000Z" in head


def test_shadow_rules_count_once_a_record(tmp_path: Path) -> None:
    log = RecordedLog(tmp_path / "audit")
    would = {"rule": "eu-soon", "position": "policy.yaml:3:1", "effect": "allow"}
    log.add("2026-08-01", "decision", decision_id="a", verdicts={}, shadow=[would, would])
    log.add("2026-08-01", "egress", decision_id="a", shadow=[would])
    log.add("2026-08-01", "egress", decision_id="a", shadow="?")
    soon = [False, "no", [], [SHADOW, SHADOW]]
    log.add("2026-08-01", "round", decision_id="a", verdicts={"b": soon, "c": soon})
    found = tables(markdown(collect(Stretch(log.directory, None, None))))
    assert found["Rules in shadow"] == [["eu-soon", "allow", "2"], ["soon", "deny", "1"]]


def test_long_lists_are_cut_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST_ROWS", 3)
    log = RecordedLog(tmp_path / "audit")
    for _ in range(5):
        log.add("2026-08-01", "start")
    shown = markdown(collect(Stretch(log.directory, None, None)))
    assert len(tables(shown)["Starts, and controls weakened"]) == 3
    assert "2 more are not listed." in shown


@pytest.mark.parametrize(
    ("verdicts", "plan", "denied"),
    [
        ({"a": [True, "r"], "b": [False, "baseline.remote"]}, [{}], []),
        ({"a": [True, "r"], "b": [False, "no-b"]}, [{}], [("no-b", ("b",), False)]),
        ({"a": [True, "r"], "b": [False, "r2", ["redact:d1"]]}, [{}], []),
        ({"a": [False, "r2", ["redact:d1"]]}, [{}], []),
        ({"a": [False, "r2", ["redact:d1"]]}, None, [("r2", ("a",), True)]),
        ({"a": [True, "r"], "b": [False, "r2", ["redact:d1"], [SHADOW]]}, [{}], []),
        ({"a": [True, "r"], "b": [False, "no-b", [], [SHADOW]]}, [{}], [("no-b", ("b",), False)]),
        ({"a": [True, "r"], "b": [False, "no-b", "?", 7]}, [{}], [("no-b", ("b",), False)]),
        ({"a": [False, "baseline.remote"], "b": [False, "baseline.remote"]}, None,
         [("baseline.remote", ("a", "b"), True)]),
        ({"a": [True, "r"], "b": [False, "floor.clearance"]}, None,
         [("floor.clearance", ("b",), False)]),
        ({}, None, []),
    ],
)  # fmt: skip
def test_a_default_counts_as_a_denial_only_where_it_left_nothing(
    verdicts: dict[str, Any], plan: Any, denied: list[Any]
) -> None:
    record = {"event": "decision", "verdicts": verdicts, "plan": plan}
    assert [(d.rule, d.workers, d.refused) for d in denials(record)] == denied


# -- times --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-08-01", "2026-08-01T00:00:00.000Z"),
        ("2026-08-01T12:00", "2026-08-01T12:00:00.000Z"),
        ("2026-08-01T12:00:01.5Z", "2026-08-01T12:00:01.500Z"),
        ("2026-08-01T12:00+02:00", "2026-08-01T10:00:00.000Z"),
        ("7d", "2026-08-03T12:30:15.250Z"),
        ("2w", "2026-07-27T12:30:15.250Z"),
        ("12h", "2026-08-10T00:30:15.250Z"),
        ("15m", "2026-08-10T12:15:15.250Z"),
        ("0s", "2026-08-10T12:30:15.250Z"),
    ],
)
def test_a_time_is_iso_8601_or_a_duration_back_from_now(written: str, meant: str) -> None:
    assert moment(written, NOW) == meant


@pytest.mark.parametrize("written", ["", "yesterday", "7", "7y", "-7d", "999999w", "2026-13-01"])
def test_what_is_no_time_is_refused_with_what_would_be_one(written: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        moment(written, NOW)


def test_times_of_records_become_milliseconds() -> None:
    assert epoch_ms("1970-01-01T00:00:01.250Z") == 1250
    assert epoch_ms("not a time") == 0
