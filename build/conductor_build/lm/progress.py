"""The course of a training: what is kept of each iteration, and how far it is, for people.

A live display on a terminal, a line an iteration elsewhere. An iteration takes seconds to minutes:
of each the three phases are told apart, so that it is seen who keeps whom waiting.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.progress import Progress

_SMOOTH = 10
PLAIN_EVERY_S = 5.0


@dataclass(frozen=True)
class LmLine:
    """One iteration: means over its episodes that were not void. A step of the warm start plays
    nothing, and has None where plays are told of. `iteration` counts from 1 over everything."""

    iteration: int
    stage: str
    loss: float
    entropy: float
    """Nats a chosen token."""
    reward: float | None = None
    accuracy: float | None = None
    utility: float | None = None
    cost_usd_per_1k: float | None = None
    parsed: float | None = None
    steps: float | None = None
    """Of a plan."""
    calls: float | None = None
    rounds: float | None = None
    output_tokens: float | None = None
    """Of the workers, an episode."""
    plan_tokens: float | None = None
    """Written by the policy, an episode."""
    plans: int = 0
    """Different plans among the episodes, by their text: 1 a game means that the policy has
    collapsed."""
    episodes: int = 0
    voids: int = 0
    skipped: int = 0
    """Groups in which too few episodes were left."""
    write_s: float = 0.0
    play_s: float = 0.0
    improve_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.write_s + self.play_s + self.improve_s


SHOWN = (
    ("reward", "reward"),
    ("accuracy", "accuracy"),
    ("utility", "utility"),
    ("cost_usd_per_1k", "cost, USD per 1,000 requests"),
    ("entropy", "entropy, nats a token"),
    ("steps", "steps a plan"),
    ("calls", "calls a request"),
    ("parsed", "share of plans that parse"),
    ("loss", "loss"),
)
"""What the picture shows of a line."""


class Watch(Protocol):
    """Who is told how far a training is."""

    def note(self, text: str) -> None:
        """Something else is begun, or was measured."""

    def iteration(self, line: LmLine, total: int) -> None:
        """One more of `total` iterations is done."""


class Recent:
    """Means over the last iterations, which alone say little."""

    def __init__(self) -> None:
        self._lines: deque[LmLine] = deque(maxlen=_SMOOTH)

    def add(self, line: LmLine) -> None:
        if self._lines and self._lines[-1].stage != line.stage:
            self._lines.clear()
        self._lines.append(line)

    def _mean(self, name: str) -> float:
        values = [value for one in self._lines if (value := getattr(one, name)) is not None]
        return sum(values) / len(values) if values else 0.0

    def text(self, total: int) -> str:
        """Everything that is shown of a training, in one line."""
        last = self._lines[-1]
        parts = [f"{last.stage} {last.iteration}/{total}", f"loss {self._mean('loss'):.4f}"]
        parts.append(f"entropy {self._mean('entropy'):.3f}")
        if last.reward is not None:
            parts += self._played()
        phases = " + ".join(
            f"{name} {self._mean(f'{name}_s'):.1f}" for name in ("write", "play", "improve")
        )
        left = self._mean("seconds") * (total - last.iteration)
        return "  ".join([*parts, f"s: {phases}", f"ETA {_clock(left)}"])

    def _played(self) -> list[str]:
        shown = (("reward", 3), ("accuracy", 3), ("cost_usd_per_1k", 3), ("parsed", 2))
        said = [f"{name.partition('_')[0]} {self._mean(name):.{digits}f}" for name, digits in shown]
        voids = sum(one.voids for one in self._lines)
        return [*said, f"steps {self._mean('steps'):.2f}", f"voids {voids}"]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Plain:
    """A line every few seconds, at the last iteration, and when a stage changes."""

    def __init__(self, say: Callable[[str], None], every_s: float = PLAIN_EVERY_S) -> None:
        self._say, self._every_s = say, every_s
        self._recent, self._stage, self._said = Recent(), "", float("-inf")

    def note(self, text: str) -> None:
        self._say(text)

    def iteration(self, line: LmLine, total: int) -> None:
        self._recent.add(line)
        now = time.monotonic()
        if line.stage != self._stage or line.iteration == total or now - self._said > self._every_s:
            self._stage, self._said = line.stage, now
            self._say(self._recent.text(total))


class Live:
    """A bar of iterations, and notes above it."""

    def __init__(self, bars: Progress) -> None:
        self._bars, self._recent = bars, Recent()
        self._bar = bars.add_task("", total=None, visible=False)

    def note(self, text: str) -> None:
        self._bars.console.print(text)

    def iteration(self, line: LmLine, total: int) -> None:
        self._recent.add(line)
        self._bars.update(
            self._bar, completed=line.iteration, total=total,
            description=self._recent.text(total), visible=True,
        )  # fmt: skip


@contextmanager
def watching() -> Iterator[Watch]:
    """What suits the standard error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Plain(lambda text: click.echo(text, err=True))
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), console=console) as bars:
        yield Live(bars)
