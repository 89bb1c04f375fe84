"""How far a training is, for people: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from conductor_build.curves import Line

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_EVERY_S = 5.0
_SMOOTH = 20


class Recent:
    """Means over the last iterations, which alone say little."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=_SMOOTH)

    def add(self, line: Line) -> None:
        self._lines.append(line)

    def mean(self, name: str) -> float:
        values = [float(getattr(line, name)) for line in self._lines]
        return sum(values) / len(values)

    def text(self, total: int) -> str:
        """Everything that is shown of a training, in one line."""
        last = self._lines[-1]
        seconds = self.mean("seconds")
        return (
            f"{last.stage} {last.iteration}/{total}"
            f"  {self.mean('episodes') / max(seconds, 1e-9):.0f} episodes/s"
            f"  reward {self.mean('reward'):.4f}  accuracy {self.mean('accuracy'):.3f}"
            f"  cost {self.mean('cost_usd_per_1k'):.3f}  entropy {self.mean('entropy'):.3f}"
            f"  calls {self.mean('calls'):.2f}  rounds {self.mean('rounds'):.2f}"
            f"  ETA {_clock(seconds * (total - last.iteration))}"
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Plain:
    """A line every few seconds, at the first and the last iteration, and when a stage changes."""

    def __init__(self, say: Callable[[str], None], every_s: float = PLAIN_EVERY_S) -> None:
        self._say, self._every_s = say, every_s
        self._recent, self._stage, self._said = Recent(), "", float("-inf")

    def note(self, text: str) -> None:
        self._say(text)

    def encoded(self, done: int, total: int) -> None:
        if total and (done == total or self._due()):
            self._say(f"encoding questions: {done} of {total}")

    def iteration(self, line: Line, total: int) -> None:
        self._recent.add(line)
        if line.stage != self._stage or line.iteration == total or self._due():
            self._stage, self._said = line.stage, time.monotonic()
            self._say(self._recent.text(total))

    def _due(self) -> bool:
        now = time.monotonic()
        due = now - self._said >= self._every_s
        if due:
            self._said = now
        return due


class Live:
    """Two bars: questions, iterations."""

    def __init__(self, bars: Progress) -> None:
        self._bars, self._recent = bars, Recent()
        self._encoding = bars.add_task("encoding questions", total=None, visible=False)
        self._learning = bars.add_task("", total=None, visible=False)

    def note(self, text: str) -> None:
        self._bars.console.print(text)

    def encoded(self, done: int, total: int) -> None:
        shown = 0 < total != done
        self._bars.update(self._encoding, completed=done, total=total, visible=shown)

    def iteration(self, line: Line, total: int) -> None:
        self._recent.add(line)
        self._bars.update(
            self._learning,
            completed=line.iteration,
            total=total,
            description=self._recent.text(total),
            visible=True,
        )


@contextmanager
def watching() -> Iterator[Plain | Live]:
    """What suits the standard error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Plain(lambda text: click.echo(text, err=True))
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), console=console) as bars:
        yield Live(bars)
