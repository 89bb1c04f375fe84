"""A request under way: what is fixed about it, its rounds, and what has become of it so far.

Values and accounting only. Steps are numbered on through all rounds, so that one number names a
step everywhere: in plans, records, permits and the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from conductor.chat.request import ChatRequest
from conductor.core import Body, Usage
from conductor.flow.standing import Standing
from conductor.labels import Label, join_all
from conductor.plan.language import Plan
from conductor.policy.document import Policy
from conductor.run.attempts import Tried
from conductor.run.budget import Budget
from conductor.run.exchange import Used
from conductor.run.intake import Drafted
from conductor.run.workflow import Workflow


@dataclass(frozen=True)
class Job:
    """One judged request, ready to run. `label` is its own, as it came in."""

    request: ChatRequest
    request_id: str
    decision_id: str
    answer_id: str
    created: int
    label: Label
    budget: Budget
    policy: Policy
    workflow: Workflow


@dataclass(frozen=True)
class Round:
    """One round: its plan, and the control label, of all that the plan was made from."""

    label: Label
    drafted: Drafted
    recorded: asyncio.Future[None]
    paid: bool = True
    """Whether the leak budget bore what this plan tells workers that may not see what it was made
    from. If not, every step counts as having been shown that."""
    """Resolves when the decision for this round is on disk."""

    @property
    def plan(self) -> Plan:
        return self.drafted.planned.plan


@dataclass
class StepRecord:
    """Accounting of one step. `standing` is that of what it is shown."""

    step: int
    standing: Standing
    tried: list[Tried] = field(default_factory=list)
    worker: str = ""

    @property
    def label(self) -> Label:
        return self.standing.label

    @property
    def usage(self) -> Usage:
        return sum((t.usage for t in self.tried), Usage())


@dataclass(frozen=True)
class Artifact:
    """A step's whole answer, held back, and how it stands. `worker` is who gave it."""

    subtask: str
    answer: str
    standing: Standing
    worker: str
    body: Body
    """A plain chat completion in the client's form; whoever gives it puts the usage of all in."""

    @property
    def label(self) -> Label:
        return self.standing.label


@dataclass(frozen=True)
class Answer:
    """The answer to the client, begun. Exactly one of `body` and `chunks` is set."""

    worker: str
    body: Body | None = None
    chunks: AsyncIterator[Body] | None = None


@dataclass
class Run:
    """A job and what has become of it so far; readable at any time, also after a failure."""

    job: Job
    rounds: list[Round]
    """Never empty; the last one is under way."""
    records: dict[int, StepRecord] = field(default_factory=dict)
    artifacts: dict[int, Artifact] = field(default_factory=dict)
    stands: int | None = None
    """The step whose answer is given if nothing better comes; None before there is one."""
    answered_by: str = ""
    answer_step: int | None = None
    """The step that the client's answer is from."""
    stood_in_for: str = ""
    """Code of the error that the client was spared, since an answer stood."""

    @property
    def round(self) -> Round:
        """The round under way."""
        return self.rounds[-1]

    @property
    def label(self) -> Label:
        """Of the answer, as far as it is known when it begins: of all that the round and the step
        which gives it were made from, and of the text itself where it was held and read."""
        known = [self.round.label]
        if self.answer_step is not None:
            known += [self.records[self.answer_step].label]
            if self.answer_step in self.artifacts:
                known += [self.artifacts[self.answer_step].label]
        return join_all(known)

    def round_of(self, step: int) -> int:
        """Which round a step belongs to, from 0."""
        return sum(one.plan.first <= step for one in self.rounds[1:])

    @property
    def used(self) -> Used:
        """What the rounds up to now have used, the one under way included."""
        steps = sum(len(one.plan.steps) for one in self.rounds)
        return Used(len(self.rounds), steps, self.job.budget.calls)

    @property
    def usage(self) -> Usage:
        """What all steps together have used so far."""
        return sum((record.usage for record in self.records.values()), Usage())

    @property
    def cost_usd(self) -> float:
        return self.job.budget.cost_usd
