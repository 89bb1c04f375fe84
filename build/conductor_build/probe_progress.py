"""How far a probe is, for people: a bar for each worker on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from conductor_build.probe import Watch
from conductor_build.probe_journal import Asked

PLAIN_EVERY_S = 5.0


@dataclass
class Tally:
    """What came of one worker's questions, in this run."""

    scored: int = 0
    right: float = 0.0
    void: int = 0
    seconds: float = 0.0
    usd: float = 0.0

    def add(self, row: Asked) -> None:
        self.seconds += row.seconds
        self.usd += row.usd
        self.void += row.void is not None
        if row.score is not None:
            self.scored += 1
            self.right += row.score

    def text(self) -> str:
        """In a few words."""
        share = f"{self.right / self.scored:.2f} right" if self.scored else "nothing scored"
        asked = self.scored + self.void
        void = f", {self.void} void" if self.void else ""
        usd = f", ${self.usd:.4f}" if self.usd else ""
        return f"{share} of {self.scored}{void}, {self.seconds / max(asked, 1):.1f} s each{usd}"


def plain(say: Callable[[str], None], every_s: float = PLAIN_EVERY_S) -> Watch:
    """A line for a worker every few seconds, and when it has no question left."""
    tallies: dict[str, Tally] = {}
    said: dict[str, float] = {}

    def note(row: Asked, left: int) -> None:
        tally = tallies.setdefault(row.worker, Tally())
        tally.add(row)
        now = time.monotonic()
        if not left or now - said.get(row.worker, float("-inf")) >= every_s:
            said[row.worker] = now
            say(f"{row.worker}: {left} left; {tally.text()}")

    return note


@contextmanager
def watching(workers: Sequence[str], total: Mapping[str, int]) -> Iterator[Watch]:
    """What suits the standard error stream. `total` is how many questions each has."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield plain(lambda text: click.echo(text, err=True))
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console) as bars:
        rows = {name: bars.add_task(name, total=total[name]) for name in workers}
        tallies = {name: Tally() for name in workers}

        def note(row: Asked, left: int) -> None:
            name = row.worker
            tallies[name].add(row)
            described = f"{name}  {tallies[name].text()}"
            bars.update(rows[name], completed=total[name] - left, description=described)

        yield note
