"""`conductor mode`: what the switch puts in place, and what follows for a site."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor.box.airgap import Marker, declared, read_marker
from conductor.box.command import Ran, nothing_runs
from conductor.box.modeswitch import lacking, pieces, switch
from conductor.box.place import Place
from conductor.cli.mode import mode, who_asks
from conductor.config import load
from conductor.errors import StartError
from support.configs import local_worker, remote_worker, write_site
from support.installed import install, tree

AT = "2026-08-01T12:00:00Z"


def close(place: Place, uid: int = 1000) -> list[str]:
    return switch(place, "air-gapped", nothing_runs, AT, uid)


def open_again(place: Place) -> list[str]:
    return switch(place, "connected", nothing_runs, AT, 1000)


def test_the_gap_masks_egress_and_closes_the_services(tmp_path: Path) -> None:
    place = install(tmp_path)
    close(place)
    for unit in ("conductor-egress.service", "conductor-egress.socket"):
        assert str((place.overrides / unit).readlink()) == "/dev/null"
    dropin = (place.overrides / "conductor.service.d" / "50-air-gapped.conf").read_text()
    assert "Environment=CONDUCTOR_MODE=air-gapped" in dropin
    assert (place.config / "conductor-airgap.nft").stat().st_mode & 0o777 == 0o640
    assert read_marker(place.config) == Marker(
        "air-gapped", 1, AT, 1000, tuple(piece.target for piece in pieces(place))
    )
    assert lacking(place) == []


def test_closing_twice_changes_nothing(tmp_path: Path) -> None:
    place = install(tmp_path)
    close(place)
    before = tree(tmp_path)
    close(place, uid=7)
    assert tree(tmp_path) == before


def test_opening_takes_away_all_that_closing_put_there(tmp_path: Path) -> None:
    place = install(tmp_path)
    before = tree(tmp_path)
    close(place)
    open_again(place)
    after = tree(tmp_path)
    assert after.pop("etc/conductor/.mode.lock") == ""
    marker = json.loads(after.pop("etc/conductor/mode.json"))
    assert after == before
    assert (marker["mode"], marker["number"]) == ("connected", 2)


@pytest.mark.parametrize("survives", range(6))
def test_killed_half_way_the_machine_counts_as_air_gapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    """However many files were written: the marker is the first of them, and goes last."""
    place = install(tmp_path)
    from conductor.box import modeswitch

    written: list[Path] = []
    real = modeswitch.put

    def put(path: Path, *more: object) -> None:
        if len(written) > survives:
            raise OSError(5, "killed")
        written.append(path)
        real(path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(modeswitch, "put", put)
    try:
        close(place)
    except OSError:
        assert declared(place.config, {}).air_gapped
        monkeypatch.setattr(modeswitch, "put", real)
        close(place)
    assert lacking(place) == []


def test_a_unit_of_the_administrators_own_is_not_masked_over(tmp_path: Path) -> None:
    place = install(tmp_path)
    (place.overrides / "conductor-egress.service").write_text("[Service]\n")
    with pytest.raises(StartError, match="unit of your own"):
        close(place)
    assert not declared(place.config, {}).air_gapped


def test_only_files_of_the_switch_are_removed_whatever_the_marker_names(tmp_path: Path) -> None:
    place = install(tmp_path)
    close(place)
    precious = place.at("/etc/precious")
    precious.write_text("here")
    facts = json.loads((place.config / "mode.json").read_text())
    facts["files"] += ["/etc/precious", "/etc/systemd/system/../../precious"]
    (place.config / "mode.json").write_text(json.dumps(facts))
    open_again(place)
    assert precious.read_text() == "here"


@pytest.mark.parametrize(
    ("text", "environ", "closed"),
    [
        (None, {}, False),
        (None, {"CONDUCTOR_MODE": "air-gapped"}, True),
        (None, {"CONDUCTOR_MODE": "connected"}, False),
        (None, {"CONDUCTOR_MODE": "conected"}, True),
        ('{"mode":"connected","number":2,"at":"","uid":0,"files":[]}', {}, False),
        (
            '{"mode":"connected","number":2,"at":"","uid":0,"files":[]}',
            {"CONDUCTOR_MODE": "air-gapped"},
            True,
        ),
        ('{"mode":"air-gapped","number":1,"at":"","uid":0,"files":[]}', {}, True),
        ('{"mode":"air-gapped","number":1,', {}, True),
        ('{"mode":"open"}', {}, True),
        ("[]", {}, True),
        ("", {}, True),
    ],
)
def test_either_sign_closes_and_nothing_damaged_opens(
    tmp_path: Path, text: str | None, environ: dict[str, str], closed: bool
) -> None:
    if text is not None:
        (tmp_path / "mode.json").write_text(text)
    assert declared(tmp_path, environ).air_gapped is closed


def test_a_connected_site_is_local_only_in_the_gap_and_says_who_was_set_aside(
    tmp_path: Path,
) -> None:
    workers = [local_worker("local-a", port=9), remote_worker("remote-a")]
    write_site(tmp_path, workers=workers)
    assert load(tmp_path).appliance.mode == "connected"
    (tmp_path / "mode.json").write_bytes(Marker("air-gapped", 1, AT, 0).as_json())
    site = load(tmp_path)
    assert site.appliance.mode == "local-only"
    assert [worker.id for worker in site.workers] == ["local-a"]
    assert site.set_aside == ("remote-a",)
    again = site.with_policy(site.files["policy.yaml"])
    assert [worker.id for worker in again.workers] == ["local-a"]


def test_the_services_are_told_in_order_and_failures_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = install(tmp_path)
    monkeypatch.setattr(Place, "running", True)
    told: list[str] = []

    def run(arguments: list[str]) -> Ran:
        told.append(" ".join(arguments[1:]))
        return Ran(int("try-restart" in arguments))

    said = switch(place, "air-gapped", run, AT, 0)
    verbs = [line.split()[0] for line in told]
    assert verbs == ["stop", "daemon-reload", "stop", "reload-or-restart", "try-restart"]
    assert told[-1].endswith("conductor.service")
    assert said and "try" not in said[0]


def test_egress_is_stopped_again_once_nothing_can_start_it_and_a_failure_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = install(tmp_path)
    monkeypatch.setattr(Place, "running", True)
    masked: list[bool] = []

    def run(arguments: list[str]) -> Ran:
        if arguments[1] == "stop":
            masked.append((place.overrides / "conductor-egress.service").is_symlink())
            return Ran(1)
        return Ran(0)

    said = switch(place, "air-gapped", run, AT, 0)
    assert masked == [False, True]
    assert len(said) == 1 and "egress may still run" in said[0]


def test_what_could_not_be_told_is_the_commands_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.setattr(Place, "running", True)
    monkeypatch.setattr("conductor.cli.mode.os.geteuid", lambda: 0)
    root = ["--root", str(tmp_path)]
    for ran, code in ((Ran(0), 0), (Ran(1), 1)):
        monkeypatch.setattr("conductor.cli.mode.run", lambda arguments, ran=ran: ran)
        assert CliRunner().invoke(mode, ["air-gapped", *root]).exit_code == code


def test_the_firewall_goes_without_taking_the_api_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = install(tmp_path)
    close(place)
    monkeypatch.setattr(Place, "running", True)
    told: list[list[str]] = []

    def run(arguments: list[str]) -> Ran:
        told.append(arguments[1:])
        return Ran(0)

    switch(place, "connected", run, AT, 0)
    [stopped] = [words for words in told if words[0] == "stop"]
    assert stopped[:2] == ["stop", "--job-mode=ignore-dependencies"]
    assert stopped[2:] == ["conductor-airgap.service", "conductor-airgap-seen.timer"]


def test_who_may_only_read_the_configuration_cannot_hold_the_switch_up(tmp_path: Path) -> None:
    place = install(tmp_path)
    folder = os.open(place.config, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        close(place)
    finally:
        os.close(folder)
    assert (place.config / ".mode.lock").stat().st_mode & 0o777 == 0o600
    assert declared(place.config, {}).air_gapped


def test_two_switches_at_once_do_not_mix(tmp_path: Path) -> None:
    place = install(tmp_path)
    close(place)
    other = os.open(place.config / ".mode.lock", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StartError, match="somebody else"):
            open_again(place)
    finally:
        os.close(other)


def test_opening_is_a_switch_of_its_own_whatever_a_marker_from_elsewhere_says(
    tmp_path: Path,
) -> None:
    """A backup that was put back brings the marker of its day along."""
    place = install(tmp_path)
    close(place)
    (place.config / "mode.json").write_bytes(Marker("connected", 4, AT, 0).as_json())
    open_again(place)
    assert read_marker(place.config).number == 5
    open_again(place)
    assert read_marker(place.config).number == 5


def test_the_command_switches_shows_and_switches_back(tmp_path: Path) -> None:
    install(tmp_path)
    runner = CliRunner()
    root = ["--root", str(tmp_path)]
    assert "as configured" in runner.invoke(mode, root).output
    assert "mode: air-gapped, since" in runner.invoke(mode, ["air-gapped", *root]).output
    shown = runner.invoke(mode, [*root, "--json"])
    assert json.loads(shown.output)["lacking"] == []
    assert "mode: connected" in runner.invoke(mode, ["connected", *root]).output


def test_remote_models_that_the_gap_hides_are_named(tmp_path: Path) -> None:
    place = install(tmp_path)
    write_site(place.config, workers=[local_worker("near", port=9), remote_worker("far")])
    close(place)
    output = CliRunner().invoke(mode, ["--root", str(tmp_path)]).output
    assert "remote models that it hides: far" in output


def test_what_lacks_in_the_gap_is_named(tmp_path: Path) -> None:
    place = install(tmp_path)
    close(place)
    (place.overrides / "conductor.service.d" / "50-air-gapped.conf").write_text("[Service]\n")
    (place.overrides / "conductor-egress.service").unlink()
    output = CliRunner().invoke(mode, ["--root", str(tmp_path)]).output
    assert "conductor.service.d/50-air-gapped.conf" in output
    assert "/etc/systemd/system/conductor-egress.service" in output


def test_who_asks_is_the_person_that_logged_in(tmp_path: Path) -> None:
    (tmp_path / "loginuid").write_text("1000")
    assert who_asks({"SUDO_UID": "7"}, tmp_path) == 1000
    (tmp_path / "loginuid").write_text(str(2**32 - 1))
    assert who_asks({"SUDO_UID": "7"}, tmp_path) == 7
