"""What vLLM would be told and what is read out of its answers, with a stand-in for vLLM itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from conductor_build.lm.draw import Purpose
from conductor_build.lm.sampling import Masks, draw, log_probs
from conductor_build.lm.tokens import Ask
from conductor_build.lm.trl_driver import Parts
from conductor_build.lm.vllm_plans import (
    KEY,
    Masked,
    VllmError,
    VllmWriter,
    masked,
    spelling_of,
    written,
)
from conductor_build.lm.walk import SLACK, Walk
from support import lmparts


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    with lmparts.parts() as found:
        yield found


@dataclass
class Random:
    """In the place of TRL's vLLM: random logits, through what vLLM would call."""

    parts: Parts
    generation_kwargs: dict[str, Any] = field(default_factory=dict)

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, ...]:
        size = self.parts.writer.tables.tokens
        masks, generator = Masks(size, torch.device("cpu")), torch.Generator().manual_seed(7)
        plans, chances = [], []
        for _prompt in prompts:
            asked = self.generation_kwargs["extra_args"][KEY]
            hide = masked(asked, lambda eos: spelling_of(self.parts.writer), masks)
            tokens: list[int] = []
            each: list[list[float]] = []
            while len(tokens) < self.generation_kwargs["max_tokens"]:
                logits = hide(tokens, torch.randn(size, generator=generator))
                log = log_probs(logits[None], None, 1.0)
                tokens.append(int(draw(log, generator)))
                each.append([float(log[0, tokens[-1]])])
                if tokens[-1] in self.generation_kwargs["stop_token_ids"]:
                    break
            plans.append(tokens)
            chances.append(each)
        return prompts, plans, chances, None


def ask_of(parts: Parts) -> Ask:
    return parts.writer.ask(parts.dealer.game(Purpose.TRAINING, 0).request)


def test_what_is_written_under_the_mask_is_a_plan(parts: Parts) -> None:
    writer = VllmWriter(Random(parts), parts.writer)  # type: ignore[arg-type]
    (group,) = writer.write([ask_of(parts)], 6, None, max_tokens=24)
    assert len(group) == 6
    assert all(one.ended and one.plan is not None for one in group)
    assert all(len(one.tokens) <= 24 + SLACK for one in group)
    for one in group:
        chosen = [log for log, fixed in zip(one.log_probs, one.forced, strict=True) if not fixed]
        assert chosen
        assert all(log < 0 for log in chosen)


def test_our_own_samplers_plans_have_the_same_choices_by_either_way(parts: Parts) -> None:
    ask, generator = ask_of(parts), torch.Generator().manual_seed(3)
    (group,) = parts.policy.write([ask], 4, generator, max_tokens=24)
    for one in group:
        assert written(parts.writer, ask, one.tokens, one.log_probs, 24) == one


def test_a_mask_goes_on_where_a_request_was_put_back(parts: Parts) -> None:
    ask, generator = ask_of(parts), torch.Generator().manual_seed(3)
    ((one,),) = parts.policy.write([ask], 1, generator, max_tokens=24)
    masks, logits = Masks(parts.writer.tables.tokens, torch.device("cpu")), torch.zeros(49152)
    held = Masked(Walk(spelling_of(parts.writer), ask.request, 24), masks)
    for end in range(len(one.tokens)):
        fresh = Masked(Walk(spelling_of(parts.writer), ask.request, 24), masks)
        seen = list(one.tokens[:end])
        assert torch.equal(held(seen, logits), fresh(seen, logits))
        assert held(seen, logits)[one.tokens[end]] == 0


def test_what_was_written_without_the_mask_is_refused(parts: Parts) -> None:
    with pytest.raises(VllmError, match="entry point"):
        written(parts.writer, ask_of(parts), [1, 2, 3], [-1.0] * 3, 24)


def test_tokens_that_are_not_told_are_an_error(parts: Parts) -> None:
    masks = Masks(parts.writer.tables.tokens, torch.device("cpu"))
    hide = Masked(Walk(spelling_of(parts.writer), ask_of(parts).request, 24), masks)
    with pytest.raises(VllmError, match="ahead"):
        hide([-1], torch.zeros(parts.writer.tables.tokens))
