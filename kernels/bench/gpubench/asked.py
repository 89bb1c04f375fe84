"""What a process of `others.py` is asked, and how it answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.sizes import FULL, TINY, Sizes

_ROUNDS = 3


@dataclass(frozen=True)
class Asked:
    """By the parent, as the only argument."""

    tiny: bool
    batches: tuple[int, ...]

    @property
    def sizes(self) -> Sizes:
        return TINY if self.tiny else FULL

    @property
    def prompt(self) -> int:
        """Tokens of a prompt."""
        return self.sizes.prefix + self.sizes.question


def asked(arguments: Sequence[str] | None = None) -> Asked:
    """From the command line."""
    said: dict[str, Any] = json.loads((arguments or sys.argv[1:])[0])
    return Asked(bool(said["tiny"]), tuple(said["batches"]))


def prompts(one: Asked, batch: int) -> list[list[int]]:
    """Ids of letters and other bytes, equal but for the question at the end."""
    prefix = [33 + at * 7 % 90 for at in range(one.sizes.prefix)]
    return [
        prefix + [33 + (at * 11 + number * 5) % 90 for at in range(one.sizes.question)]
        for number in range(batch)
    ]


def tell(one: Asked, what: str, batch: int, write: Callable[[int], object]) -> None:
    """Time `write(tokens)`, which writes so many for each of the batch, and print the row. What a
    token takes is told from two lengths, so that the prompt's part falls out."""
    plan = one.sizes.plan
    write(plan)
    if one.tiny:
        _print({"what": what, "batch": batch, "plan s": None, "first token ms": None,
                "ms a token": None})  # fmt: skip
        return
    first, whole = (min(_seconds(write, count) for _ in range(_ROUNDS)) for count in (1, plan))
    _print(
        {
            "what": what,
            "batch": batch,
            "plan s": round(whole, 4),
            "first token ms": round(first * 1e3, 2),
            "ms a token": round((whole - first) / (plan - 1) * 1e3, 3),
        }
    )


def _seconds(write: Callable[[int], object], count: int) -> float:
    begun = time.perf_counter()
    write(count)
    return time.perf_counter() - begun


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
