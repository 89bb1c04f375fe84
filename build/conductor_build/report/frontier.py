"""The picture of an evaluation: accuracy over cost, the conductor as a line over lambdas with its
intervals, every baseline a marker. For each pool the whole and a close-up."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conductor_build.baselines.plays import EvaluationError
from conductor_build.evaluate.judge import CONDUCTOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from conductor_build.evaluate.judge import Evaluation, Judged
    from conductor_build.evaluate.scores import Result

Drawn = dict[str, list["Result"]]
"""Results of each policy, one a lambda."""

PANEL_INCHES = (15.0, 6.0)
DPI = 120
SINGLE = "single("


@dataclass(frozen=True)
class Look:
    """How a policy is drawn. Colours stay apart for colour-blind readers (Okabe and Ito, 2008)."""

    label: str
    marker: str
    colour: str
    size: float = 7.0


LOOKS = {
    CONDUCTOR: Look("conductor", "o", "#D55E00", 8.0),
    "best_fixed": Look("best fixed strategy", "s", "#0072B2"),
    "best_fixed_per_task": Look("best fixed per task", "D", "#56B4E9"),
    "best_cascade": Look("best cascade", "^", "#009E73"),
    "best_cascade_per_task": Look("best cascade per task", "v", "#009E73"),
    "best_single": Look("best single", "P", "#333333"),
    "best_single_per_task": Look("best single per task", "X", "#333333"),
    "best_vote": Look("best vote", "p", "#CC79A7"),
    "knn": Look("kNN router", "<", "#E6AB02"),
    "logistic": Look("logistic router", ">", "#E6AB02"),
    "random": Look("random worker", "x", "#777777"),
    "oracle": Look("oracle (sees outcomes)", "*", "#BBBBBB", 9.0),
    "oracle_cheapest_right": Look("cheapest right (sees outcomes)", "h", "#BBBBBB"),
    # of language models, which are played on workers
    "zero_shot": Look("untrained conductor", "s", "#0072B2"),
    "best_of_n": Look("best of n, at equal tokens", "D", "#CC79A7"),
    "vote_of_n": Look("vote of n, at equal tokens", "p", "#CC79A7"),
    "cheap_then_strong": Look("cheap, then strong", "^", "#009E73"),
    "solve_then_check": Look("solve, then check", "v", "#009E73"),
    "fan_out": Look("all workers, one aggregates", "H", "#56B4E9"),
    "random_plans": Look("random plans as long", "x", "#777777"),
}
"""Also the order of the legend."""
FAR = ("oracle", "random", "best_vote", "zero_shot")
CLOSE = tuple(name for name in LOOKS if not name.startswith(FAR))
"""Policies that the close-up makes room for."""


def frontier_png(evaluation: Evaluation) -> bytes:
    """The picture as PNG. The same numbers give the same bytes with the same matplotlib.

    Raises `EvaluationError` when matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EvaluationError(
            "the picture needs matplotlib: install conductor-appliance[train]"
        ) from error

    width, height = PANEL_INCHES
    pools = len(evaluation.pools)
    figure = Figure(figsize=(width, height * pools), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(pools, 2, squeeze=False)
    for (whole, close), judged in zip(panels, evaluation.pools, strict=True):
        drawn = _drawable(judged)
        _panel(whole, drawn, f"{judged.pool.title}: {judged.n:,} prompts")
        _panel(close, drawn, "the same, around the conductor and what was chosen or learned")
        _close_up(close, drawn)
        _name_lambdas(close, drawn.get(CONDUCTOR, []))
        _legend(close, drawn)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _drawable(judged: Judged) -> Drawn:
    """What has a place in the picture: accuracy and cost both known."""
    drawn: Drawn = {}
    for result in judged.results:
        score = result.overall
        if math.isfinite(score.accuracy.mean) and math.isfinite(score.cost.mean):
            drawn.setdefault(result.policy, []).append(result)
    return drawn


def _panel(axes: Axes, drawn: Drawn, title: str) -> None:
    floor = _log_axis(axes, drawn)
    _singles(axes, _single_workers(drawn), floor)
    for policy in reversed(LOOKS):
        if policy in drawn and policy != CONDUCTOR:
            _baseline(axes, LOOKS[policy], drawn[policy], floor)
    if CONDUCTOR in drawn:
        _conductor(axes, drawn[CONDUCTOR], floor)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("cost, USD per 1,000 prompts")
    axes.set_ylabel("accuracy")
    axes.grid(visible=True, which="major", color="#E8E8E8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _log_axis(axes: Axes, drawn: Drawn) -> float:
    """Make cost logarithmic where any is positive. Returns where free policies are drawn."""
    from matplotlib.ticker import LogLocator, NullFormatter

    costs = [r.overall.cost.mean for results in drawn.values() for r in results]
    positive = [cost for cost in costs if cost > 0]
    if not positive:
        return 0.0
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, _: f"\\${value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return min(positive) / 2


def _close_up(axes: Axes, drawn: Drawn) -> None:
    """Limit a panel to what was chosen, learned or conducted; weak workers need the room else."""
    scores = [r.overall for name in CLOSE for r in drawn.get(name, [])]
    if not scores:
        return
    low = min(score.accuracy.mean for score in scores)
    high = max(score.accuracy.mean for score in scores)
    for result in drawn.get(CONDUCTOR, []):
        low, high = min(low, result.overall.accuracy.low), max(high, result.overall.accuracy.high)
    margin = 0.08 * (high - low) + 0.005
    axes.set_ylim(low - margin, high + margin)
    costs = [score.cost.mean for score in scores if score.cost.mean > 0]
    if costs and axes.get_xscale() == "log":
        axes.set_xlim(min(costs) / 1.3, max(costs) * 1.3)


def _singles(axes: Axes, singles: list[Result], floor: float) -> None:
    """Grey discs, each beside the number that the legend explains."""
    for number, result in enumerate(singles, start=1):
        at = (max(result.overall.cost.mean, floor), result.overall.accuracy.mean)
        axes.plot(*at, "o", markersize=9, color="#DDDDDD", markeredgecolor="#999999")
        axes.annotate(
            str(number),
            at,
            xytext=(-6, 5),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color="#444444",
            annotation_clip=True,
        )


def _baseline(axes: Axes, look: Look, results: list[Result], floor: float) -> None:
    axes.plot(
        [max(result.overall.cost.mean, floor) for result in results],
        [result.overall.accuracy.mean for result in results],
        marker=look.marker,
        markersize=look.size,
        color=look.colour,
        markeredgecolor="white" if look.marker != "x" else look.colour,
        linewidth=0.8,
        linestyle=":",
        alpha=0.9,
    )


def _conductor(axes: Axes, results: list[Result], floor: float) -> None:
    look = LOOKS[CONDUCTOR]
    x = [max(result.overall.cost.mean, floor) for result in results]
    costs = [result.overall.cost for result in results]
    accuracy = [result.overall.accuracy for result in results]
    left = [at - max(each.low, floor) for at, each in zip(x, costs, strict=True)]
    right = [each.high - at for at, each in zip(x, costs, strict=True)]
    below = [each.mean - each.low for each in accuracy]
    above = [each.high - each.mean for each in accuracy]
    axes.errorbar(
        x,
        [each.mean for each in accuracy],
        xerr=[[max(length, 0.0) for length in side] for side in (left, right)],
        yerr=[[max(length, 0.0) for length in side] for side in (below, above)],
        marker=look.marker,
        markersize=look.size,
        color=look.colour,
        linewidth=2.0,
        elinewidth=1.0,
        capsize=2.5,
        zorder=5,
    )


def _name_lambdas(axes: Axes, results: list[Result]) -> None:
    """Write lambda at each point of the conductor; neighbours too close for two words share one."""
    shared: list[tuple[tuple[float, float], list[str]]] = []
    to_fraction = axes.transData + axes.transAxes.inverted()
    for result in results:
        at = (result.overall.cost.mean, result.overall.accuracy.mean)
        x, y = to_fraction.transform(at)
        if shared:
            before = to_fraction.transform(shared[-1][0])
            if abs(x - before[0]) < 0.09 and abs(y - before[1]) < 0.05:
                shared[-1][1].append(f"{result.lam:g}")
                continue
        shared.append((at, [f"{result.lam:g}"]))
    for at, lambdas in shared:
        axes.annotate(
            f"λ {', '.join(lambdas)}",
            at,
            xytext=(8, -14),
            textcoords="offset points",
            fontsize=8,
            color=LOOKS[CONDUCTOR].colour,
            annotation_clip=True,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
            zorder=6,
        )


def _single_workers(drawn: Drawn) -> list[Result]:
    return [results[0] for name, results in drawn.items() if name.startswith(SINGLE)]


def _legend(axes: Axes, drawn: Drawn) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D(
            [],
            [],
            marker=look.marker,
            color=look.colour,
            linestyle="-" if policy == CONDUCTOR else ":",
            label=look.label,
        )
        for policy, look in LOOKS.items()
        if policy in drawn
    ]
    for number, result in enumerate(_single_workers(drawn), start=1):
        name = result.policy.removeprefix(SINGLE).removesuffix(")")
        plain = name[:40].replace("$", r"\$")  # a dollar would start a formula
        lines.append(Line2D([], [], linestyle="", label=f"{number:>2}  {plain}"))
    axes.legend(
        handles=lines, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False
    )
