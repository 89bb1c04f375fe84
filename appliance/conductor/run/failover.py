"""Which failures may be retried or moved to another worker: one written list, one pure function.

A content refusal is an answer, not a failure, and so never moves. A wrong request stays wrong
elsewhere. Whatever moves, moves only to workers that policy permits for the same label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from conductor.core import Failure, Worker
from conductor.errors import (
    ApiError,
    BadRequest,
    ModelLoading,
    NoLocalBackend,
    Overloaded,
    UpstreamFailed,
    UpstreamTimeout,
    WorkerError,
)

MAY_MOVE = frozenset(Failure) - {Failure.BAD_REQUEST, Failure.TOTAL_TIMEOUT}
"""Classes after which another permitted worker may be tried, while nothing reached the client."""

MAY_RETRY = frozenset({Failure.CUT, Failure.SERVER_ERROR, Failure.MALFORMED, Failure.PERMIT})
"""Classes worth one second try at the same worker when there is no other."""

UNREACHABLE = frozenset(
    {Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.OPEN, Failure.EGRESS_DOWN, Failure.CUT}
)
TIMEOUTS = frozenset({Failure.FIRST_BYTE_TIMEOUT, Failure.IDLE_TIMEOUT, Failure.TOTAL_TIMEOUT})
BUSY = frozenset({Failure.OVERLOADED, Failure.RATE_LIMITED})

UNBILLED = (
    UNREACHABLE - {Failure.CUT}
    | BUSY
    | {
        Failure.PERMIT,
        Failure.AUTH,
        Failure.LOADING,
        Failure.BAD_REQUEST,
        Failure.CONTEXT_LENGTH,
    }
)
"""Classes that tell that no work was done on the request: it never arrived, or was turned away."""


class Move(Enum):
    """What to do after a failed attempt."""

    RETRY = auto()
    NEXT = auto()
    STOP = auto()


def next_move(failure: Failure, tries_here: int, others_left: bool) -> Move:
    """Decide after `failure` at a worker that was tried `tries_here` times (at least 1)."""
    if failure not in MAY_MOVE:
        return Move.STOP
    if failure is Failure.PERMIT and tries_here == 1:
        return Move.RETRY  # egress restarted: a fresh permit names its new epoch
    if others_left:
        return Move.NEXT
    if failure in MAY_RETRY and tries_here == 1:
        return Move.RETRY
    return Move.STOP


class Route:
    """A step's way through the workers it may use, best first: who is next, and who failed how."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.waiting = tuple(workers)
        """Whoever may still be tried; the first is next."""
        self.failed: list[tuple[Worker, WorkerError]] = []

    def goes_on_after(self, error: WorkerError) -> bool:
        """Take in that the next in line failed; whether anybody is left to try.

        What was too long for one worker goes only to those with a larger window.
        """
        worker, *others = self.waiting
        self.failed.append((worker, error))
        others = [other for other in others if _window(other) > self._too_narrow]
        tries = sum(tried is worker for tried, _ in self.failed)
        move = next_move(error.failure, tries, others_left=bool(others))
        if move is Move.STOP:
            others = []
        self.waiting = (worker, *others) if move is Move.RETRY else tuple(others)
        return bool(self.waiting)

    @property
    def errors(self) -> list[WorkerError]:
        """What stood in the way: not the narrow window of one worker, if a wide one was down."""
        wide = [
            error
            for worker, error in self.failed
            if error.failure is not Failure.CONTEXT_LENGTH and _window(worker) > self._too_narrow
        ]
        narrow = [error for _, error in self.failed if error.failure is Failure.CONTEXT_LENGTH]
        return wide or narrow

    @property
    def _too_narrow(self) -> int:
        """The widest window, in tokens, that did not hold the request; 0 when each one did."""
        windows = [
            error.window[0] if error.window else _window(worker)
            for worker, error in self.failed
            if error.failure is Failure.CONTEXT_LENGTH
        ]
        return max(windows, default=0)


def _window(worker: Worker) -> int:
    return worker.limits.context_tokens


def final_error(
    errors: Sequence[WorkerError], *, only_local: bool, retry_after_s: float
) -> ApiError:
    """What the client sees when every permitted worker failed. Names no back-end.

    `retry_after_s` is when the first of them may be tried again.
    """
    last = errors[-1]
    seen = {error.failure for error in errors}
    if last.failure is Failure.CONTEXT_LENGTH:
        return _too_long(last)
    if last.failure is Failure.BAD_REQUEST:
        return BadRequest("The model refused the request as invalid: check its parameters.")
    if Failure.LOADING in seen:
        return ModelLoading("A model is loading. Try again shortly.", retry_after_s=retry_after_s)
    if seen & BUSY:
        return Overloaded(
            "All permitted models are busy. Try again shortly.", retry_after_s=retry_after_s
        )
    if seen <= UNREACHABLE:
        return unreachable(only_local=only_local, retry_after_s=retry_after_s)
    if seen & TIMEOUTS:
        return UpstreamTimeout("The model did not answer in time.")
    return UpstreamFailed("Every model that may see this request failed to answer it.")


def unreachable(*, only_local: bool, retry_after_s: float) -> ApiError:
    """What the client sees when no permitted worker can be reached."""
    if only_local:
        return NoLocalBackend(
            "No local model that may see this request is up, and none else is permitted.",
            retry_after_s=retry_after_s,
        )
    return UpstreamFailed(
        "Every model that may see this request is down.", retry_after_s=retry_after_s
    )


def _too_long(error: WorkerError) -> BadRequest:
    window, tokens = error.window or (0, 0)
    text = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted "
        f"in {tokens} tokens."
        if error.window
        else "The messages exceed this model's maximum context length. Shorten them."
    )
    return BadRequest(text, param="messages", code="context_length_exceeded")
