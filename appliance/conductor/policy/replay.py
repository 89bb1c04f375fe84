"""Deciding recorded requests anew: what would have been different under another policy.

Works on features alone (`records.py`). Requests that look alike are decided once, so that weeks of
traffic replay in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from conductor.core import Worker
from conductor.labels import Label
from conductor.policy.decide import classify, decide_all
from conductor.policy.document import Policy
from conductor.policy.records import Features, Recorded
from conductor.policy.rulings import Ruling, looser, ruling
from conductor.settings import Key

_EXAMPLES = 3


class Ground(Protocol):
    """A policy and what is bound to it: a `config.Site`."""

    @property
    def policy(self) -> Policy: ...

    @property
    def workers(self) -> tuple[Worker, ...]: ...

    def key(self, key_id: str) -> Key | None:
        """The key of that id."""


@dataclass(frozen=True)
class Redecided:
    """Under some policy: the label, in its text form, and the ruling by worker. A label that is
    none of this policy's goes nowhere."""

    label: str
    rulings: Mapping[str, Ruling]


class Decider:
    """Decides features under one policy; remembers."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._known: dict[Features, Redecided] = {}

    def __call__(self, features: Features) -> Redecided:
        """The decision for these features."""
        if features not in self._known:
            self._known[features] = self._decide(features)
        return self._known[features]

    def _decide(self, features: Features) -> Redecided:
        policy = self._ground.policy
        try:
            label = self._label(features)
        except ValueError:
            nowhere = Ruling("deny", "floor.label")
            return Redecided("?", {worker.id: nowhere for worker in self._ground.workers})
        verdicts = decide_all(policy, label, self._ground.workers)
        rulings = {worker: ruling(verdict) for worker, verdict in verdicts.items()}
        return Redecided(policy.lattice.show(label), rulings)

    def _label(self, features: Features) -> Label:
        """Raises `ValueError` for words that this policy does not have."""
        policy = self._ground.policy
        if not features.complete:
            return policy.lattice.parse(features.label)
        declared = policy.lattice.parse(features.declared) if features.declared else None
        key = self._ground.key(features.key)
        base = (key.default_label if key else None) or policy.default_label
        return classify(policy, features.scan, base, caller=features.key, declared=declared)


@dataclass(frozen=True)
class Change:
    """One kind of difference: the same worker, labels and rulings before and after."""

    worker: str
    label_before: str
    label_after: str
    before: Ruling
    after: Ruling

    @property
    def looser(self) -> bool:
        return looser(self.before, self.after)


@dataclass
class Tally:
    """How often a change came up, when, and a few requests to look at."""

    change: Change
    count: int = 0
    first_ts: str = ""
    last_ts: str = ""
    requests: list[str] = field(default_factory=list)

    def add(self, recorded: Recorded) -> None:
        self.count += 1
        self.first_ts = min(self.first_ts or recorded.ts, recorded.ts)
        self.last_ts = max(self.last_ts, recorded.ts)
        if len(self.requests) < _EXAMPLES:
            self.requests.append(recorded.request_id)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        change = self.change
        return {
            "worker": change.worker,
            "label_before": change.label_before,
            "label_after": change.label_after,
            "before": _ruling_facts(change.before),
            "after": _ruling_facts(change.after),
            "looser": change.looser,
            "count": self.count,
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            "requests": self.requests,
        }


@dataclass
class Replayed:
    """What a replay found. A decision is one worker's, of one request."""

    requests: int = 0
    decisions: int = 0
    changed_requests: int = 0
    unknown_workers: int = 0
    """Decisions about workers that are not in the pool any more: nothing to compare."""
    tallies: dict[Change, Tally] = field(default_factory=dict)

    @property
    def looser(self) -> int:
        """Decisions that let something happen that was not possible before."""
        return sum(tally.count for change, tally in self.tallies.items() if change.looser)

    @property
    def changed(self) -> int:
        return sum(tally.count for tally in self.tallies.values())

    def facts(self) -> dict[str, Any]:
        """For JSON; what got looser comes first, then what came up most."""
        tallies = sorted(self.tallies.values(), key=lambda t: (not t.change.looser, -t.count))
        return {
            "requests": self.requests,
            "decisions": self.decisions,
            "changed_requests": self.changed_requests,
            "changed": self.changed,
            "looser": self.looser,
            "unknown_workers": self.unknown_workers,
            "changes": [tally.facts() for tally in tallies],
        }


def replay(records: Iterable[Recorded], new: Ground, old: Ground | None = None) -> Replayed:
    """Decide `records` under `new` and compare: with what `old` says, or else with what was
    decided then."""
    result = Replayed()
    after_of, before_of = Decider(new), Decider(old) if old else None
    for recorded in records:
        after = after_of(recorded.features)
        before = (
            before_of(recorded.features)
            if before_of
            else Redecided(recorded.features.label, recorded.rulings)
        )
        _compare(result, recorded, before, after)
    return result


def _compare(result: Replayed, recorded: Recorded, before: Redecided, after: Redecided) -> None:
    result.requests += 1
    changed = False
    for worker, was in before.rulings.items():
        now = after.rulings.get(worker)
        if now is None:
            result.unknown_workers += 1
            continue
        result.decisions += 1
        if was.same_as(now):
            continue
        changed = True
        change = Change(worker, before.label, after.label, was, now)
        result.tallies.setdefault(change, Tally(change)).add(recorded)
    result.changed_requests += changed


def _ruling_facts(one: Ruling) -> dict[str, Any]:
    return {"decision": one.decision, "rule": one.rule, "obligations": sorted(one.promise)}
