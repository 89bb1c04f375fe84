"""What the runner serves is what the training wrote: the same plans, with the same chances."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conductor.plan.prompt import CHATML
from conductor.planner.lm import Decoding, LmEngine
from conductor.planner.lm_runner import RunnerSettings
from conductor_build.lm.base import Base
from conductor_build.lm.policy import PlanPolicy
from conductor_build.lm.tokens import Writer
from conductor_kernels.runner.runner import load
from support.decoders import checkpoint
from support.lmbundles import VOCABULARY, parts
from support.plans import candidate, heard, request

REQUESTS = [
    request(candidate(code=0.9), candidate(math=0.4, price=0.0), question=f"What is {n} + {n}?")
    for n in range(5)
]
REQUESTS += [replace(REQUESTS[0], heard=heard("0", "1"), rounds_left=1, may_redact=True)]


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
async def test_greedy_plans_are_those_of_the_policy(tmp_path: Path, kind: str) -> None:
    model = checkpoint(tmp_path, kind, vocab_size=VOCABULARY, max_position_embeddings=4096)
    ours = parts()
    base = Base(model, ours.tokenizer, CHATML, tuple(ours.tables.eos), "tiny", "0" * 64)
    writer = Writer.of(base, examples=4)
    assert (writer.prefix, writer.prompter.digest) == (ours.prefix, ours.prompter.digest)
    asks = [writer.ask(one) for one in REQUESTS]
    groups = PlanPolicy(base, writer, lora=None).write(asks, 1, None, max_tokens=64)
    runner = load(tmp_path, RunnerSettings(device="cpu", threads=1, cache_tokens=8192))
    engine = LmEngine(runner, ours, Decoding(max_tokens=64))
    written = await asyncio.gather(*(engine._tokens(one, 64) for one in REQUESTS))
    for (_, tokens), (theirs,) in zip(written, groups, strict=True):
        count = len(tokens)
        assert tuple(token.id for token in tokens) == theirs.tokens[:count]
        assert [token.forced for token in tokens] == list(theirs.forced[:count])
        mine = torch.tensor([token.log_prob for token in tokens])
        assert torch.allclose(mine, torch.tensor(theirs.log_probs[:count]), atol=1e-4, rtol=0)
        assert count == 64 or len(theirs.tokens) == count
    engine.close()
