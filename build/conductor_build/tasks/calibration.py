"""What `conductor-build probe` asks if nothing else is said: small problems of three domains.

Mathematics and general reasoning come from reasoning-gym's generators, drawn from a seed, so that
no worker can have learned the answers; code is a dozen small functions of ours, each with tests.
They tell workers apart that differ much, and small ones among each other. Cards for one's own work
are better measured on one's own questions (`jsonl.py`).
"""

from __future__ import annotations

from conductor_build.tasks.common import Example, Task
from conductor_build.tasks.gym import Verifier, gym_tasks
from conductor_build.tasks.jail import Jail
from conductor_build.tasks.jsonl import JsonlTask
from conductor_build.tasks.views import Mixture

GENERATORS = (
    "chain_sum", "gcd", "lcm", "gsm_symbolic", "basic_arithmetic",
    "letter_counting", "word_sorting", "number_filtering", "syllogism", "family_relationships",
)  # fmt: skip
"""Five of mathematics, five of the rest; each asks in words and is judged without doubt."""

_ASK = "Write a Python function `{}` that {}. Reply with one block of code."
_FUNCTIONS: tuple[tuple[str, str, str], ...] = (
    ("mirror(text)", "tells whether a text reads the same backwards, ignoring case and everything "
     "that is no letter", "assert mirror('Never odd, or even!')\nassert not mirror('ab')\n"
     "assert mirror('')"),
    ("runs(items)", "takes a list and returns a list of pairs (item, how often it stands there in "
     "a row)", "assert [tuple(p) for p in runs([1, 1, 2, 1])] == [(1, 2), (2, 1), (1, 1)]\n"
     "assert list(runs([])) == []"),
    ("roman(n)", "writes a whole number from 1 to 3999 as a Roman numeral",
     "assert [roman(n) for n in (4, 9, 1994, 3999)] == ['IV', 'IX', 'MCMXCIV', 'MMMCMXCIX']"),
    ("depth(text)", "returns how deeply round brackets are nested in a text, or -1 if they do not "
     "match", "assert depth('a(b(c)d)()') == 2\nassert depth('') == 0\nassert depth(')(') == -1\n"
     "assert depth('(()') == -1"),
    ("second(items)", "returns the second largest of the different numbers in a list, or None if "
     "there is none", "assert second([3, 1, 3, 2]) == 2\nassert second([5, 5]) is None\n"
     "assert second([]) is None\nassert second([-1, -2]) == -2"),
    ("turn(rows)", "turns a rectangular list of lists a quarter to the right",
     "t = [list(r) for r in turn([[1, 2, 3], [4, 5, 6]])]\nassert t == [[4, 1], [5, 2], [6, 3]]"),
    ("merge(a, b)", "merges two sorted lists into one sorted list",
     "assert merge([1, 4], [2, 3, 9]) == [1, 2, 3, 4, 9]\nassert merge([], [1]) == [1]"),
    ("primes(n)", "returns the list of all primes below n",
     "assert primes(20) == [2, 3, 5, 7, 11, 13, 17, 19]\nassert primes(2) == []"),
    ("common(a, b)", "returns the longest text that is a prefix of both of two texts",
     "assert common('flower', 'flight') == 'fl'\nassert common('a', '') == ''"),
    ("flat(value)", "takes lists nested to any depth and returns one flat list of what is in them",
     "assert flat([1, [2, [3, []]], 4]) == [1, 2, 3, 4]\nassert flat([]) == []"),
    ("clock(minutes)", "writes minutes since midnight as HH:MM, going on after midnight from 00:00",
     "assert clock(75) == '01:15'\nassert clock(1440) == '00:00'\nassert clock(1501) == '01:01'"),
    ("change(total, coins)", "returns the least number of coins that make up a total, each usable "
     "any number of times, or None if it cannot be done",
     "assert change(11, [1, 5, 6]) == 2\nassert change(3, [2]) is None\n"
     "assert change(0, [7]) == 0"),
)  # fmt: skip


def functions(jail: Jail | None = None) -> JsonlTask:
    """The functions of ours, as a task of the domain `code`."""
    examples = [
        Example(head.partition("(")[0], _ASK.format(head, what), {"tests": tests, "domain": "code"})
        for head, what, tests in _FUNCTIONS
    ]
    return JsonlTask(examples, jail)


def calibration(each: int, seed: int, verifier: Verifier) -> Task:
    """`each` questions of every generator, and the functions.

    Raises `TaskError` when reasoning-gym is not installed.
    """
    drawn = gym_tasks(GENERATORS, size=each, seed=seed, verifier=verifier)
    return Mixture([*drawn, ("functions", functions())])
