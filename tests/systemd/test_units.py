"""The units as shipped: understood in every line, and no more exposed than was set.

`systemd-analyze` reads them in a folder of their own, with stubs for the programs that they start.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = sorted(path.name for path in (SYSTEMD / "units").iterdir())
ANALYZE = shutil.which("systemd-analyze")

pytestmark = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")

TARGETS = "basic multi-user network-online network shutdown sockets sysinit paths timers slices"
PROGRAMS = (
    *("opt/conductor/current/bin/conductor", "usr/bin/nvidia-modprobe", "usr/sbin/nft"),
    *("bin/sh", "usr/bin/install", "usr/bin/ln"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder with the units, and just enough around them."""
    units = tmp_path / "usr/lib/systemd/system"
    shutil.copytree(SYSTEMD / "units", units)
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    for target in TARGETS.split():
        (units / f"{target}.target").write_text("[Unit]\nDescription=stub\n")
    for program in PROGRAMS:
        path = tmp_path / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return tmp_path


def drop_in(root: Path, unit: str, file: Path) -> None:
    """Put a drop-in where an administrator would."""
    folder = root / "etc/systemd/system" / f"{unit}.d"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, folder)


def analyze(root: Path, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(ANALYZE), verb, f"--root={root}", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def exposure(root: Path, unit: str) -> float:
    """What `systemd-analyze security` thinks of a unit: 0 is best, 10 worst."""
    said = analyze(root, "security", "--offline=true", "--no-pager", unit).stdout
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found, said
    return float(found[1])


def verified(root: Path, *units: str) -> str:
    """What `systemd-analyze verify` complains of. It ends with 0 at misspelt keys, but prints."""
    named = [unit.replace("@.", "@one.") for unit in units]
    done = analyze(root, "verify", "--man=no", "--recursive-errors=no", *named)
    return done.stdout + done.stderr + ("" if done.returncode == 0 else f"exit {done.returncode}")


def test_every_unit_is_understood_in_every_line(root: Path) -> None:
    assert verified(root, *UNITS) == ""


def test_a_misspelt_directive_would_be_noticed(root: Path) -> None:
    unit = root / "usr/lib/systemd/system/conductor.service"
    unit.write_text(unit.read_text().replace("PrivateNetwork=yes", "PrivateNetworks=yes"))
    assert "PrivateNetworks" in verified(root, "conductor.service")


@pytest.mark.parametrize(
    ("unit", "at_most"),
    [
        ("conductor.service", 1.0),
        ("conductor-planner.service", 1.0),
        ("conductor-worker@.service", 1.0),
        ("conductor-egress.service", 1.5),
    ],
)
def test_no_unit_is_more_exposed_than(root: Path, unit: str, at_most: float) -> None:
    assert exposure(root, unit) <= at_most


@pytest.mark.parametrize("unit", ["conductor-planner.service", "conductor-worker@.service"])
def test_with_a_gpu_a_unit_stays_below_two(root: Path, unit: str) -> None:
    without = exposure(root, unit)
    drop_in(root, unit, SYSTEMD / "examples/planner-gpu.conf")
    assert without < exposure(root, unit) <= 2.0
    assert verified(root, unit) == ""


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.endswith(".socket")])
def test_a_listener_cannot_be_turned_round_to_dial_out(unit: str) -> None:
    text = (SYSTEMD / "units" / unit).read_text()
    assert "IPAddressDeny=any" in text
    assert re.search(r"^ListenStream=/run/conductor/\S+\.sock$", text, re.MULTILINE)


def test_only_egress_has_a_network() -> None:
    with_one = [
        unit
        for unit in UNITS
        if unit.endswith(".service")
        and "PrivateNetwork=yes" not in (SYSTEMD / "units" / unit).read_text()
    ]
    assert with_one == ["conductor-egress.service"]


def test_each_air_gapped_drop_in_is_understood(root: Path) -> None:
    files = sorted((SYSTEMD / "air-gapped").rglob("*.conf"))
    assert files
    own = [*(SYSTEMD / "air-gapped").glob("*.service"), *(SYSTEMD / "air-gapped").glob("*.timer")]
    for file in own:
        shutil.copy(file, root / "etc/systemd/system")
    for file in files:
        drop_in(root, file.parent.name.removesuffix(".d"), file)
    units = {file.parent.name.removesuffix(".d") for file in files} | {file.name for file in own}
    assert verified(root, *sorted(units)) == ""


def test_what_the_api_calls_stops_after_it_and_does_not_hold_up_its_start() -> None:
    text = (SYSTEMD / "units/conductor.service").read_text()
    [after] = re.findall(r"^After=(.*)$", text, re.MULTILINE)
    for unit in ("conductor-planner.service", "conductor-egress.service"):
        assert unit in after.split()
        assert "\nType=exec\n" in (SYSTEMD / "units" / unit).read_text()


def test_air_gapped_the_api_is_all_but_closed(root: Path) -> None:
    for file in sorted((SYSTEMD / "air-gapped/conductor.service.d").glob("*.conf")):
        drop_in(root, "conductor.service", file)
    assert exposure(root, "conductor.service") <= 0.6


WORKERS = sorted(path.name for path in (SYSTEMD / "workers").glob("*.service"))


@pytest.mark.parametrize("unit", WORKERS)
def test_each_example_of_a_model_server_is_understood(unit: str, root: Path) -> None:
    for file in (SYSTEMD / "workers").iterdir():
        shutil.copy(file, root / "usr/lib/systemd/system")
    for program in re.findall(r"^Exec\w+=\W*(/\S+)", _text(unit), re.MULTILINE):
        path = root / program.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    if not unit.startswith("conductor-"):
        drop_in(root, unit, SYSTEMD / "workers/gpu-worker.conf")
    assert verified(root, unit) == ""


@pytest.mark.parametrize("unit", WORKERS)
def test_each_example_of_a_model_server_is_without_a_network(unit: str) -> None:
    text = _text(unit)
    assert "PrivateNetwork=yes" in text
    assert "IPAddressDeny=any" in text


def _text(unit: str) -> str:
    return (SYSTEMD / "workers" / unit).read_text()
