"""The token counts that a worker reports with its answer, read with suspicion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from conductor.core import Body, Usage

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


@dataclass(frozen=True)
class Reported:
    """A worker's `usage` object. `details` holds the finer counts, if it gave any."""

    usage: Usage
    details: Body

    @classmethod
    def read(cls, raw: Any) -> Self | None:
        """None for anything that does not count tokens; that a count is true is not checked."""
        if not isinstance(raw, dict):
            return None
        prompt = _count(raw.get("prompt_tokens"))
        completion = _count(raw.get("completion_tokens", 0))
        if prompt is None or completion is None:
            return None
        details = {key: raw[key] for key in _DETAILS if isinstance(raw.get(key), dict)}
        return cls(Usage(prompt, completion), details)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None
