"""What a decision costs: 200 rules, 20 destinations, and labels seen for the first time or again.

    PYTHONPATH=appliance:tests python tests/bench/bench_policy.py

`cold`: a label that the policy has not been asked about, for all 20 workers. `warm`: one that it
has. `first`: the first question to a freshly read policy, which compiles its rules.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from conductor.core import Worker
from conductor.labels import Label
from conductor.policy.decide import decide, decide_all
from conductor.policy.document import Policy, read_policy
from conductor.policy.flows import probe
from conductor.policy.memo import Memo
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import document

LEVELS = ["public", "internal", "confidential", "restricted"]
NAMES = ["pii", "secret", "payment", "health", "legal", "trade", "board", "unscanned"]
REGIONS, VENDORS = ["eu", "us", "uk", "ch"], ["acme", "bolt", "cove", "dune", "elm"]
RULES, DESTINATIONS, REPEAT = 200, 20, 400


def policy_of(rules: int, destinations: int) -> Policy:
    """A generated policy, the same each time: a tenth guardrails, half of the rest denies."""
    draw = random.Random(11)
    tree: dict[str, Any] = {
        "apiVersion": "conductor/v1",
        "kind": "RoutingPolicy",
        "revision": 1,
        "labels": {"levels": LEVELS, "compartments": NAMES},
        "default_label": "internal",
        "destinations": {f"d{n}": _destination(draw, n) for n in range(destinations)},
        "guardrails": [_rule(draw, n, "deny") for n in range(rules // 10)],
        "rules": [
            _rule(draw, n, draw.choice(("allow", "deny"))) for n in range(rules // 10, rules)
        ],
    }
    faults = Faults()
    policy = read_policy(document(json.dumps(tree).encode(), "bench.yaml", faults))
    faults.raise_any()
    assert policy is not None
    return policy


def _destination(draw: random.Random, number: int) -> dict[str, Any]:
    clearance = {"level": draw.choice(LEVELS[1:]), "compartments": draw.sample(NAMES[:-1], 3)}
    facts = {"vendor": draw.choice(VENDORS), "region": draw.choice(REGIONS)}
    return {"kind": "local" if number == 0 else "remote", "clearance": clearance, **facts}


def _rule(draw: random.Random, number: int, effect: str) -> dict[str, Any]:
    to = {"kind": "remote", "vendor": draw.choice(VENDORS), "region": draw.sample(REGIONS, 2)}
    when: dict[str, Any] = {f"level_at_{'most' if effect == 'allow' else 'least'}": LEVELS[2]}
    quantity = "none" if effect == "allow" else "all"
    when[f"compartments_{quantity}"] = draw.sample(NAMES, draw.choice((2, 3)))
    return {"id": f"r{number}", effect: {"to": to, "if": when}}


def labels(count: int) -> list[Label]:
    """Different labels of the generated policy."""
    draw = random.Random(5)
    found: dict[Label, None] = {}
    while len(found) < count:
        some = frozenset(draw.sample(NAMES, draw.randrange(len(NAMES))))
        found[Label(draw.randrange(len(LEVELS)), some)] = None
    return list(found)


def micros(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def measure() -> dict[str, float]:
    """Medians in microseconds."""
    policy = policy_of(RULES, DESTINATIONS)
    workers: list[Worker] = [probe(destination) for destination in policy.destinations.values()]
    tried = labels(REPEAT)

    def first() -> float:
        fresh = replace(policy)
        return micros(lambda: decide_all(fresh, tried[0], workers))

    times = {"first, 20 destinations": median(first() for _ in range(40))}
    policy.__dict__["memo"] = Memo()
    times["cold, 20 destinations"] = median(
        micros(lambda label=label: decide_all(policy, label, workers))  # type: ignore[misc]
        for label in tried
    )
    times["warm, 20 destinations"] = median(
        micros(lambda label=label: decide_all(policy, label, workers))  # type: ignore[misc]
        for label in tried
    )
    times["warm, one destination"] = median(
        micros(lambda label=label: decide(policy, label, workers[3]))  # type: ignore[misc]
        for label in tried
    )
    return times


def main() -> None:
    print(f"{RULES} rules, {DESTINATIONS} destinations; medians in microseconds")
    for name, time_us in measure().items():
        print(f"  {name:24} {time_us:8.1f}")


if __name__ == "__main__":
    main()
