"""How far a download is, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from conductor.workers.fetch import Progress


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on a terminal, a line for every tenth elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield tenths(lambda line: click.echo(line, err=True))
        return
    with Bar("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task("")

        def report(model_id: str, done: int, total: int) -> None:
            bar.update(task, description=model_id, completed=done, total=total)

        yield report


def tenths(say: Callable[[str], None]) -> Progress:
    """Says a line for every tenth."""
    shown: dict[str, int] = {}

    def report(model_id: str, done: int, total: int) -> None:
        tenth = 10 * done // max(1, total)
        if shown.get(model_id, -1) < tenth:
            shown[model_id] = tenth
            say(f"{model_id}: {10 * tenth} %")

    return report
