"""Questions that a card's skills are measured with: thirty each of math, code and general.

Ours, and the same every time: numbers are drawn from a fixed seed, and what code gives is found by
running it here. Each has an answer of a few words. Left out: proofs, programs, essays, whatever
cannot be compared with a spelling; so a card says nothing about those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

DOMAINS = ("math", "code", "general")
SEED = 20
DRAWS = 2
"""Of every kind of problem, with other numbers."""


@dataclass(frozen=True)
class Question:
    """What is asked, and every spelling of what is right."""

    domain: str
    text: str
    accepted: tuple[str, ...]


def questions() -> tuple[Question, ...]:
    """All of them, a domain after the other."""
    return (*_math(), *_returned(), *_written(), *_general())


# -- math: word problems and algebra of school ---------------------------------------------------

Problem = tuple[str, int]


def _change(draw: Random) -> Problem:
    count, each, pen = draw.randint(3, 7), draw.randint(2, 5), draw.randint(2, 4)
    text = f"Marta buys {count} notebooks at {each} euros each and a pen for {pen} euros. She pays "
    return text + "with a 50 euro note. How many euros does she get back?", 50 - count * each - pen


def _sale(draw: Random) -> Problem:
    price, cut = 20 * draw.randint(3, 9), 5 * draw.randint(2, 7)
    text = f"A coat costs {price} euros. Its price is cut by {cut} percent. What does it cost now?"
    return text, price * (100 - cut) // 100


def _journey(draw: Random) -> Problem:
    (fast, long), (slow, short) = (draw.randint(80, 120), 3), (draw.randint(40, 60), 2)
    text = f"A train runs for {long} hours at {fast} km per hour, then for {short} hours at {slow} "
    return text + "km per hour. How many km does it run in all?", fast * long + slow * short


def _linear(draw: Random) -> Problem:
    x, a, b = draw.randint(3, 12), draw.randint(3, 9), draw.randint(4, 30)
    return f"Solve for x: {a}x + {b} = {a * x + b}.", x


def _both_sides(draw: Random) -> Problem:
    x, a, c, b = draw.randint(3, 9), draw.randint(6, 9), draw.randint(2, 5), draw.randint(1, 8)
    return f"Solve for x: {a}x - {b} = {c}x + {(a - c) * x - b}.", x


def _area(draw: Random) -> Problem:
    wide, long = draw.randint(4, 9), draw.randint(10, 19)
    text = f"A rectangle has a perimeter of {2 * (wide + long)} cm and is {long} cm long. "
    return text + "What is its area in square centimetres?", wide * long


def _two_numbers(draw: Random) -> Problem:
    low, gap = draw.randint(8, 30), 2 * draw.randint(2, 9)
    text = f"The sum of two numbers is {2 * low + gap}, and their difference is {gap}. "
    return text + "What is the larger number?", low + gap


def _mean(draw: Random) -> Problem:
    known = [draw.randint(5, 25) for _ in range(3)]
    fourth = 4 * draw.randint(18, 24) - sum(known)
    text = (
        f"Three numbers are {known[0]}, {known[1]} and {known[2]}. With a fourth one, their mean "
    )
    return text + f"is {(sum(known) + fourth) // 4}. What is the fourth number?", fourth


def _quadratic(draw: Random) -> Problem:
    low, high = draw.randint(2, 5), draw.randint(6, 12)
    return f"What is the larger solution of x^2 - {low + high}x + {low * high} = 0?", high


def _ages(draw: Random) -> Problem:
    times, young = draw.randint(2, 5), draw.randint(4, 12)
    text = f"Tom is {times} times as old as his sister. Together they are {young * (times + 1)} "
    return text + "years old. How old is Tom?", times * young


def _pupils(draw: Random) -> Problem:
    part = 2 * draw.randint(5, 12)
    text = f"Of {3 * part} pupils a third come by bus. Half of the others walk, and the rest cycle."
    return text + " How many cycle?", part


def _reckoning(draw: Random) -> Problem:
    a, b, c = draw.randint(12, 29), draw.randint(6, 19), draw.randint(20, 90)
    return f"What is {a} * {b} - {c}?", a * b - c


def _sequence(draw: Random) -> Problem:
    first, step, place = draw.randint(3, 15), draw.randint(3, 9), draw.randint(15, 30)
    text = f"A sequence begins with {first}, and each further term is {step} more than the one "
    return text + f"before. What is term number {place}?", first + (place - 1) * step


def _paint(draw: Random) -> Problem:
    litres, each, times = draw.randint(3, 6), draw.randint(7, 12), draw.randint(3, 6)
    text = f"{litres} litres of paint are enough for {litres * each} square metres. How many litres"
    return text + f" do {litres * each * times} square metres take?", litres * times


def _remainder(draw: Random) -> Problem:
    by, times, left = draw.randint(7, 13), draw.randint(11, 30), draw.randint(1, 6)
    return f"What is the remainder when {by * times + left} is divided by {by}?", left


_PROBLEMS: tuple[Callable[[Random], Problem], ...] = (
    *(_change, _sale, _journey, _linear, _both_sides, _area, _two_numbers, _mean),
    *(_quadratic, _ages, _pupils, _reckoning, _sequence, _paint, _remainder),
)


def _math() -> Iterator[Question]:
    draw = Random(SEED)
    for problem in _PROBLEMS:
        drawn: dict[str, int] = {}
        while len(drawn) < DRAWS:
            drawn.update([problem(draw)])
        for text, answer in drawn.items():
            yield Question("math", f"{text} End with the number.", (str(answer),))


# -- code: what a function gives, and how something is written ------------------------------------

_FUNCTIONS = (
    (
        "def f(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total",
        "f(7)",
    ),
    ("def f(s):\n    return s[::-1]", "f('lamp')"),
    ("def f(xs):\n    return [x for x in xs if x % 2 == 0]", "f([3, 8, 5, 12, 6])"),
    ("def f(xs):\n    return max(xs) - min(xs)", "f([4, 19, 7, 2])"),
    ("def f(n):\n    return 1 if n < 2 else n * f(n - 1)", "f(5)"),
    ("def f(s):\n    return len(set(s))", "f('banana')"),
    ("def f(a, b):\n    while b:\n        a, b = b, a % b\n    return a", "f(48, 36)"),
    ("def f(words):\n    return ' '.join(w.upper() for w in words)", "f(['red', 'sky'])"),
    ("def f(xs):\n    return xs[1:-1]", "f([1, 2, 3, 4, 5])"),
    ("def f(d):\n    return sorted(d, key=d.get)[0]", "f({'a': 3, 'b': 1, 'c': 2})"),
    (
        "def f(n):\n    steps = 0\n    while n != 1:\n"
        "        n = n // 2 if n % 2 == 0 else 3 * n + 1\n        steps += 1\n    return steps",
        "f(6)",
    ),
    ("def f(xs, ys):\n    return sum(x * y for x, y in zip(xs, ys))", "f([1, 2, 3], [4, 5, 6])"),
    ("def f(s):\n    return s.count('o') + s.find('k')", "f('notebook')"),
    ("def f(n):\n    return [i * i for i in range(1, n)][-1]", "f(6)"),
    ("def f(x, y=[]):\n    y.append(x)\n    return len(y)", "f(1) + f(2)"),
)
"""Python, and a call of it."""

_TASKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the last element of a list xs", ("xs[-1]", "xs[len(xs)-1]")),
    ("the number of elements of a list xs", ("len(xs)",)),
    ("the sum of the squares of a list xs", ("sum(x**2 for x in xs)", "sum(x*x for x in xs)")),
    ("whether an integer n is even", ("n%2==0", "not n%2", "n&1==0", "(n%2)==0")),
    ("a string s with its characters in reverse order", ("s[::-1]", "''.join(reversed(s))")),
    ("the remainder of a divided by b", ("a%b",)),
    ("a to the power of b", ("a**b", "pow(a,b)")),
    ("the keys of a dict d as a list", ("list(d)", "list(d.keys())", "[*d]")),
    ("a list xs sorted from largest to smallest", ("sorted(xs,reverse=True)",)),
    ("a string s in upper case", ("s.upper()",)),
    ("a list of the words of a string s", ("s.split()", "s.split(' ')")),
    ("the largest element of a list xs", ("max(xs)",)),
    ("whether a key k is in a dict d", ("k in d", "k in d.keys()")),
    ("the integer that a string s spells", ("int(s)",)),
    ("a string of the words in a list ws, joined by commas", ("','.join(ws)", "', '.join(ws)")),
)
"""What a Python expression is to give, and its usual spellings."""


def _returned() -> Iterator[Question]:
    for source, call in _FUNCTIONS:
        names: dict[str, Any] = {}
        exec(source, names)  # our own source, a few lines further up
        value = eval(call, names)
        text = (
            f"What does {call} return?\n\n```python\n{source}\n```\n\nAnswer with the value alone."
        )
        yield Question("code", text, (str(value), repr(value)))


def _written() -> Iterator[Question]:
    for task, accepted in _TASKS:
        text = f"Write a Python expression that gives {task}. The expression alone, on one line."
        yield Question("code", text, accepted)


# -- general: short facts -------------------------------------------------------------------------

_FACTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What is the capital of Portugal?", ("Lisbon",)),
    ("What is the capital of Canada?", ("Ottawa",)),
    ("Which country has Nairobi as its capital?", ("Kenya",)),
    ("What is the largest ocean?", ("Pacific",)),
    ("Which river flows through Vienna and Budapest?", ("Danube",)),
    ("On which continent is the Sahara?", ("Africa",)),
    ("What is the highest mountain on Earth?", ("Everest",)),
    ("Which planet is closest to the Sun?", ("Mercury",)),
    ("Which planet is the largest of the solar system?", ("Jupiter",)),
    ("What is the chemical symbol of gold?", ("Au",)),
    ("Which gas do plants take up for photosynthesis?", ("carbon dioxide", "CO2", "CO₂")),
    ("Which organ pumps blood through the body?", ("heart",)),
    ("How many legs does a spider have?", ("8", "eight")),
    ("How many days does a leap year have?", ("366",)),
    ("At how many degrees Celsius does water boil at sea level?", ("100",)),
    ("Who wrote Romeo and Juliet?", ("Shakespeare",)),
    ("Who painted the Mona Lisa?", ("Leonardo", "Vinci")),
    ("Who developed the theory of general relativity?", ("Einstein",)),
    ("In which year did the Second World War end?", ("1945",)),
    ("In which year did people first land on the Moon?", ("1969",)),
    ("What is the currency of Japan?", ("yen",)),
    ("Which language is spoken in Brazil?", ("Portuguese",)),
    ("What is the German word for water?", ("Wasser",)),
    ("What is the opposite of ancient?", ("modern", "new", "recent")),
    ("What is the plural of mouse, the animal?", ("mice",)),
    ("What is the past tense of to bring?", ("brought",)),
    ("Which metal is liquid at room temperature?", ("mercury",)),
    ("What do bees make from nectar?", ("honey",)),
    ("Which instrument has 88 keys?", ("piano",)),
    ("Who composed The Four Seasons?", ("Vivaldi",)),
)


def _general() -> Iterator[Question]:
    for text, accepted in _FACTS:
        yield Question("general", f"{text} Answer in one or two words.", accepted)
