"""The roofline as a picture, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpubench.parts import Ceilings
from gpubench.results import Results

_FAINT, _STRONG = "#9aa5b1", "#1f4e79"
_MARKS = {"dense": "o", "fp8": "s", "int8": "^", "int4": "D"}


def draw(results: Results, ceilings: Ceilings, path: Path) -> None:
    """Every op that was timed, under the two ceilings. Nothing without matplotlib or times."""
    points = list(_points(results))
    if not (points and ceilings.copy and ceilings.matmul) or find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    _ceilings(axes, ceilings.copy, ceilings.matmul)
    for kind, mark in _MARKS.items():
        mine = [point for point in points if point[0] == kind]
        axes.scatter(
            [one[1] for one in mine], [one[2] for one in mine],
            marker=mark, label=kind, color=_STRONG, alpha=0.7, s=22,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="products per byte", ylabel="products per second")
    axes.set_title(f"Ops on {results.machine.get('card')}")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _points(results: Results) -> Iterator[tuple[str, float, float]]:
    """Kind, products per byte and products a second of each op."""
    for row in results.table("ops"):
        microseconds, moved, flops = row.get("us"), row.get("bytes"), row.get("flops")
        if isinstance(microseconds, float) and isinstance(moved, (int, float)) and moved:
            made = float(flops or 0)
            if made:
                yield str(row["kind"]), made / moved, made / (microseconds / 1e6)


def _ceilings(axes: Any, bandwidth: float, rate: float) -> None:
    knee = rate / bandwidth
    axes.plot([0.5, knee, knee * 10], [0.5 * bandwidth, rate, rate], color=_FAINT)
    axes.annotate(
        f"{bandwidth / 1e12:.2f} TB/s, {rate / 1e12:.0f} TFLOP/s as measured",
        (knee, rate), textcoords="offset points", xytext=(-10, 8), ha="right", color=_FAINT,
    )  # fmt: skip
