"""Reload, watchdog, and processes that are killed."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from box import (
    ETC,
    MODEL,
    SERVICES,
    WORKER,
    Answer,
    active,
    answering,
    ask,
    call,
    content,
    ready,
    run,
    show,
    status,
    until,
)

POLICY = ETC / "policy.yaml"
RECOVERY_S = dict.fromkeys(SERVICES, 5.0)


def pid(unit: str, *, strict: bool = True) -> int:
    found = int(show(unit, "MainPID"))
    assert found > 1 or not strict, f"{unit} does not run"  # 0 would name our own processes
    return found


def in_force() -> int:
    return int(call("GET", "/v1/policy", at="admin").body["in_force"]["revision"])


def test_a_bad_policy_fails_the_reload_and_the_old_one_stays() -> None:
    good = POLICY.read_text()
    try:
        POLICY.write_text(good.replace("revision: 1", "revision: 2").replace("allow,", "deny,"))
        assert status("systemctl", "reload", "conductor.service") != 0
    finally:
        POLICY.write_text(good)
    assert active("conductor.service")
    assert in_force() == 1
    assert content(ask("Still there?"))


def test_a_good_policy_is_reloaded() -> None:
    before = pid("conductor.service")
    POLICY.write_text(POLICY.read_text().replace("revision: 1", "revision: 2"))
    run("systemctl", "reload", "conductor.service")
    assert in_force() == 2
    assert pid("conductor.service") == before


@pytest.mark.full
def test_the_policy_in_force_survives_a_restart_with_a_bad_file_beside_it() -> None:
    good = POLICY.read_text()
    try:
        POLICY.write_text("revision: [")
        run("systemctl", "restart", "conductor.service")
        until(ready, 20)
        assert in_force() == 2
    finally:
        POLICY.write_text(good)


@pytest.mark.parametrize("unit", SERVICES)
def test_a_killed_process_is_back_in_time(unit: str) -> None:
    before = pid(unit)
    os.kill(before, signal.SIGKILL)
    began = time.monotonic()

    def back() -> bool:
        return pid(unit, strict=False) not in (0, before) and answering(unit) and ready()

    until(back, RECOVERY_S[unit])
    assert content(ask("Who is there?")), time.monotonic() - began


@pytest.mark.skipif(not MODEL.exists(), reason="the small model was not pulled")
def test_a_killed_model_is_back_in_time() -> None:
    before = pid(WORKER)
    os.kill(before, signal.SIGKILL)
    until(lambda: ask("Say yes.", "smollm2-135m", max_tokens=4).status == 200, 10)
    assert pid(WORKER) != before


def test_a_request_that_comes_while_the_api_is_down_waits_and_is_answered() -> None:
    os.kill(pid("conductor.service"), signal.SIGKILL)
    assert content(ask("Did I wait?"))


def asked_slowly(pool: ThreadPoolExecutor) -> Future[Answer]:
    future = pool.submit(ask, "Take your time.", "slow")
    time.sleep(1.0)
    return future


@pytest.mark.parametrize("unit", [unit for unit in SERVICES if unit != "conductor.service"])
def test_an_accepted_request_outlives_the_death_of_a_helper(unit: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        future = asked_slowly(pool)
        os.kill(pid(unit), signal.SIGKILL)
        assert content(future.result())
    until(lambda: answering(unit), RECOVERY_S[unit])


def test_what_was_asked_for_the_vendor_is_sent_again_after_egress_died() -> None:
    os.kill(pid("conductor-egress.service"), signal.SIGKILL)
    assert content(ask("Anybody out there?", "conductor-quality"))
    until(lambda: answering("conductor-egress.service") and ready(), 20)


@pytest.mark.full
def test_a_stop_lets_a_running_request_end() -> None:
    with ThreadPoolExecutor(1) as pool:
        future = asked_slowly(pool)
        run("systemctl", "restart", "conductor.service")
        assert content(future.result())
    until(ready, 20)


def test_no_daemon_that_is_well_misses_its_watchdog() -> None:
    assert "watchdog_not_fed" not in run("journalctl", "--no-pager")


def test_the_watchdog_ends_a_daemon_that_is_stuck() -> None:
    drop_in = Path("/run/systemd/system/conductor.service.d/watchdog.conf")
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text("[Service]\nWatchdogSec=2\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "conductor.service")
    stuck = pid("conductor.service")
    try:
        os.kill(stuck, signal.SIGSTOP)
        until(lambda: pid("conductor.service", strict=False) not in (0, stuck) and ready(), 15)
        journal = run("journalctl", "--no-pager", "-u", "conductor.service", "-n", "50")
        assert "Watchdog timeout" in journal
    finally:
        drop_in.unlink()
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", "conductor.service")
    until(ready, 20)
