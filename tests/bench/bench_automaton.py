"""What the plan automaton costs: building its tables, their size, a mask, a step, a forced run.

    PYTHONPATH=appliance:tests python tests/bench/bench_automaton.py FILE.gguf [--exact STATES]

`FILE` is a GGUF file with a byte-level vocabulary (SmolLM2, Qwen2.5). `--exact` also holds the
whole mask to the oracle at so many states, which takes seconds a state.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from conductor.core import Flow
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.byteshape import HEAD, PLACES
from conductor.plan.mask import LabelMask
from conductor.plan.tablefile import pack, unpack
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool
from support.automata import Tree, Vocabulary, Walk, ids_in, pick
from support.gguf import read_tokenizer

WORKERS = 7
VEILED = Flow(1, 1, (), ((0, 1), (1, 1)), (0, 0), (frozenset(range(WORKERS)), frozenset({0})))
"""All but worker 0 may see what was redacted, and templates, only."""


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def sizes(tables: Tables) -> str:
    table = len(tables.next) * tables.next.itemsize
    return (
        f"{len(PLACES)} places, {tables.classes} classes, {len(tables.walked)} walked tokens, "
        f"table {table} B, class map {4 * tables.tokens // 1024} KiB, "
        f"{len(tables.fixed_token)} fixed edges, file {len(pack(tables)) // 1024} KiB"
    )


def walks(tables: Tables, vocabulary: Vocabulary, count: int) -> dict[str, list[float]]:
    """Seconds of single operations over random walks of requests of their own."""
    spent: dict[str, list[float]] = {"head mask": [], "text mask": [], "advance": []}
    chance = random.Random(1)
    eos = frozenset(tables.eos)
    for _ in range(count):
        automaton = Automaton(tables, PlanPool(WORKERS, mask=LabelMask(VEILED)))
        state = automaton.start()
        for _ in range(60):
            kind = "text mask" if state.place >= HEAD else "head mask"
            started = time.perf_counter()
            mask = automaton.allowed(state)
            spent[kind].append(time.perf_counter() - started)
            going_on = ids_in(mask) - eos
            if not going_on:
                break
            token = pick(chance, going_on, vocabulary)
            started = time.perf_counter()
            state = automaton.advance(state, token)
            spent["advance"].append(time.perf_counter() - started)
    return spent


def forced(tables: Tables) -> list[float]:
    spent = []
    for template in Template:
        automaton = Automaton(tables, PlanPool(WORKERS, mask=LabelMask(VEILED)))
        state = automaton.start()
        for byte in f"redact q -\n1 0 {template[:12]}".encode():
            state = automaton.advance(state, _single(tables, byte))
        spent.append(timed(partial(automaton.forced, state)))
    return spent


def _single(tables: Tables, byte: int) -> int:
    return next(t for t, n in enumerate(tables.length) if n == 1 and tables.bytes_of(t)[0] == byte)


def exact(tables: Tables, vocabulary: Vocabulary, states: int) -> None:
    """Raises `AssertionError` at the first state in which the oracle allows other tokens."""
    eos = tables.eos[0]
    tree = Tree.of(vocabulary, (t for t, text in enumerate(vocabulary) if text and t != eos))
    chance, met = random.Random(2), 0
    while met < states:
        mask = LabelMask(VEILED) if chance.random() < 0.5 else None
        pool = PlanPool(WORKERS, mask=mask) if mask else PlanPool(WORKERS)
        walk = Walk.of(tables, pool, vocabulary)
        for _ in range(12):
            allowed = walk.allowed - {eos}
            assert allowed == walk.wanted(tree), walk.text
            met += 1
            if not allowed or met == states:
                break
            walk.take(pick(chance, allowed, vocabulary))
    print(f"the oracle allows the same tokens in each of {met} states")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--exact", type=int, default=0)
    given = parser.parse_args()
    source = read_tokenizer(given.file)
    vocabulary = source.bytes_per_id
    building = [timed(lambda: compile(vocabulary, [source.eos])) for _ in range(3)]
    tables = compile(vocabulary, [source.eos])
    print(f"{tables.tokens} tokens: built in {min(building):.2f} s;", sizes(tables))
    file = pack(tables)
    print(f"read from its file in {timed(lambda: unpack(file)):.3f} s")
    cold, warm = walks(tables, vocabulary, 20), walks(tables, vocabulary, 20)
    for name in warm:
        middle, p95 = median(warm[name]) * 1e6, quantiles(warm[name], n=20)[-1] * 1e6
        print(
            f"{name}: {middle:.1f} us median, {p95:.1f} us p95, first time up to "
            f"{max(cold[name]) * 1e3:.1f} ms"
        )
    print(f"forced run of a template: {median(forced(tables)) * 1e3:.2f} ms median")
    if given.exact:
        exact(tables, vocabulary, given.exact)


if __name__ == "__main__":
    main()
