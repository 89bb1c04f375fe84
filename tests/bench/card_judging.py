"""Whether an answer is right: read as the appliance reads answers, and where it reads nothing, by
rules that a person would agree to.

A judge of short answers with a known right one, nothing else: of prose it sees the first sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.card_questions import Question
from conductor.plan.conclusion import conclusion
from conductor.plan.normalform import NUMBER, normal, plain

_WHOLE_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NUMBERS = re.compile(NUMBER)
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
_TAKEN_BACK = re.compile(r"\b(?:but|not|n't|no)\b")
_FENCED = re.compile(r"```\w*\n(.*?)(?:```|\Z)", re.S)
_ASSIGNED = re.compile(r"\A\w+\s*=(?!=)")
_GIVEN = re.compile(r"\b(?:is|be|was|returns?|gives?|outputs?)\b:?\s*`([^`\n]+)`")


def right(question: Question, answer: str) -> bool:
    """Whether the answer says what is accepted.

    It does where it concludes so (`conductor.plan.conclusion`). Else its last number counts, if it
    concludes with none; of code, a line that stands alone and what is said to be given; and for a
    word, that the first sentence holds it and takes nothing back ("Rome is the capital.").
    """
    found = conclusion(answer)
    said = found.text if found else ""
    if normal(said) in map(normal, question.accepted):
        return True
    if all(_WHOLE_NUMBER.fullmatch(one) for one in question.accepted):
        return _last_number(said, answer) in question.accepted
    if question.domain == "code":
        pieces = set(map(_spelt, (said, *_pieces(answer))))
        return not pieces.isdisjoint(map(_spelt, question.accepted))
    return _named(answer, question.accepted)


def _last_number(said: str, answer: str) -> str:
    """The last one of an answer that does not conclude with another; empty if there is none."""
    numbers = _NUMBERS.findall(answer)
    return normal(numbers[-1]) if numbers and not _WHOLE_NUMBER.fullmatch(normal(said)) else ""


def _pieces(answer: str) -> Iterator[str]:
    """Code that is held out as the answer: the first line, the first block if it is one line but
    for remarks, and the last piece that is said to be given."""
    yield answer.strip().partition("\n")[0]
    if block := _FENCED.search(answer):
        lines = [line.partition("#")[0].strip() for line in block.group(1).splitlines()]
        yield "\n".join(filter(None, lines))
    yield from _GIVEN.findall(answer)[-1:]


def _spelt(code: str) -> str:
    """One spelling: one kind of quotes, without spaces within a line, without marks around, and
    without a name that it is given to."""
    value = _ASSIGNED.sub("", code.strip(" `.;\n"))
    return re.sub(r"[^\S\n]", "", value).replace("'", '"').strip('"')


def _named(answer: str, accepted: tuple[str, ...]) -> bool:
    first = plain(_SENTENCE.split(answer.strip())[0])
    words = [re.escape(plain(one)) for one in accepted]
    named = re.search(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", first)
    return bool(named) and not _TAKEN_BACK.search(first)
