"""Records that had no room for all they say: put together again, or told to be torn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.audit import whole
from conductor.audit.denials import denials
from conductor.audit.export import export_to
from conductor.audit.log import AuditLog
from conductor.audit.query import Answer, Question
from conductor.audit.report import collect
from conductor.audit.reportmarkdown import markdown
from conductor.audit.stretch import Entry, Stretch
from conductor.audit.verify import verify
from conductor.audit.whole import Parts
from conductor.run.recording import ROOM, post
from support.recordedlog import RecordedLog

IDS = {"request_id": "req-a", "decision_id": "dec-a"}


@pytest.fixture
def log(tmp_path: Path) -> RecordedLog:
    made = RecordedLog(tmp_path / "audit")
    made.add("2026-07-01", "start")
    return made


def decided(log: RecordedLog, *parts: dict[str, Any], at: str = "2026-08-01", more: int) -> None:
    """Parts, and then their decision: `near` may, and no other worker."""
    for verdicts in parts:
        log.add(at, "more", **IDS, of="decision", verdicts=verdicts)
    log.add(at, "decision", **IDS, key="hr", label="internal", plan=None, detectors=[], more=more,
            verdicts={"near": [True, "baseline.local"]})  # fmt: skip


def ended(log: RecordedLog, *workers: str, at: str = "2026-08-02") -> None:
    steps = [
        {"step": step, "label": "internal", "attempts": [{"worker": one, "outcome": "ok"}]}
        for step, one in enumerate(workers)
    ]
    *ahead, last = steps
    for step in ahead:
        log.add(at, "more", **IDS, of="outcome", steps=[step])
    log.add(at, "outcome", **IDS, outcome="completed", steps=[last], more=len(ahead))


FAR = {"far": [False, "no-far"]}
FARTHER = {"farther": [True, "allow-farther", [], [{"effect": "deny", "rule": "soon"}]]}


def entries(stretch: Stretch, event: str) -> Iterator[Entry]:
    return (entry for entry in stretch.entries() if entry.record["event"] == event)


# -- put together -------------------------------------------------------------------------------


def test_a_record_is_read_with_all_that_stood_ahead_of_it(log: RecordedLog) -> None:
    decided(log, FAR, FARTHER, more=2)
    stretch = Stretch(log.directory)
    (decision,) = entries(stretch, "decision")
    assert [*decision.record["verdicts"]] == ["near", "far", "farther"]
    assert json.loads(decision.line)["verdicts"] == {"near": [True, "baseline.local"]}
    assert stretch.coverage().complete
    (denial,) = denials(decision.record)
    assert (denial.rule, denial.workers, denial.refused) == ("no-far", ("far",), False)


def test_a_question_finds_what_stands_in_parts(log: RecordedLog) -> None:
    decided(log, FAR, FARTHER, more=2)
    ended(log, "farther", "near")
    answer = Answer(Stretch(log.directory), Question(rule="allow-farther"))
    (found,) = answer.rows()
    assert (found.sending.worker, found.sending.step) == ("farther", 0)
    assert answer.coverage.complete
    assert len([*Answer(Stretch(log.directory), Question()).rows()]) == 2


def test_a_report_counts_denials_and_shadow_rules_that_stand_in_parts(log: RecordedLog) -> None:
    decided(log, FAR, FARTHER, more=2)
    found = collect(Stretch(log.directory))
    assert found.blocked == {("no-far", "far"): 1}
    assert found.shadow == {("soon", "deny"): 1}
    assert found.events["more"] == 2


def test_exports_tell_denials_that_stand_in_parts_and_each_record_once(
    log: RecordedLog, tmp_path: Path
) -> None:
    decided(log, FAR, FARTHER, more=2)
    assert export_to(Stretch(log.directory), "ocsf", tmp_path / "ocsf")["complete"]
    events = [json.loads(line) for line in (tmp_path / "ocsf").read_bytes().splitlines()]
    (finding,) = (event for event in events if event["class_uid"] == 2004)
    assert finding["firewall_rule"] == {"uid": "no-far"}
    told = [event["unmapped"].get("verdicts", {}) for event in events if event is not finding]
    assert [*map(list, told)] == [[], ["far"], ["farther"], ["near"]]
    export_to(Stretch(log.directory), "cef", tmp_path / "cef")
    assert b"cs1=no-far" in (tmp_path / "cef").read_bytes().splitlines()[-1]


@given(st.lists(st.text("ab", min_size=1, max_size=900), max_size=40))
def test_what_was_dealt_out_comes_back_as_it_was(texts: list[str]) -> None:
    """The parts as `recording.post` makes them, through the records that it posts."""
    records: list[dict[str, Any]] = []

    class Diary:
        def post(self, event: str, **fields: Any) -> Any:
            records.append({"event": event, **fields})
            return Ignored()

    class Ignored:
        def add_done_callback(self, _call: Any) -> None: ...

    rows = [{"n": place, "text": one} for place, one in enumerate(texts)]
    verdicts = {f"w{place}": [False, one] for place, one in enumerate(texts)}
    post(Diary(), "decision", {"detectors": rows, "verdicts": verdicts}, **IDS)  # type: ignore[arg-type]
    parts = Parts()
    *_, (record, torn) = map(parts.take, records)
    assert not torn and record["detectors"] == rows and record["verdicts"] == verdicts


async def test_a_real_log_of_long_records_is_complete(tmp_path: Path) -> None:
    audit = AuditLog.open(tmp_path / "audit")
    verdicts = {f"worker-{n}": [False, "no-such-rule"] for n in range(1000)}
    await post(audit, "decision", {"verdicts": verdicts, "detectors": []}, **IDS, plan=None)
    await audit.close()
    assert len(json.dumps(verdicts)) > 4 * ROOM
    stretch = Stretch(tmp_path / "audit")
    (decision,) = entries(stretch, "decision")
    assert decision.record["verdicts"] == verdicts and stretch.coverage().complete
    report = verify(tmp_path / "audit")
    assert report.events["more"] == decision.record["more"] > 4 and "other" not in report.events


# -- torn ---------------------------------------------------------------------------------------


def gaps(log: RecordedLog, since: str | None = None) -> list[str]:
    stretch = Stretch(log.directory, f"{since}T00:00:00.000Z" if since else None)
    for _ in stretch.entries():
        pass
    return [gap.code for gap in stretch.coverage().gaps]


@pytest.mark.parametrize(
    ("parts", "more", "expected"),
    [
        ((FAR, FARTHER), 2, []),
        ((FAR,), 2, ["torn"]),
        ((), 2, ["torn"]),
        ((FAR, FARTHER), 1, ["torn"]),
        ((FAR,), 0, ["torn"]),
        ((FAR, FAR), 2, ["torn"]),
        (([1],), 1, ["torn"]),
        (("far",), 1, ["torn"]),
    ],
)
def test_where_parts_do_not_fit_the_answer_is_not_complete(
    log: RecordedLog, parts: tuple[Any, ...], more: int, expected: list[str]
) -> None:
    decided(log, *parts, more=more)
    assert gaps(log) == expected
    assert ("**NOT COMPLETE**" in markdown(collect(Stretch(log.directory)))) == bool(expected)


def test_a_decision_torn_before_the_stretch_tells_on_what_it_explains_inside(
    log: RecordedLog,
) -> None:
    decided(log, FAR, more=2)
    assert gaps(log, "2026-08-01") == ["torn"]
    log.request("2026-08-02", "other", kept={"near": "internal"})
    assert gaps(log, "2026-08-02") == []
    ended(log, "near", "far")
    assert gaps(log, "2026-08-02") == ["torn"]


def test_parts_of_another_request_or_event_or_run_are_not_mixed_in(log: RecordedLog) -> None:
    others = ({"decision_id": "dec-b"}, {"request_id": "req-b"}, {"of": "round"})
    for other in others:
        log.add("2026-08-01", "more", **{**IDS, "of": "decision", "verdicts": FAR, **other})
    decided(log, FARTHER, more=1)
    assert gaps(log) == []
    log.add("2026-08-02", "more", **IDS, of="decision", verdicts=FAR)
    log.add("2026-08-02", "start")
    decided(log, more=0)
    assert gaps(log) == []


def test_parts_without_end_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MAX_PARTS", 3)
    parts = Parts()
    for number in range(20):
        ids = {"request_id": str(number // 2), "decision_id": "", "of": "decision"}
        parts.take({"event": "more", **ids, "verdicts": {}})
        assert sum(map(len, parts._waiting.values())) == parts._count <= 3
    first = {"event": "decision", "request_id": "0", "decision_id": "", "more": 2}
    assert parts.take(first).torn
    last = {**first, "request_id": "9", "verdicts": {}}
    assert not parts.take(last).torn
