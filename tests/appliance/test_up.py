"""`conductor up` as a whole: one at a time, stopped cleanly, and gone with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from conductor.workers.catalogue import load_catalogue
from conductor.workers.fetch import locate
from support.appliance import short_directory
from support.configs import local_worker
from support.leaving import RawClient
from support.processes import Api, Up, command, dead, environment, fixed_ports, site_of, up
from support.soon import SOON_S

pytestmark = pytest.mark.timeout(300)
"""It starts whole processes, which a busy machine may give little time."""

ROOT = Path(__file__).parents[2]


async def test_two_at_once_and_a_killed_supervisor_and_a_clean_second_start() -> None:
    with short_directory() as directory:
        site_of(directory, [local_worker("local-a", unix=directory / "w.sock", model="echo")])
        with up(directory) as first:
            assert_refused(directory, "already running")
            family = first.family()
            assert len(family) >= 3
            first.process.kill()
            assert dead(family, SOON_S)
        with up(directory) as second:
            assert not second.said("ended")
            family = second.family()
            os.killpg(second.process.pid, signal.SIGINT)  # what Ctrl-C at a terminal does
            assert second.process.wait(SOON_S) == 0
            assert dead(family, 0.0)
            assert not second.said("ended"), "a child was told before its time"


def assert_refused(directory: Path, word: str) -> None:
    done = subprocess.run(
        command("up", "--config", str(directory)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=False,
    )
    assert done.returncode == 1
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_refused_at_once_and_nothing_is_started() -> None:
    """Whoever answers there must not pass for the appliance that could not start."""
    with short_directory() as directory, socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {**fixed_ports(), "admin_port": taken.getsockname()[1]}
        site_of(directory, [local_worker("local-a", port=9)], api=ports)
        assert_refused(directory, "is another appliance running?")


@pytest.mark.parametrize("line", ["^planner +started", "^serve +started"])
def test_a_stop_in_the_middle_of_the_start_leaves_nothing(line: str) -> None:
    with short_directory() as directory:
        site_of(directory, [local_worker("local-a", unix=directory / "w.sock")])
        running = Up(directory)
        try:
            running.wait_for(line)
            family = running.family()
            assert family
            assert running.end() == 0
            assert dead(family, 0.0)
        finally:
            running.close()


@pytest.mark.model
async def test_a_killed_embedded_model_is_missed_aloud_and_loaded_again() -> None:
    models = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
    if locate(models, load_catalogue()["smollm2-135m"]) is None:
        pytest.skip("run 'conductor models pull smollm2-135m' first")
    worker = local_worker("smollm", unix="unused")
    for name in ("unix", "model"):
        del worker[name]
    worker["embedded"] = "smollm2-135m"
    with short_directory() as directory:
        ports = fixed_ports()
        root = {"root": str(directory), "state": "s", "run": "r", "audit": "a"}
        site_of(directory, [worker], api=ports, paths={**root, "models": str(models)})
        with up(directory) as running:
            async with Api(**ports) as api:
                assert (await api.ask("smollm", max_tokens=4)).status_code == 200
                midway = await RawClient.ask(api.port, "smollm", stream=True)
                await midway.until(b'"content"')
                pid = running.kill("smollm")
                told = await midway.rest()
                assert b'"error"' in told and b"[DONE]" not in told
                refused = await api.ask("smollm")
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) >= 1
                await running.again("smollm", pid)
                await api.answers("smollm", max_tokens=4)
            family = running.family()
            assert len(family) >= 4
            running.process.kill()
            assert dead(family, SOON_S)
