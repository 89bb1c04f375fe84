"""What was sent where, put together from the records of each request.

A request's `decision` says who asked and by which rule a worker was allowed, a `round` says so
anew, `egress` is each thing that was let out (written before it leaves), `outcome` says what came
of it. Whatever a worker was given without an `egress` record stayed inside the appliance.

Pure, over records one at a time. Holds the requests under way, at most `MAX_OPEN`; older ones are
told without their outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from conductor.audit.reading import number, text, texts
from conductor.audit.stretch import Entry

MAX_OPEN = 100_000
"""Requests under way at once. An appliance has far fewer; the rest are left over from crashes."""

Where = Literal["remote", "inside"]


@dataclass(frozen=True)
class Sending:
    """One thing that a worker was given."""

    seq: int
    """The record that shows it."""
    ts: str
    where: Where
    destination: str
    """Of what stayed inside, the worker's id: those records name no destination."""
    worker: str
    label: str
    """Of the bytes that were sent."""
    label_before: str
    """What it was before a declassifier lowered it; otherwise the same."""
    rule: str
    key: str
    request_id: str
    decision_id: str
    step: int | None
    bytes_out: int | None
    policy_revision: int | None
    permit_id: str
    obligations: tuple[str, ...]
    """What was carried out before, such as `redact:redact-pii-v2`: it is what lowered the label."""
    approver: str = ""
    """Who approved these bytes, where a person had to."""
    attempts: tuple[str, ...] = ()
    """How the attempts of this step at this worker ended: `ok`, or a failure. Empty: not known."""
    outcome: str = ""
    """How the request ended; empty when its end is not recorded."""
    levels: tuple[str, ...] = ()
    """The site's levels then, in rising order; empty when that is not recorded."""


@dataclass
class Known:
    """What is known of a request under way."""

    request_id: str = ""
    key: str = ""
    model: str = ""
    revision: int | None = None
    rules: dict[str, str] = field(default_factory=dict)
    """By worker: the rule that decided about it last."""
    approvers: dict[tuple[int | None, str], str] = field(default_factory=dict)
    """By step and worker: who approved what it was to be sent."""
    sent: list[Sending] = field(default_factory=list)


class Requests:
    """Follows requests through the log."""

    def __init__(self, levels: tuple[str, ...] = ()) -> None:
        self._given_levels = levels
        self.levels = levels
        self.names = set(levels)
        """Levels and compartments that occur in the log, or that it names as the site's."""
        self._open: dict[str, Known] = {}

    def known(self, record: dict[str, Any]) -> Known:
        """What is known of the request that a record belongs to, that record included once it
        was `take`n, until its outcome was."""
        return self._open.get(_id(record), _NOTHING)

    def take(self, entry: Entry) -> Iterator[Sending]:
        """Follow one record; yields what has become certain by it, of sendings inside."""
        record = entry.record
        event = record["event"]
        for field_name in ("label", "label_before"):
            self.names.update(text(record.get(field_name)).split("+"))
        if event in ("decision", "round"):
            self._decided(record)
        elif event == "declassified":
            self._approved(record)
        elif event == "egress":
            self._let_out(entry)
        elif event == "outcome":
            yield from self._ended(entry)
        elif event == "start":
            yield from self.rest()
            self._policy(record)
        elif event == "policy":
            self._policy(record)
        if len(self._open) > MAX_OPEN:
            yield from self._open.pop(next(iter(self._open))).sent

    def rest(self) -> Iterator[Sending]:
        """What is known of requests that will not be heard of again."""
        for known in self._open.values():
            yield from known.sent
        self._open.clear()

    def _policy(self, record: dict[str, Any]) -> None:
        levels = texts(record.get("levels"))
        self.names.update(levels, texts(record.get("compartments")))
        self.levels = self._given_levels or levels or self.levels

    def _decided(self, record: dict[str, Any]) -> None:
        known = self._open.setdefault(_id(record), Known())
        if record["event"] == "decision":
            known.request_id = text(record.get("request_id"))
            known.key, known.model = text(record.get("key")), text(record.get("model"))
        known.revision = number(record.get("policy_revision"))
        known.rules.update((worker, judged.rule) for worker, judged in verdicts(record))

    def _approved(self, record: dict[str, Any]) -> None:
        if approver := text(record.get("approver")):
            known = self._open.setdefault(_id(record), Known())
            known.approvers[number(record.get("step")), text(record.get("towards"))] = approver

    def _let_out(self, entry: Entry) -> None:
        if entry.inside:
            known = self._open.setdefault(_id(entry.record), Known())
            known.sent.append(_remote(entry.record, known, self.levels))

    def _ended(self, entry: Entry) -> Iterator[Sending]:
        record = entry.record
        known = self._open.pop(_id(record), Known())
        outcome, tried = text(record.get("outcome")), _tried(record)
        for sent in known.sent:
            attempts = tried.pop((sent.step, sent.worker), ())
            yield replace(sent, attempts=attempts, outcome=outcome)
        if entry.inside:
            abroad = {(sent.step, sent.worker) for sent in known.sent}
            for step in _steps(record):
                yield from _kept_in(record, step, known, abroad, self.levels)


