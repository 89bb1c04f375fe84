"""Small tables of outcomes, written down or generated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from conductor_build.outcomes import Table, Worker

NAN = float("nan")


def table(
    score: Sequence[Sequence[float]],
    answer: Sequence[Sequence[int]] | None = None,
    *,
    tokens: Sequence[Sequence[float]] | None = None,
    tasks: Sequence[str] | None = None,
    names: str | Sequence[str] = "abcdefgh",
    prices: Sequence[float] | None = None,
    local: str | Sequence[str] = (),
    comparable: bool = True,
) -> Table:
    """A table of prompts by workers. By default every answer has 1,000 tokens, and worker number j
    costs j + 1 dollars per million of them: so j + 1 dollars per 1,000 prompts."""
    scores = np.array(score, dtype=np.float32).reshape(len(score), -1)
    prompts, workers = scores.shape
    known = [*(prices or range(1, workers + 1))]
    counted = np.full(scores.shape, 1000.0) if tokens is None else np.array(tokens)
    return Table(
        prompts=tuple(f"p{number}" for number in range(prompts)),
        tasks=tuple(tasks or ["t"] * prompts),
        questions=tuple(f"question {number}" for number in range(prompts)),
        workers=tuple(
            Worker(names[j], names[j] in local, 7.0, float(known[j]), float(known[j]))
            for j in range(workers)
        ),
        score=scores,
        answer=np.array(
            np.full(scores.shape, -1) if answer is None else answer, dtype=np.int32
        ).reshape(scores.shape),
        tokens=counted.astype(np.float32),
        comparable=comparable,
    )


def generated(
    prompts: int = 60, workers: int = 4, seed: int = 0, tasks: Sequence[str] = ("even", "odd")
) -> tuple[Table, NDArray[np.float64]]:
    """A table in which later workers are better and dearer, and embeddings that tell some of it.

    Right answers agree; wrong ones are one of three, or missing.
    """
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(prompts, 6))
    skill = np.linspace(0.3, 0.9, workers) + 0.25 * embeddings[:, :1]
    right = draw.random((prompts, workers)) < skill
    wrong = draw.integers(-1, 3, size=right.shape)
    made = table(
        right.astype(float).tolist(),
        np.where(right, 9, wrong).tolist(),
        tokens=draw.integers(50, 2000, size=right.shape).astype(float).tolist(),
        tasks=[tasks[number % len(tasks)] for number in range(prompts)],
        prices=[float(2**j) for j in range(workers)],
        local="ab",
    )
    return made, embeddings
