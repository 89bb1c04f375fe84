"""The functions that a calibration asks for: their tests accept a right program, and no other."""

from __future__ import annotations

import pytest

from conductor_build.tasks.calibration import functions
from conductor_build.tasks.jail import Jail

RIGHT = {
    "mirror": """
def mirror(text):
    letters = [c.lower() for c in text if c.isalpha()]
    return letters == letters[::-1]""",
    "runs": """
from itertools import groupby
def runs(items): return [(k, len(list(g))) for k, g in groupby(items)]""",
    "roman": """
def roman(n):
    out = ''
    pairs = [(1000,'M'),(900,'CM'),(500,'D'),(400,'CD'),(100,'C'),(90,'XC'),(50,'L'),(40,'XL'),
             (10,'X'),(9,'IX'),(5,'V'),(4,'IV'),(1,'I')]
    for value, sign in pairs:
        while n >= value: out += sign; n -= value
    return out""",
    "depth": """
def depth(text):
    now = most = 0
    for c in text:
        now += (c == '(') - (c == ')')
        if now < 0: return -1
        most = max(most, now)
    return -1 if now else most""",
    "second": """
def second(items):
    found = sorted(set(items))
    return found[-2] if len(found) > 1 else None""",
    "turn": "def turn(rows): return [list(r) for r in zip(*rows[::-1])]",
    "merge": "def merge(a, b): return sorted(a + b)",
    "primes": """
def primes(n): return [p for p in range(2, n) if all(p % d for d in range(2, p))]""",
    "common": """
import os
def common(a, b): return os.path.commonprefix([a, b])""",
    "flat": """
def flat(v): return [x for i in v for x in flat(i)] if isinstance(v, list) else [v]""",
    "clock": "def clock(m): return f'{m // 60 % 24:02}:{m % 60:02}'",
    "change": """
def change(total, coins):
    best = [0] + [None] * total
    for t in range(1, total + 1):
        ways = [best[t - c] for c in coins if c <= t and best[t - c] is not None]
        best[t] = min(ways) + 1 if ways else None
    return best[total]""",
}


def passes(program: str, tests: str) -> bool:
    """As in the jail, which need not be had for programs of ours."""
    names: dict[str, object] = {}
    exec(program, names)
    try:
        exec(tests, names)
    except (AssertionError, TypeError):
        return False
    return True


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes_and_a_stub_fails(name):
    task = functions()
    examples = {task[place].key: task[place] for place in range(len(task))}
    assert set(examples) == set(RIGHT)
    tests = str(examples[name].facts["tests"])
    assert passes(RIGHT[name], tests)
    assert not passes(f"def {name}(*given): return None", tests)


def test_a_function_is_judged_in_the_jail():
    task = functions(Jail(wall_s=5))
    assert task.domain(task[0]) == "code"
    assert task.score(task[0], f"Here:\n```python\n{RIGHT['mirror']}\n```") == 1
