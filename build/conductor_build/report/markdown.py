"""The report for people: for each pool one table of every policy at every lambda, then how far the
conductor is from the baselines that matter, task by task, and what was chosen."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from conductor_build.evaluate.judge import CONDUCTOR

if TYPE_CHECKING:
    from conductor_build.bootstrap import Estimate
    from conductor_build.evaluate.judge import Evaluation, Judged
    from conductor_build.evaluate.scores import Difference, Result

AGAINST = ("best_fixed", "best_fixed_per_task")
"""Baselines that the paired differences are printed against; all are in the JSON."""
TASK_COLUMNS = (CONDUCTOR, "best_single", "best_fixed", "best_fixed_per_task", "knn", "logistic")


def markdown(evaluation: Evaluation, provenance: Mapping[str, object]) -> str:
    """The whole report as Markdown."""
    lines = [
        "# Conductor and baselines on recorded outcomes",
        "",
        "Utility = accuracy - lambda x cost. Cost is in USD per 1,000 prompts, output tokens only; "
        "where a table has no tokens, billions of parameters / 1,000 a call. Intervals are 95 %, "
        f"from {evaluation.resampling.draws:,} paired bootstrap draws over prompts (seed "
        f"{evaluation.resampling.seed}). No policy reaches the oracle: it sees the outcomes.",
        "",
        *(f"- {safe(key)}: {safe(str(value))}" for key, value in provenance.items()),
    ]
    for judged in evaluation.pools:
        lines += ["", *pool_section(judged)]
    return "\n".join(lines) + "\n"


def summary(evaluation: Evaluation) -> str:
    """Of each pool the table of all policies and the paired differences: what a terminal shows."""
    return "\n\n".join("\n".join(pool_overview(judged)) for judged in evaluation.pools) + "\n"


def pool_section(
    judged: Judged, against: Sequence[str] = AGAINST, columns: Sequence[str] = TASK_COLUMNS
) -> Iterator[str]:
    """Everything about one pool. `against`: baselines whose differences are shown; `columns`:
    policies that are shown task by task. Those that are not among the results are left out."""
    yield from pool_overview(judged, against)
    at = {(result.policy, result.lam): result for result in judged.results}
    policies = {result.policy for result in judged.results}
    yield from ["", "### Utility by task", ""]
    yield from _tasks(at, [p for p in columns if p in policies], judged.pool.lambdas)
    yield from ["", "### What was chosen", ""]
    yield from _choices(judged.results)


def pool_overview(judged: Judged, against: Sequence[str] = AGAINST) -> Iterator[str]:
    """Of one pool the table of all policies, and the paired differences."""
    pool = judged.pool
    yield f"## {safe(pool.title)}"
    yield ""
    yield f"{len(pool.workers)} workers, {judged.n:,} prompts. Baselines: {judged.training}."
    if judged.not_recorded:
        yield ""
        yield f"{judged.not_recorded:,} prompts are left out: some worker has no outcome there."
    at = {(result.policy, result.lam): result for result in judged.results}
    policies = list(dict.fromkeys(result.policy for result in judged.results))
    yield from ["", "### Utility (accuracy, cost)", ""]
    yield from table(
        ["policy", *(f"lambda {lam:g}" for lam in pool.lambdas)],
        ([_name(p), *(_cell(at[p, lam]) for lam in pool.lambdas)] for p in _ordered(policies)),
    )
    if judged.differences:
        yield from ["", "### Utility of the conductor less that of a baseline", ""]
        shown = [name for name in against if name in policies]
        yield from _differences(judged.differences, shown, (*pool.lambdas, None))


def _ordered(policies: Sequence[str]) -> list[str]:
    """The conductor, what was chosen or learned, and single workers last."""
    return sorted(policies, key=lambda name: (name != CONDUCTOR, name.startswith("single(")))


def _differences(
    differences: Iterable[Difference], against: Sequence[str], lambdas: Sequence[float | None]
) -> Iterator[str]:
    at = {(less.against, less.lam): less.score.utility for less in differences}
    rows = (
        ["mean" if lam is None else f"{lam:g}", *(signed(at[name, lam]) for name in against)]
        for lam in lambdas
    )
    yield from table(["lambda", *(f"less {name}" for name in against)], rows)


def _tasks(
    at: Mapping[tuple[str, float], Result], policies: Sequence[str], lambdas: Sequence[float]
) -> Iterator[str]:
    rows = []
    for lam in lambdas:
        scores = {policy: at[policy, lam].by_task for policy in policies}
        for task, first in scores[policies[0]].items():
            cells = [number(scores[policy][task].utility.mean) for policy in policies]
            rows.append([f"{lam:g}", safe(task), f"{first.n:,}", *cells])
    yield from table(["lambda", "task", "prompts", *policies], rows)


def _choices(results: Iterable[Result]) -> Iterator[str]:
    rows = [
        [
            f"{result.lam:g}",
            result.policy,
            "; ".join(f"{safe(name)} {share:.0%}" for name, share in result.chosen.items()),
        ]
        for result in results
        if result.chosen
    ]
    yield from table(["lambda", "baseline", "strategies and their share of the prompts"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cell(result: Result) -> str:
    score = result.overall
    cell = f"{number(score.utility.mean)} ({number(score.accuracy.mean)}, {_usd(score.cost.mean)})"
    return f"**{cell}**" if result.policy == CONDUCTOR else cell


def signed(estimate: Estimate) -> str:
    """A difference with its interval."""
    if not math.isfinite(estimate.mean):
        return "not known"
    return f"{estimate.mean:+.4f} [{estimate.low:+.4f}, {estimate.high:+.4f}]"


def number(value: float) -> str:
    """A score."""
    return f"{value:.4f}" if math.isfinite(value) else "not known"


def _usd(value: float) -> str:
    if not math.isfinite(value):
        return "cost not known"
    return f"${value:.2f}" if value >= 1 else f"${value:.3f}"


def _name(policy: str) -> str:
    return f"**{policy}**" if policy == CONDUCTOR else safe(policy)


def safe(text: str) -> str:
    """Names come out of files: none may end a table's cell or line, or be taken for markup."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", " ".join(text.split()))
