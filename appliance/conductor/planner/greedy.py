"""One round's choices, by the network's scores: pure, the network is a function.

Until a choice ends the plan: score all choices, take the best that may be made, note whom it asks.
Of one worker asked alone, what would follow is tried out, since nothing may hang on what it says.
What may be made is said here again and not left to the network: it comes out of a file, and no
numbers in it may lead to a plan that breaks a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from conductor.planner.features import Flags, State
from conductor.planner.graph import Seen

Network = Callable[[State], Seen]


class Kind(IntEnum):
    """What is done about a candidate, in the order of the scores' blocks."""

    MORE = 0  # ask it, and write a further line
    LOOK = 1  # ask it, and look at the answers before one is accepted
    LAST = 2  # ask it, and take what it answers
    KEEP = 3  # end with the answer that it gave in an earlier round


@dataclass(frozen=True)
class Decision:
    """A whole round. Places are rows of the state."""

    asks: tuple[int, ...]
    """Whom it asks, in the order of the lines."""
    end: Kind
    """LOOK, LAST or KEEP."""
    place: int
    """Whom the end is about."""
    seen: Seen
    """What the network made of the state before anything was chosen."""
    chances: NDArray[np.float64]
    """[4, K] its chances of each first choice."""
    log_prob: float
    """Natural logarithm of the chance of all its choices together, had they been drawn: not of what
    was tried out and followed from them."""


def decide(network: Network, state: State, keepable: Flags) -> Decision | None:
    """Greedily, the earlier row on a draw. `keepable` [K]: whose answer can be kept.

    None when nothing may be done. Raises what `network` raises.
    """
    seen = network(state)
    first = chances(seen, legal(state, keepable))
    if first is None:
        return None
    asks: list[int] = []
    log_prob = 0.0
    now = first
    while True:
        kind, place = divmod(int(now.argmax()), now.shape[1])
        log_prob += float(np.log(now[kind, place]))
        if kind != Kind.KEEP:
            asks.append(place)
        if kind == Kind.LOOK and len(asks) == 1:
            thens = _whatever(network, state, place, keepable)
            if _settled(thens):
                kind = Kind.LAST
            elif (partner := _partner(state, thens)) is not None:
                asks.append(partner)
        if kind != Kind.MORE:
            return Decision(tuple(asks), Kind(kind), place, seen, first, log_prob)
        state = _after(state, place)
        further = chances(network(state), legal(state, keepable))
        # `legal` lets a plan go on only where it can also end.
        assert further is not None
        now = further


def _settled(thens: list[_Then] | None) -> bool:
    """Whether a look at the answer of one worker, asked alone, could only end with that answer.

    Then it need not be held back: it can be the last step's and reach the client as it is written.
    """
    if thens is None:
        return False
    return all(then.kind == Kind.KEEP and then.keeps == then.said for then in thens)


def _partner(state: State, thens: list[_Then] | None) -> int | None:
    """Who is asked next, and looked at too, whatever the first one asked says; None if nobody is.

    Then both can be asked side by side: the same answers for the same money, one round earlier. The
    build stage judges conductors by the same rule, in first rounds alone.
    """
    if state.asked.any() or state.steps_left < 2:
        return None
    wanted = {(then.kind, then.place) for then in thens or ()}
    if len(wanted) != 1:
        return None
    kind, place = wanted.pop()
    return place if kind == Kind.LOOK else None


@dataclass(frozen=True)
class _Then:
    """The best next choice once the one asked has said something: `keeps` is the answer that it
    keeps, if it keeps one."""

    said: int
    kind: Kind
    place: int
    keeps: int | None


def _whatever(network: Network, state: State, place: int, keepable: Flags) -> list[_Then] | None:
    """What would be chosen next, for all that `place`, asked alone, may say: something new, or what
    was heard already. None where nothing could be chosen."""
    heard = sorted({int(one) for one in state.answer[state.asked & (state.answer >= 0)]})
    keepable = keepable.copy()
    keepable[place] = True
    asked = state.asked.copy()
    asked[place] = True
    thens = []
    for said in [*heard, max(heard, default=-1) + 1]:
        answer = state.answer.copy()
        answer[place] = said
        then = state._replace(
            asked=asked,
            answer=answer,
            rounds_left=state.rounds_left - 1,
            calls_left=state.calls_left - 1,
        )
        now = chances(network(then), legal(then, keepable))
        if now is None:
            return None
        kind, other = divmod(int(now.argmax()), now.shape[1])
        keeps = int(answer[other]) if kind == Kind.KEEP else None
        thens.append(_Then(said, Kind(kind), other, keeps))
    return thens


def legal(state: State, keepable: Flags) -> Flags:
    """Which choices may be made, [4, K]."""
    free = state.present & ~state.asked & ~state.pending
    free = free & bool(state.calls_left > 0 and state.steps_left > 0)
    further = bool(state.rounds_left > 0)
    two = bool(free.sum() > 1 and state.calls_left > 1 and state.steps_left > 1)
    begun = bool(state.pending.any())
    return np.stack(
        [
            free & (further and two),
            free & further,
            free & (not begun),
            keepable & (not begun),
        ]
    )


def chances(seen: Seen, allowed: Flags) -> NDArray[np.float64] | None:
    """[4, K] chances of the choices that are allowed; None if none is."""
    if not allowed.any():
        return None
    scores = np.where(allowed, seen.scores.reshape(allowed.shape).astype(np.float64), -np.inf)
    grown = np.exp(scores - scores.max())
    return np.asarray(grown / grown.sum())


def _after(state: State, place: int) -> State:
    """The state once `place` is asked, the plan not ended."""
    pending = state.pending.copy()
    pending[place] = True
    return state._replace(
        pending=pending, calls_left=state.calls_left - 1, steps_left=state.steps_left - 1
    )
