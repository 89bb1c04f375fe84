"""Whether an answer is right: the same words, the same number, or a program that passes its tests.

Answers are whole replies. What one concludes with is found as the appliance finds it
(`conductor.plan.conclusion`), so that training and serving read answers alike.

A program that fails, hangs, or wants too much memory is a wrong answer: 0. Only a test bench that
cannot be run is a void. Left out: partial credit, and programs in other languages than Python.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Sequence

from conductor.plan.conclusion import conclusion
from conductor.plan.normalform import NUMBER, normal, plain
from conductor_build.importers import forms
from conductor_build.tasks.jail import Jail

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.M | re.S)
_NUMBER = re.compile(NUMBER)
_BENCH = """\
import sys
_source, _tests, _word = sys.stdin.read().split({mark!r})
_names = {{"__name__": "answer"}}
exec(compile(_source, "answer", "exec"), _names)
exec(compile(_tests, "tests", "exec"), _names)
sys.stdout.write(_word)
"""


def exact(answer: str, accepted: Sequence[str]) -> bool:
    """Whether the answer concludes with one of the accepted, or is one of them to the letter."""
    found = conclusion(answer)
    said = normal(found.text, code=found.code) if found else plain(answer)
    return bool(said) and (said in map(normal, accepted) or said in map(plain, accepted))


def numeric(answer: str, wanted: float, tolerance: float) -> bool:
    """Whether the number that the answer comes to is within `tolerance`, absolute, of the wanted
    one. An answer that concludes with no number is read for the last one that it has."""
    found = conclusion(answer)
    said = forms.amount(found.text) if found else None
    if said is None:
        numbers = _NUMBER.findall(answer)
        said = forms.amount(numbers[-1]) if numbers else None
    return said is not None and math.isclose(said, wanted, rel_tol=1e-9, abs_tol=tolerance)


def program(answer: str, tests: str, jail: Jail) -> bool:
    """Whether the Python of the answer runs, and then the tests do, without an error.

    The last block of code counts; without one, the whole answer. Raises `Void`.
    """
    mark, word = f"--{secrets.token_hex(8)}--", secrets.token_hex(16)
    given = mark.join((code_of(answer), tests, word))
    done = jail.run(_BENCH.format(mark=mark), given.encode("utf-8", "replace"))
    return done.output.endswith(word.encode())


def code_of(answer: str) -> str:
    """The program that an answer holds."""
    blocks = _FENCE.findall(answer)
    return str(blocks[-1]) if blocks else answer.replace("```", "")
