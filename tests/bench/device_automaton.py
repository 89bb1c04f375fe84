"""The device's automaton beside the host's on many random prefixes, masks included.

    PYTHONPATH=appliance:kernels:tests python tests/bench/device_automaton.py [FILE.gguf]
        [--prefixes N]

Without a file it runs over a vocabulary of bytes and odd tokens, with a GGUF file over the
tokenizer in it. `TRITON_INTERPRET=1` runs the kernels instead of their reference, some hundred
times slower. Every prefix compares the whole mask, the list, the state, and what is forced; any
difference ends the run. Also prints how large the pools' blocks are and what they take to compile.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from conductor.core import Flow
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.language import Builtin, View
from conductor.plan.mask import Head, LabelMask
from conductor.plan.validate import PlanPool
from conductor_kernels.devicetables import DeviceTables
from support.automata import BYTES, EOS, ODD, Vocabulary
from support.devicewalks import Plan, SideBySide
from support.gguf import read_tokenizer

WORKERS = 7
_LONGEST = 120
"""Tokens after which a plan is left and another begun."""


def flow(classes: int, heard: tuple[int, ...] = ()) -> Flow:
    """Classes in a row, each seen by two workers fewer than the one below; the question's is the
    highest, and `redact` goes one down."""
    joins = tuple(tuple(max(one, other) for other in range(classes)) for one in range(classes))
    sees = tuple(
        frozenset({*range(max(1, WORKERS - 2 * level)), *Builtin}) for level in range(classes)
    )
    down = tuple(max(0, level - 1) for level in range(classes))
    return Flow(classes - 1, classes - 1, heard, joins, down, sees)


def pools() -> dict[str, PlanPool]:
    made = {
        f"{WORKERS} workers, {classes} classes": PlanPool(WORKERS, mask=LabelMask(flow(classes)))
        for classes in (1, 2, 3, 4)
    }
    earlier = tuple(Head(number, View(True, ()), True) for number in range(2))
    later = PlanPool(WORKERS, mask=LabelMask(flow(2, (1, 0))), earlier=earlier, may_stop=True)
    return made | {
        "after two steps, 2 classes": later,
        "256 workers": PlanPool(256),
        "1 worker, 1 call": PlanPool(1, max_calls=1),
        "3 workers, no built-ins": PlanPool(3, frozenset(), max_steps=3),
    }


def blocks(tables: Tables) -> None:
    device = DeviceTables(tables)
    print(f"grammar: {4 * len(device.grammar) // 1024} KiB")
    for name, pool in pools().items():
        started = time.perf_counter()
        block = device.block(pool, Automaton(tables, pool))
        spent = time.perf_counter() - started
        size = "too large" if block is None else f"{block.lines} lines, {len(block)} cells"
        print(f"{name}: {size}, {spent:.2f} s")


def chooser(chance: random.Random, newlines: NDArray[np.bool_]) -> Callable[[Plan], int]:
    """Evenly among the allowed tokens, but for ends of lines, which come more often."""

    words = -(-len(newlines) // 32)

    def one(plan: Plan) -> int:
        mask = np.frombuffer(plan.mask(words), dtype=np.uint8)
        allowed = np.unpackbits(mask, bitorder="little").nonzero()[0]
        ends = allowed[newlines[allowed]]
        some = ends if len(ends) and chance.random() < 0.2 else allowed
        return int(some[chance.randrange(len(some))])

    return one


def walk(tables: Tables, vocabulary: Vocabulary, prefixes: int) -> None:
    both = SideBySide(tables, [*pools().values()], vocabulary, cells=1 << 22)
    newlines = np.array([(text or b"").endswith(b"\n") for text in vocabulary])
    take = chooser(random.Random(1), newlines)
    done, steps, started = 0, 0, time.perf_counter()
    while done < prefixes:
        if steps == _LONGEST or not both.going:
            both.leave()
            both.begin()
            steps = 0
        both.check()
        done += sum(not plan.ended for plan in both.plans)
        both.take(take)
        steps += 1
        if done % 5000 < len(both.plans):
            print(f"{done} prefixes, {time.perf_counter() - started:.0f} s", flush=True)
    print(f"{done} prefixes equal, masks included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--prefixes", type=int, default=100_000)
    asked = parser.parse_args()
    if asked.file is None:
        within = (text for text in ODD[257:] if text and b"\n" not in text[:-1])
        vocabulary: Vocabulary = (*BYTES, *within)
        tables = compile(vocabulary, [EOS])
    else:
        source = read_tokenizer(asked.file)
        vocabulary = source.bytes_per_id
        tables = compile(vocabulary, [source.eos])
    blocks(tables)
    walk(tables, vocabulary, asked.prefixes)


if __name__ == "__main__":
    main()
