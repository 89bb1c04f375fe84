"""The numbers of a language model's evaluation as JSON: a pocket conductor's document, and more.

rows, pools, intervals, differences, tasks, choices    as in `document.py`; a row says besides
                 which games it is of, since games with drawn pools name the same workers
simulated        whether the answers were made up
drawn            the same games at the lambda that was drawn for each: scores and differences
figures          what every policy took: steps, calls, tokens, money, voids
worker_use       whom conductors called, by domain
plans            some of the conductor's
parse_rate       share of texts that are plans without the mask, by conductor
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from conductor_build.report.document import document, finite

if TYPE_CHECKING:
    from conductor_build.evaluate.lmjudge import Drawn, LmEvaluation
    from conductor_build.evaluate.scores import Score

Json = dict[str, Any]


def lm_document(evaluation: LmEvaluation, provenance: Mapping[str, object]) -> Json:
    """The report. `provenance` must be fit for JSON, and say whether the pool was `simulated`."""
    told = document(evaluation.at_lambdas, provenance)
    titles = [
        judged.pool.title for judged in evaluation.at_lambdas.pools for _ in judged.results
    ]  # of each row
    rows = [{**row, "games": title} for row, title in zip(told.pop("rows"), titles, strict=True)]
    return {
        "schema": told.pop("schema"),
        "kind": "lm",
        "simulated": bool(provenance["simulated"]),
        "rows": rows,
        **told,
        "drawn": [_drawn(one) for one in evaluation.drawn],
        **asdict(evaluation.traits),
    }


def _drawn(drawn: Drawn) -> Json:
    return {
        "games": drawn.title,
        "scores": {name: _told(score) for name, score in drawn.scores.items()},
        "differences": {name: _told(score) for name, score in drawn.less.items()},
    }


def _told(score: Score) -> Json:
    parts = (
        ("accuracy", score.accuracy),
        ("cost_usd_per_1k", score.cost),
        ("utility", score.utility),
    )
    return {
        "n": score.n,
        **{
            key: {"mean": finite(one.mean), "interval": [finite(one.low), finite(one.high)]}
            for key, one in parts
        },
    }
