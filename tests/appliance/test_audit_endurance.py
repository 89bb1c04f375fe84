"""A sealed log under a full disk, under kill -9, and when it is too large for memory."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.audit.keys import AuditKey
from conductor.audit.log import AuditLog
from conductor.audit.segments import segments
from conductor.audit.verify import verify
from conductor.audit.writer import Writer, now
from conductor.errors import AuditError
from support.sealedlog import events

KEY = AuditKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))

WRITER = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from conductor.audit.keys import AuditKey
    from conductor.audit.log import AuditLog

    async def main():
        key = AuditKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
        log = AuditLog.open(Path(sys.argv[1]), key=key, segment_bytes=6_000, checkpoint_s=0.005)
        n = 0
        while True:
            await asyncio.gather(*(log.post("decision", n=n + i) for i in range(20)))
            n += 20
            print(n, flush=True)

    asyncio.run(main())
    """)

READER = textwrap.dedent("""
    import resource, sys
    from pathlib import Path
    from conductor.audit.verify import verify

    report = verify(Path(sys.argv[1]))
    print(report.ok, report.records, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    roots = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": roots},
    )


def test_kill_9_among_checkpoints_and_segments_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    for pause_s in (0.0, 0.017, 0.043, 0.09):
        with python(WRITER, directory) as child:
            assert child.stdout is not None
            acknowledged = int(child.stdout.readline())
            time.sleep(pause_s)
            child.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, child.stdout.read().splitlines())])
        report = verify(directory, trust=KEY.public, key=KEY)
        assert report.ok and report.events["decision"] >= acknowledged
    asyncio.run(AuditLog.open(directory, key=KEY).close())
    report = verify(directory, trust=KEY.public, key=KEY)
    assert report.ok and report.torn_bytes == 0 and len(segments(directory)) > 2


async def test_a_full_disk_fails_posts_and_checkpoints_and_both_come_back(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    log = AuditLog.open(directory, key=KEY, checkpoint_s=0.02)
    await log.append("decision", n=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = segments(directory)[0].stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
    try:
        with pytest.raises(AuditError, match="EFBIG"):
            await log.append("decision", n=2)
        assert not log.healthy
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await log.append("decision", n=3)
    assert log.healthy
    await log.close()
    report = verify(directory, trust=KEY.public, key=KEY)
    assert report.ok and report.events["log_recovered"] == 1
    assert events(directory)[-1] == "checkpoint"


def peak_kib(directory: Path, count: int) -> int:
    """Memory of a process that verifies a log of `count` records and a few."""
    writer = Writer.open(directory, KEY, 20 << 20, {})
    for done in range(0, count, 250):
        writer.append([("decision", {"n": done + n}, now()) for n in range(250)])
    writer.checkpoint(now())
    writer.close()
    with python(READER, directory) as child:
        assert child.stdout is not None
        ok, records, peak = child.stdout.read().split()
    assert ok == "True" and int(records) >= count
    return int(peak)


def test_verifying_two_hundred_thousand_records_takes_the_memory_of_a_thousand(
    tmp_path: Path,
) -> None:
    small = peak_kib(tmp_path / "small", 1_000)
    assert peak_kib(tmp_path / "large", 200_000) < small + 6 * 1024
    assert sum(path.stat().st_size for path in segments(tmp_path / "large")) > 50 << 20
