"""The course of a training: one JSON line an iteration, and a picture."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from conductor_build.files import OutputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LINES, PICTURE = "curves.jsonl", "curves.png"
_SMOOTH = 20
"""Iterations of which a line in the picture is the mean."""
SHOWN = (
    ("reward", "reward"),
    ("accuracy", "accuracy"),
    ("cost_usd_per_1k", "cost, USD per 1,000 requests"),
    ("entropy", "entropy, nats"),
    ("calls", "calls a request"),
    ("rounds", "rounds a request"),
)
"""The fields of a line that the picture shows, with their titles."""

_L = TypeVar("_L")


@dataclass(frozen=True)
class Line:
    """One iteration: means over its episodes. `iteration` counts from 1 over all stages."""

    iteration: int
    stage: str
    reward: float
    accuracy: float
    cost_usd_per_1k: float
    entropy: float
    calls: float
    rounds: float
    loss: float
    episodes: int
    seconds: float

    @property
    def episodes_per_s(self) -> float:
        return self.episodes / max(self.seconds, 1e-9)


class Curves:
    """The file of lines. Opening it drops those after iteration `done`, which a crash left behind
    and which come again."""

    def __init__(self, folder: Path, done: int) -> None:
        self._path = folder / LINES
        self._path.touch()
        kept = self._path.read_bytes().split(b"\n")[:done]
        size = sum(len(line) + 1 for line in kept)
        os.truncate(self._path, min(size, self._path.stat().st_size))
        self._file: IO[str] = self._path.open("a")

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._file.close()

    def add(self, line: DataclassInstance) -> None:
        """Write a line, at once."""
        try:
            self._file.write(json.dumps(asdict(line)) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(
                f"{self._path} cannot be written ({os.strerror(error.errno or 0)}); the last "
                "checkpoint is whole: make room, then go on with --resume"
            ) from None

    def sync(self) -> None:
        """Put the lines on the disk: before a checkpoint that counts on them."""
        os.fsync(self._file.fileno())


def read_lines(folder: Path) -> list[Line]:
    """All whole lines."""
    return read_as(Line, folder)


def read_as(kind: type[_L], folder: Path) -> list[_L]:
    """All whole lines, of a training whose lines are of another kind."""
    text = (folder / LINES).read_text()
    return [kind(**json.loads(line)) for line in text.splitlines()]


def picture(lines: Sequence[Any], shown: Sequence[tuple[str, str]] = SHOWN) -> bytes:
    """Curves as PNG. `shown` are fields of the lines with titles; None in a field leaves a gap.
    Lines have an `iteration` and a `stage`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(shown) // 3)
    figure = Figure(figsize=(11, 3 * rows))
    figure.subplots_adjust(0.06, 0.08, 0.98, 0.95, hspace=0.35)
    FigureCanvasAgg(figure)
    at = np.array([line.iteration for line in lines])
    for place, (name, title) in enumerate(shown, 1):
        axes = figure.add_subplot(rows, 3, place)
        values = np.array([getattr(line, name) for line in lines], dtype=np.float64)
        axes.plot(at, values, color="0.8", linewidth=0.7)
        axes.plot(at, _smoothed(values), color="C0")
        for line, before in zip(lines[1:], lines, strict=False):
            if line.stage != before.stage:
                axes.axvline(line.iteration, color="0.5", linewidth=0.7, linestyle="--")
        axes.set_title(title)
        axes.set_xlabel("iteration")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return buffer.getvalue()


def _smoothed(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Means over the last iterations; of those with a value, where some have none."""
    recent = (values[max(0, i - _SMOOTH + 1) : i + 1] for i in range(len(values)))
    known = (some[np.isfinite(some)] for some in recent)
    return [float(some.mean()) if len(some) else float("nan") for some in known]
