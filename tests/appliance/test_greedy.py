"""A look that could change nothing is none: the answer can be streamed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conductor.planner.features import State
from conductor.planner.graph import Seen
from conductor.planner.greedy import Kind, decide

POOL = 3
Wish = Callable[[State], tuple[Kind, int]]


def state(heard: dict[int, int] | None = None, rounds_left: int = 2) -> State:
    """Three workers; `heard` tells which answer some of them gave."""
    heard = heard or {}
    return State(
        prompt=np.zeros(4, np.float32),
        skill=np.full((POOL, 1), 0.5, np.float32),
        cost=np.zeros((POOL, 1), np.float32),
        present=np.ones(POOL, np.bool_),
        asked=np.array([place in heard for place in range(POOL)]),
        answer=np.array([heard.get(place, -1) for place in range(POOL)]),
        pending=np.zeros(POOL, np.bool_),
        weight=np.float32(0.03),
        rounds_left=np.int64(rounds_left),
        calls_left=np.int64(4),
        steps_left=np.int64(5),
    )


def network(wish: Wish) -> Callable[[State], Seen]:
    def answer(shown: State) -> Seen:
        scores = np.zeros((4, POOL), np.float32)
        scores[wish(shown)] = 9.0
        half = np.full(POOL, 0.5, np.float32)
        return Seen(scores.ravel(), half, half, half, half[:1], np.zeros(5, np.float32))

    return answer


def decided(wish: Wish, start: State) -> tuple[Kind, tuple[int, ...]]:
    keepable = np.asarray(start.asked & (start.answer >= 0), np.bool_)
    decision = decide(network(wish), start, keepable)
    assert decision is not None
    return decision.end, decision.asks


def keep_whoever_spoke_last(shown: State) -> tuple[Kind, int]:
    return (Kind.KEEP, 1) if shown.asked[1] else (Kind.LOOK, 1)


def keep_only_what_agrees(shown: State) -> tuple[Kind, int]:
    if not shown.asked[1]:
        return Kind.LOOK, 1
    return (Kind.KEEP, 1) if shown.answer[1] == shown.answer[0] else (Kind.LOOK, 2)


def keep_the_first(shown: State) -> tuple[Kind, int]:
    return (Kind.KEEP, 0) if shown.asked[1] else (Kind.LOOK, 1)


@pytest.mark.parametrize(
    ("wish", "heard", "end"),
    [
        (keep_whoever_spoke_last, {}, Kind.LAST),  # it is kept whatever it is
        (keep_whoever_spoke_last, {0: 0}, Kind.LAST),  # whether it agrees or not
        (keep_only_what_agrees, {0: 0}, Kind.LOOK),  # another answer would be asked about
        (keep_the_first, {0: 0}, Kind.LOOK),  # a new answer would not be the one that is given
    ],
)
def test_one_asked_alone_is_looked_at_only_when_that_could_change_something(
    wish: Wish, heard: dict[int, int], end: Kind
) -> None:
    assert decided(wish, state(heard)) == (end, (1,))


def test_two_asked_side_by_side_are_always_looked_at() -> None:
    def both(shown: State) -> tuple[Kind, int]:
        if shown.asked[1]:
            return Kind.KEEP, 1
        return (Kind.LOOK, 1) if shown.pending[0] else (Kind.MORE, 0)

    assert decided(both, state()) == (Kind.LOOK, (0, 1))


def test_what_is_supposed_has_one_round_and_one_call_less() -> None:
    shown: list[tuple[int, int]] = []

    def watch(one: State) -> tuple[Kind, int]:
        shown.append((int(one.rounds_left), int(one.calls_left)))
        return keep_whoever_spoke_last(one)

    decided(watch, state())
    assert shown == [(2, 4), (1, 3)]


def ask_a_second_opinion(shown: State) -> tuple[Kind, int]:
    """Two are asked before anything is kept, whatever they say."""
    if not shown.asked[1]:
        return Kind.LOOK, 1
    return (Kind.KEEP, 1) if shown.asked[2] else (Kind.LOOK, 2)


@pytest.mark.parametrize(
    ("wish", "heard", "asks"),
    [
        (ask_a_second_opinion, {}, (1, 2)),  # nothing hangs on what the first says
        (ask_a_second_opinion, {0: 0}, (1,)),  # a later round is not tried out so far
        (keep_only_what_agrees, {0: 0}, (1,)),  # if it agrees, nobody else is asked
    ],
)
def test_two_that_will_both_be_asked_are_asked_side_by_side(
    wish: Wish, heard: dict[int, int], asks: tuple[int, ...]
) -> None:
    assert decided(wish, state(heard)) == (Kind.LOOK, asks)


def test_a_plan_of_one_line_asks_one_after_the_other() -> None:
    start = state()._replace(steps_left=np.int64(1))
    assert decided(ask_a_second_opinion, start) == (Kind.LOOK, (1,))
