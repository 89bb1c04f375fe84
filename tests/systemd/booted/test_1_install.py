"""The package is installed, configured and started."""

from __future__ import annotations

import grp
import pwd

import pytest
from box import (
    ETC,
    HERE,
    MODEL,
    PACKAGE,
    RUN,
    SERVICES,
    STATE,
    VENDOR_LOG,
    WORKER,
    active,
    configure,
    run,
    show,
    until,
)

EXPOSED_AT_MOST = {
    "conductor.service": 1.0,
    "conductor-planner.service": 1.0,
    "conductor-egress.service": 1.5,
}
"""Of 10, by `systemd-analyze security`."""
ACCOUNTS = ("conductor", "conductor-planner", "conductor-egress", "conductor-worker")


def test_the_package_installs_without_starting_anything() -> None:
    run("dpkg", "-i", "--force-unsafe-io", PACKAGE, limit_s=180)
    assert not any(active(unit) for unit in SERVICES)
    assert run("conductor", "--version").startswith("conductor, version")


def test_each_process_has_an_account_of_its_own_that_nobody_can_log_in_to() -> None:
    shells = {pwd.getpwnam(name).pw_shell for name in ACCOUNTS}
    assert shells == {"/usr/sbin/nologin"}
    assert len({pwd.getpwnam(name).pw_uid for name in ACCOUNTS}) == len(ACCOUNTS)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_file_of_the_installation_can_be_changed_by(account: str) -> None:
    user = pwd.getpwnam(account)
    groups = [str(g.gr_gid) for g in grp.getgrall() if account in g.gr_mem] + [str(user.pw_gid)]
    read = grp.getgrnam("conductor-read").gr_gid
    found = run(
        *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"),
        f"--groups={','.join([*groups, str(read)])}",
        *("find", "/opt", "/usr", "/etc", "/var/lib", "-xdev", "-not", "-type", "l", "-writable"),
        check=False,
    )
    changeable = {
        line for line in found.splitlines() if line.startswith("/") and "denied" not in line
    }
    # StateDirectory= makes the state when the service first starts.
    published = "/var/lib/conductor-published"
    own = {published, f"{published}/policy", f"{published}/permits"}
    own = own if account == "conductor" else set()
    assert changeable - {"/var/lib/conductor"} == own


def test_the_units_are_clean_for_this_systemd() -> None:
    units = sorted(str(path) for path in (HERE / "units").iterdir())
    assert run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units) == ""


@pytest.mark.parametrize(("unit", "at_most"), EXPOSED_AT_MOST.items())
def test_no_running_unit_is_more_exposed_than(unit: str, at_most: float) -> None:
    threshold = f"--threshold={round(at_most * 10)}"
    run("systemd-analyze", "security", "--no-pager", threshold, unit)


def test_configuration_is_checked_before_anything_starts() -> None:
    configure()
    assert "good" in run("conductor", "check", "--config", ETC)


def test_the_target_starts_everything() -> None:
    python = "/opt/conductor/current/bin/python"
    run(
        *("systemd-run", "--unit=players", "-p", "Type=notify", "-p", "Group=conductor"),
        *(python, HERE / "players.py", RUN / "workers" / "own.sock", "18099", VENDOR_LOG),
    )
    if MODEL.exists():
        run("systemctl", "enable", WORKER)
    run("systemctl", "start", "conductor.target")
    for unit in SERVICES:
        until(lambda unit=unit: active(unit), 60)
    assert "mode connected, policy 1" in show("conductor.service", "StatusText")


def test_state_is_for_the_service_alone() -> None:
    assert STATE.stat().st_mode & 0o777 == 0o700
    assert STATE.owner() == "conductor"


def test_sockets_are_for_their_groups() -> None:
    facts = {
        path.name: (path.owner(), path.group(), path.stat().st_mode & 0o777)
        for path in RUN.glob("*.sock")
    }
    assert facts == {
        "api.sock": ("conductor", "conductor-clients", 0o660),
        "admin.sock": ("conductor", "conductor-admin", 0o660),
        "metrics.sock": ("conductor", "conductor-admin", 0o660),
        "planner.sock": ("conductor-planner", "conductor", 0o660),
        "egress.sock": ("conductor-egress", "conductor", 0o660),
    }
