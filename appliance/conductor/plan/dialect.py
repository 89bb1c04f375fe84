"""Plans of other conductors: the three lists of the published method, read into a `Plan`.

    model_id = [0, 2]                          integers: ordinals of the pool
    subtasks = ["Plan it.", "Solve it."]       strings: one instruction a step
    access_list = [[], ["all"]]                what a step is shown of the earlier ones

Written as Python literals or as one JSON object, bare, in a code fence or after free reasoning.
Meaning (arXiv 2512.04388): the first step is given the question; each sees no earlier step for
`[]`, every one for `["all"]`, or those whose integers are listed. Three empty lists keep the answer
that stands. The last three lists in this order count; names inside a literal do not. In a further
round the steps of the rounds before are earlier ones too, and integers count through all rounds, as
in the plan language.

Nothing is evaluated: literals are read by `orjson` or `ast.literal_eval`, within fixed bounds.
Line breaks in an instruction become spaces, since a plan has one line a step. Left out: `redact`
and `vote`, which these lists cannot name.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from conductor.errors import PlanError
from conductor.plan.language import MAX_STEPS, Access, Plan, Step

MAX_TEXT_CHARS = 64 * 1024
"""Longest text that is read: far more than a conductor writes."""
_MAX_DEPTH = 2
"""A list in a list is the deepest literal there is."""
_NAMES = ("model_id", "subtasks", "access_list")
_LIST = re.compile(rf"\b({'|'.join(_NAMES)})\b[\"']?\s{{0,8}}[:=]\s{{0,8}}(?=\[)")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'", re.DOTALL)
_BREAKS = re.compile("[ \x00-\x1f\x7f-\x9f\u2028\u2029]+")

Lists = dict[str, list[Any]]


def parse_lists(text: str, first: int = 0) -> Plan:
    """Read a conductor's whole output, whose first step has the number `first`.

    Raises `PlanError` when it holds no plan of this form.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise PlanError(f"the text is too long: at most {MAX_TEXT_CHARS} characters are read")
    lists = _last_trio(_find_lists(text))
    models, subtasks, accesses = (lists[name] for name in _NAMES)
    if not len(models) == len(subtasks) == len(accesses):
        raise PlanError("the three lists must have one entry a step each")
    if len(models) > MAX_STEPS:
        raise PlanError(f"a plan has at most {MAX_STEPS} steps: merge or drop some")
    entries = zip(models, subtasks, accesses, strict=True)
    return Plan(tuple(_steps(entries, first)), first)


def _find_lists(text: str) -> list[tuple[str, list[Any]]]:
    """Every named list, in order. What stands inside one is skipped."""
    found = []
    position = 0
    while match := _LIST.search(text, position):
        end = _literal_end(text, match.end())
        value = _read(text[match.end() : end]) if end is not None else None
        if isinstance(value, list):
            found.append((match.group(1), value))
        position = match.end() if end is None else end
    return found


def _last_trio(found: list[tuple[str, list[Any]]]) -> Lists:
    """The last three neighbours in the method's order; any order if there are no others, as in a
    JSON object. So a draft never mixes with the plan."""
    names = tuple(name for name, _ in found)
    for start in range(len(found) - 3, -1, -1):
        if names[start : start + 3] == _NAMES:
            return dict(found[start : start + 3])
    if len(found) == len(_NAMES) == len(set(names)):
        return dict(found)
    raise PlanError(f"no plan found: write the lists {', '.join(_NAMES)}, in this order")


def _literal_end(text: str, start: int) -> int | None:
    """Where the list that opens at `start` ends; None if it does not, or is nested too deep."""
    depth = 0
    position = start
    while position < len(text):
        char = text[position]
        if quoted := _QUOTED.match(text, position) if char in "\"'" else None:
            position = quoted.end()
            continue
        depth += (char == "[") - (char == "]")
        position += 1
        if depth == 0:
            return position
        if depth > _MAX_DEPTH or char in "({\"'":
            return None
    return None


def _read(literal: str) -> Any:
    """The value of a JSON or Python literal; None when it is neither."""
    try:
        return orjson.loads(literal)
    except ValueError:
        pass  # not JSON: then perhaps Python
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes, and would quote the text
            return ast.literal_eval(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _steps(entries: Iterable[tuple[Any, Any, Any]], first: int) -> Iterator[Step]:
    for number, (model, subtask, access) in enumerate(entries, first):
        try:
            yield Step(
                _ordinal(model), _access(access, number, question=number == first), _line(subtask)
            )
        except PlanError as fault:
            raise PlanError(str(fault), number) from None


def _ordinal(model: Any) -> int:
    if type(model) is not int:
        raise PlanError("model_id holds integers")
    return model


def _line(subtask: Any) -> str:
    if type(subtask) is not str:
        raise PlanError("subtasks holds strings")
    return _BREAKS.sub(" ", subtask).strip(" ")


def _access(entry: Any, number: int, *, question: bool) -> Access:
    if type(entry) is not list or not all(type(item) is int or item == "all" for item in entry):
        raise PlanError('an entry of access_list is [], ["all"] or a list of step numbers')
    if "all" in entry:
        return Access(question, tuple(range(number)))
    return Access(question, tuple(sorted(set(entry))))
