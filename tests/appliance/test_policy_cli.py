"""`conductor policy`, as it is typed: what is printed and how it exits."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from conductor.activation.adminclient import SOCKET
from conductor.activation.store import Store
from conductor.api.admin import administered
from conductor.audit.verify import verify
from conductor.cli.policy import policy
from conductor.config import POLICY
from conductor.errors import ConductorError
from support.appliedpolicies import policy_bytes, site_folder
from support.configs import policy_tree
from support.desk import office
from support.planner import socket_folder
from support.policydaemon import NAMELESS
from support.processes import command, environment

SECRET = "DE89370400440532013000"
REQUEST = json.dumps({"model": "conductor", "messages": [{"role": "user", "content": SECRET}]})


@pytest.fixture
def folder() -> Iterator[Path]:
    with socket_folder() as short:  # the sockets are below it
        yield site_folder(short, policy_bytes(classify=NAMELESS))


def run(folder: Path, *arguments: str, stdin: str | None = None) -> Result:
    """A `ConductorError` is what `main` prints before it exits with 1."""
    result = CliRunner().invoke(policy, [*arguments, "--config", str(folder)], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, ConductorError), result.exception
    return result


def as_json(folder: Path, *arguments: str, stdin: str | None = None) -> tuple[int, Any]:
    result = run(folder, *arguments, "--json", stdin=stdin)
    return result.exit_code, json.loads(result.stdout)


def written(folder: Path, name: str, revision: int, **changes: Any) -> str:
    path = folder / name
    path.write_bytes(policy_bytes(revision, **{"classify": NAMELESS, **changes}))
    return str(path)


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """The administrators' door of an appliance, in a thread of its own."""
    opened, closing = threading.Event(), threading.Event()

    async def explained(*_: Any) -> dict[str, Any]:
        return {}

    async def serve(desk: Any) -> None:
        async with administered(folder / "r" / SOCKET, desk, explained):
            opened.set()
            await asyncio.to_thread(closing.wait)

    with capture_logs(), office(folder) as here:
        thread = threading.Thread(target=lambda: asyncio.run(serve(here.desk)))
        thread.start()
        try:
            assert opened.wait(10)
            yield
        finally:
            closing.set()
            thread.join()


def test_every_verb_can_be_typed() -> None:
    """As it is installed: the group knows them without anybody having imported their modules."""
    done = subprocess.run(
        command("policy", "--help"), env=environment(), capture_output=True, text=True, check=True
    )
    shown = set(re.findall(r"^  ([a-z]+) {2,}\S", done.stdout, re.MULTILINE))
    assert {"apply", "approve", "diff", "explain", "history", "keygen", "lint", "replay",
            "rollback", "status", "test"} <= shown  # fmt: skip


def test_lint_exits_by_what_it_finds(folder: Path) -> None:
    assert as_json(folder, "lint") == (0, {"ok": True, "findings": []})
    bad = written(folder, "bad.yaml", 2, bogus=1)
    code, told = as_json(folder, "lint", bad)
    (finding,) = told["findings"]
    assert (code, finding["code"], finding["severity"]) == (1, "unknown-key", "error")
    assert (finding["file"], finding["line"] > 1) == (bad, True)
    assert f"{bad}:{finding['line']}:" in run(folder, "lint", bad).stdout


def test_the_tests_in_a_file_are_run(folder: Path) -> None:
    code, told = as_json(folder, "test")
    assert (code, [one["passed"] for one in told["tests"]]) == (0, [True, True])
    bad = written(folder, "bad.yaml", 2, default_label="public+pii", rules=[])
    assert run(folder, "test", bad).exit_code == 1


def test_an_explanation_holds_no_value(folder: Path) -> None:
    code, told = as_json(folder, "explain", "-", stdin=REQUEST)
    assert (code, told["label_after"]) == (0, "confidential+payment+pii")
    assert {one["destination"]: one["decision"] for one in told["destinations"]} == {
        "box": "allow",
        "frontier": "deny",
    }
    for output in (json.dumps(told), run(folder, "explain", "-", stdin=REQUEST).stdout):
        assert SECRET not in output
        assert "iban" in output
    assert run(folder, "explain", "-", "--key", "nobody", stdin=REQUEST).exit_code == 1
    assert run(folder, "explain", "-", "--declared", "restricted", stdin=REQUEST).exit_code == 1


def test_an_explanation_is_of_what_is_in_force_unless_a_file_is_given(folder: Path) -> None:
    shut = written(folder, "shut.yaml", 9, rules=[], tests=[])
    hello = REQUEST.replace(SECRET, "hello")
    _, told = as_json(folder, "explain", "-", stdin=hello)
    assert told["destinations"][1]["decision"] == "allow"
    _, told = as_json(folder, "explain", "-", "--policy", shut, stdin=hello)
    assert (told["policy"]["revision"], told["destinations"][1]["decision"]) == (9, "deny")


def record(folder: Path) -> None:
    (folder / "a").mkdir()
    fields = {"event": "decision", "seq": 1, "ts": "2026-08-01T12:00:00.000Z", "key": "app",
              "request_id": "req_1", "label": "internal", "declared": None, "detectors": [],
              "verdicts": {"far": ["allow", "ordinary-work-may-go-out"]}}  # fmt: skip
    line = json.dumps(fields, separators=(",", ":"))
    (folder / "a" / "audit-00000001.jsonl").write_text(line + "\n")


