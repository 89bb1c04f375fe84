"""The answer that a reply states, of models that were asked for `{"reasoning": .., "answer": ..}`.

Much of it is not quite JSON: line ends inside strings, LaTeX with single backslashes, prose around
it, a second object after it. So the last readable `"answer":` counts, wherever it stands. Prose
such as "the answer is 5", or a box, is no answer: the model did not follow the format.
"""

from __future__ import annotations

import json
import re

_KEY = re.compile(r'"answer"\s*:\s*')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JSON = json.JSONDecoder(strict=False)

MAX_TRIES = 16
"""Keys looked at, from the last: each may cost a look at the rest of the reply."""

MAX_BRACKETS = 200
"""A list or object with more inside is no short answer, and may be too deep to be printed."""


def stated(reply: str) -> object:
    """The value of the last readable "answer" in `reply`, or None."""
    for key in reversed(list(_KEY.finditer(reply))[-MAX_TRIES:]):
        value = _value(reply, key.end())
        if value is not None:
            return value
    return None


def _value(reply: str, start: int) -> object:
    if quoted := _QUOTED.match(reply, start):
        try:
            return _JSON.decode(quoted[0])
        except ValueError:  # \sqrt, \pi: no JSON escapes, so nothing here is one
            return quoted[0][1:-1]
    try:
        value, end = _JSON.raw_decode(reply, start)
    except (ValueError, RecursionError):
        return None
    brackets = reply.count("[", start, end) + reply.count("{", start, end)
    return value if brackets <= MAX_BRACKETS else None
