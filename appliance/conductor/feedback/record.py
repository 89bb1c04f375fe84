"""One judged answer as a line of the feedback log (docs/formats.md, "feedback"). Pure.

A line holds the question, which is what a training learns from; of the answer no more than what it
concludes with, of prose only a hash, as in a table of outcomes.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import orjson

from conductor.plan.agreement import key
from conductor.plan.conclusion import READ_CHARS, ends

MAX_FORM_CHARS = 200
"""As tables have it: what is longer is prose."""
_ENTRY_BYTES = 2048
"""What an entry takes beside its texts, roughly."""


@dataclass(frozen=True)
class PlannedRound:
    """One round as it was planned: what a training off-policy needs of it."""

    plan: str
    """In the plan language; its numbers of workers are places in `candidates`."""
    candidates: tuple[str, ...]
    engine: str
    where: str
    bundle: str
    """Id of the bundle that the engine planned with; empty without one."""
    look: bool
    log_prob: float | None
    """Of the choices behind the plan, under the engine's policy; None where it has none."""


@dataclass(frozen=True)
class Answered:
    """An answered request that may still be judged. Texts are not shown by `repr`."""

    request_id: str
    key_id: str
    question: str
    answer: str
    """Its two ends, `READ_CHARS` at most."""
    worker: str
    """Who gave the answer."""
    step: int
    """Which step gave it, over all rounds."""
    round: int
    """Whose plan that step is of, from 0."""
    output_tokens: int
    cost_usd: float
    """Of the whole request."""
    cost_weight: float
    rounds: tuple[PlannedRound, ...]

    def __repr__(self) -> str:
        return f"Answered({self.request_id!r}, {self.worker!r})"

    @property
    def size(self) -> int:
        """Bytes that keeping it takes, at most."""
        plans = sum(len(one.plan) for one in self.rounds)
        return _ENTRY_BYTES + 4 * (len(self.question) + len(self.answer) + plans)


def line(answered: Answered, score: float, at: datetime) -> bytes:
    """The line, its end included. `score` from 0 to 1; `at` is when it was judged."""
    led = answered.rounds[answered.round]
    fields: dict[str, object] = {
        "request_id": answered.request_id,
        "time": at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "question": answered.question,
        "worker": answered.worker,
        "concludes": concludes(answered.answer),
        "score": score,
        "output_tokens": answered.output_tokens,
        "plan": led.plan,
        "step": answered.step,
        "cost_usd": answered.cost_usd,
        "cost_weight": answered.cost_weight,
        "rounds": [asdict(one) for one in answered.rounds],
    }
    if led.log_prob is not None:
        fields["log_prob"] = led.log_prob
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def concludes(answer: str) -> str:
    """What the answer concludes with, as the daemon compares answers; `~` and a hash for prose, of
    as much of it as is read; empty for no answer."""
    read = ends(answer, READ_CHARS)
    words = " ".join(read.split()).casefold()
    if not words:
        return ""
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
    return key(read)[:MAX_FORM_CHARS] or f"~{digest[:16]}"
