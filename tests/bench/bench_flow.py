"""What knowing an answer again costs, and the mask: per text, and per plan.

    PYTHONPATH=appliance python tests/bench/bench_flow.py

The store is full (200,000 fingerprints a generation), the texts are not in it: the common case.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import orjson

from conductor.core import Flow
from conductor.flow.artifacts import MAX_FINGERPRINTS, ArtifactStore
from conductor.flow.choices import choice_bits
from conductor.flow.classes import flow_of
from conductor.labels import Label, Lattice
from conductor.plan.language import parse
from conductor.plan.mask import LabelMask
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate

LATTICE = Lattice(("public", "internal", "secret"), frozenset({"pii", "unscanned"}))
PII = Label(1, frozenset({"pii"}))
SIZES = {"2 kB": 2_000, "20 kB": 20_000, "1 MB": 1_000_000}


def prose(size: int, seed: int, extra: str = "") -> str:
    """Words drawn from five thousand, about `size` characters."""
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz" + extra
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(5000)]
    return " ".join(chance.choices(words, k=size // 6))[:size]


def best_ms(work: Callable[[], object], repeat: int) -> float:
    """The best of some runs, in milliseconds."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def full_store() -> ArtifactStore:
    store, seed = ArtifactStore(), 1
    while len(store._labelled._old) < MAX_FINGERPRINTS // 2 - 2000 or not store._labelled._young:
        store.remember(prose(4000, seed), "internal+pii")
        seed += 1
    return store


def texts(store: ArtifactStore) -> dict[str, float]:
    results = {}
    for name, size in SIZES.items():
        repeat = 200 if size < 10_000 else 10
        for script, extra in (("ascii", ""), ("umlauts", "äöüß")):
            text = prose(size, 10**6, extra)
            assert store.label_of([text], LATTICE) is None
            looked = best_ms(lambda text=text: store.label_of([text], LATTICE), repeat)
            results[f"label_of {name} {script}"] = looked
    for name, size in list(SIZES.items())[:2]:
        text = prose(size, 8)
        results[f"remember {name}"] = best_ms(
            lambda text=text: store.remember(text, "internal+pii"), 20
        )
        results[f"learn {name}"] = best_ms(lambda text=text: store.learn(text, [text]), 20)
    return results


def plans() -> dict[str, float]:
    def flow() -> Flow:
        return flow_of(
            PII,
            PII,
            [PII, Label(1)],
            redacted=lambda one: Label(one.level),
            sees=lambda who, one: who == 0 or not one.compartments,
            candidates=20,
        )

    pool = PlanPool(20, earlier=(), mask=LabelMask(flow()))
    plan = parse(f"0 q Think.\nredact 0 -\n7 1 {Template.SOLVE}\n0 q,2 Answer.\n")
    return {
        "flow_of, 20 candidates": best_ms(flow, 200),
        "validate under the mask, 4 steps": best_ms(lambda: validate(plan, pool), 200),
        "choice_bits, 4 steps": best_ms(lambda: choice_bits(plan, pool), 200),
    }


def main() -> None:
    results = {**texts(full_store()), **plans()}
    rounded = {name: round(took, 3) for name, took in results.items()}
    print(orjson.dumps(rounded, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
