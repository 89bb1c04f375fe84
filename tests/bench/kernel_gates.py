"""Every kernel compiled for every architecture, and whether its machine code passes the gates.

    python tests/bench/kernel_gates.py [--arch sm_90] [--only NAME] [--jobs 2] [--quick]
                                       [--out FILE.json] [--write]

Takes minutes and no GPU; less with --quick, which does not take the machine code apart. `make test`
looks at a sample (tests/kernels/test_static_gates.py). Prints a line a kernel, then what is wrong,
then the most registers of each. --write makes these, and some room, the kernels' ceilings. Exits
with 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from conductor_build.compile.compiler import Compiled
from conductor_build.compile.gates import faults, read_ceilings
from conductor_build.compile.pool import compile_all, kernels_of, processes
from conductor_kernels.architectures import ARCHITECTURES
from conductor_kernels.catalogue import OPS

CEILINGS = Path(__file__).parents[2] / "kernels" / "conductor_kernels" / "ceilings.json"
MOST = 255
"""Registers that a thread can have."""
ROOM = 8
"""Registers: the unit that they are given out in, to a thread of a warp."""


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--arch", action="append", choices=list(ARCHITECTURES))
    parser.add_argument("--only", action="append", help="Part of a kernel's name.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="Do not count instructions.")
    parser.add_argument("--write", action="store_true", help="Set ceilings anew: look at why.")
    parser.add_argument("--out", type=Path, help="Figures as JSON.")
    told = parser.parse_args()
    if told.write and told.arch:
        parser.error("a ceiling is the most of all architectures: --write takes no --arch")
    return told


def compiled(only: list[str], architectures: list[str], jobs: int, quick: bool) -> list[Compiled]:
    """Those kernels, told one by one."""
    start, made = time.monotonic(), []
    with processes(jobs) as pool:
        names = [
            name for name in kernels_of(pool, OPS) if not only or any(part in name for part in only)
        ]
        for one in compile_all(pool, OPS, names, architectures, not quick):
            made.append(one)
            done = f"{len(made)}/{len(names) * len(architectures)}"
            print(f"{time.monotonic() - start:6.0f} s {done:>8} {one.architecture:6} {one.name}: "
                  f"{figures(one)}", flush=True)  # fmt: skip
    return sorted(made, key=lambda one: (one.name, one.architecture))


def figures(one: Compiled) -> str:
    found = one.figures
    text = f"{found.registers} registers, {found.shared_bytes} B shared, {len(one.cubin)} B"
    if one.reads:
        text += f", {found.weight_loads} loads of weights, {found.narrow_loads} narrow"
    if counts := found.counts:
        text += f", {counts.spills} spills, {counts.wide_loads} of {counts.loads} loads wide, "
        text += f"{counts.conversions} I2F, {counts.tensor} tensor core"
    return text


def registers(made: list[Compiled]) -> dict[str, int]:
    """The most that each kernel takes on any architecture."""
    most: dict[str, int] = {}
    for one in made:
        most[one.name] = max(most.get(one.name, 0), one.figures.registers)
    return most


def write_ceilings(most: dict[str, int], whole: bool) -> None:
    """`whole`: these are all kernels there are, so that others are forgotten."""
    kept = {} if whole else dict(read_ceilings())
    ceilings = kept | {name: min(MOST, found + ROOM) for name, found in most.items()}
    record = {"registers": dict(sorted(ceilings.items()))}
    CEILINGS.write_text(json.dumps(record, indent=1) + "\n")


def main() -> int:
    told = asked()
    made = compiled(told.only or [], told.arch or list(ARCHITECTURES), told.jobs, told.quick)
    if told.write:
        write_ceilings(registers(made), whole=not told.only)
    ceilings = read_ceilings()
    wrong = [(one, fault) for one in made for fault in faults(one, ceilings)]
    for one, fault in wrong:
        print(f"FAULT {one.name} {one.architecture}: {fault}")
    print(json.dumps(registers(made), indent=1))
    if told.out:
        rows = [{"kernel": one.name, "arch": one.architecture, **asdict(one.figures)}
                for one in made]  # fmt: skip
        told.out.write_text(json.dumps(rows, indent=1) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
