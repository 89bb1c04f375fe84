"""A language model's report for people: how well, at what effort, calling whom, by which plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from conductor_build.evaluate.judge import CONDUCTOR
from conductor_build.report.markdown import (
    number,
    pool_overview,
    pool_section,
    safe,
    signed,
    table,
)

if TYPE_CHECKING:
    from conductor_build.evaluate.lmjudge import Drawn, LmEvaluation

AGAINST = ("zero_shot", "best_single", "best_single_per_task", "best_of_n", "fan_out")
"""Baselines that paired differences are printed against; all are in the JSON."""
TASK_COLUMNS = (CONDUCTOR, "zero_shot", "best_single", "best_single_per_task", "best_of_n")
_SIMULATED = (
    "**SIMULATED: the workers of this report are made up. It shows that training and judging work, "
    "and says nothing of real workers.**"
)
_FIGURES = (
    ("steps", "steps"),
    ("calls", "calls"),
    ("rounds", "rounds"),
    ("conductor_tokens_read", "conductor reads"),
    ("conductor_tokens_written", "writes"),
    ("worker_tokens_read", "workers read"),
    ("worker_tokens_written", "write"),
    ("cost_usd", "USD"),
    ("seconds", "seconds"),
)


def lm_markdown(evaluation: LmEvaluation, provenance: Mapping[str, object]) -> str:
    """The whole report as Markdown."""
    resampling = evaluation.at_lambdas.resampling
    lines = [
        "# Language-model conductor and baselines, played on workers",
        "",
        *([_SIMULATED, ""] if provenance["simulated"] else []),
        "Utility = accuracy - lambda x cost. Cost is what the workers took, in USD per 1,000 "
        "queries at each game's prices. Plans are greedy, questions held out. Intervals are 95 %, "
        f"from {resampling.draws:,} paired bootstrap draws over games (seed {resampling.seed}). "
        "The oracle sees outcomes, and is the best of single workers alone.",
        "",
        *(f"- {safe(key)}: {safe(str(value))}" for key, value in provenance.items()),
    ]
    for judged in evaluation.at_lambdas.pools:
        lines += ["", *pool_section(judged, AGAINST, TASK_COLUMNS)]
    lines += ["", *_drawn(evaluation.drawn)]
    lines += ["", *_traits(evaluation)]
    return "\n".join(lines) + "\n"


def lm_summary(evaluation: LmEvaluation, simulated: bool) -> str:
    """What a terminal shows."""
    parts = ["\n".join(pool_overview(one, AGAINST)) for one in evaluation.at_lambdas.pools]
    parts.append("\n".join(_drawn(evaluation.drawn)))
    parts.append("\n".join(_parsing(evaluation.traits.parse_rate)))
    return "\n\n".join([*([_SIMULATED] if simulated else []), *filter(None, parts)]) + "\n"


def _drawn(all_drawn: Sequence[Drawn]) -> Iterator[str]:
    yield "## As drawn: each game at its own lambda"
    for drawn in all_drawn:
        yield from ["", f"{safe(drawn.title)}, {drawn.scores[CONDUCTOR].n:,} games", ""]
        rows = (
            [
                safe(name),
                *(number(one.mean) for one in (score.utility, score.accuracy)),
                f"${score.cost.mean:.3f}",
                signed(drawn.less[name].utility) if name in drawn.less else "",
            ]
            for name, score in drawn.scores.items()
        )
        yield from table(["policy", "utility", "accuracy", "cost", "conductor less that"], rows)


def _traits(evaluation: LmEvaluation) -> Iterator[str]:
    traits = evaluation.traits
    yield from ["## What a query takes", ""]
    yield from _figures([one for one in traits.figures if one["lambda"] is None])
    yield from ["", "## Whom the conductor calls, as drawn", ""]
    for one in traits.worker_use:
        if one["policy"] == CONDUCTOR and one["lambda"] is None:
            yield from _use(one["calls"])
    if traits.parse_rate:
        yield from ["", *_parsing(traits.parse_rate)]
    yield from ["", "## Plans", ""]
    for plan in traits.plans:
        yield from _plan(plan)


def _figures(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """At the lambdas as drawn; the others are in the JSON."""
    rows = (
        [
            safe(one["policy"]),
            safe(one["games"]),
            *(f"{one[key]:.4g}" for key, _ in _FIGURES),
            safe("; ".join(f"{why} {count}" for why, count in one["voids"].items())),
        ]
        for one in figures
    )
    yield from table(["policy", "games", *(said for _, said in _FIGURES), "void"], rows)


def _use(calls: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    rows = (
        [safe(domain), "; ".join(f"{safe(name)} {share:.0%}" for name, share in own.items())]
        for domain, own in calls.items()
    )
    yield from table(["domain", "workers and their share of the calls"], rows)


def _parsing(rates: Mapping[str, float]) -> Iterator[str]:
    for name, rate in rates.items():
        yield f"Plans that parse without the mask, {safe(name)}: {rate:.0%}"


def _plan(plan: Mapping[str, Any]) -> Iterator[str]:
    """A fence longer than any run of backticks in it, so that a plan cannot end it."""
    quality = "void" if plan["quality"] is None else f"quality {plan['quality']:g}"
    yield (
        f"{safe(plan['domain'])}, lambda {plan['lambda']:g}, workers "
        f"{safe(', '.join(plan['workers']))}: {quality}, ${plan['cost_usd_per_1k']:.3f}"
    )
    body = [*([plan["question"]] if "question" in plan else []), *plan["plans"]]
    text = "\n".join(part.rstrip("\n") for part in body)
    fence = "`" * max(3, 1 + _longest_run(text))
    yield from ["", fence, *text.split("\n"), fence, ""]


def _longest_run(text: str) -> int:
    runs, run = 0, 0
    for letter in text:
        run = run + 1 if letter == "`" else 0
        runs = max(runs, run)
    return runs
