"""The course of a training: one JSON line an iteration, and a picture."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from conductor_build.files import OutputError

LINES, PICTURE = "curves.jsonl", "curves.png"
_SMOOTH = 20
"""Iterations of which a line in the picture is the mean."""


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

    def add(self, line: Line) -> None:
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
    text = (folder / LINES).read_text()
    return [Line(**json.loads(line)) for line in text.splitlines()]


def picture(lines: Sequence[Line]) -> bytes:
    """Curves as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = (
        ("reward", "reward"),
        ("accuracy", "accuracy"),
        ("cost_usd_per_1k", "cost, USD per 1,000 requests"),
        ("entropy", "entropy, nats"),
        ("calls", "calls a request"),
        ("rounds", "rounds a request"),
    )
    figure = Figure(figsize=(11, 6))
    figure.subplots_adjust(0.06, 0.08, 0.98, 0.95, hspace=0.35)
    FigureCanvasAgg(figure)
    at = np.array([line.iteration for line in lines])
    for place, (name, title) in enumerate(shown, 1):
        axes = figure.add_subplot(2, 3, place)
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
    return [float(values[max(0, i - _SMOOTH + 1) : i + 1].mean()) for i in range(len(values))]
