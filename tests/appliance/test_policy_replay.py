"""Recorded decisions, read back and decided anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conductor.config import Site
from conductor.policy.records import DecisionLog
from conductor.policy.replay import Replayed, replay
from support.appliedpolicies import policy_bytes, site_folder, site_under
from support.configs import policy_tree

EMAIL = {"id": "email", "count": 1, "view": "raw", "likelihood": "likely"}


def record(seq: int, **fields: Any) -> bytes:
    """A line of the audit log, canonical as far as the reader looks at it."""
    base = {
        "seq": seq,
        "ts": f"2026-08-{seq:02d}T12:00:00.000Z",
        "event": "decision",
        "request_id": f"req_{seq}",
        "key": "app",
        "label": "internal",
        "declared": None,
        "detectors": [],
        "unscanned": [],
        "verdicts": {"near": ["allow", "baseline.local"],
                     "far": ["allow", "ordinary-work-may-go-out"]},
    }  # fmt: skip
    return json.dumps({**base, **fields}, separators=(",", ":")).encode() + b"\n"


def write(directory: Path, *lines: bytes, number: int = 1) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / f"audit-{number:08d}.jsonl").write_bytes(b"".join(lines))
    return directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return site_folder(tmp_path)


def closed(folder: Path) -> Site:
    """Nothing goes out any more."""
    return site_under(folder, policy_bytes(2, rules=[], tests=[]))


def same(folder: Path) -> Site:
    return site_under(folder, policy_bytes(2))


def changes(replayed: Replayed) -> list[tuple[Any, ...]]:
    return [
        (c.worker, c.label_before, c.label_after, c.before.decision, c.after.decision, t.count)
        for c, t in replayed.tallies.items()
    ]


def test_the_same_policy_decides_the_same(folder: Path) -> None:
    log = write(folder / "a", record(1), record(2, label="internal+pii", detectors=[EMAIL]))
    replayed = replay(DecisionLog(log), same(folder))
    assert (replayed.requests, replayed.decisions, replayed.changed) == (2, 4, 0)


def test_what_a_candidate_changes_is_counted_by_kind(folder: Path) -> None:
    log = write(folder / "a", *(record(seq) for seq in (3, 4, 5, 6)))
    replayed = replay(DecisionLog(log), closed(folder))
    assert changes(replayed) == [("far", "internal", "internal", "allow", "deny", 4)]
    assert (replayed.changed_requests, replayed.looser) == (4, 0)
    (tally,) = replayed.facts()["changes"]
    assert (tally["first_ts"], tally["last_ts"]) == (
        "2026-08-03T12:00:00.000Z",
        "2026-08-06T12:00:00.000Z",
    )
    assert tally["requests"] == ["req_3", "req_4", "req_5"]


def test_two_policies_are_compared_whatever_was_decided_then(folder: Path) -> None:
    log = write(folder / "a", record(1, verdicts={"far": ["deny", "some-old-rule"]}))
    replayed = replay(DecisionLog(log), same(folder), closed(folder))
    assert changes(replayed) == [("far", "internal", "internal", "deny", "allow", 1)]
    assert replayed.looser == 1


def test_the_label_is_worked_out_anew_from_what_was_found(folder: Path) -> None:
    """The candidate takes addresses for secrets; what was declared counts under it too."""
    classify = [
        {**item, "raise": {"compartments": ["secret"]}} if item["id"] == "email" else item
        for item in policy_tree()["classify"]
    ]
    strict = site_under(folder, policy_bytes(2, classify=classify, tests=[]))
    found = {"label": "internal+pii", "detectors": [EMAIL]}
    log = write(folder / "a", record(1, **found), record(2, **found, declared="confidential"))
    replayed = replay(DecisionLog(log), strict, same(folder))
    assert {(c.label_before, c.label_after) for c in replayed.tallies} == {
        ("internal+pii", "internal+secret")
    }
    assert changes(replayed)[0][0] == "far"


def test_an_old_record_without_what_was_declared_keeps_its_label(folder: Path) -> None:
    line = json.loads(record(1, label="restricted", verdicts={"far": [False, "floor.clearance"]}))
    del line["declared"]
    log = write(folder / "a", json.dumps(line, separators=(",", ":")).encode() + b"\n")
    (recorded,) = DecisionLog(log)
    assert not recorded.features.complete
    assert replay(DecisionLog(log), same(folder)).changed == 0


def test_a_label_that_a_candidate_does_not_know_goes_nowhere(folder: Path) -> None:
    log = write(folder / "a", record(1, label="top-secret", declared="top-secret"))
    replayed = replay(DecisionLog(log), same(folder))
    assert {(c.worker, c.label_after, c.after.decision) for c in replayed.tallies} == {
        ("near", "?", "deny"),
        ("far", "?", "deny"),
    }


def test_workers_that_are_gone_are_counted_apart(folder: Path) -> None:
    log = write(folder / "a", record(1, verdicts={"gone": ["allow", "r"]}))
    replayed = replay(DecisionLog(log), same(folder))
    assert (replayed.unknown_workers, replayed.decisions) == (1, 0)


def test_only_decisions_since_a_time_are_read_over_segments(folder: Path) -> None:
    write(folder / "a", *(record(seq) for seq in (1, 2, 3)))
    write(folder / "a", *(record(seq) for seq in (4, 5)), number=2)
    log = write(folder / "a", record(6), record(7, event="outcome"), number=3)
    since = "2026-08-03T00:00:00.000Z"
    assert [one.request_id for one in DecisionLog(log, since)] == [f"req_{n}" for n in (3, 4, 5, 6)]
    assert list(DecisionLog(log, "2027")) == []


def test_a_torn_end_is_no_record_and_junk_is_counted(folder: Path) -> None:
    junk = b'{"event":"decision","seq":2}\n{"event":"decision"' + b"\n"
    log = DecisionLog(write(folder / "a", record(1), junk, record(3), record(4)[:-1]))
    assert [one.request_id for one in log] == ["req_1", "req_3"]
    assert log.unreadable == 2


def test_requests_that_look_alike_are_decided_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    import conductor.policy.replay as module

    real = module.decide_all
    monkeypatch.setattr(module, "decide_all", lambda *a, **k: asked.append(1) or real(*a, **k))
    log = write(folder / "a", *(record(1) for _ in range(500)))
    assert replay(DecisionLog(log), same(folder)).requests == 500
    assert len(asked) == 1


# -- decisions that had no room in one record ----------------------------------------------------


def part(seq: int, of: str = "decision", **fields: Any) -> bytes:
    line = {"seq": seq, "ts": f"2026-08-{seq:02d}T12:00:00.000Z", "event": "more", "of": of}
    return json.dumps({**line, **fields}, separators=(",", ":")).encode() + b"\n"


def test_a_decision_is_made_anew_from_all_of_its_parts(folder: Path) -> None:
    ids = {"request_id": "req_3"}
    parts = (
        part(1, **ids, detectors=[EMAIL]),
        part(2, **ids, verdicts={"far": [True, "ordinary-work-may-go-out"]}),
    )
    short = record(3, more=2, label="internal+pii", verdicts={"near": [True, "baseline.local"]})
    log = DecisionLog(write(folder / "a", *parts, part(2, of="round", **ids), short))
    (recorded,) = log
    assert [finding.detector for finding in recorded.features.findings] == ["email"]
    assert set(recorded.rulings) == {"near", "far"} and log.unreadable == 0
    assert replay(log, same(folder)).changed == 0


def test_parts_may_stand_in_the_segment_before(folder: Path) -> None:
    write(folder / "a", record(1), part(2, request_id="req_3", verdicts={"far": [True, "r"]}))
    log = DecisionLog(write(folder / "a", record(3, more=1, verdicts={}), number=2), "2026-08-03")
    assert [set(one.rulings) for one in log] == [{"far"}] and log.unreadable == 0


def test_a_decision_that_lacks_a_part_is_counted_and_not_made_anew(folder: Path) -> None:
    lines = (
        record(1, more=1),
        part(2, request_id="req_3", verdicts={"other": [True, "r"]}),
        record(3, more=2),
        record(4),
    )
    log = DecisionLog(write(folder / "a", *lines))
    assert [one.request_id for one in log] == ["req_4"] and log.unreadable == 2
    later = DecisionLog(folder / "a", "2026-08-02")
    assert len([*later]) == 1 and later.unreadable == 1
