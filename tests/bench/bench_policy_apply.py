"""How long a running stream stands still while a policy of 500 rules is put in force.

    PYTHONPATH=appliance:tests python tests/bench/bench_policy_apply.py

A task that only sleeps a millisecond, over and over, stands for the stream; its longest gap is the
stall. First the same time with nothing else going on, since a busy machine stalls by itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from conductor.activation import checker
from conductor.activation.desk import Desk, Who, Wish
from conductor.activation.startup import starting
from conductor.activation.store import Store
from conductor.active import Active
from conductor.audit.log import AuditLog
from conductor.config import Site
from support.appliedpolicies import policy_bytes, site_folder

RULES = 500
ROUNDS = 5
QUIET_S = 2.0


def many_rules(revision: int, number: int = RULES, **changes: Any) -> bytes:
    """A policy of that many rules, each with a test, as people would write it."""
    base = json.loads(policy_bytes(revision, **changes))
    rules, tests = list(base["rules"]), list(base["tests"])
    for place in range(number - len(rules)):
        name = f"team-{place}"
        to = {"kind": "remote", "any": [{"vendor": "simulated"}, {"region": "us"}]}
        when = {"level_at_most": "public", "compartments_none": ["secret", "unscanned"]}
        rules.append({"id": name, "allow": {"to": to, "if": when}})
        given = {"label": "public", "to": "frontier"}
        expect = {"decision": "allow", "rule": name}
        tests.append({"name": name, "given": given, "expect": expect})
    return json.dumps({**base, "rules": rules, "tests": tests}, indent=1).encode()


class Ticker:
    """Notes the longest gap between two turns."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def run(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            self.longest_ms = max(self.longest_ms, 1000 * (now - last))
            last = now

    def taken(self) -> float:
        """The longest gap in milliseconds since this was last asked."""
        longest_ms, self.longest_ms = self.longest_ms, 0.0
        return longest_ms


async def stalled(made: Any) -> tuple[float, Any]:
    """The longest gap in milliseconds while `made` runs, and what it gives."""
    ticker = Ticker()
    task = asyncio.create_task(ticker.run())
    await asyncio.sleep(0.01)
    result = await made
    task.cancel()
    return ticker.longest_ms, result


async def measure(folder: Path) -> None:
    site = starting(site_folder(folder, many_rules(1))).site
    active, store = Active(site), Store(folder / "s")

    async def swap(other: Site) -> None:
        active.swap(other)

    with store.writing() as writer:
        audit = AuditLog.open(folder / "a")
        desk = Desk(active=active, store=store, writer=writer, audit=audit, check=checker.ask,
                    swap=swap)  # fmt: skip
        await desk.begin(site)
        quiet_ms, _ = await stalled(asyncio.sleep(QUIET_S))
        print(f"nothing going on       longest stall {quiet_ms:6.1f} ms")
        for number in range(2, 2 + ROUNDS):
            began = time.perf_counter()
            longest_ms, outcome = await stalled(desk.apply(Wish(many_rules(number)), Who(0)))
            took_s = time.perf_counter() - began
            verdict = outcome.facts()["verdict"]
            print(f"apply of {RULES} rules     longest stall {longest_ms:6.1f} ms, "
                  f"took {took_s:.1f} s, {verdict}")  # fmt: skip
            if not outcome.in_force:
                sys.exit(f"refused: {outcome.report.problems[:3]}")
        await audit.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        uvloop.run(measure(Path(name)))
