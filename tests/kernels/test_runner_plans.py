"""The runner writes the plans that transformers would, many at once, and lets go of any."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conductor.core import Flow
from conductor.errors import PlanError
from conductor.plan.language import parse
from conductor.plan.mask import LabelMask
from conductor.plan.validate import PlanPool
from conductor.planner.lm_runner import EngineBusy, RunnerFailed, Token, Wanted
from conductor_kernels.runner import ops
from conductor_kernels.runner.runner import TorchRunner
from support.automata import EOS, ids_in
from support.decoders import (
    PREFIX,
    SETTINGS,
    TABLES,
    alike,
    by_transformers,
    checkpoint,
    decoder,
    wanted,
    written,
)
from support.soon import until

BARE = PlanPool(3, max_steps=2, mask=LabelMask(Flow(
    question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
    sees=(frozenset({0, 1, 2}), frozenset()),
)))  # fmt: skip
"""Nobody may be told anything in the planner's own words: plans are short."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def model(folder: Path) -> torch.nn.Module:
    return checkpoint(folder)


class Runners:
    """Makes runners and looks into what they hold."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, list[TorchRunner]()

    def __call__(self, **more: Any) -> TorchRunner:
        settings = type(SETTINGS)(**{**vars(SETTINGS), **more})
        made = TorchRunner(decoder(self.folder, **more), settings)
        self.made.append(made)
        return made


@pytest.fixture
def runners(folder: Path, model: torch.nn.Module) -> Iterator[Runners]:
    making = Runners(folder)
    yield making
    for one in making.made:
        one.close()


async def settled(runner: TorchRunner) -> None:
    await until(lambda: not runner._batch.busy)


def held(runner: TorchRunner) -> int:
    """Blocks of the cache that somebody has."""
    cache = runner._batch._cache
    return cache.blocks - cache.free


# -- what is written --------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [PlanPool(7), BARE, PlanPool(2, max_steps=1)])
async def test_a_plan_is_the_one_that_transformers_writes(
    runners: Runners, model: torch.nn.Module, pool: PlanPool
) -> None:
    runner = runners()
    for number in range(3):
        one = wanted(number, pool, temperature=1.7)
        assert alike(await written(runner, one), by_transformers(model, one))


async def test_a_plan_that_ends_is_a_plan_and_says_so(runners: Runners) -> None:
    tokens = await written(runners(), wanted(1, BARE, max_tokens=1500))
    assert tokens[-1].id == EOS
    plan = parse(b"".join(TABLES.bytes_of(token.id) for token in tokens).decode())
    assert 1 <= len(plan.steps) <= 2


async def test_no_more_is_written_than_is_wanted(runners: Runners) -> None:
    for most in (1, 7):
        assert len(await written(runners(), wanted(1, max_tokens=most))) == most


async def test_many_at_once_write_what_each_writes_alone(
    runners: Runners, model: torch.nn.Module
) -> None:
    runner = runners(max_running=5, prefill_tokens=16)
    asked = [wanted(number, max_tokens=5 + number % 20) for number in range(12)]
    got = await asyncio.gather(*(written(runner, one) for one in asked))
    for tokens, one in zip(got, asked, strict=True):
        assert alike(tokens, by_transformers(model, one))


async def test_a_later_request_joins_those_that_run(runners: Runners) -> None:
    runner = runners(max_running=2)
    async with aclosing(runner.write(wanted(1, max_tokens=500))) as long:
        await anext(long)
        short = await asyncio.wait_for(written(runner, wanted(2, max_tokens=3)), 5)
        assert len(short) == 3 and runner._batch._running, "the long one still runs"
        assert [token async for token in long]


async def test_draws_follow_the_seed_and_nothing_else(runners: Runners) -> None:
    runner = runners()
    alone = await written(runner, wanted(1, seed=5))
    others = [written(runner, wanted(number)) for number in range(4)]
    again, other, *_ = await asyncio.gather(
        written(runner, wanted(1, seed=5)), written(runner, wanted(1, seed=6)), *others
    )
    assert alike(again, alone, 1e-5)
    assert [token.id for token in other] != [token.id for token in alone]


async def test_tokens_are_drawn_as_often_as_their_chance(
    runners: Runners, model: torch.nn.Module
) -> None:
    runner, count, heat = runners(max_running=32, max_waiting=1000), 600, 2.0
    seeds = random.Random(5).sample(range(2**62), count)  # as the planner draws them
    asked = [wanted(3, seed=seed, max_tokens=1, temperature=heat) for seed in seeds]
    drawn = [tokens[0] for tokens in await asyncio.gather(*(written(runner, w) for w in asked))]
    allowed = sorted(ids_in(asked[0].automaton.allowed(asked[0].automaton.start())))
    ids = [*asked[0].prefix, *asked[0].rest]
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, -1][allowed].double() / heat
    chances = dict(zip(allowed, logits.softmax(-1).tolist(), strict=True))
    seen = Counter(token.id for token in drawn)
    for token, chance in chances.items():
        assert (
            abs(seen[token] / count - chance) < 4 * math.sqrt(chance * (1 - chance) / count) + 1e-3
        )
    assert all(abs(token.log_prob - math.log(chances[token.id])) < 1e-4 for token in drawn)


# -- the shared prefix ------------------------------------------------------------------------


async def test_the_prefix_is_read_once(runners: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    real = ops.project_queries

    def counted(x: torch.Tensor, layer: Any, number: int, *more: Any) -> torch.Tensor:
        read.extend([len(x)] * (number == 0))
        return real(x, layer, number, *more)

    monkeypatch.setattr(ops, "project_queries", counted)
    runner = runners()
    one = wanted(1, max_tokens=1)
    await written(runner, one)
    assert sum(read) == len(PREFIX) + len(one.rest)
    read.clear()
    await written(runner, one)
    assert sum(read) == len(PREFIX) % 32 + len(one.rest)


async def test_a_prefix_goes_when_another_needs_its_room(
    runners: Runners, model: torch.nn.Module
) -> None:
    runner = runners(cache_tokens=224)
    for number in range(4):
        prefix = tuple((id + number) % 256 for id in PREFIX)
        one = Wanted(prefix, wanted(number).rest, wanted(number).automaton, 24)
        assert alike(await written(runner, one), by_transformers(model, one))
    await settled(runner)
    assert held(runner) <= 4


async def test_who_finds_no_room_waits_for_it(runners: Runners, model: torch.nn.Module) -> None:
    runner = runners(cache_tokens=224)
    asked = [wanted(number, max_tokens=40) for number in range(6)]
    got = await asyncio.gather(*(written(runner, one) for one in asked))
    assert all(alike(g, by_transformers(model, w)) for g, w in zip(got, asked, strict=True))


async def test_a_prefix_in_use_stays_while_others_need_room(
    runners: Runners, model: torch.nn.Module
) -> None:
    runner = runners(cache_tokens=320, max_running=4)
    asked = [
        replace(
            wanted(number, max_tokens=40), prefix=tuple((id + number % 3) % 256 for id in PREFIX)
        )
        for number in range(9)
    ]
    got = await asyncio.gather(*(written(runner, one) for one in asked))
    assert all(alike(g, by_transformers(model, w)) for g, w in zip(got, asked, strict=True))


# -- leaving ----------------------------------------------------------------------------------


async def left_after(runner: TorchRunner, one: Wanted, count: int) -> list[Token]:
    tokens = list[Token]()
    async with aclosing(runner.write(one)) as coming:
        async for token in coming:
            tokens.append(token)
            if len(tokens) == count:
                break
    return tokens


async def test_of_a_hundred_half_leave_and_the_others_get_their_plans(runners: Runners) -> None:
    runner = runners(max_running=16)
    asked = [wanted(number) for number in range(100)]
    alone = [await written(runner, one) for one in asked]
    leaving = [left_after(runner, one, n % 11) if n % 2 else written(runner, one)
               for n, one in enumerate(asked)]  # fmt: skip
    got = await asyncio.wait_for(asyncio.gather(*leaving), 60)
    for number, tokens in enumerate(got):
        assert alike(tokens, alone[number][: len(tokens)], 1e-5)
        most = number % 11 if number % 2 else 0
        assert len(tokens) == (most or len(alone[number])), number
    await settled(runner)
    assert held(runner) == len(PREFIX) // 32 and runner._under_way == 0


async def test_whoever_is_cancelled_frees_its_place(runners: Runners) -> None:
    runner = runners(max_running=1)
    long = asyncio.create_task(written(runner, wanted(1, max_tokens=1500)))
    await until(lambda: bool(runner._batch._running))
    waiting = asyncio.create_task(written(runner, wanted(2, max_tokens=1500)))
    await asyncio.sleep(0.01)
    (sequence,) = runner._batch._running.values()
    for task in (waiting, long):
        task.cancel()
    assert await asyncio.wait_for(written(runner, wanted(3)), 5)
    assert not sequence.ended, "it left before its end"
    await asyncio.gather(long, waiting, return_exceptions=True)
    await settled(runner)
    assert held(runner) == len(PREFIX) // 32


async def test_the_event_loop_goes_on_while_the_model_works(runners: Runners) -> None:
    runner = runners()
    task = asyncio.create_task(written(runner, wanted(1, max_tokens=800)))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 800, "one for each token, at the least"


# -- what breaks ------------------------------------------------------------------------------


async def test_a_sequence_that_breaks_the_step_breaks_alone(
    runners: Runners, model: torch.nn.Module
) -> None:
    runner = runners()
    bad = Wanted(PREFIX, (7, 299_999), wanted().automaton, 24)  # no such row of the embedding
    asked = [wanted(number) for number in range(4)]
    failing = asyncio.create_task(written(runner, bad))
    got = await asyncio.gather(*(written(runner, one) for one in asked))
    with pytest.raises(RunnerFailed):
        await failing
    assert all(alike(g, by_transformers(model, w)) for g, w in zip(got, asked, strict=True))
    await settled(runner)
    assert held(runner) == len(PREFIX) // 32


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


async def test_numbers_that_are_none_are_a_failure(
    runners: Runners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "add_mlp", lambda x, *_: x * math.nan)
    with pytest.raises(RunnerFailed, match="ArithmeticError"):
        await written(runners(), wanted(1))


async def test_a_batch_that_breaks_altogether_fails_those_in_it_and_no_later_one(
    runners: Runners, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runners()
    with monkeypatch.context() as patch:
        patch.setattr(runner._batch, "_shares", lambda: 1 / 0)
        with pytest.raises(RunnerFailed, match="ZeroDivisionError"):
            await written(runner, wanted(1))
    assert len(await written(runner, wanted(1))) == 24


async def test_more_than_may_wait_are_told_so(runners: Runners) -> None:
    runner = runners(max_running=1, max_waiting=2)
    tasks = [asyncio.create_task(written(runner, wanted(n, max_tokens=300))) for n in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(EngineBusy, match="3 plans are under way"):
        await written(runner, wanted(9))
    assert all(await asyncio.gather(*tasks))
    assert await written(runner, wanted(9))


async def test_a_prompt_too_long_for_the_model_is_refused(runners: Runners) -> None:
    one = wanted(1, max_tokens=24)
    with pytest.raises(PlanError, match="room for 2048"):
        await written(runners(), Wanted(PREFIX, one.rest * 400, one.automaton, 24))


async def test_a_runner_that_closes_ends_what_runs(runners: Runners) -> None:
    runner = runners(max_running=1)
    tasks = [asyncio.create_task(written(runner, wanted(n, max_tokens=400))) for n in range(2)]
    await until(lambda: bool(runner._batch._running))
    runner.close()
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    assert [type(one) for one in ended] == [RunnerFailed] * 2
    with pytest.raises(RunnerFailed, match="closed"):
        await written(runner, wanted(1))
    runner.close()
    assert not runner._thread.is_alive()
