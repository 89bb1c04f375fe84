"""Samples plans at random under the mask, over random labels and pools, and looks for one that
breaks a rule: that does not parse, does not fit its pool, or shows a worker what is forbidden.

    PYTHONPATH=appliance:tests .venv/bin/python tests/bench/sample_plans.py [--plans 100000]

What is permitted is said by `plan/validate.py` and `plan/mask.py`, which share nothing with the
automaton that is sampled from but the language's constants. Tokens are drawn as a model with random
logits would draw them: evenly among those allowed, endings more often, so that plans end.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from conductor.core import Candidate, Card, Flow, Heard, PlanRequest, Price
from conductor.errors import PlanError
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.closing import closing
from conductor.plan.language import Plan, parse
from conductor.plan.validate import PlanPool, validate
from conductor.plan.writing import ENDED
from support.automata import BYTES, EOS, ODD, ids_in

MOST_TOKENS = 160
CANDIDATE = Candidate(Card({"general": 0.5}, 1.0, "declared"), Price(), True, 8192)


def random_flow(chance: random.Random, workers: int, heard: int) -> Flow:
    """Classes of data that join as bit sets, and who may see which."""
    bits = chance.randint(1, 3)
    classes = range(1 << bits)
    taken = chance.choice(classes)
    return Flow(
        question=chance.choice(classes),
        control=(1 << bits) - 1,
        heard=tuple(chance.choice(classes) for _ in range(heard)),
        joins=tuple(tuple(a | b for b in classes) for a in classes),
        redacted=tuple(one & taken for one in classes),
        sees=_sees(chance, workers, bits),
    )


def _sees(chance: random.Random, workers: int, bits: int) -> tuple[frozenset[int], ...]:
    """A worker cleared for a class is cleared for every part of it."""
    cleared = [chance.randrange(1 << bits) for _ in range(workers)]
    cleared[chance.randrange(workers)] = (1 << bits) - 1
    return tuple(
        frozenset(w for w in range(workers) if one & ~cleared[w] == 0) for one in range(1 << bits)
    )


def random_pool(chance: random.Random) -> PlanPool | None:
    """A request's room for a plan: workers, limits, built-ins, earlier rounds, labels; None where
    such a request can have no plan."""
    workers, rounds = chance.randint(1, 12), chance.choice([0, 0, 0, 1, 2, 4])
    asked = PlanRequest(
        request_id="r",
        question="q",
        candidates=(CANDIDATE,) * workers,
        prompt_tokens=10,
        max_steps=chance.randint(1, 5),
        one_step=chance.random() < 0.1,
        heard=tuple(Heard(step, 0, chance.choice(["", "7"]), 1) for step in range(rounds)),
        rounds_left=chance.randint(0, 3),
        calls_left=chance.randint(0, 8),
        may_redact=chance.random() < 0.7,
        flow=random_flow(chance, workers, rounds),
    )
    try:
        return PlanPool.of(asked)
    except PlanError:
        return None


def sampled(chance: random.Random, tables: Tables, pool: PlanPool) -> tuple[str, int] | None:
    """A plan's text and how many tokens it took; None where no plan is possible at all."""
    automaton = Automaton(tables, pool)
    state, text = automaton.start(), b""
    for count in range(MOST_TOKENS):
        allowed = sorted(ids_in(automaton.allowed(state)))
        if not allowed:
            return None
        ends = [one for one in allowed if one == EOS or b"\n" in tables.bytes_of(one)]
        token = chance.choice(ends if ends and chance.random() < 0.2 else allowed)
        state = automaton.advance(state, token)
        if state.place == ENDED:
            return text.decode(), count
        text += tables.bytes_of(token)
    return (text + closing(state)).decode(), MOST_TOKENS


def fault(text: str, pool: PlanPool) -> tuple[Plan | None, str]:
    """The plan, and which rule it breaks: "" for none."""
    try:
        plan = parse(text, pool.first)
    except PlanError:
        return None, "it does not parse"
    try:
        validate(plan, pool)
    except PlanError:
        return plan, "it does not fit"
    return plan, ""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    asked.add_argument("--plans", type=int, default=100_000)
    asked.add_argument("--seed", type=int, default=0)
    told = asked.parse_args()
    chance, begun = random.Random(told.seed), time.monotonic()
    tables = [compile(words, [EOS]) for words in (BYTES, ODD)]
    faults: Counter[str] = Counter()
    steps: Counter[int] = Counter()
    plans = impossible = tokens = 0
    while plans < told.plans:
        pool = random_pool(chance)
        found = pool and sampled(chance, chance.choice(tables), pool)
        if pool is None or found is None:
            impossible += 1
            continue
        plan, wrong = fault(found[0], pool)
        plans, tokens = plans + 1, tokens + found[1]
        faults[wrong] += bool(wrong)
        steps[len(plan.steps) if plan else -1] += 1
    print(f"{plans} plans over as many random pools and labels, {tokens / plans:.1f} tokens each")
    print(f"steps: {dict(sorted(steps.items()))}; pools without a plan: {impossible}")
    print(f"violations: {sum(faults.values())} {dict(+faults) or ''}")
    print(f"{time.monotonic() - begun:.0f} s")
    raise SystemExit(bool(sum(faults.values())))


if __name__ == "__main__":
    main()
