"""What plans mean over the rounds of a request: the one place. Pure values, no I/O, no text.

A request is answered in rounds. In each of them an engine writes a plan, whose steps are numbered
on from those of the rounds before. A round is one of two kinds:

    look     all its steps run, none is streamed; the engine is shown what they answered, and a
             further round follows
    final    its last step answers; what that does not depend on is not run

An engine asks for a look; `goes_on` says whether it gets one. A plan that calls no worker is final
by nature: votes alone choose among what was heard, and no step at all keeps the answer that stands.

The executor runs rounds with real workers (`executor.py`, `rounds.py`), the build stage plays them
against recorded answers. Both ask here what runs, what a step is shown, what a vote elects and
which answer stands, so that a policy is trained on the very rules that it will be run by. Every
function is a few set operations on at most ten steps, and takes and gives hashable values: who
asks the same thing often may keep the results.

Left out: whether a plan may be run at all (`plan/validate.py`), labels, money and time, and who
agrees with whom: a vote is given a number for every answer, equal for those that agree
(`plan/agreement.py`; the ids of recorded answers).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from conductor.plan import agreement
from conductor.plan.language import MAX_STEPS, MAX_TOTAL_STEPS, Builtin, Plan, Step, View, resolve


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may use. `max_steps` is for one plan, the others for all rounds."""

    max_steps: int = MAX_STEPS
    max_rounds: int = 3
    max_calls: int = 8
    max_total_steps: int = MAX_TOTAL_STEPS


@dataclass(frozen=True, slots=True)
class Used:
    """What the rounds so far have used. `calls` counts attempts at workers, failed ones too."""

    rounds: int = 0
    steps: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """What an engine may use in the round that comes now: the like-named parts of a
    `PlanRequest`. No step at all, `max_steps` 0: the answer that stands is kept unasked."""

    rounds_left: int
    max_steps: int
    calls_left: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A request between two rounds, as whoever plays it from records needs it."""

    used: Used = Used()
    answers: tuple[int | None, ...] = ()
    """What each step so far answered, by its number: equal where two agree, `agreement.NONE` where
    it can agree with none; None where there is no answer."""
    sources: tuple[int | None, ...] = ()
    """The worker's step that each answer is from: its own, or the one that a vote elected."""
    stands: int | None = None
    """Number of the worker step whose answer stands; None as long as there is no answer."""


def room(limits: Limits, used: Used) -> Room:
    """What is left for the round after `used`."""
    return Room(
        rounds_left=max(0, limits.max_rounds - used.rounds - 1),
        max_steps=max(0, min(limits.max_steps, limits.max_total_steps - used.steps)),
        calls_left=max(0, limits.max_calls - used.calls),
    )


def goes_on(plan: Plan, look: bool, limits: Limits, used: Used) -> bool:
    """Whether the round of `plan` is one to look at, after which a further one follows. `used` is
    what was used before it, `look` what its engine asks for.

    Calls do not matter: who has none left can still choose among what was heard.
    """
    choosable = plan.first + len(plan.steps) < limits.max_total_steps
    return look and room(limits, used).rounds_left > 0 and choosable and plan.calls > 0


def needed(plan: Plan, look: bool) -> tuple[int, ...]:
    """Numbers of the plan's steps that must run, rising; `look` as `goes_on` says."""
    if look or not plan.steps:
        return tuple(range(plan.first, plan.first + len(plan.steps)))
    return _back_from_last(plan, through=lambda step: True)


def waves(plan: Plan, look: bool) -> tuple[tuple[int, ...], ...]:
    """The steps that must run, those that may run side by side together: each comes in the wave
    after the last of those that it is shown."""
    wave: dict[int, int] = {}
    for number in needed(plan, look):
        before = [wave[one] for one in view(plan, number).steps if one in wave]
        wave[number] = max(before, default=-1) + 1
    return tuple(
        tuple(number for number, place in wave.items() if place == turn)
        for turn in range(max(wave.values(), default=-1) + 1)
    )


