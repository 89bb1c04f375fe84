"""The numbers of an evaluation as JSON. Every number is finite; what is not known is null."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from conductor_build.bootstrap import Estimate
    from conductor_build.evaluate.judge import Evaluation, Judged
    from conductor_build.evaluate.scores import Difference, Result, Score
    from conductor_build.outcomes import Table

SCHEMA = "conductor-report/1"

Json = dict[str, Any]


def document(evaluation: Evaluation, provenance: Mapping[str, object]) -> Json:
    """The report. `rows` alone answers who did how well; the keys beside it say how sure, by task,
    against whom, what was chosen, and where it all comes from. Pools are named by position in
    `pools` there. `provenance` must be fit for JSON."""
    pools = evaluation.pools
    return {
        "schema": SCHEMA,
        "rows": [_row(judged, result) for judged in pools for result in judged.results],
        "pools": [_pool(judged) for judged in pools],
        "intervals": [
            {"policy": result.policy, "pool": index, "lambda": result.lam}
            | _intervals(result.overall)
            for index, judged in enumerate(pools)
            for result in judged.results
        ],
        "differences": [
            _difference(index, less)
            for index, judged in enumerate(pools)
            for less in judged.differences
        ],
        "tasks": [
            {"policy": result.policy, "pool": index, "lambda": result.lam, "task": task}
            | _means(score)
            for index, judged in enumerate(pools)
            for result in judged.results
            for task, score in result.by_task.items()
        ],
        "choices": [
            {"policy": result.policy, "pool": index, "lambda": result.lam, "share": result.chosen}
            for index, judged in enumerate(pools)
            for result in judged.results
            if result.chosen
        ],
        "provenance": {
            "seed": evaluation.resampling.seed,
            "draws": evaluation.resampling.draws,
            **provenance,
        },
    }


def fingerprint(table: Table) -> str:
    """SHA-256 over everything a table holds. Order of rows and columns counts."""
    digest = hashlib.sha256()
    for text in (table.prompts, table.tasks, table.questions, table.workers):
        digest.update(repr(text).encode("utf-8", "surrogatepass"))
    for numbers in (table.score, table.answer, table.tokens):
        digest.update(np.ascontiguousarray(numbers).tobytes())
    return digest.hexdigest()


def finite(value: float) -> float | None:
    """A number as JSON knows it."""
    return value if math.isfinite(value) else None


def _row(judged: Judged, result: Result) -> Json:
    return {
        "policy": result.policy,
        "pool": list(judged.pool.workers),
        "lambda": result.lam,
    } | _means(result.overall)


def _means(score: Score) -> Json:
    return {
        "accuracy": finite(score.accuracy.mean),
        "cost_usd_per_1k": finite(score.cost.mean),
        "utility": finite(score.utility.mean),
        "n": score.n,
    }


def _intervals(score: Score) -> Json:
    return {
        "accuracy": _interval(score.accuracy),
        "cost_usd_per_1k": _interval(score.cost),
        "utility": _interval(score.utility),
    }


def _interval(estimate: Estimate) -> list[float | None]:
    return [finite(estimate.low), finite(estimate.high)]


def _difference(pool: int, less: Difference) -> Json:
    parts = {
        "accuracy": less.score.accuracy,
        "cost_usd_per_1k": less.score.cost,
        "utility": less.score.utility,
    }
    return {"pool": pool, "lambda": less.lam, "against": less.against} | {
        key: {"mean": finite(part.mean), "interval": _interval(part)} for key, part in parts.items()
    }


def _pool(judged: Judged) -> Json:
    return {
        "title": judged.pool.title,
        "workers": list(judged.pool.workers),
        "lambdas": list(judged.pool.lambdas),
        "n": judged.n,
        "prompts_not_recorded": judged.not_recorded,
        "baselines": judged.training,
    }
