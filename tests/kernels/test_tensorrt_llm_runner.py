"""The runner over TensorRT-LLM, on its stand-in: plans, their ends, and what breaks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conductor.core import Flow
from conductor.errors import PlanError, StartError
from conductor.plan.language import parse
from conductor.plan.mask import LabelMask
from conductor.plan.validate import PlanPool, validate
from conductor.planner.lm_runner import (
    EngineBusy,
    RunnerFailed,
    RunnerLost,
    RunnerSettings,
    Token,
    Wanted,
)
from conductor_kernels.tensorrt_llm.counters import Counters
from conductor_kernels.tensorrt_llm.runner import TensorRtRunner, load
from support.automata import EOS
from support.decoders import PREFIX, TABLES, alike, by_transformers, checkpoint, wanted, written
from support.soon import until
from support.trtllm import LAYOUTS, installed, lot

SETTINGS = RunnerSettings(cache_tokens=2048, max_running=4)
BARE = PlanPool(3, max_steps=2, mask=LabelMask(Flow(
    question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
    sees=(frozenset({0, 1, 2}), frozenset()),
)))  # fmt: skip
"""Nobody may be told anything in the planner's own words: plans are short."""


class Runners:
    """Makes runners in one layout, and ends them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.made = folder, patch, list[TensorRtRunner]()

    def __call__(self, **more: Any) -> TensorRtRunner:
        made = load(self.folder, RunnerSettings(**{**vars(SETTINGS), **more}))
        self.made.append(made)
        return made


@pytest.fixture(params=LAYOUTS)
def runners(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runners]:
    with installed(request.param) as patch:
        making = Runners(lot(tmp_path / "lm"), patch)
        yield making
        for one in making.made:
            one.close()


def text(tokens: list[Token]) -> str:
    return b"".join(TABLES.bytes_of(token.id) for token in tokens).decode()


# -- what is written --------------------------------------------------------------------------


async def test_what_ends_is_a_plan_of_the_language(runners: Runners) -> None:
    runner = runners()
    asked = [wanted(number, BARE, max_tokens=400) for number in range(6)]
    for tokens in await asyncio.gather(*(written(runner, one) for one in asked)):
        assert tokens[-1].id == EOS
        validate(parse(text(tokens[:-1])), BARE)


async def test_a_plan_is_the_one_that_transformers_writes(runners: Runners, tmp_path: Path) -> None:
    runners.folder = tmp_path / "real"
    model = checkpoint(runners.folder, "llama", eos_token_id=EOS)
    config = runners.folder / "config.json"
    config.write_text(config.read_text().replace("{", '{"rope_theta": 10000.0,', 1))
    runner = runners()
    for number in range(2):
        one = wanted(number, temperature=1.7, max_tokens=12)
        assert alike(await written(runner, one), by_transformers(model, one))


async def test_no_more_is_written_than_is_wanted_and_all_of_that(runners: Runners) -> None:
    for most in (1, 40):
        assert len(await written(runners(), wanted(1, max_tokens=most))) == most


async def test_a_long_prompt_read_in_pieces_writes_the_same_plan(runners: Runners) -> None:
    whole, pieces = runners(prefill_tokens=512), runners(prefill_tokens=32)
    for seed in (None, 5):
        one = wanted(2, seed=seed, max_tokens=20)
        assert alike(await written(pieces, one), await written(whole, one), 1e-6)
    assert pieces._llm.calls > whole._llm.calls


async def test_draws_follow_the_seed_and_nothing_else(runners: Runners) -> None:
    runner = runners()
    alone = await written(runner, wanted(1, seed=5))
    again, other, _ = await asyncio.gather(
        *(written(runner, wanted(1, seed=seed)) for seed in (5, 6, 7))
    )
    assert alike(again, alone, 1e-6)
    assert [token.id for token in other] != [token.id for token in alone]


async def test_log_probabilities_are_those_among_the_allowed_tokens(runners: Runners) -> None:
    from trtllm_stub.serving import by_lot  # type: ignore[import-not-found]

    one = wanted(3, temperature=0.5)
    tokens = await written(runners(), one)
    ids, state = [*one.prefix, *one.rest], one.automaton.start()
    for token in tokens:
        mask = one.automaton.allowed(state)
        allowed = [i for i in range(257) if mask[i // 8] >> i % 8 & 1]
        scores = (by_lot(ids, 300).double() / 0.5)[allowed].log_softmax(-1)
        expected = 0.0 if token.forced else float(scores[allowed.index(token.id)])
        assert math.isclose(token.log_prob, expected, abs_tol=1e-5)
        ids.append(token.id)
        state = one.automaton.advance(state, token.id)
    assert {token.forced for token in tokens} == {True, False}


async def test_it_asks_for_reuse_graphs_and_no_overlap(runners: Runners) -> None:
    llm = runners(max_running=3)._llm
    assert llm.asked["cuda_graph_config"].batch_sizes == [1, 2, 3]
    assert llm.asked["disable_overlap_scheduler"] is True
    assert llm.asked["max_seq_len"] == 2048
    assert llm.kv_cache_config.enable_block_reuse and llm.kv_cache_config.max_tokens == 2048


async def test_its_statistics_are_told(runners: Runners) -> None:
    runner = runners()
    assert runner.counters() == Counters(0, 64, 0, 7, 0)
    async with aclosing(runner.write(wanted(1, max_tokens=900))) as coming:
        await anext(coming)
        assert runner.counters() == Counters(1, 64, 3, 7, 0)


# -- leaving ----------------------------------------------------------------------------------


async def test_whoever_leaves_ends_the_request(runners: Runners) -> None:
    runner = runners()
    async with aclosing(runner.write(wanted(1, max_tokens=1500))) as coming:
        await anext(coming)
        (output, _), *_ = runner._llm._running
    assert output.aborted()
    await until(lambda: not runner._llm._running)
    assert not runner._under_way
    await written(runner, wanted(2))


async def test_one_that_is_cancelled_while_it_waits_ends_the_request(runners: Runners) -> None:
    runner = runners()
    task = asyncio.create_task(written(runner, wanted(1, max_tokens=1500)))
    await until(lambda: bool(runner._llm._running))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not runner._llm._running)


async def test_closing_ends_what_runs_and_may_be_done_twice(runners: Runners) -> None:
    runner = runners()
    tasks = [asyncio.create_task(written(runner, wanted(n, max_tokens=1500))) for n in range(2)]
    await until(lambda: len(runner._llm._running) == 2)
    runner.close()
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert [type(one) for one in ended] == [RunnerFailed] * 2
    with pytest.raises(RunnerFailed, match="closed"):
        await written(runner, wanted(1))
    runner.close()
    assert runner.counters() == Counters()


async def test_more_than_may_wait_are_told_so(runners: Runners) -> None:
    runner = runners(max_running=1, max_waiting=1)
    tasks = [asyncio.create_task(written(runner, wanted(n, max_tokens=60))) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(EngineBusy, match="2 plans are under way"):
        await written(runner, wanted(9))
    await asyncio.gather(*tasks)
    assert await written(runner, wanted(9, max_tokens=2))


async def test_a_prompt_that_has_no_room_is_refused(runners: Runners) -> None:
    with pytest.raises(PlanError, match="room for 2048"):
        await written(runners(), wanted(1, max_tokens=2040))


# -- what breaks ------------------------------------------------------------------------------


async def test_an_automaton_that_breaks_breaks_its_own_plan(runners: Runners) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(wanted().automaton, name)

        def allowed(self, state: Any) -> bytes:
            raise ValueError("Pay DE89370400440532013000")

    runner = runners()
    bad = Wanted(PREFIX, (1, 2), Broken(), 24)  # type: ignore[arg-type]
    good, failed = await asyncio.gather(
        written(runner, wanted(1)), written(runner, bad), return_exceptions=True
    )
    assert len(good) == 24 and isinstance(failed, RunnerFailed)  # type: ignore[arg-type]
    assert "DE89" not in str(failed) and "ValueError" in str(failed)


async def test_a_sampler_that_takes_another_token_is_found_out(runners: Runners) -> None:
    runner = runners()
    real = runner._llm._grown

    def other(output: Any, tokens: list[int]) -> Any:
        reason = real(output, tokens)
        tokens[-1] = (tokens[-1] + 1) % 256
        return reason

    runners.patch.setattr(runner._llm, "_grown", other)
    with pytest.raises(RunnerFailed, match="another token"):
        await written(runner, wanted(1))


async def test_a_scheduler_that_samples_ahead_is_found_out(runners: Runners) -> None:
    runner = runners()
    real = runner._processor.__call__

    def late(self: Any, req: Any, logits: Any, ids: Any, *more: Any) -> None:
        prompt = self._guide._prompt
        real(self, req, logits, [ids[0][: max(prompt, len(ids[0]) - 1)]], *more)

    runners.patch.setattr(runner._processor, "__call__", late)
    with pytest.raises(RunnerFailed):
        await written(runner, wanted(1))


@pytest.mark.parametrize("reason", ["timeout", "cancelled", "length"])
async def test_an_end_that_is_no_plans_is_a_failure(runners: Runners, reason: str) -> None:
    runner = runners()
    real = runner._llm._grown

    def cut(output: Any, tokens: list[int]) -> Any:
        return reason if len(tokens) > 2 else real(output, tokens)

    runners.patch.setattr(runner._llm, "_grown", cut)
    with pytest.raises(RunnerFailed, match=reason):
        await written(runner, wanted(1))


async def test_numbers_that_are_none_are_a_failure(runners: Runners) -> None:
    runner = runners()
    runners.patch.setattr(runner._llm, "_logits", lambda tokens: torch.full((300,), math.nan))
    with pytest.raises(RunnerFailed, match="ArithmeticError"):
        await written(runner, wanted(1))


async def test_a_request_that_it_refuses_is_a_failure(runners: Runners) -> None:
    runner = runners()

    def refused(*_: Any, **__: Any) -> None:
        raise KeyError("Pay DE89370400440532013000")

    runners.patch.setattr(runner._llm, "generate_async", refused)
    with pytest.raises(RunnerFailed, match=r"\(KeyError\)$"):
        await written(runner, wanted(1))


@pytest.mark.parametrize("token", [-1, 300])
async def test_an_unknown_token_in_a_prompt_fails_before_the_model_sees_it(
    runners: Runners, token: int
) -> None:
    runner = runners()
    runners.patch.setattr(runner._llm, "generate_async", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(RunnerFailed, match="does not know"):
        await written(runner, replace(wanted(1), rest=(5, token)))


async def test_a_gpu_that_answers_no_more_is_told_apart(runners: Runners) -> None:
    runner = runners()

    def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    runners.patch.setattr(runner._llm, "generate_async", fault)
    runners.patch.setattr(torch.cuda, "is_initialized", lambda: True)
    runners.patch.setattr(torch.cuda, "synchronize", fault)
    with pytest.raises(RunnerLost, match="RuntimeError"):
        await written(runner, wanted(1))


async def test_a_guide_does_not_go_to_another_process(runners: Runners) -> None:
    import pickle

    runner = runners()
    from conductor_kernels.tensorrt_llm.guide import Guide

    with pytest.raises(StartError, match="SINGLE_PROCESS"):
        pickle.dumps(Guide(wanted(1), runner._masks, EOS))
