"""What is measured: the appliance as the processes that it is, in front of the fake upstream."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from bench.load import Job, Result, Target
from conductor.cli.firststart import prepare
from conductor.config import Site, load
from conductor.process.probe import Address, answers
from support.configs import KEY, Tree, local_worker, remote_worker
from support.processes import command, environment, free_port, site_of

START_S = 60.0
DELAY_MS = 100
"""A model's time to its first word, for the cases in which it takes any."""

TCP, UNIX, STREAM, REMOTE = "local-tcp", "local-unix", "local-stream", "remote"
SLOW, SLOW_UNIX, SLOW_REMOTE = "slow-tcp", "slow-unix", "slow-remote"


@dataclass
class Process:
    """One of ours."""

    name: str
    running: subprocess.Popen[bytes]

    @property
    def cpu_s(self) -> float:
        """User and system time of the process alone, without its children."""
        times = psutil.Process(self.running.pid).cpu_times()
        return times.user + times.system

    @property
    def rss_mib(self) -> float:
        return float(psutil.Process(self.running.pid).memory_info().rss) / 2**20

    @property
    def children_rss_mib(self) -> float:
        children = psutil.Process(self.running.pid).children(recursive=True)
        return sum(child.memory_info().rss for child in children) / 2**20


class Loader:
    """The load process; see `load.py`."""

    def __init__(self) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-m", "bench.load"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self, job: Job) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(orjson.dumps(asdict(job)) + b"\n")
        self._running.stdin.flush()

    def result(self) -> Result:
        """Of the job begun last."""
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        if not line:
            raise SystemExit("the load process ended; its error stands above")
        return Result(**orjson.loads(line))

    def run(self, job: Job) -> Result:
        self.begin(job)
        return self.result()

    def close(self) -> None:
        self._running.kill()
        self._running.communicate()


@dataclass
class Box:
    """Everything, started."""

    site: Site
    directory: Path
    upstream_port: int
    upstream_socket: Path
    processes: dict[str, Process]
    loader: Loader
    ticker: Loader

    def direct(self, body: Tree, *, unix: bool = False) -> Target:
        """A call to the fake upstream itself."""
        address = str(self.upstream_socket) if unix else f"127.0.0.1:{self.upstream_port}"
        return self._post(address, body)

    def through(self, body: Tree) -> Target:
        """The same through the appliance."""
        return self._post(f"127.0.0.1:{self.site.appliance.api.port}", body)

    def health(self) -> Target:
        """The cheapest thing that the event loop of `serve` answers."""
        head = "GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n"
        return Target(f"127.0.0.1:{self.site.appliance.api.port}", self._file(head.encode()))

    def _post(self, address: str, body: Tree) -> Target:
        data = json.dumps(body).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        return Target(address, self._file(head.encode() + data))

    def _file(self, request: bytes) -> str:
        path = self.directory / f"request-{time.monotonic_ns()}"
        path.write_bytes(request)
        return str(path)


@contextmanager
def box(directory: Path, audit: Path) -> Iterator[Box]:
    """Start it; sockets and configuration below `directory`, whose path must be short."""
    port, socket = free_port(), directory / "upstream.sock"
    config = site_of(
        directory,
        _workers(port, socket),
        paths={"root": str(directory), "state": "s", "run": "r", "audit": str(audit)},
        limits={"max_tokens": 100_000_000, "max_cost_usd": 1000.0},
        scan={"timeout_s": 60.0},
    )
    site = load(config)
    prepare(site)
    run, api = site.appliance.paths.run, site.appliance.api
    upstream = [sys.executable, "-m", "bench.upstream", str(port), str(socket)]
    with ExitStack() as stack:
        log = stack.enter_context((directory / "log").open("wb"))
        processes = {}
        for name, argv, address, path in (
            ("upstream", upstream, ("127.0.0.1", port), "/health"),
            ("planner", command("planner"), run / "planner.sock", "/readyz"),
            ("egress", command("egress"), run / "egress.sock", "/readyz"),
            ("serve", command("serve"), (api.admin_host, api.admin_port), "/readyz"),
        ):
            words = argv if name == "upstream" else [*argv, "--config", str(config)]
            processes[name] = Process(name, stack.enter_context(_running(words, log)))
            _await(name, address, path, directory / "log")
        loaders = Loader(), Loader()
        for loader in loaders:
            stack.callback(loader.close)
        yield Box(site, directory, port, socket, processes, *loaders)


def _workers(port: int, socket: Path) -> list[Tree]:
    """The model `conductor` chooses TCP, the cheapest that is good enough; `conductor-quality`
    chooses SLOW, the best by far. All others are too weak to be chosen."""
    slow = f"slow-first-byte-{DELAY_MS}"
    url = f"http://127.0.0.1:{port}/v1"
    roomy: Tree = {"max_in_flight": 64, "context_tokens": 100_000_000}
    more: Tree = {"card": _card(0.1), "limits": roomy}
    return [
        local_worker(TCP, port=port, **{**more, "model": "ok", "card": _card(0.8)}),
        local_worker(SLOW, port=port, **{**more, "model": slow, "card": _card(1.0, speed=1)}),
        local_worker(UNIX, unix=socket, **{**more, "model": "ok"}),
        local_worker(SLOW_UNIX, unix=socket, **{**more, "model": slow}),
        local_worker(STREAM, port=port, **{**more, "model": "long-20"}),
        remote_worker(REMOTE, url, **{**more, "model": "ok"}),
        remote_worker(SLOW_REMOTE, url, **{**more, "model": slow}),
    ]


def _card(skill: float, speed: float = 100) -> Tree:
    return {"skill": {"general": skill}, "output_tokens_per_s": speed, "source": "declared"}


@contextmanager
def _running(argv: list[str], log: Any) -> Iterator[subprocess.Popen[bytes]]:
    env = environment(SIMULATED_VENDOR_KEY="simulated")
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(name: str, address: Address, path: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not asyncio.run(answers(address, path)):
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)
