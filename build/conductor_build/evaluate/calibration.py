"""Cards of workers that a conductor never met, from a few prompts that are then not judged."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.plays import EvaluationError
from conductor_build.cards import measure
from conductor_build.outcomes import Table, merge
from conductor_build.pocket.conductor import Card
from conductor_build.seen import normalise

if TYPE_CHECKING:
    from conductor_build.baselines.plays import Ints

PROMPTS = 50


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of the prompts to measure on and of those to judge; no question is in both."""

    calibration: Ints
    judged: Ints


def choose(table: Table, workers: Sequence[str], count: int, seed: int) -> Split:
    """Draw `count` prompts on which all of `workers` have an outcome.

    The draw depends on ids and seed alone. Raises `EvaluationError` when there are too few.
    """
    recorded = np.isfinite(table.columns(workers).score).all(1)
    there = np.flatnonzero(recorded).tolist()
    if len(there) < count:
        raise EvaluationError(
            f"cards of {', '.join(workers)} need {count} prompts with outcomes of all of them, and "
            f"there are {len(there)}: give more prompts, or a smaller --calibration"
        )
    drawn = sorted(there, key=lambda row: _draw(table.prompts[row], seed))[:count]
    asked = {normalise(table.questions[row]) for row in drawn}
    judged = [row for row, text in enumerate(table.questions) if normalise(text) not in asked]
    return Split(np.array(drawn, np.int64), np.array(judged, np.int64))


def _draw(prompt: str, seed: int) -> bytes:
    return hashlib.sha256(f"calibration {seed}\n{prompt}".encode("utf-8", "surrogatepass")).digest()


def measured(
    training: Table, calibration: Table, domains: tuple[str, ...], workers: Sequence[str]
) -> dict[str, Card]:
    """Cards of new `workers` from a table of calibration prompts, whose tasks are `domains`.

    The training outcomes, which are others', tell how hard each domain is.
    """
    own = calibration.columns(workers)
    numbered = tuple(f"calibration {row}" for row in range(len(own.prompts)))
    others = [name for name in answering(training) if name not in workers]
    cards = measure(merge([training.columns(others), replace(own, prompts=numbered)]), domains)
    places = {name: place for place, name in enumerate(cards.names)}
    each = {name: places[name] for name in workers}
    return {
        name: Card(cards.skill[place], cards.tokens[place], cards.counts[place] > 0)
        for name, place in each.items()
    }


def answering(table: Table) -> tuple[str, ...]:
    """The workers that have any outcome in a table."""
    there = np.isfinite(table.score)
    return tuple(name for place, name in enumerate(table.names) if there[:, place].any())
