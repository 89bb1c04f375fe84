"""From labels and verdicts to what a planner is told of them: `core.Flow`.

Every label that a step of the next round can have is worked out: those that there are, closed under
join and `redact`. For each of them policy is asked about each candidate, since rules may be of any
form: that a worker may see the one and the other does not mean that it may see both. What comes out
says only which classes there are, never their names.

There are few classes, because redaction spreads over joins and labels repeat. Should there be more
than `MAX_CLASSES`, all further ones become one that nobody may see.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

from conductor.core import Flow
from conductor.plan.mask import MAX_CLASSES


class Joined(Hashable, Protocol):
    """A `Label`, or a `Standing`."""

    def join(self, other: Self) -> Self:
        """That of what was made from both."""


L = TypeVar("L", bound=Joined)


def flow_of(
    question: L,
    control: L,
    heard: Sequence[L],
    *,
    redacted: Callable[[L], L],
    sees: Callable[[int, L], bool],
    candidates: int,
) -> Flow:
    """The flow of a round. `control` is of words that the planner writes; `redacted` says what a
    redaction that succeeds makes of a label, `sees` what policy says of a candidate and a label.

    Asks `sees` once for each pair of a candidate and a class.
    """
    found = _closed([question, control, *heard], redacted)
    places = {label: place for place, label in enumerate(found)}
    beyond = len(found)  # the class of all that found no place

    def place(label: L) -> int:
        return places.get(label, beyond)

    joins = [[place(one.join(other)) for other in found] for one in found]
    lowered = [place(redacted(one)) for one in found]
    able = [frozenset(i for i in range(candidates) if sees(i, one)) for one in found]
    if any(beyond in row for row in (*joins, lowered)):
        joins = [*([*row, beyond] for row in joins), [beyond] * (beyond + 1)]
        lowered, able = [*lowered, beyond], [*able, frozenset()]
    return Flow(
        question=place(question),
        control=place(control),
        heard=tuple(map(place, heard)),
        joins=tuple(map(tuple, joins)),
        redacted=tuple(lowered),
        sees=tuple(able),
    )


def _closed(given: Sequence[L], redacted: Callable[[L], L]) -> list[L]:
    """The labels given and all that can come of them, as far as there is room."""
    found: dict[L, None] = dict.fromkeys(given)
    waiting = list(found)
    for label in waiting:  # grows while it is walked through
        for made in _made(label, tuple(found), redacted):
            if made not in found and len(found) < MAX_CLASSES - 1:
                found[made] = None
                waiting.append(made)
    return list(found)


def _made(label: L, others: Sequence[L], redacted: Callable[[L], L]) -> Iterator[L]:
    yield redacted(label)
    yield from (label.join(other) for other in others)
