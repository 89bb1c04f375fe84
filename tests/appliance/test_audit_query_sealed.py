"""Asking, exporting and keeping a sealed log: signatures and checkpoints kept elsewhere count."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conductor.audit.keys import ensure, load
from conductor.audit.log import AuditLog
from conductor.audit.retention import retain
from conductor.audit.writer import Writer, now
from conductor.cli.audit import audit
from support.sealedlog import change

Run = Callable[..., Result]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
def keys(tmp_path: Path, directory: Path) -> Path:
    ensure(tmp_path / "keys", directory)
    return tmp_path / "keys"


@pytest.fixture
def run(directory: Path) -> Run:
    return lambda verb, *options: CliRunner().invoke(audit, [verb, str(directory), *options])


async def use(directory: Path, keys: Path) -> None:
    """A run of the appliance in which one request was sent abroad."""
    start = {"levels": ["public", "internal"], "compartments": ["pii"]}
    log = AuditLog.open(directory, key=load(keys), start=start)
    ids = {"request_id": "req-1", "decision_id": "dec-1"}
    await log.append("decision", **ids, key="hr", label="internal+pii", verdicts={})
    await log.append("egress", **ids, destination="us", worker="w", label="internal+pii", step=0)
    await log.close()


def kept(run: Run, tmp_path: Path) -> str:
    """The newest checkpoint in a file elsewhere."""
    file = tmp_path / "kept"
    file.write_text(run("head").output)
    return str(file)


async def test_a_checkpoint_kept_elsewhere_anchors_every_answer(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    anchor = kept(run, tmp_path)
    await use(directory, keys)
    for verb in (["query", "--label", "pii"], ["report"], ["verify"]):
        result = run(*verb, "--anchor", anchor, "--signed-by", str(keys / "audit.pub"))
        assert result.exit_code == 0, result.output
    result = run("query", "--json", "--anchor", anchor)
    coverage = json.loads(result.output.splitlines()[-1])["coverage"]
    assert coverage["anchored"] is True and coverage["signed_to"] > 0


async def test_a_cut_end_is_found_out_by_the_checkpoint_kept_elsewhere(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    await use(directory, keys)
    anchor = kept(run, tmp_path)
    change(directory, lambda lines: lines[:-4])
    assert run("query").exit_code == 0  # nothing else can tell
    result = run("query", "--anchor", anchor)
    assert result.exit_code == 1 and "the end of this log was cut off" in result.output
    result = run("verify", "--anchor", anchor)
    assert result.exit_code == 1 and "WAS CUT OFF" in result.output


async def test_a_log_of_another_key_answers_nobody_who_has_the_right_one(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    ensure(tmp_path / "others", tmp_path / "none")
    other = str(tmp_path / "others" / "audit.pub")
    result = run("query", "--signed-by", other)
    assert result.exit_code == 1 and "signed by the given key" in result.output
    assert run("verify", "--signed-by", other).exit_code == 1
    assert run("verify", "--signed-by", str(directory)).exit_code == 2


async def test_verifying_goes_on_from_a_checkpoint_and_checks_macs_with_the_key(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    earlier = kept(run, tmp_path)
    await use(directory, keys)
    whole = json.loads(run("verify", "--json", "--keys", str(keys)).output)
    rest = json.loads(run("verify", "--json", "--from", earlier).output)
    assert whole["ok"] and rest["ok"]
    assert whole["first_seq"] == 1 < rest["first_seq"]
    assert whole["records"] == rest["first_seq"] - 1 + rest["records"]
    assert whole["sealing"]["macs"] > 0 == rest["sealing"]["macs"]


async def test_what_is_no_checkpoint_anchors_nothing(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    (tmp_path / "note").write_text("hello\n")
    for verb in ("verify", "query", "report"):
        result = run(verb, "--anchor", str(tmp_path / "note"))
        assert result.exit_code == 2 and "no checkpoint" in result.output


async def test_an_export_carries_the_newest_checkpoint(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    result = run("export", "--format", "ocsf", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["checkpoint"] == run("head").output
    assert manifest["signed_to"] > 0


async def test_a_key_handed_over_keeps_answers_and_anchors_good(
    directory: Path, keys: Path, tmp_path: Path, run: Run
) -> None:
    await use(directory, keys)
    anchor, old = kept(run, tmp_path), (keys / "audit.pub").read_bytes()
    (tmp_path / "old.pub").write_bytes(old)
    assert run("rotate-key", "--keys", str(keys)).exit_code == 0
    assert (keys / "audit.pub").read_bytes() != old
    await use(directory, keys)
    options = ("--anchor", anchor, "--signed-by", str(tmp_path / "old.pub"))
    assert run("query", "--label", "pii", *options).exit_code == 0


async def test_nothing_young_is_removed(directory: Path, keys: Path, run: Run) -> None:
    await use(directory, keys)
    result = run("retain", "--keys", str(keys), "--days", "400")
    assert (result.exit_code, result.output) == (0, "nothing has expired\n")


async def test_removed_segments_leave_a_gap_that_is_said(
    directory: Path, keys: Path, run: Run
) -> None:
    log = AuditLog.open(directory, key=load(keys), segment_bytes=2000, max_batch=4)
    for number in range(20):
        await log.append("egress", decision_id=f"d-{number}", destination="us", label="internal")
    await log.close()
    writer = Writer.open(directory, load(keys), 2000, {})
    much_later = replace(now(), wall_ns=now().wall_ns + 500 * 86_400 * 10**9)
    assert retain(writer, 400, much_later)
    writer.close()
    assert run("verify").exit_code == 0
    whole = json.loads(run("query", "--json").output.splitlines()[-1])
    assert whole["coverage"]["complete"] and whole["coverage"]["first_seq"] > 1
    result = run("query", "--from", "1d")
    assert result.exit_code == 1 and "the log begins at" in result.output
