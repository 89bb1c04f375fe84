"""`conductor models cards`: what was measured of a site's workers, for people and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from conductor.cli.options import config_option, json_option
from conductor.errors import StartError
from conductor.workers.cardsfile import Cards, Measure, Measured, read_cards

if TYPE_CHECKING:
    from conductor.config import Site
    from conductor.core import Worker

_COLUMNS = (
    *("worker", "domain", "right", "share", "95 %", "tokens", "USD/1,000"),
    *("seconds, 95th", "USD/Mtok in, out", "void"),
)


@click.command("cards")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@config_option
@json_option
def cards(file: Path | None, config: Path, as_json: bool) -> None:
    """Show the measured cards of workers: FILE, or the one that workers.yaml names.

    `conductor-build probe` measures them; `cards: FILE` in workers.yaml makes planners see them.
    """
    from conductor.config import load

    if file is not None:
        found, pool = read_cards(file), {}
    else:
        site = load(config)
        found, pool = read_cards(_named(site)), dict(site.worker_by_id)
    now = datetime.now(UTC)
    if as_json:
        click.echo(orjson.dumps(facts(found, pool, now)))
    else:
        _table(found, pool, now)


def _named(site: Site) -> Path:
    """The file that the site's workers.yaml names."""
    from conductor.appliancefile import read_base
    from conductor.strictyaml import source
    from conductor.strictyaml.faults import Faults
    from conductor.workers.poolfile import cards_path

    roots = {name: source.parse(data, name, Faults()) for name, data in site.files.items()}
    path = cards_path(roots["workers.yaml"], read_base(roots["appliance.yaml"]))
    if path is None:
        raise StartError(
            "workers.yaml names no measured cards: run `conductor-build probe`, then say "
            "`cards: FILE` there, or give FILE here"
        )
    return path


def facts(found: Cards, pool: dict[str, Worker], now: datetime) -> dict[str, Any]:
    """Everything as plain JSON. `pool`: the site's workers; empty for a file by itself."""
    workers = {name: _worker(one) for name, one in found.workers.items()}
    return {
        "measured_at": found.measured_at.isoformat(timespec="seconds"),
        "age_s": round((now - found.measured_at).total_seconds()),
        "questions": found.questions,
        "workers": workers,
        "not_measured": _unmeasured(found, pool),
    }


def _worker(one: Measured) -> dict[str, Any]:
    card, latency = one.card, one.latency_s
    return {
        "model": one.model,
        "skill": dict(card.skill) if card else None,
        "output_tokens_per_s": card.output_tokens_per_s if card else None,
        "verbosity": card.verbosity if card else None,
        "input_usd_per_mtok": one.price.input_usd_per_mtok,
        "output_usd_per_mtok": one.price.output_usd_per_mtok,
        "domains": dict(one.domains),
        "latency_s": None if latency is None else {"median": latency[0], "p95": latency[1]},
        "void": dict(one.void),
    }


def _unmeasured(found: Cards, pool: dict[str, Worker]) -> list[str]:
    measured = {name for name, one in found.workers.items() if one.card}
    return [name for name in pool if name not in measured]


# -- for people -----------------------------------------------------------------------------------


def _table(found: Cards, pool: dict[str, Worker], now: datetime) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*_COLUMNS, box=None)
    for name, one in found.workers.items():
        for row in _rows(name, one):
            table.add_row(*row)
    for name in _unmeasured(found, pool):
        if name not in found.workers:
            table.add_row(name, "not measured: the card in workers.yaml counts")
    console = Console(width=None if os.isatty(1) else 160)
    console.print(table)
    age = _age(now - found.measured_at)
    console.print(f"measured {age} ago, {found.questions} questions a worker")


def _rows(name: str, one: Measured) -> Iterator[tuple[str, ...]]:
    """One row a domain; what is said of the whole worker stands in the first."""
    whole = (_latency(one), _price(one), ", ".join(f"{n} {why}" for why, n in one.void.items()))
    if not one.domains:
        yield (name, "no answer could be scored", "", "", "", "", "", *whole)
    for place, (domain, measure) in enumerate(one.domains.items()):
        first = place == 0
        yield (name if first else "", domain, *_measure(measure), *(whole if first else ()))


def _measure(one: Measure) -> tuple[str, ...]:
    return (
        f"{one.right:g} of {one.asked}",
        f"{one.share:.2f}",
        f"{one.low:.2f} to {one.high:.2f}",
        f"{one.output_tokens:g}",
        f"{one.usd_per_1k:g}",
    )


def _latency(one: Measured) -> str:
    return "" if one.latency_s is None else f"{one.latency_s[0]:g}, {one.latency_s[1]:g}"


def _price(one: Measured) -> str:
    price = one.price
    return "free" if price.free else f"{price.input_usd_per_mtok:g}, {price.output_usd_per_mtok:g}"


def _age(passed: timedelta) -> str:
    for name, seconds in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if (count := passed.total_seconds() / seconds) >= 2:
            return f"{count:.0f} {name}"
    return f"{max(0, passed.total_seconds()):.0f} seconds"
