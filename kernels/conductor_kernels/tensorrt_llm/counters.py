"""TensorRT-LLM's statistics of its last iterations, as far as an operator needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Counters:
    """At the latest iteration that was told of. 0 for what a version does not tell."""

    running: int = 0
    """Requests in the batch."""
    blocks: int = 0
    """Of the cache, 32 tokens each."""
    blocks_used: int = 0
    blocks_reused: int = 0
    """Since the start: taken from an earlier request's prompt."""
    blocks_missed: int = 0
    """Since the start: computed anew."""


def newest(told: Iterable[Mapping[str, Any]], before: Counters) -> Counters:
    """The last of the records that `get_stats` gives; `before` where there is none."""
    records = list(told)
    if not records:
        return before
    last = records[-1]
    cache: Mapping[str, Any] = last.get("kvCacheStats") or {}
    return Counters(
        running=int(last.get("numActiveRequests", 0)),
        blocks=int(cache.get("maxNumBlocks", 0)),
        blocks_used=int(cache.get("usedNumBlocks", 0)),
        blocks_reused=int(cache.get("reusedBlocks", 0)),
        blocks_missed=int(cache.get("missedBlocks", 0)),
    )
