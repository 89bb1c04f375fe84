"""What is told of a request: facts for the audit log, the trace and metrics, plans for people.

Facts hold names, counts and labels: no word of a question, an instruction or an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conductor.core import Scan, Verdict
from conductor.labels import Lattice
from conductor.ledger import to_musd
from conductor.metrics import Metrics
from conductor.run.attempts import Tried
from conductor.run.intake import Drafted
from conductor.run.job import Run, StepRecord
from conductor.run.recording import shadow_facts

Facts = dict[str, Any]


MOST_UNBEGUN = 8
"""Of one step, in a record: attempts at which a worker was given nothing."""


def verdict_facts(verdicts: Mapping[str, Verdict]) -> Facts:
    """By worker: whether it is allowed, and by which rule; then, where there are any, what must be
    done before, and which shadow rules would have applied."""
    return {worker: _verdict_fact(verdict) for worker, verdict in verdicts.items()}


def _verdict_fact(verdict: Verdict) -> list[Any]:
    fact: list[Any] = [verdict.allow, verdict.rule]
    if verdict.promise or verdict.shadow:
        fact.append([str(one) for one in verdict.promise])
    if verdict.shadow:
        fact.append(shadow_facts(verdict))
    return fact


def finding_facts(scan: Scan) -> list[Facts]:
    """What detectors found: kinds, counts and likelihoods, never content."""
    return [
        {"id": f.detector, "count": f.count, "view": f.view, "likelihood": f.likelihood.word}
        for f in scan.findings
    ]


def plan_facts(drafted: Drafted | None) -> Facts:
    """A round's plan for the record: workers and access lists, without a word of its instructions;
    who made it, and whether its answers are looked at. All null where there is no plan."""
    if drafted is None:
        return dict.fromkeys(("plan", "engine", "engine_where", "look"))
    planned = drafted.planned
    shape = [
        {"worker": _worker_name(drafted, step.worker), "access": str(step.access)}
        for step in planned.plan.steps
    ]
    return {
        "plan": shape,
        "engine": planned.engine,
        "engine_where": planned.where,
        "look": drafted.look,
    }


def plan_text(drafted: Drafted) -> str:
    """A plan for people: like its text, with worker ids in place of ordinals."""
    return "\n".join(
        f"{_worker_name(drafted, step.worker)} {step.access} {step.subtask or '-'}"
        for step in drafted.planned.plan.steps
    )


def round_facts(run: Run, lattice: Lattice) -> list[Facts]:
    """The rounds of a request for its trace: what each plan was made from, and the plan."""
    return [
        {
            "label": lattice.show(one.label),
            "plan": plan_text(one.drafted),
            "engine": one.drafted.planned.engine,
            "engine_where": one.drafted.planned.where,
            "look": one.drafted.look,
        }
        for one in run.rounds
    ]


def step_facts(run: Run, lattice: Lattice) -> list[Facts]:
    """Per-step accounting over all rounds: integers and names only. Rounds count from 0."""
    return [
        {
            "step": record.step,
            "round": run.round_of(record.step),
            "worker": record.worker,
            "label": lattice.show(record.label),
            "attempts": [{"worker": t.worker, "outcome": str(t.outcome), "ms": t.duration_ms}
                         for t in _told(record)],
            "prompt_tokens": record.usage.prompt_tokens,
            "completion_tokens": record.usage.completion_tokens,
            "cost_musd": to_musd(sum(t.cost_usd for t in record.tried)),
        }
        for record in sorted(run.records.values(), key=lambda r: r.step)
    ]  # fmt: skip


def _told(record: StepRecord) -> Iterator[Tried]:
    """A step's attempts: all at which a worker was given something, and the first of the others."""
    unbegun = 0
    for tried in record.tried:
        unbegun += not tried.begun
        if tried.begun or unbegun <= MOST_UNBEGUN:
            yield tried


def answer_facts(run: Run | None) -> Facts:
    """Where the client's answer is from: by whom, of which step, after how many rounds, and the
    code of the error that it was spared by an answer of an earlier round, if it was."""
    if run is None:
        return {"worker": "", "answer_step": None, "rounds": 0, "stood_in_for": None}
    return {
        "worker": run.answered_by,
        "answer_step": run.answer_step,
        "rounds": len(run.rounds),
        "stood_in_for": run.stood_in_for or None,
    }


def count_plan(metrics: Metrics, drafted: Drafted) -> None:
    """Count a round's plan."""
    planned = drafted.planned
    metrics.planned(planned.engine, planned.where, planned.why or "", look=drafted.look)


def count_rounds(metrics: Metrics, run: Run) -> None:
    """Count how a request was planned, once it has ended."""
    accepted = len(run.rounds) > 1 and not run.round.plan.calls
    engine = run.round.drafted.planned.engine if accepted else ""
    metrics.rounds(len(run.rounds), engine, stood_in=bool(run.stood_in_for))


def _worker_name(drafted: Drafted, worker: int | str) -> str:
    """The id behind an ordinal; a built-in's own name."""
    return drafted.candidates[worker].id if isinstance(worker, int) else str(worker)
