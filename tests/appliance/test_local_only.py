"""Mode local-only: no egress process, no remote worker, no library that could reach a vendor, and
no connection to anywhere but this machine, by any process of `conductor up`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from conductor.config import load
from conductor.errors import ConfigError
from conductor.settings import Paths
from conductor.simulated.vendor import SimulatedVendor
from support.appliance import IBAN, short_directory
from support.clients import http_client
from support.configs import KEY, local_worker, remote_worker, write_site

ROOT = Path(__file__).parents[2]
LOCAL_ONLY = {"mode": "local-only"}

WITNESS = """
# Loaded by Python at the start of every process: notes whom it connects to or looks up.
import asyncio, json, os, sys, types

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.open(os.path.join(HERE, "seen"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SENDING = ("socket.connect", "socket.sendto", "socket.sendmsg")
LOOKING_UP = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")

def note(event, whom):
    line = json.dumps([event, " ".join(sys.orig_argv[1:]), whom]) + "\\n"
    os.write(OUT, line.encode())

def witness(event, arguments):
    if event in SENDING + LOOKING_UP:
        whom = arguments[event in SENDING]
        whom = whom[0] if isinstance(whom, tuple) else whom
        note(event, os.fsdecode(whom) if isinstance(whom, (str, bytes)) else repr(whom))
    if event == "subprocess.Popen" and arguments[3]:  # a process that inherits no environment
        path = arguments[3].get("PYTHONPATH", "")
        if HERE not in path:
            arguments[3]["PYTHONPATH"] = HERE + ":" + path

note("start", "")
sys.addaudithook(witness)
# Connections made by uvloop raise no audit events, those of asyncio's own loop do.
sys.modules["uvloop"] = types.SimpleNamespace(run=asyncio.run)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Up:
    """A running `conductor up`."""

    directory: Path
    url: str

    @property
    def paths(self) -> Paths:
        return load(self.directory).appliance.paths


@asynccontextmanager
async def conductor_up() -> AsyncIterator[Up]:
    """`conductor up` in mode local-only, every process of it watched from its first moment."""
    with short_directory() as directory:
        async with SimulatedVendor() as local:
            port = free_port()
            api = {"port": port, "admin_port": free_port()}
            workers = [local_worker("local-a", port=await local.start_tcp(), model="ok")]
            write_site(directory, workers=workers, appliance={**LOCAL_ONLY, "api": api})
            (directory / "sitecustomize.py").write_text(WITNESS)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "conductor", "up", "--config", str(directory)),
                *("--log-file", str(directory / "log")),
                env={**os.environ, "PYTHONPATH": f"{directory}:{ROOT / 'appliance'}"},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                up = Up(directory, f"http://127.0.0.1:{port}")
                await _ready(up)
                yield up
            finally:
                process.send_signal(signal.SIGTERM)
                await process.wait()


async def _ready(up: Up) -> None:
    async with http_client() as http:
        for _ in range(900):
            try:
                if (await http.get(f"{up.url}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError("not ready: " + (up.directory / "log").read_text())


async def test_a_whole_run_connects_to_this_machine_alone() -> None:
    async with conductor_up() as up:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with http_client(up.url, headers=headers) as http:
            for text in ("Hello", IBAN, "word " * 20_000):
                for model in ("conductor", "conductor-quality"):
                    for stream in (False, True):
                        messages = [{"role": "user", "content": text}]
                        body = {"model": model, "messages": messages, "stream": stream}
                        answer = await http.post("/v1/chat/completions", json=body)
                        assert answer.headers["x-conductor-model"] == "local-a"
            await http.post("/v1/plan", json={"model": "conductor", "messages": messages})
            await http.get("/v1/models")
        assert not up.paths.egress_socket.exists()
        assert up.paths.planner_socket.exists()
        seen = witnessed(up.directory)
    started = "\n".join(command for event, command, _ in seen if event == "start")
    for process in ("conductor up", "conductor serve", "conductor planner", "detect.worker"):
        assert process in started
    assert "conductor egress" not in started
    assert any("serve" in command and whom == "127.0.0.1" for _, command, whom in seen)
    assert [one for one in seen if one[0] != "start" and not on_this_machine(one[2])] == []


def witnessed(directory: Path) -> list[tuple[str, str, str]]:
    """Event, command line of the process, and whom it was about."""
    return [tuple(json.loads(line)) for line in (directory / "seen").read_text().splitlines()]


def on_this_machine(whom: str) -> bool:
    """A socket's path, a loopback address, or this machine's name."""
    return whom.startswith("/") or whom in ("127.0.0.1", "::1", "localhost")


async def test_the_witness_sees_a_connection_to_elsewhere(tmp_path: Path) -> None:
    """That the test above can fail: nothing is sent, the address is one for documentation."""
    (tmp_path / "sitecustomize.py").write_text(WITNESS)
    script = (
        "import asyncio, uvloop\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(1):\n"
        "            await asyncio.open_connection('192.0.2.1', 9)\n"
        "    except (OSError, TimeoutError):\n"
        "        pass\n"
        "uvloop.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert await process.wait() == 0
    whom = [whom for event, _, whom in witnessed(tmp_path) if event != "start"]
    assert whom == ["192.0.2.1"] * len(whom) != []


def test_a_remote_worker_is_refused_with_its_place(tmp_path: Path) -> None:
    workers = [local_worker("local-a", port=9), remote_worker("remote-a")]
    write_site(tmp_path, workers=workers, appliance=LOCAL_ONLY)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path)
    assert [fault.code for fault in refused.value.faults] == ["local-only"]
    assert refused.value.faults[0].file.endswith("workers.yaml")
    assert refused.value.faults[0].line > 1


async def conductor(*arguments: str, directory: Path) -> tuple[int, str]:
    """Exit code and standard error of one command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "conductor", *arguments, "--config", str(directory)),
        env={**os.environ, "PYTHONPATH": str(ROOT / "appliance")},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    _, told = await process.communicate()
    return process.returncode or 0, told.decode()


async def test_serve_does_not_start_with_a_remote_worker(tmp_path: Path) -> None:
    workers = [local_worker("local-a", port=9), remote_worker("remote-a")]
    write_site(tmp_path, workers=workers, appliance=LOCAL_ONLY)
    code, told = await conductor("serve", directory=tmp_path)
    assert code == 1
    assert "workers.yaml:" in told and "local-only" in told


async def test_egress_does_not_start(tmp_path: Path) -> None:
    write_site(tmp_path, workers=[local_worker("local-a", port=9)], appliance=LOCAL_ONLY)
    code, told = await conductor("egress", directory=tmp_path)
    assert code == 78
    assert "local-only" in told


PROBE = """
import importlib, json, sys
import conductor.api.server as server
from conductor.cli.main import main

async def probe(site, degraded="", listeners=None):
    tried = {}
    for name in NAMES:
        try:
            importlib.import_module(name)
            tried[name] = "imported"
        except ImportError as error:
            tried[name] = "barred" if "may not be imported" in str(error) else "absent"
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & set(NAMES))
    print(json.dumps([tried, loaded]))

NAMES = ["litellm", "torch", "xllamacpp", "onnxruntime", "tokenizers", "numpy"]
NAMES += ["litellm.main", "json"]
server.serve = probe
sys.argv = ["conductor", "serve", "--config", sys.argv[1]]
main()
"""


@pytest.mark.parametrize("mode", ["local-only", "connected"])
async def test_serve_cannot_import_what_reaches_vendors_or_runs_models(
    tmp_path: Path, mode: str
) -> None:
    write_site(tmp_path, appliance={"mode": mode})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROBE, str(tmp_path)),
        env={**os.environ, "PYTHONPATH": str(ROOT / "appliance")},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    tried, loaded = json.loads(out.splitlines()[-1])
    assert tried == {
        "litellm": "barred",
        "torch": "barred",
        "xllamacpp": "barred",
        "onnxruntime": "barred",
        "tokenizers": "barred",
        "numpy": "barred",
        "litellm.main": "barred",
        "json": "imported",
    }
    assert loaded == ["json"]