def test_replay_and_diff_tell_which_decisions_change(folder: Path) -> None:
    record(folder)
    shut = written(folder, "shut.yaml", 2, rules=[], tests=[])
    since = ("--since", "2026-01-01")
    code, told = as_json(folder, "replay", shut, *since)
    assert (code, told["changed"], told["looser"]) == (0, 1, 0)
    code, told = as_json(folder, "diff", shut, str(folder / POLICY), *since)
    assert (code, told["recorded"]["looser"]) == (0, 1)
    assert [one["after"] for one in told["tests"]] == ["allow"]
    assert told["looser"] and not told["guarded"]
    assert "1 get looser" in run(folder, "diff", shut, str(folder / POLICY), *since).stdout
    assert as_json(folder, "replay", shut, "--since", "1m")[1]["requests"] == 0
    assert run(folder, "replay", shut, "--since", "soon").exit_code == 2


def test_apply_needs_the_appliance_or_says_so(folder: Path) -> None:
    result = run(folder, "apply", written(folder, "new.yaml", 2))
    assert (result.exit_code, "--offline" in str(result.exception)) == (1, True)


def test_the_appliance_applies_and_goes_back(folder: Path) -> None:
    with running(folder):
        code, told = as_json(folder, "apply", written(folder, "new.yaml", 2, leak_budget_bits=8))
        assert (code, told["verdict"], told["revision"]) == (0, "active", 2)
        code, told = as_json(folder, "apply", written(folder, "bad.yaml", 3, bogus=1))
        assert (code, told["verdict"]) == (1, "refused")
        assert "refused" in run(folder, "apply", str(folder / "bad.yaml")).stdout
        code, told = as_json(folder, "rollback")
        assert (code, told["revision"]) == (0, 3)
        code, told = as_json(folder, "status")
        assert (code, told["running"], told["in_force"]["revision"]) == (0, True, 3)
        result = run(folder, "apply", written(folder, "new.yaml", 4), "--offline")
        assert (result.exit_code, "another process" in str(result.exception)) == (1, True)
    assert Store(folder / "s").active() == policy_bytes(3, classify=NAMELESS)
    _, told = as_json(folder, "history")
    assert [(one["revision"], one["how"]) for one in told["data"]] == [
        (3, "rollback"),
        (2, "apply"),
        (1, "first"),
    ]


def test_what_is_no_utf8_is_refused_with_a_position(folder: Path) -> None:
    (folder / "bad.yaml").write_bytes(b"revision: 2\n# caf\xe9\n")
    result = run(folder, "apply", str(folder / "bad.yaml"))
    assert (result.exit_code, "bad.yaml:2:6: bad-encoding" in str(result.exception)) == (1, True)


def test_offline_it_changes_what_the_next_start_takes_and_records_it(folder: Path) -> None:
    code, told = as_json(folder, "apply", written(folder, "new.yaml", 2), "--offline")
    assert (code, told["verdict"]) == (0, "active")
    assert Store(folder / "s").active() == policy_bytes(2, classify=NAMELESS)
    assert verify(folder / "a").ok
    assert b'"way":"offline"' in (folder / "a" / "audit-00000001.jsonl").read_bytes()
    code, told = as_json(folder, "status")
    assert (code, told["running"], told["kept"]["revision"]) == (0, False, 2)


def test_approvers_make_keys_and_sign(folder: Path) -> None:
    entries, keys = [], folder / "keys"
    for name in ("anna", "bert"):
        made = CliRunner().invoke(policy, ["keygen", str(keys), "--name", name])
        assert made.exit_code == 0
        public = made.stdout.partition('public_key: "')[2].partition('"')[0]
        entries.append({"id": name, "public_key": public})
        assert (keys / f"{name}.key").stat().st_mode & 0o777 == 0o600
    guarded = {"approvers": entries, "activation": {"guardrail_approvals": 2}}
    assert run(folder, "apply", written(folder, "a.yaml", 2, **guarded), "--offline").exit_code == 0
    more = [*policy_tree()["guardrails"], {"id": "off-for-now", "mode": "off", "deny": {}}]
    candidate = written(folder, "b.yaml", 3, **guarded, guardrails=more)
    for name in ("anna", "bert"):
        assert run(folder, "apply", candidate, "--offline").exit_code == 1
        assert run(folder, "approve", candidate, "--key", str(keys / f"{name}.key")).exit_code == 0
    code, told = as_json(folder, "apply", candidate, "--offline")
    assert (code, told["approved"]) == (0, ["anna", "bert"])


def test_status_exits_with_one_when_the_store_is_damaged(folder: Path) -> None:
    assert run(folder, "status").exit_code == 0
    assert run(folder, "apply", written(folder, "new.yaml", 2), "--offline").exit_code == 0
    Store(folder / "s").path(2).write_bytes(b"")
    code, told = as_json(folder, "status")
    assert (code, told["store"]) == (1, "damaged")


def test_what_would_come_back_can_be_written_for_approvers(folder: Path) -> None:
    for revision in (2, 3):
        name = written(folder, "new.yaml", revision, leak_budget_bits=revision)
        assert run(folder, "apply", name, "--offline").exit_code == 0
    out = folder / "back.yaml"
    assert run(folder, "rollback", "2", "--out", str(out)).exit_code == 0
    assert out.read_bytes() == policy_bytes(4, classify=NAMELESS, leak_budget_bits=2)
