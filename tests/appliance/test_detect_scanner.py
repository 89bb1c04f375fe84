"""The scanner beside the loop: long bodies stall nothing, and a dead process is never "clean"."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import psutil
import pytest
import uvloop

import conductor
from conductor.detect import pool
from conductor.detect.pool import ScanPool
from conductor.detect.profile import Profile
from conductor.detect.scan import Scanner
from support.soon import SOON_S, until

AWS = "AKIAIOSFODNN7EXAMPLE"
LONGER_THAN_A_PIPE = {"a": "plain words and nothing else. " * 100_000}


def long_body(secret: str = "") -> dict[str, str]:
    return {"a": "plain words and nothing else. " * 5000, "b": secret}


def scanning_processes() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it ended in this moment
            if "conductor.detect.worker" in child.cmdline():
                found.append(child)
    return found


def frozen_process() -> psutil.Process:
    """The only process, stopped: whatever it is asked takes as long as the test likes."""
    (process,) = scanning_processes()
    process.suspend()
    return process


@asynccontextmanager
async def running(scanner: Scanner) -> AsyncIterator[Scanner]:
    await scanner.start()
    try:
        yield scanner
    finally:
        await scanner.close()
    assert scanning_processes() == []


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def test_a_short_body_is_scanned_without_any_process() -> None:
    scanner = Scanner()
    scan = await scanner.scan({"a": AWS})
    assert [finding.detector for finding in scan.findings] == ["secret.aws"]
    assert not scanner.ready


async def test_a_long_body_is_unscanned_while_no_process_runs() -> None:
    scanner = Scanner()
    assert (await scanner.scan(long_body())).unscanned == ("scanner-down",)
    async with running(scanner):
        assert scanner.ready
        assert (await scanner.scan(long_body())).unscanned == ()
    assert not scanner.ready
    assert (await scanner.scan(long_body("x"))).unscanned == ("scanner-down",)


async def test_a_short_body_made_to_hold_up_the_loop_is_scanned_outside() -> None:
    scanner = Scanner()
    body = {"a": "GB82 WEST 1234 5698 7654 33 " * 400, "b": AWS}
    assert (await scanner.scan(body)).unscanned == ("scanner-down",)
    async with running(scanner):
        scan = await scanner.scan(body)
        assert [finding.detector for finding in scan.findings] == ["secret.aws"]
        assert scan.unscanned == ()


async def test_long_bodies_are_scanned_alike_inside_and_outside() -> None:
    body = long_body(f"{AWS} jane@example.com")
    async with running(Scanner(inline_bytes=0)) as outside:
        inside = Scanner(inline_bytes=1 << 30)
        assert await outside.scan(body) == await inside.scan(body)
        text = orjson.dumps(body, option=orjson.OPT_INDENT_2)
        assert await outside.scan(body, text) == await inside.scan(body, text)


async def test_the_loop_goes_on_while_a_long_body_is_scanned() -> None:
    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        process = frozen_process()
        task = asyncio.create_task(scanner.scan(LONGER_THAN_A_PIPE))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not task.done()
        process.resume()
        assert (await task).unscanned == ()


async def test_many_long_bodies_at_once_are_all_scanned() -> None:
    async with running(Scanner(processes=2, timeout_s=SOON_S)) as scanner:
        bodies = [long_body(AWS if i % 2 else str(i)) | {"i": str(i)} for i in range(60)]
        scans = await asyncio.gather(*(scanner.scan(body) for body in bodies))
        assert [bool(scan.findings) for scan in scans] == [bool(i % 2) for i in range(60)]
        assert {scan.unscanned for scan in scans} == {()}


async def test_what_takes_too_long_is_unscanned_and_the_next_body_is_scanned() -> None:
    async with running(Scanner(timeout_s=1.0)) as scanner:
        frozen_process()
        assert (await scanner.scan(long_body())).unscanned == ("timeout",)
        await until(lambda: scanner.ready)
        assert (await scanner.scan(long_body(AWS))).findings


async def test_waiting_for_a_busy_process_counts_towards_the_timeout() -> None:
    async with running(Scanner(timeout_s=0.5)) as scanner:
        frozen_process()
        slow, waiting = (asyncio.create_task(scanner.scan(long_body(name))) for name in "ab")
        assert (await slow).unscanned == ("timeout",)
        # The process that comes in place of the killed one would scan it in no time.
        assert (await waiting).unscanned == ("timeout",)


async def test_a_killed_process_is_replaced_and_its_body_scanned_by_another() -> None:
    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        process = frozen_process()
        task = asyncio.create_task(scanner.scan(LONGER_THAN_A_PIPE | {"b": AWS}))
        await asyncio.sleep(0.05)
        process.kill()
        scan = await task
        assert [finding.detector for finding in scan.findings] == ["secret.aws"]
        assert scanning_processes()[0].pid != process.pid


async def test_a_body_that_kills_two_processes_is_unscanned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: set[int] = set()
    ask = pool._ask

    async def ask_and_die(process: asyncio.subprocess.Process, head: bytes, body: bytes) -> object:
        process.send_signal(signal.SIGSTOP)
        asking = asyncio.create_task(ask(process, head, body))
        await asyncio.sleep(0.01)
        process.kill()
        killed.add(process.pid)
        return await asking

    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        with monkeypatch.context() as patch:
            patch.setattr(pool, "_ask", ask_and_die)
            assert (await scanner.scan(LONGER_THAN_A_PIPE)).unscanned == ("scanner-died",)
        assert len(killed) == 2
        assert (await scanner.scan(long_body(AWS))).findings


async def test_an_idle_process_that_was_killed_fails_no_scan() -> None:
    async with running(Scanner(processes=2, timeout_s=SOON_S)) as scanner:
        for i in range(3):
            for process in scanning_processes():
                process.kill()
                await until(lambda process=process: has_ended(process))
            assert (await scanner.scan(long_body(AWS) | {"i": str(i)})).findings


async def test_scans_that_were_cancelled_leave_the_process_to_others() -> None:
    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        (before,) = scanning_processes()
        tasks = [asyncio.create_task(scanner.scan(long_body(str(i)))) for i in range(30)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await scanner.scan(long_body(AWS))).findings
        assert [process.pid for process in scanning_processes()] == [before.pid]


async def test_processes_that_cannot_start_leave_the_scanner_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    async with running(Scanner()) as scanner:
        assert not scanner.ready
        assert (await scanner.scan(long_body())).unscanned == ("scanner-down",)
        assert (await scanner.scan({"a": AWS})).findings
        monkeypatch.undo()
        await until(lambda: scanner.ready)
        assert (await scanner.scan(long_body(AWS))).findings


async def test_processes_that_end_at_once_leave_the_scanner_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    async with running(Scanner(processes=2)) as scanner:
        assert not scanner.ready


async def test_closing_ends_scans_in_progress_and_in_waiting() -> None:
    scanner = Scanner(timeout_s=SOON_S)
    await scanner.start()
    frozen_process()
    tasks = [asyncio.create_task(scanner.scan(long_body(str(i)))) for i in range(3)]
    await asyncio.sleep(0.05)
    await scanner.close()
    scans = await asyncio.gather(*tasks)
    assert {scan.unscanned for scan in scans} == {("scanner-down",)}


async def test_closing_in_the_middle_of_a_start_leaves_no_process() -> None:
    for turns in range(6):
        scanner = Scanner()
        starting = asyncio.create_task(scanner.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        await scanner.close()
        assert scanning_processes() == []
        starting.cancel()
        await asyncio.wait([starting])


async def test_the_same_body_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    inner = ScanPool.scan

    async def scan(self: ScanPool, body: bytes, timeout_s: float, profile: Profile) -> object:
        asked.append(len(body))
        return await inner(self, body, timeout_s, profile)

    monkeypatch.setattr(ScanPool, "scan", scan)
    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        first = await scanner.scan(long_body(AWS))
        assert await scanner.scan(long_body(AWS)) == first
        assert len(asked) == 1
        await scanner.scan(long_body("other"))
        assert len(asked) == 2


async def test_a_scan_that_failed_is_not_remembered() -> None:
    scanner = Scanner(timeout_s=SOON_S)
    assert (await scanner.scan(long_body(AWS))).unscanned == ("scanner-down",)
    async with running(scanner):
        scan = await scanner.scan(long_body(AWS))
        assert scan.findings
        assert scan.unscanned == ()


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from conductor.detect import scan

    monkeypatch.setattr(scan, "_CACHED_SCANS", 10)
    scanner = Scanner()
    for i in range(50):
        await scanner.scan({"a": f"{i} " * 300})
    assert len(scanner._cache) == 10


async def test_values_that_are_no_json_are_unscanned() -> None:
    scanner = Scanner()
    deep: object = AWS
    for _ in range(1000):
        deep = [deep]
    for value in ({"a": object()}, {"a": "\ud800"}, {"n": 1 << 90}, deep):
        assert (await scanner.scan(value)).unscanned == ("not-json",)


async def test_a_deep_body_is_scanned_when_its_text_is_given() -> None:
    text = b"[" * 1000 + orjson.dumps(AWS + " " * 20_000) + b"]" * 1000
    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        assert (await scanner.scan(orjson.loads(text), text)).findings


async def test_text_that_a_process_cannot_parse_is_unscanned() -> None:
    async with running(Scanner(timeout_s=SOON_S)) as scanner:
        assert (await scanner.scan({}, b"[" * 20_000)).unscanned == ("not-json",)
        assert (await scanner.scan(long_body(AWS))).findings


async def test_processes_inherit_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_TEST_KEY", "not for the scanner")
    async with running(Scanner()):
        (process,) = scanning_processes()
        assert "CONDUCTOR_TEST_KEY" not in process.environ()


def test_a_process_ends_when_its_parent_does() -> None:
    root = str(Path(conductor.__file__).parents[1])
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "conductor.detect.worker", "1000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": root},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.read(1) == pool.READY
    assert child.returncode == 0


def test_the_scanner_works_on_uvloop() -> None:
    async def scan_and_kill() -> None:
        async with running(Scanner(timeout_s=SOON_S)) as scanner:
            assert (await scanner.scan(long_body(AWS))).findings
            process = frozen_process()
            task = asyncio.create_task(scanner.scan(long_body(AWS + " ")))
            await asyncio.sleep(0.05)
            process.kill()
            assert (await task).findings

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scan_and_kill())
