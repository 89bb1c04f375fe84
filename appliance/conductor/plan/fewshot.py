"""Four requests with a good plan each, which every prompt shows.

All four are of kinds that no training task asks about: from examples of other kinds a conductor
learns more than from its own, and without any it does clearly worse (arXiv 2512.04388, ablations).
They differ in length, from one step to four, in pool and in permissions; no worker number is the
right one in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from conductor.core import Candidate, Card, Flow, PlanRequest, Price
from conductor.plan.language import Plan, parse
from conductor.plan.templates import Template


@dataclass(frozen=True)
class Example:
    """A request, and a plan that fits it."""

    request: PlanRequest
    plan: Plan


def _worker(
    general: float, speed: float, usd: tuple[float, float] | None = None, **more: float
) -> Candidate:
    """On this machine without a price, else at a vendor's; `more` are further skills."""
    return Candidate(
        card=Card({"general": general, **more}, speed, "measured"),
        price=Price(*usd) if usd else Price(),
        local=usd is None,
        context_tokens=8192 if usd is None else 128_000,
    )


_SMALL = _worker(0.52, 60, code=0.12, math=0.18)
_CODER = _worker(0.66, 25, code=0.61, math=0.44)
_CHEAP = _worker(0.83, 140, (0.3, 1.2), code=0.7, math=0.72)
_ABLE = _worker(0.94, 70, (3, 15), code=0.91, math=0.93)

_RECALL = Example(
    PlanRequest(
        request_id="",
        question="In which year was the Suez Canal opened?",
        candidates=(_ABLE, _SMALL, _CHEAP),
        prompt_tokens=12,
        max_steps=3,
    ),
    parse("2 q -\n"),
)

_SCRIPT = Example(
    PlanRequest(
        request_id="",
        question=(
            "I need a shell script that moves photos into folders by the month in which they were "
            "taken, and that I can run again without harm. Reply with the script only."
        ),
        candidates=(_CODER, _ABLE),
        prompt_tokens=40,
        cost_weight=0.3,
    ),
    parse(
        "0 q Name the cases that such a script gets wrong: spaces in names, photos without a date, "
        "a file that is there already, a second run. Do not write it.\n"
        "1 q,0 Write the script so that each of these cases is handled. Reply with the script "
        "only.\n"
    ),
)

_DIAGNOSIS = Example(
    PlanRequest(
        request_id="",
        question=(
            "A man of 58 takes a diuretic and has been vomiting for two days. He is weak, and his "
            "ECG shows flat T waves and U waves. What is the likeliest disorder? (A) too much "
            "calcium (B) too little potassium (C) too much potassium (D) too little sodium. "
            "Give the letter."
        ),
        candidates=(_CHEAP, _SMALL, _CODER, _ABLE),
        prompt_tokens=90,
        cost_weight=0.01,
    ),
    parse(
        "0 q Go through the four options one by one, and say what speaks for each and against it.\n"
        "3 q Work out from the findings alone, before looking at the options, what is wrong.\n"
        "3 q,0,1 Decide between these two where they differ. Give the letter alone.\n"
    ),
)

_LEASE = Example(
    PlanRequest(
        request_id="",
        question=(
            "Our tenant Greta Lindqvist, Harbour Road 14, signed for five years in March 2021 at "
            "1,150 a month and wants to leave in June 2024. The lease lets her go after three "
            "years with six months' notice, which she gave on 2 February. Write to her whether "
            "she may, and until when she pays."
        ),
        candidates=(_CODER, _ABLE),
        prompt_tokens=95,
        may_redact=True,
        # Class 0 is what the question is, class 1 what `redact` makes of it.
        flow=Flow(
            question=0,
            control=0,
            heard=(),
            joins=((0, 0), (0, 1)),
            redacted=(1, 1),
            sees=(frozenset({0}), frozenset({0, 1})),
        ),
    ),
    parse(
        "0 q State the question of law with every date, term and amount, and no name or address. "
        "Do not answer it.\n"
        "redact 0 -\n"
        f"1 1 {Template.SOLVE}\n"
        "0 q,2 Write the letter to the tenant from this solution, and keep its dates.\n"
    ),
)

EXAMPLES = (_RECALL, _SCRIPT, _DIAGNOSIS, _LEASE)
"""In the order in which they are shown."""
