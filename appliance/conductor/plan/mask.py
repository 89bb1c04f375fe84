"""Which steps may follow which, by labels: what each step is shown decides who may do it.

The label of what a step is shown is the join of its parts; its answer carries the same, unless
`redact` made it. Labels come as anonymous classes (`core.Flow`), so that this needs neither policy
nor names and runs where plans are written as well. What cannot be permitted can so not be sampled;
`run/attempts.py` asks policy again all the same, for the label that the data then has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from conductor.core import Flow
from conductor.plan.language import Builtin, Step, View, resolve
from conductor.plan.templates import is_template

MAX_CLASSES = 32
"""Most classes of a `Flow`. A request has a handful; the table of joins grows with the square."""


@dataclass(frozen=True, slots=True)
class Head:
    """All that decides where data goes in a step: the worker, its view, and whether text worded by
    the planner, who saw the question, goes along. A template is no such text."""

    worker: int | Builtin
    view: View
    free_text: bool


def head_of(step: Step, number: int) -> Head:
    """The head of the step of that number."""
    worded = bool(step.subtask) and not is_template(step.subtask)
    return Head(step.worker, resolve(step.access, number), worded)


class Mask(Protocol):
    """Which steps may follow which: the seam for masks computed from labels."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        """Whether `head` may come after `earlier`, the steps of all rounds so far. Pure;
        `head.view` names places in `earlier`."""


@dataclass(frozen=True)
class Unmasked:
    """For pools that hold only workers which may see the whole request."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        return True


@dataclass(frozen=True)
class LabelMask:
    """The mask of a request's labels."""

    flow: Flow

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        if isinstance(head.worker, Builtin):
            return True
        return head.worker in self.flow.sees[self.shown(earlier, head)]

    def shown(self, earlier: tuple[Head, ...], head: Head) -> int:
        """The class of what `head` is shown. Of a step that is shown nothing it is the planner's:
        such a step tells at least that it was planned."""
        known = self._answers(earlier) if head.view.steps else ()
        return self._input(known, head)

    def _answers(self, earlier: tuple[Head, ...]) -> tuple[int, ...]:
        """The class of every earlier step's answer. Those that were heard have one."""
        known = list(self.flow.heard[: len(earlier)])
        for head in earlier[len(known) :]:
            made = self._input(tuple(known), head)
            known.append(self.flow.redacted[made] if head.worker is Builtin.REDACT else made)
        return tuple(known)

    def _input(self, known: tuple[int, ...], head: Head) -> int:
        parts = [known[step] for step in head.view.steps]
        parts += [self.flow.question] * head.view.question
        if head.free_text or not parts:
            parts.append(self.flow.control)
        return reduce(lambda one, other: self.flow.joins[one][other], parts)
