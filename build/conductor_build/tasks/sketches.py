"""Short questions of seven kinds, drawn from a seed: what the small recipes train on.

    sketches = Sketches(4000, seed=7)

Arithmetic, dates, units, sorting, code, numbers in words, who is older: the kinds differ in their
wording, so that a small model can tell them apart, and in what it takes to answer them, so that it
is worth telling. Difficulty runs from 1 to 5. Each question has one right answer, which is computed
here, and a few wrong ones that somebody might give; both are facts that no worker sees.

Left out: anything real. What is learned on these says that learning works, not how well it does on
the questions of a site.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from conductor_build.tasks import judge
from conductor_build.tasks.common import Example, TaskError, within

DIFFICULTIES = range(1, 6)
_WORDS = (
    "amber", "basil", "cedar", "copper", "coral", "crane", "daisy", "ember", "falcon", "fern",
    "ginger", "hazel", "iris", "ivory", "jasper", "lemon", "linen", "maple", "marble", "mint",
    "olive", "onyx", "otter", "pearl", "pepper", "pine", "plum", "quartz", "raven", "river",
    "saffron", "sage", "silver", "sparrow", "spruce", "topaz", "umber", "velvet", "walnut",
)  # fmt: skip
_NAMES = (
    "Ada", "Boris", "Clara", "Dario", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kira",
    "Luca", "Mira", "Nils", "Olga", "Pavel", "Rosa", "Sven", "Tara", "Ugo", "Vera", "Wim", "Yara",
)  # fmt: skip
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_UNITS = (
    ("kilometres", "metres", 1000), ("metres", "centimetres", 100), ("hours", "minutes", 60),
    ("minutes", "seconds", 60), ("kilograms", "grams", 1000), ("days", "hours", 24),
    ("weeks", "days", 7), ("litres", "millilitres", 1000), ("dozens", "pieces", 12),
)  # fmt: skip
_ALONE = "Answer with the number alone."


@dataclass(frozen=True)
class Sketch:
    """A question, its answer, and answers that are wrong."""

    question: str
    answer: int | str
    wrong: tuple[int | str, ...]


class Sketches:
    """`size` questions from `seed`, the kinds in turn."""

    def __init__(
        self, size: int, seed: int, *, domains: Sequence[str] = (),
        difficulty: tuple[int, int] = (1, 5),
    ) -> None:  # fmt: skip
        """`domains` are all by default; `difficulty` is the lowest and the highest drawn. Raises
        `TaskError`."""
        self._size, self._seed = size, seed
        self._domains = tuple(domains) or DOMAINS
        self._difficulty = difficulty
        unknown = set(self._domains) - set(DOMAINS)
        if unknown or size < 1:
            raise TaskError(f"sketches are at least one, of {', '.join(DOMAINS)}")
        if not DIFFICULTIES[0] <= difficulty[0] <= difficulty[1] <= DIFFICULTIES[-1]:
            raise TaskError("the difficulty of sketches lies between 1 and 5, the lower end first")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Example:
        domain = self._domains[within(self, index) % len(self._domains)]
        rng = random.Random(f"{self._seed}/{domain}/{index}")  # noqa: S311 - nothing secret
        hard = rng.randint(*self._difficulty)
        sketch = _KINDS[domain](rng, hard)
        facts: Mapping[str, Any] = {
            "domain": domain,
            "difficulty": hard,
            "answer": sketch.answer,
            "wrong": tuple(one for one in dict.fromkeys(sketch.wrong) if one != sketch.answer),
        }
        return Example(f"{self._seed}-{index}", sketch.question, facts)

    def score(self, example: Example, answer: str) -> float:
        right: Any = example.facts["answer"]
        if isinstance(right, int):
            return float(judge.numeric(answer, right, 0.0))
        return float(judge.exact(answer, [right]))

    def domain(self, example: Example) -> str:
        return str(example.facts["domain"])


def _arithmetic(rng: random.Random, hard: int) -> Sketch:
    numbers = [rng.randint(2, 9 * 4**hard) for _ in range(2 + hard // 2)]
    signs = [rng.choice("+-") for _ in numbers[1:]]
    text, total, slip = str(numbers[0]), numbers[0], numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        text += f" {sign} {number}"
        total += number if sign == "+" else -number
        slip += number
    question = f"Calculate {text}. {_ALONE}"
    return Sketch(question, total, (slip, total + 10, total - 1, total + 1))


def _dates(rng: random.Random, hard: int) -> Sketch:
    begin = date(2020, 1, 1) + timedelta(rng.randint(0, 3000))
    days = rng.randint(2, 12 * 3**hard)
    end = begin + timedelta(days)
    question = (
        f"A contract is signed on {begin.isoformat()} and ends {days} days later. On which date "
        "does it end? Answer with the date alone, written as YYYY-MM-DD."
    )
    wrong = (end + timedelta(1), end - timedelta(1), end + timedelta(30))
    return Sketch(question, end.isoformat(), tuple(one.isoformat() for one in wrong))


def _units(rng: random.Random, hard: int) -> Sketch:
    larger, smaller, factor = rng.choice(_UNITS)
    many, rest = rng.randint(2, 12 * 2**hard), rng.randint(1, factor - 1)
    more = f" and {rest} {smaller}" if hard > 1 else ""
    total = many * factor + (rest if more else 0)
    question = f"Convert {many} {larger}{more} into {smaller}. {_ALONE}"
    return Sketch(question, total, (many * factor, total * 10, total + factor, many + rest))


def _sorting(rng: random.Random, hard: int) -> Sketch:
    words = rng.sample(_WORDS, 2 + hard)
    right = sorted(words)
    swapped = [*right[:-2], right[-1], right[-2]]
    question = (
        f"Put these words into alphabetical order: {', '.join(words)}. Answer with the words "
        "alone, separated by commas."
    )
    wrong = (swapped, right[::-1], right[:-1])
    return Sketch(question, ", ".join(right), tuple(", ".join(one) for one in wrong))


def _code(rng: random.Random, hard: int) -> Sketch:
    times, step, start = rng.randint(2, 2 + 3 * hard), rng.randint(2, 9), rng.randint(0, 99)
    line, value = f"x += {step}", start + times * step
    if hard > 2:
        line, value = f"x += {step} * i", start + step * sum(range(times))
    question = (
        f"What does this Python program print? {_ALONE}\nx = {start}\n"
        f"for i in range({times}):\n    {line}\nprint(x)"
    )
    return Sketch(question, value, (value + step, value - step, start + step, value + times))


def _words(rng: random.Random, hard: int) -> Sketch:
    digits = [rng.randrange(10) for _ in range(3 + hard)]
    spelled = [_DIGITS[digit] for digit in digits]
    question = (
        f"Spell the code {''.join(map(str, digits))} digit by digit in English words. Answer with "
        "the words alone, separated by spaces."
    )
    slipped = [*spelled[:-1], _DIGITS[(digits[-1] + 1) % 10]]
    wrong = (slipped, spelled[:-1], spelled[::-1])
    return Sketch(question, " ".join(spelled), tuple(" ".join(one) for one in wrong))


def _logic(rng: random.Random, hard: int) -> Sketch:
    names = rng.sample(_NAMES, 2 + hard)  # the oldest first
    told = [
        f"{older} is older than {younger}" if rng.random() < 0.5 else
        f"{younger} is younger than {older}"
        for older, younger in pairwise(names)
    ]  # fmt: skip
    rng.shuffle(told)
    oldest = rng.random() < 0.5
    question = (
        f"{'; '.join(told)}. Who is the {'oldest' if oldest else 'youngest'} of all? Answer with "
        "the name alone."
    )
    return Sketch(question, names[0 if oldest else -1], tuple(names))


_KINDS: Mapping[str, Callable[[random.Random, int], Sketch]] = {
    "arithmetic": _arithmetic,
    "dates": _dates,
    "units": _units,
    "sorting": _sorting,
    "code": _code,
    "words": _words,
    "logic": _logic,
}
DOMAINS = tuple(_KINDS)
