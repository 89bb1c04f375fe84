"""What the checks do to the booted machine: run commands, look at units, ask the appliance."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
RUN = Path("/run/conductor")
ETC = Path("/etc/conductor")
STATE = Path("/var/lib/conductor")
KEY = "ck-of-the-booted-tests"
PACKAGE = HERE / "package.deb"
VENDOR_LOG = Path("/run/vendor.log")
MODEL = HERE / "model.gguf"
"""The small model's file; absent where the machine has not pulled it."""
WORKER = "conductor-worker@smollm2-135m.service"
CROWDING_S = 0.2
MOST_CROWDED = 10.0
SERVICES = ("conductor.service", "conductor-planner.service", "conductor-egress.service")


class Answer(NamedTuple):
    """Of an HTTP request. `body` is {} when there is no JSON."""

    status: int
    body: Any
    text: str


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("conductor", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def run(*argv: str | Path, check: bool = True, limit_s: float = 90) -> str:
    """What a command printed, both streams together. With `check` it must have ended with 0."""
    done = subprocess.run(
        [str(word) for word in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{done.stdout}"
    return done.stdout


def status(*argv: str | Path, limit_s: float = 90) -> int:
    """A command's exit status."""
    return subprocess.run(
        [str(word) for word in argv], capture_output=True, timeout=limit_s
    ).returncode


def show(unit: str, name: str) -> str:
    """One property of a unit."""
    return run("systemctl", "show", "--value", "-p", name, unit).strip()


def active(unit: str) -> bool:
    """Whether systemd calls it so."""
    return show(unit, "ActiveState") == "active"


def until(fact: Callable[[], Any], limit_s: float) -> Any:
    """The first true value of `fact`; fails when there is none in time.

    Limits are those of a machine to itself: where others take its processors, so much longer.
    """
    began = time.monotonic()
    while not (value := fact()):
        waited_s = time.monotonic() - began
        assert waited_s < limit_s or waited_s < limit_s * crowding(), f"not within {limit_s:g} s"
        time.sleep(0.05)
    return value


def crowding() -> float:
    """How much longer work takes here than its own processor time: 1.0 on an idle machine."""
    began_s, used_s = time.monotonic(), time.process_time()
    while time.process_time() - used_s < CROWDING_S:
        pass
    return min(MOST_CROWDED, (time.monotonic() - began_s) / (time.process_time() - used_s))


def call(
    method: str,
    path: str,
    body: Any = None,
    *,
    at: str = "api",
    key: str = KEY,
    limit_s: float = 40,
) -> Answer:
    """One HTTP request to a socket of the appliance."""
    connection = UnixConnection(RUN / f"{at}.sock", limit_s)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    headers["X-Conductor-Trace"] = "true"
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    try:
        return Answer(response.status, json.loads(text), text)
    except ValueError:
        return Answer(response.status, {}, text)


def ask(text: str, model: str = "conductor", **more: Any) -> Answer:
    """A chat completion."""
    messages = [{"role": "user", "content": text}]
    return call("POST", "/v1/chat/completions", {"model": model, "messages": messages, **more})


def content(answer: Answer) -> str:
    """What the assistant said."""
    assert answer.status == 200, answer
    return str(answer.body["choices"][0]["message"]["content"])


def ready() -> bool:
    """Whether the appliance says that it would serve a request."""
    try:
        return call("GET", "/readyz", at="metrics", limit_s=5).status == 200
    except OSError:
        return False


def answering(unit: str) -> bool:
    """Whether the process behind a listener, which outlives it, answers."""
    at = {"conductor.service": "metrics"}.get(unit, unit.split("-")[-1].removesuffix(".service"))
    try:
        return active(unit) and call("GET", "/healthz", at=at, limit_s=5).status == 200
    except OSError:
        return False


def stop() -> None:
    """End everything, and wait for it: stopping the target alone would not."""
    run("systemctl", "stop", "conductor.target", "conductor*.socket", "conductor*.service")


def configure() -> None:
    """Put the tests' configuration in place, as `conductor setup` would."""
    for file in (HERE / "etc").iterdir():
        run("install", "-m", "640", "-g", "conductor-read", file, ETC / file.name)
    if MODEL.exists():
        sha256 = run("sha256sum", MODEL).split()[0]
        place = f"/var/lib/conductor-models/{sha256}.gguf"
        run("install", "-m", "640", "-g", "conductor-read", MODEL, place)
    key = ETC / "credentials" / "vendor" / "played"
    key.write_text("sk-the-vendor-key-of-the-tests\n")
    key.chmod(0o600)
    run("systemd-creds", "encrypt", "--name=sealed_played", key, ETC / "credentials/sealed/played")
