"""Asking the audit log: what was sent where, and whether that is all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conductor.audit import sendings
from conductor.audit.query import Answer, Question, Wanted
from conductor.audit.stretch import Stretch
from support.recordedlog import RecordedLog

LEVELS = ("public", "internal", "confidential", "restricted")
COMPARTMENTS = ["health", "pii", "secret", "unscanned"]


@pytest.fixture
def log(tmp_path: Path) -> RecordedLog:
    return RecordedLog(tmp_path / "audit")


def began(log: RecordedLog, at: str = "2026-07-01", **fields: Any) -> RecordedLog:
    log.add(at, "start", mode="connected", levels=list(LEVELS), compartments=COMPARTMENTS, **fields)
    return log


def ask(
    log: RecordedLog,
    since: str | None = None,
    until: str | None = None,
    levels: tuple[str, ...] = (),
    label: str | None = None,
    **question: Any,
) -> tuple[Answer, list[str]]:
    wanted = Wanted.parse(label) if label else None
    begin, end = (f"{day}T00:00:00.000Z" if day else None for day in (since, until))
    answer = Answer(Stretch(log.directory, begin, end), Question(label=wanted, **question), levels)
    return answer, [f"{f.sending.destination}:{f.sending.request_id}" for f in answer.rows()]


def gaps(answer: Answer) -> list[str]:
    return [gap.code for gap in answer.coverage.gaps]


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "label", "levels", "met"),
    [
        ("internal", "internal", LEVELS, True),
        ("internal", "confidential+pii", LEVELS, True),
        ("confidential", "internal+pii", LEVELS, False),
        ("pii", "public+pii", LEVELS, True),
        ("pii", "restricted", LEVELS, False),
        ("internal+pii", "confidential+health+pii", LEVELS, True),
        ("internal+pii", "confidential+health", LEVELS, False),
        ("pii+health", "public+health+pii", LEVELS, True),
        ("pii+health", "public+pii", LEVELS, False),
        ("internal", "internal", (), True),
        ("internal", "confidential", (), None),
        ("internal+pii", "confidential", (), False),
        ("pii", "public+pii", (), True),
        ("internal", "secretish", LEVELS, None),
    ],
)
def test_a_label_is_met_by_what_is_at_or_above_it(
    wanted: str, label: str, levels: tuple[str, ...], met: bool | None
) -> None:
    assert Wanted.parse(wanted).met_by(label, levels) is met


@pytest.mark.parametrize("written", ["", "+pii", "internal++pii", " "])
def test_what_is_no_label_is_not_looked_for(written: str) -> None:
    with pytest.raises(ValueError, match="a label is"):
        Wanted.parse(written)


# -- which remote destinations received anything labelled X between A and B ---------------------


def quarter(log: RecordedLog) -> RecordedLog:
    began(log, "2026-06-01")
    log.request("2026-06-30T23:59:59.999Z", "before", sent={"us": "internal+health"})
    log.request("2026-07-01T00:00:00.000Z", "first", sent={"eu": "internal+health"})
    log.request("2026-08-01T12:00:00Z", "other", sent={"us": "internal"})
    log.request("2026-08-02T12:00:00Z", "local", kept={"qwen": "restricted+health"})
    log.request("2026-09-30T23:59:59.999Z", "last", sent={"us": "confidential+health"}, key="hr")
    log.request("2026-10-01T00:00:00.000Z", "after", sent={"us": "internal+health"})
    return log


def test_the_auditors_question_is_answered_from_the_log_alone(log: RecordedLog) -> None:
    answer, rows = ask(quarter(log), "2026-07-01", "2026-10-01", label="health", remote=True)
    assert rows == ["eu-place:req-first", "us-place:req-last"]
    assert set(answer.destinations) == {("remote", "eu-place"), ("remote", "us-place")}
    assert answer.coverage.complete


@pytest.mark.parametrize(
    ("question", "requests"),
    [
        ({}, {"first", "other", "local", "last"}),
        ({"remote": True}, {"first", "other", "last"}),
        ({"destination": "us-place"}, {"other", "last"}),
        ({"destination": "qwen"}, {"local"}),
        ({"rule": "allow-eu"}, {"first"}),
        ({"key": "hr"}, {"last"}),
        ({"request_id": "req-other"}, {"other"}),
        ({"label": "confidential"}, {"local", "last"}),
        ({"label": "confidential", "remote": True}, {"last"}),
        ({"destination": "us-place", "key": "svc-app"}, {"other"}),
    ],
)
def test_filters_narrow_together(
    log: RecordedLog, question: dict[str, Any], requests: set[str]
) -> None:
    _, rows = ask(quarter(log), "2026-07-01", "2026-10-01", **question)
    assert {row.partition("req-")[2] for row in rows} == requests


def test_a_sending_is_told_with_who_asked_and_how_it_ended(log: RecordedLog) -> None:
    began(log).request("2026-08-01", "a", sent={"us": "internal"}, key="hr")
    (found,) = Answer(Stretch(log.directory, None, None), Question()).rows()
    sent = found.sending
    assert (sent.key, sent.rule, sent.attempts) == ("hr", "allow-us", ("ok",))
    assert (sent.outcome, sent.bytes_out, sent.policy_revision) == ("completed", 100, 3)


def test_what_began_in_the_stretch_is_told_even_when_it_ended_after_it(log: RecordedLog) -> None:
    ids = {"request_id": "req-a", "decision_id": "dec-a"}
    began(log).add("2026-07-31", "decision", **ids, key="hr", label="internal", verdicts={})
    log.add("2026-08-01", "egress", **ids, step=0, worker="us", destination="d", label="internal")
    steps = [{"step": 0, "label": "x", "attempts": [{"worker": "us", "outcome": "cut"}]}]
    log.add("2026-08-02", "outcome", **ids, outcome="failed", steps=steps)
    stretch = Stretch(log.directory, "2026-08-01T00:00:00.000Z", "2026-08-01T00:00:00.001Z")
    (found,) = Answer(stretch, Question()).rows()
    assert (found.sending.key, found.sending.attempts) == ("hr", ("cut",))


def test_a_crash_hides_no_sending(log: RecordedLog) -> None:
    began(log).request("2026-08-01", "torn", sent={"us": "internal+pii"}, ended=False)
    log.add("2026-08-02", "start", mode="connected")
    log.request("2026-08-03", "open", sent={"us": "internal+pii"}, ended=False)
    answer, rows = ask(log, label="pii", remote=True)
    assert rows == ["us-place:req-torn", "us-place:req-open"]
    assert answer.coverage.unclean_ends == 1


def test_requests_left_open_by_the_thousand_take_no_memory_and_lose_no_sending(
    log: RecordedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendings, "MAX_OPEN", 2)
    for number in range(10):
        log.request("2026-08-01", str(number), sent={"us": "internal"}, ended=False)
    requests = sendings.Requests()
    told = 0
    for entry in Stretch(log.directory).entries():
        told += len(list(requests.take(entry)))
        assert len(requests._open) <= 2
    assert told + len(list(requests.rest())) == 10


def test_an_egress_record_alone_is_enough(log: RecordedLog) -> None:
    log.add("2026-08-01", "egress", destination="d", label="internal", decision_id="x")
    assert ask(log, remote=True)[1] == ["d:"]


def test_a_worker_that_was_never_called_was_given_nothing(log: RecordedLog) -> None:
    steps = [
        {"step": 0, "label": "internal", "attempts": [{"worker": worker, "outcome": outcome}]}
        for worker, outcome in (("a", "open"), ("b", "denied"), ("c", "ok"), ("d", "cut"))
    ]
    began(log).add("2026-08-01", "outcome", decision_id="x", outcome="completed", steps=steps)
    assert [row.partition(":")[0] for row in ask(log)[1]] == ["c", "d"]


def test_records_of_older_and_stranger_forms_are_read_as_far_as_they_go(log: RecordedLog) -> None:
    began(log)
    stranges: tuple[Any, ...] = (
        None,
        7,
        "x",
        [],
        {"a": 1},
        [[]],
        [{"attempts": 3}],
        {"us": [True]},
    )
    for strange in stranges:
        ids = {"request_id": strange, "decision_id": strange, "destination": strange}
        log.add("2026-08-01", "decision", **ids, verdicts=strange, label=strange, key=strange)
        log.add("2026-08-01", "egress", **ids, label=strange, obligations=strange, step=strange)
        log.add("2026-08-01", "outcome", **ids, steps=strange, outcome=strange)
    assert len(ask(log, remote=True)[1]) == 8


def test_a_sending_is_told_with_who_approved_it(log: RecordedLog) -> None:
    ids = {"request_id": "req-a", "decision_id": "dec-a"}
    began(log).add("2026-08-01", "decision", **ids, key="hr", label="internal", verdicts={})
    log.add("2026-08-01", "declassified", **ids, step=1, towards="us", approver="anna")
    for step, worker in ((0, "us"), (1, "us"), (1, "eu")):
        log.add("2026-08-01", "egress", **ids, step=step, worker=worker, destination="d")
    found = [*Answer(Stretch(log.directory), Question()).rows()]
    assert [one.sending.approver for one in found] == ["", "anna", ""]
    assert found[1].as_json()["approver"] == "anna"


# -- labels that were lowered -------------------------------------------------------------------


def test_what_a_declassifier_lowered_is_counted_and_shown_when_asked_for(log: RecordedLog) -> None:
    began(log).request(
        "2026-08-01", "r", sent={"us": "internal"}, label_before="internal+pii",
        obligations=["redact:d1"],
    )  # fmt: skip
    answer, rows = ask(log, label="pii")
    assert rows == [] and answer.lowered == 1 and answer.coverage.complete
    answer, rows = ask(log, label="pii", lowered=True)
    assert rows == ["us-place:req-r"] and answer.lowered == 0


# -- levels -------------------------------------------------------------------------------------


def test_an_unknown_order_of_levels_leaves_nothing_out_and_says_so(log: RecordedLog) -> None:
    log.request("2026-08-01", "low", sent={"us": "public"})
    log.request("2026-08-02", "high", sent={"us": "restricted"})
    log.request("2026-08-03", "same", sent={"us": "internal"})
    answer, rows = ask(log, label="internal")
    assert len(rows) == 3 and gaps(answer) == ["levels"]
    answer, rows = ask(log, label="internal", levels=LEVELS)
    assert rows == ["us-place:req-high", "us-place:req-same"] and answer.coverage.complete


def test_levels_may_change_with_the_policy(log: RecordedLog) -> None:
    began(log).request("2026-07-02", "old", sent={"us": "internal"})
    log.add("2026-07-03", "policy", action="apply", levels=["internal", "secretish"])
    log.request("2026-07-04", "new", sent={"us": "secretish"})
    assert ask(log, label="internal")[1] == ["us-place:req-old", "us-place:req-new"]


def test_a_name_that_the_log_does_not_know_is_no_proof_of_absence(log: RecordedLog) -> None:
    began(log).request("2026-08-01", "a", sent={"us": "internal"})
    assert ask(log, label="health")[0].coverage.complete
    assert gaps(ask(log, label="heatlh")[0]) == ["name"]
