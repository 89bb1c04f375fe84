"""The trained conductor that the package ships: whole, trusted, and able to plan for any pool.

What it plans is not looked at here: the next training may plan otherwise.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conductor.core import Candidate, Card, Price
from conductor.planner import wire
from conductor.planner.bundle import Runtime
from conductor.planner.encoderfiles import known_encoders
from conductor.planner.engine import Planned
from conductor.planner.features import FEATURES
from conductor.planner.pocket import PocketEngine
from conductor.planner.trust import SHIPPED_NAME, resolve, shipped_folder
from conductor.workers.catalogue import ENCODER_ID, load_catalogue, with_needed
from conductor.workers.fetch import locate
from support.planner import ROOT
from support.plans import heard, request

MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
QUESTIONS = ("What is 17 + 25?", "What is the capital of Italy? One word.", "Write a sonnet.", "?")
SKILLS = (0.0, 0.5, 0.98, 1.0)
PRICES = (0.0, 0.6, 75.0)
"""USD per million tokens."""


def test_it_opens_and_is_what_this_release_can_run() -> None:
    runtime = Runtime(features=FEATURES, encoders=known_encoders(load_catalogue()))
    bundle = resolve(SHIPPED_NAME, (), runtime)
    assert bundle.manifest.kind == "pocket"
    assert bundle.manifest.provenance.recipe["tables"]
    assert any(name.startswith("report/") for name in bundle.manifest.files)
    assert bundle.path == shipped_folder() / SHIPPED_NAME


@pytest.fixture(scope="module")
def engine() -> PocketEngine:
    catalogue = load_catalogue()
    if any(locate(MODELS, model) is None for model in with_needed(catalogue, ENCODER_ID)):
        pytest.skip(f"run 'conductor models pull {ENCODER_ID}' first")
    return PocketEngine.load(None, (), MODELS, threads=1)


def pools() -> Iterator[tuple[Candidate, ...]]:
    """One, two and three workers, from useless to perfect, from free to dear."""
    kinds = [
        Candidate(Card({"general": skill}, 10.0, "declared"), Price(price, price), not price, 8192)
        for skill, price in itertools.product(SKILLS, PRICES)
    ]
    yield from ((one,) for one in kinds)
    yield from itertools.pairwise(kinds)
    yield from zip(kinds, kinds[4:], kinds[8:], strict=False)


@pytest.mark.model
@pytest.mark.parametrize("weight", [0.0, 0.03, 1.0])
def test_it_plans_for_every_tiny_pool_in_a_first_and_in_a_further_round(
    engine: PocketEngine, weight: float
) -> None:
    for pool, question in zip(pools(), itertools.cycle(QUESTIONS), strict=False):
        first = replace(
            request(*pool), question=question, cost_weight=weight, rounds_left=2, calls_left=4
        )
        whole(wire.check(engine.plan_now(first), first))
        further = replace(first, heard=heard("The answer is 42."), rounds_left=1, calls_left=3)
        whole(wire.check(engine.plan_now(further), further))


def whole(planned: Planned) -> None:
    """What it tells of itself can be sent: numbers within their bounds."""
    assert planned.engine == "pocket" and planned.insight is not None
    wire.encode_planned(planned)
