"""What the audit log costs: records posted and made durable, with and without a seal; verifying.

    PYTHONPATH=appliance python tests/bench/bench_audit.py [RECORDS] [DIRECTORY]

The time of a post is that of everything: the loop, the writer thread, and the disk. What the seal
adds is measured apart, without a disk.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.audit import standalone
from conductor.audit.keys import AuditKey
from conductor.audit.log import AuditLog
from conductor.audit.merkle import Frontier
from conductor.audit.record import ChainEnd, hash_line, seal
from conductor.audit.seal import Seal
from conductor.audit.verify import verify
from conductor.audit.writer import now

ROUNDS = 5
BURST = 2000
"""Posts that are under way at once."""

FIELDS = {
    "request_id": "r-0123456789abcdef",
    "key": "assistant",
    "label": "internal+pii",
    "worker": "local-small",
    "destination": "on-box",
    "allow": True,
    "rule": "allow-local",
    "policy_revision": 12,
    "body_sha256": "0" * 64,
}


async def posting_us(directory: Path, key: AuditKey | None, count: int) -> float:
    """Microseconds a record, `BURST` under way at once."""
    log = AuditLog.open(directory, key=key)
    begin = time.perf_counter()
    for _ in range(count // BURST):
        await asyncio.gather(*(log.post("decision", **FIELDS) for _ in range(BURST)))
    spent = time.perf_counter() - begin
    await log.close()
    return spent / (count // BURST * BURST) * 1e6


def chaining_us(state: Seal | None, count: int) -> float:
    """Microseconds a record, without a disk: batches of 64 chained, hashed, put into the tree."""
    end, moment = ChainEnd(), now()
    begin = time.perf_counter()
    for _ in range(count // 64):
        lines = []
        for _ in range(64):
            key = None if state is None else state.chain_key
            line = seal(end, "decision", FIELDS, moment, "boot", key)
            lines.append(line)
            end = ChainEnd(end.seq + 1, hash_line(line))
        if state is not None:
            state = state.grown(lines)
    return (time.perf_counter() - begin) / (count // 64 * 64) * 1e6


def signing_us(state: Seal) -> float:
    """Microseconds to sign a checkpoint and put it into a record's fields."""
    begin = time.perf_counter()
    for _ in range(200):
        state.checkpoint(state.note())
    return (time.perf_counter() - begin) / 200 * 1e6


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    base = sys.argv[2] if len(sys.argv) > 2 else None
    key = AuditKey(Ed25519PrivateKey.generate())
    state = Seal.of(key, "bench", Frontier(20_000, [bytes(32)] * (20_000).bit_count()))
    posts: dict[str, list[float]] = {"bare": [], "sealed": []}
    chains: dict[str, list[float]] = {"bare": [], "sealed": []}
    with tempfile.TemporaryDirectory(dir=base) as folder:
        for n in range(ROUNDS):  # in turns: what else the machine does falls on both
            for name, each in (("bare", None), ("sealed", key)):
                where = Path(folder, f"{name}-{n}")
                posts[name].append(asyncio.run(posting_us(where, each, count)))
                chains[name].append(chaining_us(state if each else None, count))
        for name in posts:
            print(
                f"{name:7} {statistics.median(posts[name]):7.1f} us a record posted, "
                f"{statistics.median(chains[name]):6.2f} us of it chaining"
            )
        print(f"checkpoint {signing_us(state):.0f} us to sign")
        read_back(Path(folder, "sealed-0"), key, count)


def read_back(directory: Path, key: AuditKey, count: int) -> None:
    """Opening it again, and both verifiers."""
    begin = time.perf_counter()
    log = AuditLog.open(directory, key=key)
    print(f"open    {(time.perf_counter() - begin) * 1e3:.1f} ms, {count} records there")
    asyncio.run(log.close())
    checks: dict[str, Callable[[], bool]] = {
        "verify": lambda: verify(directory, trust=key.public).ok,
        "with MACs": lambda: verify(directory, trust=key.public, key=key).ok,
        "alone": lambda: not standalone.verify(directory, key.public.public_bytes_raw(), [])[1],
    }
    for name, check in checks.items():
        begin = time.perf_counter()
        assert check()
        spent = time.perf_counter() - begin
        print(f"{name:9} {spent / count * 1e6:.1f} us a record")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of all of this {peak:.0f} MiB")


if __name__ == "__main__":
    main()
