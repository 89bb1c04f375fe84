"""What a service manager is told and hands over, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from conductor.process.manager import inherited, managed, notify

INHERITS = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
from conductor.process.manager import inherited
for name, listeners in inherited().items():
    for one in listeners:
        one.setblocking(True)
        peer, _ = one.accept()
        peer.sendall(name.encode())
        peer.close()
print(sorted(k for k in os.environ if k.startswith("LISTEN_")))
"""


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A manager that listens for notifications."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield receiver


def told(manager) -> dict[str, str]:
    lines = manager.recv(4096).decode().split("\n")
    return dict(line.split("=", 1) for line in lines)


def test_without_a_manager_nobody_is_told(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify(READY=1)


def test_the_manager_is_told_in_one_datagram(manager):
    assert notify(READY=1, STATUS="policy 3")
    assert told(manager) == {"READY": "1", "STATUS": "policy 3"}


def test_a_line_break_in_a_status_cannot_add_a_field(manager):
    notify(STATUS="a\nMAINPID=1")
    assert told(manager) == {"STATUS": "a MAINPID=1"}


def test_an_abstract_address_is_reached(monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0conductor-test-{os.getpid()}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@conductor-test-{os.getpid()}")
        assert notify(READY=1)
        assert receiver.recv(100) == b"READY=1"


def test_a_manager_that_is_gone_stops_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    assert not notify(READY=1)


async def test_readiness_signs_of_life_and_the_end_are_told_in_order(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)

    async def healthy():
        return True

    async with managed(healthy, "policy 3"):
        first = await asyncio.to_thread(told, manager)
        second = await asyncio.to_thread(told, manager)
        third = await asyncio.to_thread(told, manager)
    assert first == {"READY": "1", "STATUS": "policy 3"}
    assert second == third == {"WATCHDOG": "1"}
    rest = []
    while "STOPPING" not in (rest[-1] if rest else {}):
        rest.append(await asyncio.to_thread(told, manager))
    assert all(one == {"WATCHDOG": "1"} for one in rest[:-1])


async def test_once_ready_the_watchdog_is_on_a_shorter_leash(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "90000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv("CONDUCTOR_WATCHDOG_S", "30")

    async def healthy():
        return True

    async with managed(healthy):
        said = [await asyncio.to_thread(told, manager) for _ in range(2)]
    assert said[1] == {"WATCHDOG": "1", "WATCHDOG_USEC": "30000000"}


async def test_a_service_that_does_not_answer_gives_no_sign_of_life(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    asked = asyncio.Event()

    async def sick():
        asked.set()
        return False

    async with managed(sick):
        await asked.wait()
        await asyncio.sleep(0.02)
    assert [await asyncio.to_thread(told, manager) for _ in range(2)] == [
        {"READY": "1", "STATUS": "ready"},
        {"STOPPING": "1", "STATUS": "stopping"},
    ]


async def test_the_watchdog_of_another_process_is_not_fed(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    monkeypatch.setenv("WATCHDOG_PID", "1")

    async def never():
        raise AssertionError("nobody is to be asked")

    async with managed(never):
        await asyncio.sleep(0.02)


def test_listeners_are_taken_over_by_name_once():
    with (
        socket.create_server(("127.0.0.1", 0)) as api,
        socket.create_server(("127.0.0.1", 0)) as admin,
    ):
        started = subprocess.Popen(
            [sys.executable, "-c", INHERITS],
            env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "api:admin"},
            preexec_fn=lambda: (os.dup2(api.fileno(), 63), os.dup2(admin.fileno(), 4),
                                os.dup2(63, 3)),
            pass_fds=(3, 4),
            stdout=subprocess.PIPE,
        )  # fmt: skip
        said = []
        for listener in (api, admin):
            with socket.create_connection(listener.getsockname()) as peer:
                peer.settimeout(20)
                said.append(peer.recv(100))
        left, _ = started.communicate(timeout=20)
    assert (said, left.strip()) == ([b"api", b"admin"], b"[]")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x"},
    ],
)
def test_what_was_not_handed_to_this_process_is_not_taken(monkeypatch, variables):
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert inherited() == {}
