"""Steps that the appliance runs itself, without a model."""

from __future__ import annotations

from collections.abc import Sequence

from conductor.plan.agreement import clusters, elect


def vote(answers: Sequence[str]) -> int:
    """Index of the answer that most others agree with; of equally many, the earliest.

    Who agrees says `plan/agreement.py`, prose by equal text. An empty answer has no vote.
    Raises `ValueError` when there are no answers.
    """
    return elect(clusters(answers))