_NOTHING = Known()


class Judged(NamedTuple):
    """What a decision said of one worker."""

    allowed: bool
    rule: str
    promised: bool
    """Not allowed as it is, but once obligations are carried out."""
    shadows: tuple[Any, ...] = ()
    """Shadow rules that would have applied."""


def verdicts(record: dict[str, Any]) -> Iterator[tuple[str, Judged]]:
    """By worker, what a decision or round said of it: `[allowed, rule]`, or then the obligations
    that would have to be carried out (maybe none), and then the shadow rules."""
    found = record.get("verdicts")
    for worker, verdict in found.items() if isinstance(found, dict) else ():
        if isinstance(verdict, list) and len(verdict) > 1:
            allowed = verdict[0] is True
            duties, shadows = (_list(verdict, place) for place in (2, 3))
            promised = not allowed and bool(duties)
            yield worker, Judged(allowed, text(verdict[1]), promised, tuple(shadows))


def _list(values: list[Any], place: int) -> list[Any]:
    value = values[place] if place < len(values) else None
    return value if isinstance(value, list) else []


def _id(record: dict[str, Any]) -> str:
    return text(record.get("decision_id"))


def _remote(record: dict[str, Any], known: Known, levels: tuple[str, ...]) -> Sending:
    worker, label = text(record.get("worker")), text(record.get("label"))
    return Sending(
        seq=record["seq"],
        ts=record["ts"],
        where="remote",
        destination=text(record.get("destination")),
        worker=worker,
        label=label,
        label_before=text(record.get("label_before")) or label,
        rule=text(record.get("rule")) or known.rules.get(worker, ""),
        key=known.key,
        request_id=text(record.get("request_id")),
        decision_id=_id(record),
        step=number(record.get("step")),
        bytes_out=number(record.get("bytes_out")),
        policy_revision=number(record.get("policy_revision")),
        permit_id=text(record.get("permit_id")),
        obligations=texts(record.get("obligations")),
        approver=known.approvers.get((number(record.get("step")), worker), ""),
        levels=levels,
    )


def _kept_in(
    record: dict[str, Any],
    step: dict[str, Any],
    known: Known,
    abroad: Iterable[tuple[int | None, str]],
    levels: tuple[str, ...],
) -> Iterator[Sending]:
    """What the workers of a step were given without its leaving the appliance."""
    place, label = number(step.get("step")), text(step.get("label"))
    for worker, attempts in _attempts(step).items():
        if (place, worker) in abroad or set(attempts) <= _NEVER_BEGUN:
            continue
        yield Sending(
            seq=record["seq"],
            ts=record["ts"],
            where="inside",
            destination=worker,
            worker=worker,
            label=label,
            label_before=label,
            rule=known.rules.get(worker, ""),
            key=known.key or text(record.get("key")),
            request_id=text(record.get("request_id")),
            decision_id=_id(record),
            step=place,
            bytes_out=None,
            policy_revision=known.revision,
            permit_id="",
            obligations=(),
            attempts=attempts,
            outcome=text(record.get("outcome")),
            levels=levels,
        )


_NEVER_BEGUN = frozenset({"denied", "open", "egress_down", "permit"})
"""Ends of attempts at which the worker was given nothing."""


def _steps(record: dict[str, Any]) -> list[dict[str, Any]]:
    steps = record.get("steps")
    return [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []


def _attempts(step: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """By worker, how its attempts at a step ended."""
    found: dict[str, tuple[str, ...]] = {}
    attempts = step.get("attempts")
    for attempt in attempts if isinstance(attempts, list) else ():
        if isinstance(attempt, dict):
            worker = text(attempt.get("worker"))
            found[worker] = (*found.get(worker, ()), text(attempt.get("outcome")))
    return found


def _tried(record: dict[str, Any]) -> dict[tuple[int | None, str], tuple[str, ...]]:
    return {
        (number(step.get("step")), worker): attempts
        for step in _steps(record)
        for worker, attempts in _attempts(step).items()
    }
