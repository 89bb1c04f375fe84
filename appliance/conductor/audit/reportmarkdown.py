"""An auditor's report as Markdown: every number with the records that it was counted from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from conductor.audit.report import Findings, Flow
from conductor.audit.stretch import Coverage

Row = tuple[object, ...]
T = TypeVar("T")


def markdown(found: Findings) -> str:
    """The whole report, ending in a line break."""
    parts = [
        ["# Audit report", ""],
        _proof(found.coverage) if found.coverage else [],
        _left(found),
        _by_rule(found),
        _labels(found),
        _blocked(found),
        _declassified(found),
        _approvals(found),
        _policy(found),
        _starts(found),
        _events(found),
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _proof(coverage: Coverage) -> list[str]:
    anchored = {True: "yes, it is part of the log", False: "NO", None: "none was given"}
    answer = "**complete**" if coverage.complete else "**NOT COMPLETE**"
    rows: list[Row] = [
        ("from", coverage.since or f"the log's begin, {coverage.log_from}"),
        ("before", coverage.until or f"the log's end, {coverage.log_until}"),
        ("records", _numbered(coverage)),
        ("chain of the whole log", "holds" if coverage.verified else "**DOES NOT HOLD**"),
        ("head of the log", f"`{coverage.head}` at record {coverage.head_seq}"),
        ("signed up to record", coverage.signed_to or "not signed"),
        ("head or checkpoint noted earlier", anchored[coverage.anchored]),
        ("runs that did not end in order", coverage.unclean_ends),
    ]
    return [
        f"This report is {answer} for the stretch below.",
        "",
        *[f"- {gap.explanation}" for gap in coverage.gaps],
        *([""] if coverage.gaps else []),
        *_table(("of the stretch", "value"), rows),
    ]


def _numbered(coverage: Coverage) -> str:
    if not coverage.records:
        return "0"
    return f"{coverage.records}, numbers {coverage.first_seq} to {coverage.last_seq}"


def _left(found: Findings) -> list[str]:
    remote = (
        ((destination, label), flow)
        for (where, destination, label, _), flow in found.flows.items()
        if where == "remote"
    )
    rows = [(*key, flow.sendings, flow.bytes_out, flow.lowered) for key, flow in _summed(remote)]
    columns = ("destination", "label", "sendings", "bytes", "of these lowered by a declassifier")
    note = "Each sending was recorded before it left, whether or not it arrived."
    return _section("What left the appliance", columns, rows, "Nothing left the appliance.", note)


def _by_rule(found: Findings) -> list[str]:
    flows = (
        ((rule, where, destination), flow)
        for (where, destination, _, rule), flow in found.flows.items()
    )
    rows = [(*key, flow.sendings) for key, flow in _summed(flows)]
    columns = ("rule", "where", "destination or worker", "sendings")
    return _section("By the rule that allowed it", columns, rows, "Nothing was sent.")


def _labels(found: Findings) -> list[str]:
    rows = [(label, count) for label, count in _ranked(found.decisions)]
    ends = ", ".join(f"{count} {outcome}" for outcome, count in _ranked(found.outcomes))
    note = f"Requests ended: {ends}." if ends else ""
    return _section("Requests by label", ("label", "requests"), rows, "No requests.", note)


def _blocked(found: Findings) -> list[str]:
    blocked = [(*key, count) for key, count in _ranked(found.blocked)]
    refused = [(rule, count) for rule, count in _ranked(found.refused) if count]
    shadow = [(*key, count) for key, count in _ranked(found.shadow)]
    return [
        *_section("Blocked by rule", ("rule", "worker", "decisions"), blocked, "Nothing."),
        *_section("Requests refused, by rule", ("rule", "requests"), refused, "None."),
        *_section("Rules in shadow", ("rule", "effect", "would have applied"), shadow, "None."),
    ]


def _declassified(found: Findings) -> list[str]:
    rows = [(*key, count) for key, count in _ranked(found.declassified)]
    return _section("Labels lowered", ("declassifier", "kind", "times"), rows, "None.")


def _approvals(found: Findings) -> list[str]:
    columns = ("when", "record", "action", "approver", "by user id", "destination", "label",
               "declassifier", "waited as", "because")  # fmt: skip
    rows = [
        (a.ts, a.seq, a.action, a.approver, a.uid, a.destination, a.label, a.declassifier,
         a.approval, a.reason)
        for a in found.approvals
    ]  # fmt: skip
    left_out = _left_out(found, "approvals")
    return _section("Read and approved by persons", columns, rows, "Nothing.", left_out)


def _policy(found: Findings) -> list[str]:
    columns = ("when", "record", "action", "revision", "verdict", "because", "by user id", "way",
               "approved by", "sha256")  # fmt: skip
    rows = [
        (c.ts, c.seq, c.action, c.revision, c.verdict, ", ".join(c.reasons), c.uid, c.way,
         _listed(c.approved), c.sha256)
        for c in found.changes
    ]  # fmt: skip
    since = [(revision, ts) for revision, ts in sorted(found.revisions.items())]
    left_out = _left_out(found, "policy changes")
    return [
        *_section("Changes of the policy", columns, rows, "None are recorded.", left_out),
        *_section("Revisions that decided", ("revision", "first decision"), since, "None."),
    ]


def _starts(found: Findings) -> list[str]:
    columns = ("when", "record", "mode", "build", "revision", "weakened controls")
    rows = [
        (s.ts, s.seq, s.mode, s.build, s.revision,
         "not recorded" if s.weakened is None else _listed(s.weakened))
        for s in found.starts
    ]  # fmt: skip
    left_out = _left_out(found, "starts")
    return _section("Starts, and controls weakened", columns, rows, "None.", left_out)


def _events(found: Findings) -> list[str]:
    return _section("Records by event", ("event", "records"), _ranked(found.events), "None.")


def _summed(
    flows: Iterable[tuple[tuple[str, ...], Flow]],
) -> Iterator[tuple[tuple[str, ...], Flow]]:
    """Flows of the same key added up, in order."""
    sums: dict[tuple[str, ...], Flow] = {}
    for key, flow in flows:
        total = sums.setdefault(key, Flow())
        total.sendings += flow.sendings
        total.bytes_out += flow.bytes_out
        total.lowered += flow.lowered
    yield from sorted(sums.items())


def _ranked(counter: Counter[T]) -> list[tuple[T, int]]:
    """Highest count first; equal ones by name."""
    return sorted(counter.items(), key=lambda item: (-item[1], str(item[0])))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _left_out(found: Findings, what: str) -> str:
    return f"{found.left_out[what]} more are not listed." if found.left_out[what] else ""


def _section(
    title: str, columns: tuple[str, ...], rows: Iterable[Row], none: str, note: str = ""
) -> list[str]:
    rows = list(rows)
    body = _table(columns, rows) if rows else [none, ""]
    return [f"## {title}", "", *([note, ""] if note else []), *body]


def _table(columns: tuple[str, ...], rows: Iterable[Row]) -> list[str]:
    return [_line(columns), "|" + " --- |" * len(columns), *map(_line, rows), ""]


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(value: object) -> str:
    """Text that stays in its cell, whatever a configuration calls things."""
    shown = "-" if value is None or value == "" else str(value)
    return " ".join(shown.splitlines()).replace("\\", "\\\\").replace("|", "\\|")
