"""How policies, verdicts and comparisons read on a terminal. Works on the same JSON as `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Facts = Mapping[str, Any]

_COLOURS = {"allow": "green", "promise": "yellow", "deny": "red"}
_SHORT = 12


def console() -> Console:
    """To standard output; without colours where that is no terminal."""
    return Console(highlight=False, soft_wrap=False)


def show_findings(findings: list[dict[str, Any]]) -> None:
    """Lint findings as compilers print them."""
    out = console()
    for one in findings:
        colour = "red" if one["severity"] == "error" else "yellow"
        place = escape(f"{one['file']}:{one['line']}:{one['column']}")
        said = escape(f"{one['code']}: {one['message']}")
        out.print(f"{place}: [{colour}]{one['severity']}[/]: {said}", soft_wrap=True)
    wrong = sum(one["severity"] == "error" for one in findings)
    out.print(f"{wrong} errors, {len(findings) - wrong} warnings")


def show_tests(results: list[dict[str, Any]], untested: list[str]) -> None:
    """The tests of a file."""
    out = console()
    for one in results:
        if one["passed"]:
            out.print(f"[green]passed[/]  {escape(one['name'])}")
        else:
            out.print(f"[red]FAILED[/]  {escape(one['name'])} ({one['position']})", soft_wrap=True)
            came = f"expected {one['expected']}; got {one['got']}"
            out.print(f"        {escape(came)}", soft_wrap=True)
    for name in untested:
        out.print(f"[red]no test[/] {name}")
    passed = sum(one["passed"] for one in results)
    out.print(f"{passed} of {len(results)} tests passed, {len(untested)} rules without a test")


def show_explanation(facts: Facts) -> None:
    """Labels, evidence, a row for each destination."""
    out = console()
    policy = facts["policy"]
    out.print(f"policy    revision {policy['revision']}, {policy['sha256'][:_SHORT]}")
    out.print(f"asked as  {facts['key']}")
    out.print(f"label     {facts['label_before']} -> {facts['label_after']}")
    for one in facts["because"]:
        out.print(
            f"because   {one['count']} x {one['detector']}, {one['likelihood']} ({one['view']})"
        )
    for reason in facts["unscanned"]:
        out.print(f"unscanned {reason}")
    for one in facts["destinations"]:
        _show_destination(out, one)


def _show_destination(out: Console, one: Facts) -> None:
    unknown = ", a fact is missing" if one["error"] else ""
    decision = _coloured(one["decision"], one["obligations"])
    out.print(
        f"\n{one['destination']}: {decision} by {one['rule']} ({one['position']}){unknown}",
        soft_wrap=True,
    )
    for item in one["shadow"]:
        out.print(f"  in shadow {item['rule']} would {item['effect']} it", soft_wrap=True)
    for change in one["would_allow_if"]:
        would = "go" if change["decision"] == "allow" else "be promised"
        out.print(f"  would {would} if {change['change']} ({change['rule']})", soft_wrap=True)


def show_replayed(facts: Facts) -> None:
    """Recorded decisions that would be others."""
    out = console()
    out.print(
        f"{facts['requests']} requests since {facts['since']}: {facts['changed']} of "
        f"{facts['decisions']} decisions change, [{'red' if facts['looser'] else 'green'}]"
        f"{facts['looser']} get looser[/]"
    )
    if facts["changes"]:
        out.print(_changes(facts["changes"]))
    if facts["unknown_workers"]:
        out.print(f"{facts['unknown_workers']} decisions are about workers that are gone")
    if facts["unreadable_records"]:
        out.print(f"[red]{facts['unreadable_records']} records could not be read[/]")


def _changes(changes: Iterable[Facts]) -> Table:
    table = _table("times", "worker", "label", "before", "after", "by rule")
    for one in changes:
        before, after = one["before"], one["after"]
        table.add_row(
            str(one["count"]),
            one["worker"],
            _arrow(one["label_before"], one["label_after"]),
            _coloured(before["decision"], before["obligations"]),
            _coloured(after["decision"], after["obligations"]),
            _arrow(before["rule"], after["rule"]),
        )
    return table


def show_diff(facts: Facts) -> None:
    """What one policy changes of another."""
    out = console()
    show_replayed(facts["recorded"])
    for one in facts["tests"]:
        out.print(
            f"test      {escape(one['name'])}: {one['before']} -> {one['after']}", soft_wrap=True
        )
    for sentence in facts["guarded"]:
        out.print(f"guarded   {escape(sentence)}", soft_wrap=True)
    for sentence in facts["looser"]:
        out.print(f"looser    {escape(sentence)}", soft_wrap=True)
    if not facts["looser"]:
        out.print("Nothing gets looser, as far as labels and tests tell.")


def show_verdict(facts: Facts) -> None:
    """What became of a candidate."""
    out = console()
    for one in facts["warnings"]:
        out.print(f"[yellow]warning[/]  {_problem(one)}", soft_wrap=True)
    for one in facts["problems"]:
        out.print(f"[red]{one['stage']}[/]  {_problem(one)}", soft_wrap=True)
    out.print(_what_was_checked(facts), soft_wrap=True)
    if facts["verdict"] == "active":
        out.print("[green]in force[/] for requests that begin from now on")
    else:
        out.print("[red]refused[/]: what was in force still is")


def _what_was_checked(facts: Facts) -> str:
    if not facts["revision"]:
        return f"the candidate, {facts['sha256'][:_SHORT]}, could not be read"
    parts = [
        f"revision {facts['revision']}, {facts['sha256'][:_SHORT]}",
        f"{facts['tests_passed']} tests passed, {facts['tests_failed']} failed",
    ]
    if facts["approvals_needed"]:
        parts.append(f"{len(facts['approved'])} of {facts['approvals_needed']} approvals")
    if facts["approved"]:
        parts.append(f"approved by {', '.join(facts['approved'])}")
    return "; ".join(parts)


def show_history(copies: list[dict[str, Any]]) -> None:
    """Policies that were in force."""
    if not copies:
        console().print("no policy was in force here yet: the first start takes policy.yaml")
        return
    table = _table("revision", "since", "how", "sha256", "approved by")
    for one in copies:
        approved = ", ".join(one["approved"]) or "-"
        table.add_row(str(one["revision"]), one["at"], one["how"], one["sha256"][:_SHORT], approved)
    console().print(table)


def show_status(facts: Facts) -> None:
    """What is in force."""
    out = console()
    out.print(f"appliance {'running' if facts['running'] else 'not running'}")
    for name, one in (("in force", facts["in_force"]), ("kept", facts["kept"])):
        if one:
            since = f" since {one['at']} ({one['how']})" if "at" in one else ""
            out.print(f"{name:<9} revision {one['revision']}, {one['sha256'][:_SHORT]}{since}")
    if facts["store"] == "empty":
        out.print("no policy was in force here yet: the first start takes policy.yaml")
    else:
        out.print(f"store     {facts['store']}, highest revision {facts['highest_revision']}")
    if facts["file_differs"]:
        out.print("policy.yaml is another one: it counts once 'conductor policy apply' takes it")
    if facts["degraded"]:
        out.print(f"[red]DEGRADED[/]  {escape(facts['degraded'])}", soft_wrap=True)
    last = facts["last"]
    if last and last["verdict"] == "refused":
        which = f"revision {last['revision']}" if last["revision"] else last["sha256"][:_SHORT]
        out.print(f"the latest candidate, {which}, was refused:")
        for one in last["problems"]:
            out.print(f"  {_problem(one)}", soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _problem(one: Facts) -> str:
    place = f"{one['where']}: " if one["where"] else ""
    return escape(f"{place}{one['code']}: {one['message']}")


def _coloured(decision: str, obligations: Iterable[str]) -> str:
    after = ", ".join(obligations)
    return f"[{_COLOURS[decision]}]{decision}[/]" + (f" after {after}" if after else "")


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"
