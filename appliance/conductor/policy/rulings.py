"""What a verdict comes to, in a form that two policies can be compared by.

`looser` is the one question of change control: may data go where it could not, or with less done to
it before? Everything that guards a change (emergency, replay, diff) asks it of pairs of rulings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from conductor.core import Verdict

Decision = Literal["allow", "promise", "deny"]
"""`promise`: only once every obligation has been carried out."""


@dataclass(frozen=True)
class Ruling:
    """One decision. `promise` holds the obligations as text, `redact:redact-pii-v2`."""

    decision: Decision
    rule: str
    promise: frozenset[str] = frozenset()

    def same_as(self, other: Ruling) -> bool:
        """Whether both let the same happen, by whichever rule."""
        return (self.decision, self.promise) == (other.decision, other.promise)


def ruling(verdict: Verdict) -> Ruling:
    """A verdict as a ruling."""
    promise = frozenset(map(str, verdict.promise))
    if verdict.allow:
        return Ruling("allow", verdict.rule)
    return Ruling("promise" if promise else "deny", verdict.rule, promise)


def looser(before: Ruling, after: Ruling) -> bool:
    """Whether `after` lets something happen that `before` did not."""
    if after.decision == "deny" or before.decision == "allow":
        return False
    if after.decision == "allow" or before.decision == "deny":
        return True
    return not before.promise <= after.promise


def recorded_rulings(verdicts: Any) -> Mapping[str, Ruling]:
    """The rulings of an audit record, by worker; what cannot be understood is left out.

    Each is `[decision, rule]` or `[decision, rule, [obligation, ...]]`; in the first records the
    decision was true or false.
    """
    if not isinstance(verdicts, dict):
        return {}
    found = {worker: _recorded(stated) for worker, stated in verdicts.items()}
    return {worker: one for worker, one in found.items() if one is not None}


def _recorded(stated: Any) -> Ruling | None:
    if not isinstance(stated, list) or len(stated) < 2 or not isinstance(stated[1], str):
        return None
    promise = stated[2] if len(stated) > 2 and isinstance(stated[2], list) else []
    decision = stated[0]
    if isinstance(decision, bool):
        decision = "allow" if decision else "promise" if promise else "deny"
    if decision not in get_args(Decision):
        return None
    return Ruling(decision, stated[1], frozenset(map(str, promise)))
