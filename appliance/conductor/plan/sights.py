"""What a step may show to whom, as sets of views: the mask of `mask.py` for all views at once.

A view of the step of number n is a number of n + 1 bits: the top bit is the question, then step 0,
step 1 and so on down to the lowest. So the views whose access lists begin alike lie side by side. A
set of views is an integer with a bit for each of them. `mask.py` stays the word on what is
permitted; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from conductor.core import Flow
from conductor.plan.language import Builtin, View
from conductor.plan.mask import Head, LabelMask, Mask, Unmasked

Worker = int | Builtin


def view_at(index: int, number: int) -> View:
    """The view of that index, for the step of that number."""
    steps = tuple(step for step in range(number) if index >> (number - 1 - step) & 1)
    return View(bool(index >> number & 1), steps)


def index_of(view: View, number: int) -> int:
    """The index of a view."""
    return sum(1 << (number - 1 - step) for step in view.steps) | view.question << number


class Sight(Protocol):
    """What the mask makes of a step of `number`. Equal sights permit the same for ever after."""

    @property
    def number(self) -> int: ...

    def permitted(self, worker: Worker) -> tuple[int, int]:
        """The views that the worker may be shown: without words of the planner, and with."""
        ...

    def after(self, head: Head) -> Sight:
        """The sight of the next step, once this one is `head`."""
        ...


def sight_of(mask: Mask, earlier: tuple[Head, ...], workers: int) -> Sight:
    """The sight of the first step of a round."""
    if type(mask) is Unmasked:  # to the letter: a mask derived from one may say something else
        everybody = (frozenset(range(workers)),)
        mask = LabelMask(Flow(0, 0, (), ((0,),), (0,), everybody))
    if type(mask) is not LabelMask:
        return MaskSight(mask, earlier)
    sight = LabelSight(mask.flow)
    for head in earlier:
        sight = sight.after(head)
    return sight


@dataclass(frozen=True)
class LabelSight:
    """Of labels: the class of every answer so far is all that counts."""

    flow: Flow = field(compare=False, repr=False)
    known: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        return len(self.known)

    def permitted(self, worker: Worker) -> tuple[int, int]:
        if isinstance(worker, Builtin):
            everything = (1 << (2 << self.number)) - 1
            return everything, everything
        bare, worded = self._sets
        seen = [label for label, who in enumerate(self.flow.sees) if worker in who]
        return _union(bare, seen), _union(worded, seen)

    def after(self, head: Head) -> LabelSight:
        heard = self.flow.heard
        if self.number < len(heard):
            return LabelSight(self.flow, (*self.known, heard[self.number]))
        made = self._labels[head.free_text][index_of(head.view, self.number)]
        made = self.flow.redacted[made] if head.worker is Builtin.REDACT else made
        return LabelSight(self.flow, (*self.known, made))

    @cached_property
    def _labels(self) -> tuple[list[int], list[int]]:
        """The class of every view, joined in the order in which `mask.py` does: steps, question,
        the planner's words. Without and with those."""
        joins, number = self.flow.joins, self.number
        bare = [self.flow.control] * (2 << number)
        for view in range(1, 1 << number):
            lowest = view & -view
            label = self.known[number - lowest.bit_length()]
            bare[view] = joins[bare[view - lowest]][label] if view != lowest else label
        question = 1 << number
        bare[question] = self.flow.question
        for view in range(1, question):
            bare[question | view] = joins[bare[view]][self.flow.question]
        return bare, bare[:1] + [joins[label][self.flow.control] for label in bare[1:]]

    @cached_property
    def _sets(self) -> tuple[dict[int, int], dict[int, int]]:
        bare, worded = self._labels
        return _by_label(bare), _by_label(worded)


def _by_label(labels: list[int]) -> dict[int, int]:
    """For each class the set of views that have it."""
    sets: dict[int, int] = {}
    for view, label in enumerate(labels):
        sets[label] = sets.get(label, 0) | 1 << view
    return sets


def _union(sets: dict[int, int], labels: list[int]) -> int:
    union = 0
    for label in labels:
        union |= sets.get(label, 0)
    return union


@dataclass(frozen=True)
class MaskSight:
    """Of any other mask, which is asked about every view."""

    mask: Mask = field(compare=False, repr=False)
    earlier: tuple[Head, ...] = ()

    @property
    def number(self) -> int:
        return len(self.earlier)

    def permitted(self, worker: Worker) -> tuple[int, int]:
        sets = [0, 0]
        for index in range(2 << self.number):
            view = view_at(index, self.number)
            for worded in (False, True):
                if self.mask.permits(self.earlier, Head(worker, view, worded)):
                    sets[worded] |= 1 << index
        return sets[0], sets[1]

    def after(self, head: Head) -> MaskSight:
        return MaskSight(self.mask, (*self.earlier, head))
