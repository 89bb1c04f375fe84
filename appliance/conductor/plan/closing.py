"""The shortest way to end a plan that has run out of room."""

from __future__ import annotations

from conductor.plan.byteshape import LINE
from conductor.plan.writing import State, step

_TRIED = b"\n -q0123456789,*a"
"""Bytes that shortest endings are made of, beside those that only one text can go on with."""


def closing(state: State) -> bytes:
    """The fewest bytes after which the plan may end, by breadth-first search."""
    seen, edge = {state}, [(state, b"")]
    while edge:
        following: list[tuple[State, bytes]] = []
        for at, text in edge:
            if at.place == LINE and at.line.may_end:
                return text
            for byte, after in _next(at):
                if after not in seen:
                    seen.add(after)
                    following.append((after, text + bytes((byte,))))
        edge = following
    raise AssertionError("every text that was allowed begins some plan")


def _next(state: State) -> list[tuple[int, State]]:
    found = [(byte, after) for byte in _TRIED if (after := step(state, byte)) is not None]
    if found:
        return found
    return [(byte, after) for byte in range(256) if (after := step(state, byte)) is not None]
