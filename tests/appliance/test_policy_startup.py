"""Which policy an appliance starts under."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor.activation.startup import Start, starting
from conductor.activation.store import Store
from conductor.config import POLICY
from conductor.errors import ConfigError
from conductor.labels import Label
from support.appliedpolicies import TESTS, policy_bytes, site_folder

AT = "2026-08-01T12:00:00Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return site_folder(tmp_path)


def keep(folder: Path, *revisions: int) -> Store:
    store = Store(folder / "s")
    with store.writing() as writer:
        for revision in revisions:
            writer.put(policy_bytes(revision), revision, AT, "apply")
    return store


def reached(start: Start) -> list[str]:
    """Who would be given data of the lowest label."""
    workers, lowest = start.site.workers, Label(0)
    return [worker.id for worker in workers if lowest.flows_to(worker.clearance)]


def test_the_first_start_takes_the_file(folder: Path) -> None:
    start = starting(folder)
    assert (start.first, start.degraded, start.site.policy.revision) == (True, "", 1)


def test_later_starts_take_what_was_put_in_force(folder: Path) -> None:
    keep(folder, 5)
    start = starting(folder)
    assert (start.first, start.site.policy.revision, start.candidate_differs) == (False, 5, True)
    (folder / POLICY).write_bytes(policy_bytes(5))
    assert not starting(folder).candidate_differs


@pytest.mark.parametrize("candidate", [b"revision: [", b"\xff", b"", None])
def test_a_broken_candidate_stops_no_start(folder: Path, candidate: bytes | None) -> None:
    keep(folder, 5)
    (folder / POLICY).unlink()
    if candidate is not None:
        (folder / POLICY).write_bytes(candidate)
    start = starting(folder)
    assert (start.site.policy.revision, start.candidate_differs) == (5, True)


def test_a_broken_file_on_the_first_start_is_told_with_positions(folder: Path) -> None:
    (folder / POLICY).write_bytes(b"revision: [")
    with pytest.raises(ConfigError, match=r"policy\.yaml:2:1"):
        starting(folder)


def test_a_first_policy_must_pass_its_own_tests(folder: Path) -> None:
    failing = policy_bytes(1, rules=[], tests=[TESTS[0], {**TESTS[1], "expect": {
        "decision": "allow"}}])  # fmt: skip
    (folder / POLICY).write_bytes(failing)
    with pytest.raises(ConfigError, match="test-failed: expected allow; got deny"):
        starting(folder)


def test_with_a_damaged_copy_nothing_remote_is_reached(folder: Path) -> None:
    store = keep(folder, 5, 6)
    store.path(6).write_bytes(b"{}")
    start = starting(folder)
    assert reached(start) == ["near"]
    assert "above 6" in start.degraded


def test_with_the_newest_copy_gone_nothing_remote_is_reached(folder: Path) -> None:
    keep(folder, 5, 6).path(6).unlink()
    start = starting(folder)
    assert reached(start) == ["near"]
    assert start.degraded
