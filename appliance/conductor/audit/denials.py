"""What a decision denied, by the rule that denied it.

That a remote worker stays unused because no rule allows it is the default, and so is an allow that
waits for its obligations: neither is told as a denial unless nothing at all was left to plan with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conductor.audit.sendings import verdicts

_DEFAULTS = ("baseline.",)


@dataclass(frozen=True)
class Denial:
    """One rule that kept data from these workers. `refused`: it helped to leave none at all."""

    rule: str
    workers: tuple[str, ...]
    refused: bool


def denials(record: dict[str, Any]) -> tuple[Denial, ...]:
    """By rule, in order of its name; empty for any record that is no decision or round."""
    if record["event"] not in ("decision", "round"):
        return ()
    judged = dict(verdicts(record))
    left = any(verdict.allowed for verdict in judged.values()) or record.get("plan")
    by_rule: dict[str, list[str]] = {}
    for worker, verdict in judged.items():
        by_default = verdict.promised or verdict.rule.startswith(_DEFAULTS)
        if not verdict.allowed and not (left and by_default):
            by_rule.setdefault(verdict.rule or "unknown", []).append(worker)
    refused = not left
    return tuple(
        Denial(rule, tuple(sorted(workers)), refused) for rule, workers in sorted(by_rule.items())
    )
