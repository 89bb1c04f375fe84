"""`cards.json`: what `conductor-build probe` measured of workers, read strictly.

`workers.yaml` names it with `cards: FILE`, and `conductor models cards` shows it. Its form stands
in docs/formats.md; the build stage writes it. Only cards are taken from it: what a worker is, where
its data goes and what it costs stays what `workers.yaml` says.

A file that is wrong anywhere is refused as a whole: nobody plans by half a measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson

from conductor.core import VERBOSITY, Card, Price
from conductor.errors import ConductorError

VERSION = 1
MAX_BYTES = 4 * 1024 * 1024

_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MOST = 1e9
_PROBE = "measure anew with `conductor-build probe`"


class CardsError(ConductorError):
    """A file of cards cannot be used. The message is one line and never holds the file's text."""


@dataclass(frozen=True)
class Measure:
    """One worker's answers in one domain. `low` and `high`: Wilson's 95 % interval of `share`."""

    asked: int
    right: float
    share: float
    low: float
    high: float
    output_tokens: float
    """Mean of an answer."""
    usd_per_1k: float


@dataclass(frozen=True)
class Measured:
    """All that a probe found of one worker. `card` None: no answer could be scored."""

    model: str
    card: Card | None
    price: Price
    domains: Mapping[str, Measure]
    latency_s: tuple[float, float] | None
    """Median and 95th percentile of an answer's time."""
    void: Mapping[str, int]
    """Answers that say nothing of the worker, by reason."""


@dataclass(frozen=True)
class Cards:
    """A whole file."""

    measured_at: datetime
    questions: int
    workers: Mapping[str, Measured] = field(repr=False)


NONE = Cards(datetime.fromtimestamp(0, UTC), 0, {})
"""Where no file is named."""


def read_cards(path: Path) -> Cards:
    """The file at `path`. Raises `CardsError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CardsError(f"the cards cannot be read ({error.strerror}): check the path") from None
    return decode(data)


def decode(data: bytes) -> Cards:
    """The same from its bytes. Raises `CardsError`."""
    if len(data) > MAX_BYTES:
        raise CardsError(f"a file of cards has at most {MAX_BYTES} bytes")
    try:
        found = orjson.loads(data)
        version = found["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise CardsError("this is no cards.json of `conductor-build probe`") from None
    if version != VERSION:
        raise CardsError(f"these cards are not of version {VERSION}: {_PROBE}")
    try:
        return Cards(
            _time(found["measured_at"]),
            _count(found["questions"]),
            {str(name): _measured(one) for name, one in found["workers"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CardsError(f"these cards are damaged or were changed by hand: {_PROBE}") from None


def _measured(found: Mapping[str, Any]) -> Measured:
    latency, price = found["latency_s"], found["price"]
    return Measured(
        model=_text(found["model"]),
        card=None if found["card"] is None else _card(found["card"]),
        price=Price(_number(price["input_usd_per_mtok"]), _number(price["output_usd_per_mtok"])),
        domains={_domain(name): _measure(one) for name, one in found["domains"].items()},
        latency_s=None
        if latency is None
        else (_number(latency["median"]), _number(latency["p95"])),
        void={_text(name): _count(count) for name, count in found["void"].items()},
    )


def _card(found: Mapping[str, Any]) -> Card:
    skill = {_domain(name): _number(share, 0.0, 1.0) for name, share in found["skill"].items()}
    if not skill or found["source"] != "measured":
        raise ValueError
    return Card(
        skill,
        _number(found["output_tokens_per_s"], 0.001, 1e6),
        "measured",
        _number(found["verbosity"], *VERBOSITY),
    )


def _measure(found: Mapping[str, Any]) -> Measure:
    asked = _count(found["asked"])
    share, low, high = (_number(found[name], 0.0, 1.0) for name in ("share", "low", "high"))
    if not asked or not low <= high:
        raise ValueError
    return Measure(
        asked,
        _number(found["right"], 0.0, float(asked)),
        share,
        low,
        high,
        _number(found["output_tokens"]),
        _number(found["usd_per_1k"]),
    )


def _time(value: Any) -> datetime:
    found = datetime.fromisoformat(_text(value))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _domain(name: Any) -> str:
    if not isinstance(name, str) or not _DOMAIN.fullmatch(name):
        raise ValueError
    return name


def _text(value: Any) -> str:
    """A line that a terminal may show."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 256:
        raise ValueError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError
    return value


def _number(value: Any, low: float = 0.0, high: float = _MOST) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
        raise ValueError
    return float(cast(float, value))
