"""The package goes: state stays, unless it is purged."""

from __future__ import annotations

from pathlib import Path

from box import ETC, SERVICES, STATE, active, run


def test_removing_the_package_ends_everything_and_keeps_configuration_and_state() -> None:
    run("dpkg", "-r", "--force-unsafe-io", "conductor-appliance", limit_s=120)
    assert not any(active(unit) for unit in SERVICES)
    assert (ETC / "policy.yaml").exists()
    assert (STATE / "audit").is_dir()
    assert not Path("/opt/conductor/current").exists()
    assert not Path("/usr/lib/systemd/system/conductor.service").exists()


def test_purging_it_leaves_nothing() -> None:
    run("dpkg", "-P", "conductor-appliance", limit_s=120)
    left = [
        path
        for path in (
            *(ETC, STATE, Path("/opt/conductor"), Path("/run/conductor")),
            *Path("/var/lib").glob("conductor*"),
            *Path("/etc/systemd/system").glob("*conductor*"),
        )
        if path.exists()
    ]
    assert left == []
