"""All attacks, and how many of how many arrived, as a table.

PYTHONPATH=appliance:tests python -m attacks.run
"""

from __future__ import annotations

import asyncio
import logging
import sys

import structlog
import uvloop

from support.attacks import arena
from support.attacks_by_client import failures
from support.attacks_run import FAILURES, KINDS, Outcome, failing, outcome


async def every_kind() -> dict[str, Outcome]:
    """What came of each kind of attack."""
    found = {}
    async with arena() as it:
        it.thorough = True
        for name, attack in KINDS.items():
            found[name] = await outcome(it, attack)
    async with failing() as it:
        found[FAILURES] = await outcome(it, failures)
    return found


def main() -> None:
    """Print the table; the exit code is 1 if anything arrived or was told to somebody else."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(every_kind())
    for name, one in found.items():
        wrong = f", {len(one.wrong)} answers wrong" if one.wrong else ""
        print(f"{name}: arrived {len(one.arrived)} of {one.made}{wrong} ({one.seconds:.1f} s)")
        for attack in (*one.arrived, *one.wrong)[:20]:
            print(f"    {attack}")
    arrived = sum(len(one.arrived) for one in found.values())
    print(f"in all: arrived {arrived} of {sum(one.made for one in found.values())}")
    sys.exit(any(one.arrived or one.wrong for one in found.values()))


if __name__ == "__main__":
    main()
