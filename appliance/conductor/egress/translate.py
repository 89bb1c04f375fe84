"""Foreign errors of the vendor library become ours, in one place. None of their text survives.

Facts of the wire, as the exchange saw them, beat the library's opinion. Classes are told by name,
so that the library need not be imported to ask.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from conductor.core import Failure
from conductor.errors import WorkerError

if TYPE_CHECKING:
    from conductor.egress.exchange import Exchange


def translated(error: Exception, exchange: Exchange, *, began: bool = False) -> WorkerError:
    """What `error` means for the attempt; `began` tells that content has been passed on."""
    if isinstance(error, WorkerError):
        return error
    if exchange.error is not None:
        exchange.error.began = began
        return exchange.error
    if isinstance(error, TimeoutError):
        failure = Failure.TOTAL_TIMEOUT
    elif exchange.began:
        failure = _in_answer(error)
    else:  # nothing was sent: the library refused the request, or failed at it
        failure = Failure.BAD_REQUEST if _is_bad_request(error) else Failure.SERVER_ERROR
    return WorkerError(failure, type(error).__name__, began=began)


def _in_answer(error: BaseException) -> Failure:
    """What was wrong with an answer that began with status 200 and came in whole."""
    causes = list(_causes(error))
    if any(isinstance(cause, json.JSONDecodeError) for cause in causes):
        return Failure.MALFORMED
    if any(isinstance(cause, StopAsyncIteration) for cause in causes):
        return Failure.CUT
    # Exactly APIError: an error object in the answer. Its subclasses wrap whatever went wrong.
    told = any(type(cause).__name__ == "APIError" for cause in causes)
    return Failure.SERVER_ERROR if told else Failure.MALFORMED


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_bad_request(error: Exception) -> bool:
    return any(base.__name__ == "BadRequestError" for base in type(error).__mro__)
