"""From answers that were scored to cards: shares with intervals, lengths, speed, price.

`cards.json` holds for each worker the very `card` that `workers.yaml` takes, and beside it what it
rests on. A skill is the plain share of right answers; its 95 % interval is Wilson's (J. Am. Stat.
Assoc. 22, 1927), which holds for few questions and for shares near 0 and 1 too. Voids are counted
apart and are in no share. A worker without one scored answer has no card.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from conductor.core import VERBOSITY, Card, Worker
from conductor_build.probe_journal import Asked, ProbeError, identity

CARDS_VERSION = 1
Z95 = 1.959964
"""Of a normal distribution, 95 % lie within as many standard deviations."""
Document = dict[str, Any]


def wilson(right: float, asked: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `right` of `asked` is what was seen."""
    if not asked:
        return 0.0, 1.0
    share, weight = right / asked, Z95**2 / asked
    middle = (share + weight / 2) / (1 + weight)
    half = Z95 * math.sqrt(share * (1 - share) / asked + weight / (4 * asked)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)


def document(workers: Sequence[Worker], rows: Sequence[Asked], told: Mapping[str, Any]) -> Document:
    """What goes into `cards.json`. Of a question that was asked again, the last row counts; `told`
    is what else there is to say of the probe."""
    latest = {(row.worker, row.identity, row.key): row for row in rows}
    own = {
        worker.id: [row for row in latest.values() if (row.worker, row.identity) == _name(worker)]
        for worker in workers
    }
    scored = {name: [row for row in mine if row.score is not None] for name, mine in own.items()}
    verbosity = _verbosity(scored)
    return {
        "version": CARDS_VERSION,
        **told,
        "workers": {
            worker.id: _worker(worker, own[worker.id], scored[worker.id], verbosity.get(worker.id))
            for worker in workers
        },
    }


def _name(worker: Worker) -> tuple[str, str]:
    return worker.id, identity(worker)


def _worker(
    worker: Worker, rows: list[Asked], scored: list[Asked], verbosity: float | None
) -> Document:
    voids = Counter(row.void for row in rows if row.void is not None)
    seconds = [row.seconds for row in scored]
    return {
        "model": worker.model,
        "card": _card(scored, verbosity) if scored else None,
        "price": {
            "input_usd_per_mtok": worker.price.input_usd_per_mtok,
            "output_usd_per_mtok": worker.price.output_usd_per_mtok,
        },
        "domains": {name: _domain(scored, name) for name in _domains(scored)},
        "latency_s": {"median": _round(statistics.median(seconds)), "p95": _round(_p95(seconds))}
        if seconds
        else None,
        "void": dict(sorted(voids.items())),
    }


def _card(scored: list[Asked], verbosity: float | None) -> Document:
    seconds = sum(row.seconds for row in scored)
    tokens = sum(row.output_tokens for row in scored)
    skill = {name: _domain(scored, name)["share"] for name in _domains(scored)}
    low, high = VERBOSITY
    return {
        "skill": skill,
        "output_tokens_per_s": max(0.001, _round(tokens / max(seconds, 1e-6))),
        "source": "measured",
        "verbosity": _round(min(high, max(low, verbosity or 1.0))),
    }


def _domains(scored: list[Asked]) -> list[str]:
    return sorted({row.domain for row in scored})


def _domain(scored: list[Asked], name: str) -> Document:
    rows = [row for row in scored if row.domain == name]
    right = sum(row.score or 0.0 for row in rows)
    low, high = wilson(right, len(rows))
    return {
        "asked": len(rows),
        "right": _round(right),
        "share": _round(right / len(rows)),
        "low": _round(low),
        "high": _round(high),
        "output_tokens": _round(statistics.fmean(row.output_tokens for row in rows)),
        "usd_per_1k": _round(1000 * statistics.fmean(row.usd for row in rows)),
    }


def _verbosity(scored: Mapping[str, list[Asked]]) -> dict[str, float]:
    """How long answers are, against the mean of all workers on the same questions. Questions that
    only one worker answered tell nothing."""
    lengths: dict[str, list[int]] = {}
    for rows in scored.values():
        for row in rows:
            lengths.setdefault(row.key, []).append(row.output_tokens)
    mean = {key: statistics.fmean(all_) for key, all_ in lengths.items() if len(all_) > 1}
    found = {}
    for name, rows in scored.items():
        shared = [row for row in rows if row.key in mean]
        if expected := sum(mean[row.key] for row in shared):
            found[name] = sum(row.output_tokens for row in shared) / expected
    return found


def _p95(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def _round(value: float) -> float:
    """Four digits that count: no measurement here has more."""
    return float(f"{value:.4g}")


# -- reading them again ---------------------------------------------------------------------------


def read_cards(path: Path) -> dict[str, Card]:
    """The cards of a `cards.json`, by worker id; workers without one are left out.

    Raises `ProbeError`.
    """
    try:
        found = orjson.loads(path.read_bytes())
        if found["version"] != CARDS_VERSION:
            raise ProbeError(f"{path} is of version {found['version']}: measure anew")
        cards = {name: one["card"] for name, one in found["workers"].items()}
        return {name: _read(card) for name, card in cards.items() if card is not None}
    except OSError:
        raise ProbeError(f"{path} cannot be read") from None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise ProbeError(f"{path} is no cards.json of `conductor-build probe`") from None


def _read(card: Document) -> Card:
    skill = {str(name): float(share) for name, share in card["skill"].items()}
    low, high = VERBOSITY
    fits = all(0 <= share <= 1 for share in skill.values()) and card["source"] == "measured"
    if not (skill and fits and low <= card["verbosity"] <= high):
        raise ValueError
    return Card(skill, float(card["output_tokens_per_s"]), card["source"], card["verbosity"])


def as_yaml(found: Document) -> str:
    """The cards as they can be pasted into `workers.yaml`."""
    lines = []
    for name, worker in found["workers"].items():
        card = cast(Document | None, worker["card"])
        if card is not None:
            skill = ", ".join(f"{domain}: {share:g}" for domain, share in card["skill"].items())
            lines.append(
                f"# {name}\n    card:\n      skill: {{{skill}}}\n"
                f"      output_tokens_per_s: {card['output_tokens_per_s']:g}\n"
                f"      verbosity: {card['verbosity']:g}\n      source: measured\n"
            )
    return "".join(lines)