def calls(plan: Plan, look: bool) -> int:
    """Calls to workers that the round makes when no step fails over to another worker."""
    workers = (step_of(plan, number).worker for number in needed(plan, look))
    return sum(not isinstance(worker, Builtin) for worker in workers)


def may_answer(plan: Plan, look: bool) -> tuple[int, ...]:
    """Numbers of the plan's steps whose answer may become the client's, rising: what bounds the
    client's answer bounds theirs. In a look these are all, else the last one, by way of votes."""
    if look or not plan.steps:
        return needed(plan, look)
    return _back_from_last(plan, through=lambda step: step.worker is Builtin.VOTE)


def step_of(plan: Plan, number: int) -> Step:
    """The step with a number."""
    return plan.steps[number - plan.first]


def view(plan: Plan, number: int) -> View:
    """What a step asks to be shown; it may name steps of earlier rounds."""
    return resolve(step_of(plan, number).access, number)


def shown(plan: Plan, number: int, look: bool, answered: Collection[int]) -> View | None:
    """What a step is shown, when these of all steps so far have an answer: those of its access
    list that do. None: it cannot run.

    It cannot when it is to work on answers and there is none of them; in a final round not even
    when one of the same round is missing, since that is then not an answer to wait for in vain but
    a part of the one that is being made.
    """
    asked = view(plan, number)
    there = tuple(one for one in asked.steps if one in answered)
    missing = set(asked.steps).difference(there)
    if not look and any(one >= plan.first for one in missing):
        return None
    # A built-in works on answers alone: the question is none.
    alone = isinstance(step_of(plan, number).worker, Builtin) or not asked.question
    if missing and not there and alone:
        return None
    return View(asked.question, there)


def elect(view: View, answers: Mapping[int, int]) -> int:
    """The step whose answer a vote elects among those that it is `shown`: one that most of them
    agree with, of equally many the earliest. `answers` as in `Progress`."""
    return view.steps[agreement.elect([answers[one] for one in view.steps])]


def stands(plan: Plan, look: bool, answered: Collection[int], stood: int | None) -> int | None:
    """The step whose answer stands after the round: of its own the last one in a final round, the
    last one that has an answer in a look; if there is none such, the one that `stood` before."""
    own = needed(plan, look)
    for number in reversed(own if look else own[-1:]):
        if number in answered:
            return number
    return stood


def settle(
    before: Progress, plan: Plan, look: bool, answered: Mapping[int, int], made: int
) -> Progress:
    """Play one round from records. `answered` says what every worker step that was answered did
    answer, `made` how many calls that took; votes are held here. `look` as `goes_on` says."""
    answers = {step: said for step, said in enumerate(before.answers) if said is not None}
    sources = {step: source for step, source in enumerate(before.sources) if source is not None}
    for number in needed(plan, look):
        sees = shown(plan, number, look, answers)
        if sees is None:
            continue
        if step_of(plan, number).worker is Builtin.VOTE:
            elected = elect(sees, answers)
            sources[number], answers[number] = sources[elected], answers[elected]
        elif number in answered:
            sources[number], answers[number] = number, answered[number]
    standing = stands(plan, look, answers, before.stands)
    used = Used(
        before.used.rounds + 1, before.used.steps + len(plan.steps), before.used.calls + made
    )
    return Progress(
        used,
        tuple(map(answers.get, range(used.steps))),
        tuple(map(sources.get, range(used.steps))),
        None if standing is None else sources[standing],
    )


def _back_from_last(plan: Plan, through: Callable[[Step], bool]) -> tuple[int, ...]:
    """The plan's last step, and of its own steps those that lead there `through` others."""
    found: set[int] = set()
    waiting = [plan.first + len(plan.steps) - 1]
    while waiting:
        number = waiting.pop()
        if number < plan.first or number in found:
            continue
        found.add(number)
        if through(step_of(plan, number)):
            waiting += view(plan, number).steps
    return tuple(sorted(found))
