"""The plan language: one line a step, read and printed without loss.

    <worker> <access> <subtask>\\n        at most MAX_STEPS lines; no line at all means "stop"

    worker    an ordinal of the pool (0, 1, ... without leading zeros), `redact` or `vote`
    access    what the step is shown: `q` the question, `0`..`9` the result of an earlier step, both
              joined by commas (`q` first, then rising numbers); `*` all of it; `-` nothing
    subtask   the instruction, 1 to MAX_SUBTASK_BYTES bytes of UTF-8 on one line, without a space at
              either end; `-` stands for none, so that no instruction can be a lone `-`

A request may be planned for in rounds. Its steps are numbered on through all of them, so that a
later plan can name what an earlier one gave; what stands in a line does not change. Which number a
text begins with (`first`) is known from the round, not written.

Given that number, every plan has exactly one text and every text at most one plan:
`parse(show(plan), plan.first) == plan` and `show(parse(text, first)) == text`. A value that could
not be printed cannot be built.

Left out: whether a plan fits a pool (`validate.py`), what may come next in a text that is being
written (`grammar.py`), and the three lists that other conductors write (`dialect.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from conductor.errors import PlanError

LANGUAGE_VERSION = 1
"""Rises with every change of what a text means, or which texts are plans. Trained conductors name
the one they write."""
MAX_STEPS = 5
"""Longest plan; the published method uses as many."""
MAX_TOTAL_STEPS = 10
"""Most steps of a request, over all its rounds: one digit names any of them."""
MAX_WORKERS = 256
"""Largest pool: ordinals have at most three digits."""
MAX_SUBTASK_BYTES = 1000
"""Longest instruction. Five of them stay well inside the 1,024 tokens that a planner may write."""

_NO_TEXT = "-"
_NOTHING = "-"
_EVERYTHING = "*"
_QUESTION = "q"
_ORDINAL = re.compile(r"0|[1-9][0-9]{0,2}")
_STEP = re.compile(r"[0-9]")
# C0, DEL, C1 and the two Unicode separators: all that some reader might take for a line's end.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Builtin(StrEnum):
    """Steps that the appliance runs itself, on this machine, without a model of the pool."""

    REDACT = "redact"
    VOTE = "vote"


@dataclass(frozen=True, slots=True)
class View:
    """What a step at a known place is really shown. `steps` rise."""

    question: bool
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """An access list as written. Raises `PlanError` when it has no canonical text."""

    question: bool = False
    steps: tuple[int, ...] = ()
    everything: bool = False

    def __post_init__(self) -> None:
        if self.everything and (self.question or self.steps):
            raise PlanError("'*' already shows everything: write it alone")
        if list(self.steps) != sorted(set(self.steps)):
            raise PlanError("name the steps of an access list once each, in rising order")
        if any(not 0 <= step < MAX_TOTAL_STEPS for step in self.steps):
            raise PlanError(f"steps are numbered 0 to {MAX_TOTAL_STEPS - 1}")

    def __str__(self) -> str:
        if self.everything:
            return _EVERYTHING
        names = [_QUESTION] * self.question + [str(step) for step in self.steps]
        return ",".join(names) or _NOTHING


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan. An empty `subtask` leaves the instruction to the executor's default.

    Raises `PlanError` when it has no canonical text.
    """

    worker: int | Builtin
    access: Access
    subtask: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.worker, int) and not 0 <= self.worker < MAX_WORKERS:
            raise PlanError(f"workers are numbered 0 to {MAX_WORKERS - 1}")
        if self.subtask:
            _check_subtask(self.subtask)

    def __str__(self) -> str:
        return f"{self.worker} {self.access} {self.subtask or _NO_TEXT}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One round's steps in order; a step sees only earlier ones, of this round or one before.
    No steps: keep the answer that stands.

    Raises `PlanError` for too many steps, or a step that is shown itself or a later one.
    """

    steps: tuple[Step, ...] = ()
    first: int = 0
    """The number of the first step: how many steps the earlier rounds had."""

    def __post_init__(self) -> None:
        if len(self.steps) > MAX_STEPS:
            raise PlanError(f"a plan has at most {MAX_STEPS} steps: merge or drop some")
        if self.first < 0 or self.first + len(self.steps) > MAX_TOTAL_STEPS:
            raise PlanError(f"all rounds together have at most {MAX_TOTAL_STEPS} steps")
        for number, step in self.numbered():
            if any(earlier >= number for earlier in step.access.steps):
                raise PlanError("a step can be shown earlier steps only", number)

    def numbered(self) -> Iterator[tuple[int, Step]]:
        """Every step with its number, counted over all rounds."""
        return enumerate(self.steps, self.first)

    @property
    def calls(self) -> int:
        """How many steps call a worker of the pool, the built-in ones left aside."""
        return sum(not isinstance(step.worker, Builtin) for step in self.steps)


def resolve(access: Access, number: int) -> View:
    """What the step of that number is shown, `*` spelled out: all rounds are counted through."""
    if access.everything:
        return View(True, tuple(range(number)))
    return View(access.question, access.steps)


def show(plan: Plan) -> str:
    """The one text of a plan: every line ends in a newline; empty for the plan to stop."""
    return "".join(f"{step}\n" for step in plan.steps)


def parse(text: str, first: int = 0) -> Plan:
    """Read a canonical text, whose first step has the number `first`.

    Raises `PlanError`, with the step's number where one is at fault.
    """
    if text and not text.endswith("\n"):
        raise PlanError("the text is cut: the last line of a plan ends in a newline too")
    lines = text.split("\n", MAX_STEPS + 1)[:-1]
    if len(lines) > MAX_STEPS:
        raise PlanError(f"a plan has at most {MAX_STEPS} steps: merge or drop some")
    return Plan(tuple(_steps(lines, first)), first)


def _steps(lines: list[str], first: int) -> Iterator[Step]:
    for number, line in enumerate(lines, first):
        try:
            yield _step(line)
        except PlanError as fault:
            raise PlanError(str(fault), number) from None


def _step(line: str) -> Step:
    parts = line.split(" ", 2)
    if len(parts) < 3:
        raise PlanError("write a worker, an access list and a subtask ('-' for none)")
    worker, access, subtask = parts
    if not subtask:
        raise PlanError("the subtask is empty: write '-' for none")
    return Step(_worker(worker), _access(access), "" if subtask == _NO_TEXT else subtask)


def _worker(text: str) -> int | Builtin:
    if _ORDINAL.fullmatch(text):
        return int(text)
    try:
        return Builtin(text)
    except ValueError:
        names = ", ".join(Builtin)
        raise PlanError(f"a worker is a number without leading zeros, or one of {names}") from None


def _access(text: str) -> Access:
    if text == _EVERYTHING:
        return Access(everything=True)
    if text == _NOTHING:
        return Access()
    names = text.split(",")
    question = names[0] == _QUESTION
    numbers = names[1:] if question else names
    if not all(_STEP.fullmatch(number) for number in numbers):
        raise PlanError("an access list is '*', '-', or 'q' and step numbers joined by commas")
    return Access(question, tuple(int(number) for number in numbers))


def _check_subtask(text: str) -> None:
    if text == _NO_TEXT:
        raise PlanError("a lone '-' means no subtask: leave the subtask empty instead")
    if text.startswith(" ") or text.endswith(" "):
        raise PlanError("a subtask neither begins nor ends with a space")
    if _FORBIDDEN.search(text):
        raise PlanError("a subtask is one line without control characters")
    if len(text) > MAX_SUBTASK_BYTES or _utf8_bytes(text) > MAX_SUBTASK_BYTES:
        raise PlanError(f"a subtask has at most {MAX_SUBTASK_BYTES} bytes: shorten it")


def _utf8_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise PlanError("a subtask is valid Unicode: it holds half of a surrogate pair") from None
