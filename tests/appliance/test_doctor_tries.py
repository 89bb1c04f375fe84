"""What `conductor doctor` tries: sockets as an account, ports, CUDA; and the times of a stop."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from conductor.box import cuda
from conductor.box.command import Ran
from conductor.box.facts import Drain, Listener
from conductor.box.place import Place
from conductor.box.reach import reach
from conductor.box.stopping import drains
from conductor.cli.doctorasks import ports
from support.appliance import short_directory

NOBODY = "nobody"
TCP = """  sl  local_address rem_address   st tx_queue rx_queue
   0: 00000000:20FB 00000000:0000 0A 00000000:00000000
   1: 0100007F:1F90 0100007F:A000 01 00000000:00000000
"""


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (Ran(0, "0 1\n"), ""),
        (Ran(0, "0 0\n"), "no device"),
        (Ran(0, "100 0\n"), "error 100"),
        (Ran(1, "OSError: libcuda.so.1"), "cannot be loaded"),
        (Ran(-11, ""), "cannot be loaded"),
        (Ran(124, ""), "does not answer"),
    ],
)
def test_what_cuda_answers_is_told_apart(ended: Ran, fault: str) -> None:
    said = cuda.fault(lambda arguments: ended)
    assert fault in said and bool(said) == bool(fault)


def test_a_socket_is_tried_as_the_account_that_has_to_use_it() -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another account takes root")
    if subprocess.run(["id", NOBODY], capture_output=True, check=False).returncode:
        pytest.skip("there is no account to become")
    with short_directory() as folder, socket.socket(socket.AF_UNIX) as listener:
        folder.chmod(0o755)
        path = folder / "s.sock"
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o666)
        assert reach(path, NOBODY) == "open"
        path.chmod(0o600)
        assert reach(path, NOBODY) == "closed"
        assert reach(path, "an-account-that-nobody-has") == "open"  # as root
        listener.close()
        path.chmod(0o666)
        assert reach(path, NOBODY) == "silent"


def test_a_port_that_is_closed_or_somebody_elses_does_not_answer(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(TCP)
    dropin = tmp_path / "listen.conf"
    dropin.write_text("[Socket]\nListenStream=\nListenStream=0.0.0.0:8443\nMark=0xc04d\n")
    active, inactive = (lambda arguments: Ran(0)), (lambda arguments: Ran(3))
    assert ports(place, dropin, active) == (Listener("TCP port 8443", True),)
    assert ports(place, dropin, inactive) == (Listener("TCP port 8443", True, False),)
    dropin.write_text("[Socket]\nListenStream=0.0.0.0:8080\n")
    assert ports(place, dropin, active) == (Listener("TCP port 8080", False),)
    assert ports(place, tmp_path / "none", active) == ()


def test_the_last_limit_that_is_set_is_when_systemd_kills(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.shipped_units.mkdir(parents=True)
    (place.shipped_units / "conductor.service").write_text("[Service]\nTimeoutStopSec=60\n")
    assert drains(place, 30.0) == (Drain("conductor.service", 30.0, 60.0),)
    folder = place.overrides / "conductor.service.d"
    folder.mkdir(parents=True)
    (folder / "a.conf").write_text("[Service]\nTimeoutStopSec=1min 5s\n")
    assert drains(place, 30.0)[0].stop_s == 65.0
