"""Benchmarks of the kernels on a GPU box: `python kernels/bench/run.py`, or `make bench-gpu`.

One run of at most ten minutes, without a network: checks, ceilings, ops, the decode step, whole
plans, and others beside. Writes results.json, results.md and roofline.png after each part. What it
measures and what it is to show: docs/bench/README.md.

Exit codes:
  0  it ran, and every op is as exact as it must be
  1  it ran, and some op is not, or a part broke
  2  there is no GPU: `--device cpu --tiny` runs every part once on a CPU and measures nothing
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]


def main(arguments: list[str] | None = None) -> int:
    """The command; gives its exit code."""
    options = _parser().parse_args(arguments)
    _find_sources()
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "no GPU that torch can use is there: nothing was measured. "
            "`--device cpu --tiny` shows that every part runs.",
            file=sys.stderr,
        )
        return 2
    if options.device == "cpu" and not options.tiny:
        print("on a CPU only `--tiny` runs: full sizes would take hours", file=sys.stderr)
        return 2
    return _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Benchmarks of the kernels on a GPU box.",
        epilog="exit codes: 0 all is exact; 1 something is not, or broke; 2 there is no GPU",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see whether it runs")
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds: a minute")
    parser.add_argument(
        "--part", action="append", metavar="NAME", help="only that part; may be given again"
    )
    parser.add_argument(
        "--seed", type=int, help="of the inputs of checks; a fresh one if not given"
    )
    parser.add_argument("--limit-s", type=float, default=560.0, help="of all parts together")
    parser.add_argument("--out", type=Path, default=Path("var/bench"), help="the folder to write")
    return parser


def _run(options: argparse.Namespace) -> int:
    import torch
    from gpubench import card
    from gpubench.clock import Clock
    from gpubench.page import page
    from gpubench.parts import Bench
    from gpubench.picture import draw
    from gpubench.program import chosen
    from gpubench.results import Results, Table, run_all
    from gpubench.sizes import FULL, TINY

    device = torch.device(options.device)
    clock = Clock(device, rounds=5 if options.quick else 15)
    sizes = TINY if options.tiny else FULL
    seed = time.time_ns() % 2**31 if options.seed is None else options.seed
    bench = Bench(device, sizes, clock, options.quick, seed)
    parts = chosen(options.part)
    results = Results(clock.measures and not options.tiny, card.facts(device, ROOT))
    options.out.mkdir(parents=True, exist_ok=True)

    def keep(table: Table) -> None:
        results.write(options.out / "results.json")
        (options.out / "results.md").write_text(page(results))
        draw(results, bench.ceilings, options.out / "roofline.png")
        state = table.left_out or "done"
        print(f"{table.name}: {len(table.rows)} rows in {table.seconds:.0f} s, {state}", flush=True)

    run_all(bench, parts, results, options.limit_s, keep)
    print(f"{options.out / 'results.md'}{'' if results.measured else ': no measurement'}")
    exact = all(row["passed"] for row in results.table("checks"))
    broken = any(table.left_out.startswith("it broke") for table in results.tables)
    return 0 if exact and not broken else 1


def _find_sources() -> None:
    """Where the appliance is not installed, its sources are beside this file. Of what it depends on
    only JSON is needed by what is imported here."""
    for folder in (HERE.parent, ROOT / "kernels", ROOT / "appliance"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    try:
        import orjson  # noqa: F401
    except ModuleNotFoundError:
        import json

        stand_in = types.ModuleType("orjson")
        stand_in.__dict__.update(loads=json.loads, JSONDecodeError=json.JSONDecodeError)
        sys.modules["orjson"] = stand_in


if __name__ == "__main__":
    sys.exit(main())
