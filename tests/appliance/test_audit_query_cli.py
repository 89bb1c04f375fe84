"""`conductor audit query | report | export`: what is printed, and how they exit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conductor.cli.audit import audit
from support.fullday import full_day

Run = Callable[..., Result]
VERBS = (["query"], ["report"], ["export", "--format", "cef", "--out", "-"])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A verb of `conductor audit` on the log of a full day."""
    log = full_day(tmp_path / "audit")

    def go(verb: list[str], *options: str) -> Result:
        return CliRunner().invoke(audit, [verb[0], str(log.directory), *verb[1:], *options])

    return go


def damage(tmp_path: Path) -> None:
    (path,) = (tmp_path / "audit").glob("audit-*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"bytes_out":100', b'"bytes_out":101', 1))


@pytest.mark.parametrize("verb", VERBS)
def test_a_complete_answer_exits_0(run: Run, verb: list[str]) -> None:
    assert run(verb).exit_code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_a_damaged_log_never_gives_a_complete_answer(
    run: Run, tmp_path: Path, verb: list[str]
) -> None:
    damage(tmp_path)
    assert run(verb).exit_code == 1


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_beyond_the_logs_end_exits_1(run: Run, verb: list[str]) -> None:
    result = run(verb, "--to", "2030-01-01")
    assert result.exit_code == 1 and "the log ends at 2026-08-01" in result.output


@pytest.mark.parametrize("verb", VERBS)
def test_no_log_exits_2_and_says_what_to_give(tmp_path: Path, verb: list[str]) -> None:
    result = CliRunner().invoke(audit, [verb[0], str(tmp_path), *verb[1:]])
    assert result.exit_code == 2 and "audit-*.jsonl" in result.output


@pytest.mark.parametrize(
    "options",
    [
        ("--from", "soon"),
        ("--to", "7 days"),
        ("--head", "abc"),
        ("--from", "2026-08-02", "--to", "2026-08-01"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_refused_before_the_log_is_read(
    run: Run, options: tuple[str, ...]
) -> None:
    assert run(["query"], *options).exit_code == 2


def test_the_security_officers_question(run: Run) -> None:
    result = run(["query"], "--label", "pii", "--remote", "--from", "2026-08-01T08:00")
    assert result.exit_code == 0
    assert "nothing was found" in result.output
    assert "1 more carried it until a declassifier lowered it" in result.output
    assert "complete: the chain holds" in result.output


def test_rows_and_totals_for_people(run: Run) -> None:
    result = run(["query"], "--destination", "us-place", "--lowered", "--label", "internal")
    first, second, *rest = result.output.splitlines()
    assert "us-place  internal  rule allow-us  key svc-app  100 bytes  ok" in first
    assert "internal (was internal+pii before redact:redact-v2)" in second
    assert "remote    us-place: 2 sendings, 200 bytes" in "\n".join(rest)


def test_of_what_stayed_inside_no_size_is_told(run: Run) -> None:
    totals = run(["query"], "--label", "internal").output.splitlines()
    assert "inside    qwen: 1 sending, 2026-08-01T09:00:00.000Z to" in "\n".join(totals)


def test_rows_and_totals_for_machines(run: Run) -> None:
    lines = run(["query"], "--remote", "--json").output.splitlines()
    *rows, summary = map(json.loads, lines)
    assert [row["destination"] for row in rows] == ["us-place", "us-place"]
    assert summary["destinations"][0]["sendings"] == 2
    assert summary["coverage"]["complete"] is True and summary["coverage"]["gaps"] == []


def test_a_report_goes_to_a_file(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    assert run(["report"], "--out", str(out)).exit_code == 0
    assert out.read_text().startswith("# Audit report\n")


def test_a_report_that_cannot_be_written_says_so(run: Run, tmp_path: Path) -> None:
    result = run(["report"], "--out", str(tmp_path / "no" / "report.md"))
    assert result.exit_code == 2 and "cannot be written" in result.output


def test_an_export_to_a_file_has_its_manifest_beside_it(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    result = run(["export", "--format", "ocsf", "--out", str(out)])
    assert result.exit_code == 0
    manifest = json.loads((tmp_path / "events.jsonl.manifest.json").read_text())
    assert manifest["lines"] == len(out.read_bytes().splitlines())
    assert manifest["schema"] == "OCSF 1.6.0"


def test_an_export_to_standard_output_keeps_its_manifest_apart(run: Run) -> None:
    result = run(["export", "--format", "jsonl", "--out", "-"])
    manifest = json.loads(result.stderr)
    assert manifest["lines"] == len(result.stdout.splitlines())
    assert json.loads(result.stdout.splitlines()[0])["event"] == "start"
