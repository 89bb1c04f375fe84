"""A supervised start: imitate sensible plans before any reward is seen.

From a raw small model GRPO learns the form of plans and then falls for one of them. So the policy
first learns plans that the cards in the prompt speak for, of every kind that may turn out good.
They are a teacher's guesses, made without knowing an answer: which pay is for GRPO to find out.

The loss is the cross-entropy of the chosen tokens, under the mask, of several plans a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from conductor.plan.language import Plan, show
from conductor_build.lm.improve import Learned, choices, reach, step
from conductor_build.lm.recipe import WarmStart
from conductor_build.lm.tokens import ids_of

if TYPE_CHECKING:
    from conductor_build.lm.policy import PlanPolicy, Written
    from conductor_build.lm.tokens import Ask, Writer


def spelled(writer: Writer, ask: Ask, plan: Plan) -> Written:
    """A plan as it would have been written: forced runs where only one text can follow, else the
    tokenizer's own spelling of what is left. Raises `PlanError` for one that does not fit."""
    from conductor_build.lm.policy import Written

    automaton, left = writer.automaton(ask), show(plan).encode()
    state, tokens, forced = automaton.start(), list[int](), list[bool]()
    while not (tokens and tokens[-1] in writer.tables.eos):
        run = automaton.forced(state)
        for token in run or _next(writer, left):
            state = automaton.advance(state, token)
            left = left[len(writer.tables.bytes_of(token)) :]
            tokens.append(token)
            forced.append(bool(run))
    return Written(
        tuple(tokens), (0.0,) * len(tokens), tuple(forced), show(plan), plan, ended=True
    )  # fmt: skip


def _next(writer: Writer, left: bytes) -> list[int]:
    """The first token of what is left of a text, or the end."""
    spelling = ids_of(writer.tokenizer, left.decode())
    return [spelling[0] if spelling else writer.tables.eos[0]]


def imitate(
    policy: PlanPolicy,
    optimiser: torch.optim.Optimizer,
    taught: Sequence[tuple[Ask, Sequence[Written]]],
    settings: WarmStart,
) -> Learned:
    """One step down the cross-entropy to the plans of a few prompts."""
    total = sum(choices(one) for _, group in taught for one in group)
    loss, entropy = 0.0, 0.0
    optimiser.zero_grad()
    scored = policy.score(
        [ask for ask, _ in taught], [group for _, group in taught], **reach(settings.through)
    )
    for one in scored:
        weight = one.chosen.to(torch.float32) / max(1, total)
        own = -(one.log_prob * weight).sum()
        own.backward()  # type: ignore[no-untyped-call]
        loss += float(own.detach())
        entropy += float((one.entropy * weight).sum().detach())
    step(policy, optimiser, settings.max_gradient)
    return Learned(loss, entropy)
