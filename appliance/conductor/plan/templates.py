"""Instructions that everybody may read: a closed vocabulary, written before any question was asked.

A subtask that a planner words by itself says something of the question that it was shown, so it is
as sensitive as that. One of these texts, or none, says only which of a few was chosen
(`flow/choices.py` counts that).

A change of these words changes what trained conductors mean: add at the end, do not reword.
"""

from __future__ import annotations

from enum import StrEnum

MAX_TEMPLATES = 16
"""Each doubling lets a choice among them tell one bit more."""


class Template(StrEnum):
    """The instructions. A member is its text, and can be used as a subtask."""

    EXTRACT = (
        "State the problem that the request poses so that somebody can solve it who sees nothing "
        "else: keep every figure, unit, rule and condition that matters, and the form of answer "
        "that is asked for. Leave out all names, addresses, numbers of identity and whatever else "
        "points to a person or an organisation; write 'person A' or 'company B' where one is "
        "needed. Do not solve it."
    )
    SOLVE = "Solve the problem that is stated above, and show the result at the end."
    PUT_BACK = (
        "A solution to the problem behind the request is shown. Write the complete final answer to "
        "the request from it, in the request's own terms, with the names and in the form that it "
        "asks for. Do not mention the solution."
    )
    COMBINE = (
        "Two independent answers to the request are shown. Where they disagree, work out which is "
        "right. Then write one complete final answer to the request, in the form it asks for, "
        "without mentioning the two answers."
    )
    VERIFY = "Check the result above step by step. Say what is wrong with it, or that it is right."
    CORRECT = "Use the remarks above to write a corrected and complete answer."
    SUMMARISE = "Summarise what is shown above in a few sentences. Add nothing to it."
    TRANSLATE = "Translate what is shown above into the language of the request. Add nothing to it."
    OUTLINE = "List the steps by which the problem above can be solved. Do not carry them out."
    CODE = "Write the program that the problem above asks for. Answer with the code alone."
    TEST = "Write tests for the program above that would show a fault in it."
    EXPLAIN = "Explain the result above so that somebody new to the subject can follow it."


_TEXTS = frozenset(template.value for template in Template)


def is_template(text: str) -> bool:
    """Whether an instruction is one of these, to the letter."""
    return text in _TEXTS
