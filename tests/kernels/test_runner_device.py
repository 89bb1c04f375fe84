"""Plans that the device writes by itself are those of the host, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from conductor.core import Flow
from conductor.plan.automaton import Automaton, compile
from conductor.plan.mask import LabelMask
from conductor.plan.validate import PlanPool
from conductor.planner.lm_runner import RunnerFailed, RunnerLost, Token, Wanted
from conductor_kernels.devicetables import DeviceTables
from conductor_kernels.runner import deviceplans
from conductor_kernels.runner.batch import Batch
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.graph import Graphs
from conductor_kernels.runner.runner import TorchRunner
from support.automata import EOS, ODD
from support.decoders import SETTINGS, alike, by_transformers, checkpoint, decoder, wanted, written

BARE = PlanPool(3, max_steps=2, mask=LabelMask(Flow(
    question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
    sees=(frozenset({0, 1, 2}), frozenset()),
)))  # fmt: skip
"""Nobody may be told anything in the planner's own words: many tokens are forced."""
NO_TOKEN = 290
"""No automaton here ever allows it."""


class Job:
    """A plan that nobody but the test waits for."""

    def __init__(self, one: Wanted) -> None:
        self.wanted, self.left, self.over = one, False, False
        self.tokens: list[Token] = []
        self.error: RunnerFailed | None = None

    def give(self, tokens: list[Token]) -> None:
        self.tokens.extend(tokens)

    def end(self) -> None:
        self.over = True

    def fail(self, error: RunnerFailed) -> None:
        self.error = error


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def model(folder: Path) -> torch.nn.Module:
    return checkpoint(folder)


@pytest.fixture
def ours(folder: Path, model: torch.nn.Module) -> Decoder:
    return decoder(folder)


def batch(ours: Decoder, steps: int, **more: Any) -> Batch:
    return Batch(ours, **{"max_running": 8, "prefill_tokens": 64, "steps": steps} | more)


def run(batch: Batch, asked: Sequence[Wanted]) -> list[Job]:
    jobs = [Job(one) for one in asked]
    for job in jobs:
        batch.add(job)
    while batch.busy:
        batch.step()
    return jobs


def same(jobs: Sequence[Job], others: Sequence[Job]) -> None:
    for job, other in zip(jobs, others, strict=True):
        assert job.over and other.over and alike(job.tokens, other.tokens)


ASKED = [
    wanted(0),
    wanted(1, BARE, max_tokens=300),
    wanted(2, seed=7, temperature=1.7),
    wanted(3, BARE, seed=8, max_tokens=300),
    wanted(4, PlanPool(2, max_steps=1), max_tokens=12),
    wanted(5, max_tokens=1),
]


@pytest.fixture(scope="module")
def by_host(folder: Path, model: torch.nn.Module) -> list[Job]:
    return run(batch(decoder(folder), 0), ASKED)


@pytest.mark.parametrize("steps", [1, 8])
def test_the_device_writes_what_the_host_writes(
    ours: Decoder, by_host: list[Job], steps: int
) -> None:
    assert sum(token.forced for job in by_host for token in job.tokens) > 10
    assert {job.tokens[-1].id == EOS for job in by_host} == {True, False}
    same(run(batch(ours, steps), ASKED), by_host)


def test_who_else_is_written_changes_no_plan(ours: Decoder, by_host: list[Job]) -> None:
    alone = [run(batch(ours, 4), [one])[0] for one in ASKED[:3]]
    same(alone, by_host[:3])
    crowd = run(batch(ours, 4, max_running=3), [*ASKED[3:], *ASKED[:3], *ASKED[:2]])
    same(crowd[3:6], alone)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {"head_dim": 32}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen2", {"num_key_value_heads": 1}),
    ],
)
def test_the_likeliest_plan_is_that_of_transformers(
    tmp_path: Path, kind: str, more: dict[str, Any]
) -> None:
    model = checkpoint(tmp_path, kind, **more)
    asked = [wanted(number, max_tokens=10, temperature=1.3) for number in range(2)]
    for job in run(batch(decoder(tmp_path), 4), asked):
        assert alike(job.tokens, by_transformers(model, job.wanted))


def test_whoever_leaves_between_launches_frees_its_place_and_its_blocks(ours: Decoder) -> None:
    working = batch(ours, 2)
    jobs = [Job(wanted(number, max_tokens=20)) for number in range(4)]
    for job in jobs:
        working.add(job)
    while not all(job.tokens for job in jobs):
        working.step()
    jobs[0].left = jobs[2].left = True
    told = len(jobs[0].tokens), len(jobs[2].tokens)
    while working.busy:
        working.step()
    assert (len(jobs[0].tokens), len(jobs[2].tokens)) == told
    same(jobs[1::2], run(batch(ours, 0), [job.wanted for job in jobs[1::2]]))
    assert ours.cache.blocks - ours.cache.free == 2 * 2, "two batches hold a prefix each"
    device = working._device
    assert device is not None and not device._order and not device._admitted
    device._settle()
    assert not device._arena._placed and not device._state.goes_on().any()


def test_nothing_of_a_plan_is_left_in_its_place_for_the_next(
    ours: Decoder, by_host: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans with other labels, seeds and lengths take each other's places, cells and blocks; some
    leave in the middle. What was written of each is what is written of it alone."""
    random = Random(5)
    cells = DeviceTables(ASKED[0].automaton.tables).block(BARE, ASKED[1].automaton)
    assert cells is not None
    monkeypatch.setattr(deviceplans, "ARENA_CELLS", 4 * len(cells))
    working = batch(ours, 2, max_running=3)
    order = [number % len(ASKED) for number in range(3 * len(ASKED))]
    random.shuffle(order)
    jobs = [Job(ASKED[number]) for number in order]
    for job in jobs:
        working.add(job)
    while working.busy:
        working.step()
        for job in jobs:
            job.left |= random.random() < 0.03
    left = [job for job in jobs if not job.over]
    assert len(left) > 2 and any(job.tokens for job in left)
    for job, number in zip(jobs, order, strict=True):
        alone = by_host[number].tokens
        assert alike(job.tokens, alone if job.over else alone[: len(job.tokens)])


class Builder(Executor):
    """Does what it was given when it is told to."""

    def __init__(self) -> None:
        self.given: list[Callable[[], None]] = []

    def submit(self, fn: Any, /, *args: Any, **named: Any) -> Future[Any]:
        made: Future[Any] = Future()
        self.given.append(lambda: made.set_result(fn(*args, **named)))
        return made


def test_the_first_plan_of_a_pool_is_the_hosts_while_its_block_is_made(ours: Decoder) -> None:
    builder = Builder()
    working = batch(ours, 8, builder=builder)
    device, asked = working._device, [ASKED[0], ASKED[2]]
    assert device is not None
    first = run(working, asked)
    assert len(builder.given) == 1, "asked for once, and not waited for"
    assert not device._tables and not device._admitted
    builder.given[0]()
    jobs = [Job(one) for one in asked]
    for job in jobs:
        working.add(job)
    working.step()
    assert len(device._admitted) == 2
    while working.busy:
        working.step()
    same(jobs, first)


def test_a_place_is_taken_over_by_the_last(ours: Decoder) -> None:
    """The first plan ends long before the others, so that one of them moves."""
    asked = [wanted(0, max_tokens=3), wanted(1, max_tokens=25, seed=1), wanted(2, max_tokens=25)]
    same(run(batch(ours, 2), asked), run(batch(ours, 0), asked))


def test_a_sequence_whose_numbers_are_none_fails_alone(ours: Decoder) -> None:
    ours._weights.embedding[NO_TOKEN] = math.nan
    bad = replace(wanted(6), rest=(5, NO_TOKEN, 7))
    good, failed, other = run(batch(ours, 4), [ASKED[0], bad, ASKED[2]])
    assert good.over and other.over and len(good.tokens) == len(other.tokens) == 24
    assert failed.error is not None and "ArithmeticError" in str(failed.error)
    assert not any(math.isnan(token.log_prob) for token in failed.tokens)


def test_an_unknown_token_in_a_prompt_fails_before_the_model_sees_it(ours: Decoder) -> None:
    bad = replace(wanted(6), rest=(5, 300))
    failed, good = run(batch(ours, 4), [bad, ASKED[5]])
    assert failed.error is not None and good.over and ours.cache.blocks - ours.cache.free == 2


def test_a_launch_that_breaks_fails_those_in_it_and_no_later_one(
    ours: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = batch(ours, 4)
    with monkeypatch.context() as patch:
        patch.setattr(deviceplans, "run_steps", lambda *_: 1 / 0)
        jobs = run(working, ASKED[:2])
    assert all("ZeroDivisionError" in str(job.error) for job in jobs)
    same(run(working, ASKED[:2]), run(batch(ours, 0), ASKED[:2]))


# -- what the device does not take ------------------------------------------------------------


def host_only(one: Wanted) -> Wanted:
    class Wrapped:
        def __getattr__(self, name: str) -> Any:
            return getattr(one.automaton, name)

    return replace(one, automaton=Wrapped())  # type: ignore[arg-type]


def test_the_host_writes_what_the_device_does_not_take(ours: Decoder, by_host: list[Job]) -> None:
    mixed = [host_only(ASKED[0]), ASKED[1], host_only(ASKED[2]), *ASKED[3:]]
    same(run(batch(ours, 4), mixed), by_host)


def test_an_arena_without_room_leaves_plans_to_the_host(
    ours: Decoder, by_host: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deviceplans, "ARENA_CELLS", 64)
    working = batch(ours, 4)
    working.add(Job(ASKED[0]))
    working.step()
    assert working._device is not None and not working._device._admitted
    same(run(working, ASKED[:1]), by_host[:1])


def test_another_tokenizer_waits_until_the_first_has_ended(
    ours: Decoder, by_host: list[Job]
) -> None:
    other = compile([*ODD[:257]], [EOS])
    again = replace(ASKED[0], automaton=Automaton(other, PlanPool(7)))
    working = batch(ours, 4)
    same(run(working, [ASKED[0], again]), [by_host[0], by_host[0]])
    assert working._device is not None and working._device._tokenizer is not None
    assert working._device._tokenizer._first is ASKED[0].automaton
    same(run(working, [again]), by_host[:1])
    assert working._device._tokenizer._first is again.automaton


def test_a_launch_after_which_the_gpu_answers_no_more_is_told_to_all_in_it(
    ours: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    working = batch(ours, 4)
    assert working._device is not None
    monkeypatch.setattr(working._device, "_run", fault)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", fault)
    ended = run(working, ASKED[:2])
    assert [type(job.error) for job in ended] == [RunnerLost] * 2


# -- graphs and the thread --------------------------------------------------------------------


class Captured:
    """Stands for the capture of CUDA: keeps the work, and counts."""

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def __call__(self, work: Any) -> Any:
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            work()

        return replay


def test_launches_are_replays_of_one_capture_a_bucket(ours: Decoder, by_host: list[Job]) -> None:
    working, capture = batch(ours, 4), Captured()
    device = working._device
    assert device is not None
    device._graphs = Graphs(device._work, device._warm_up, capture)
    same(run(working, ASKED), by_host)
    assert 1 < capture.captures <= 4 < capture.replays


@pytest.fixture
def runner(ours: Decoder) -> Iterator[TorchRunner]:
    made = TorchRunner(ours, SETTINGS, steps=4)
    yield made
    made.close()


async def test_a_runner_streams_what_the_device_writes(
    runner: TorchRunner, model: torch.nn.Module, by_host: list[Job]
) -> None:
    assert alike(await written(runner, ASKED[2]), by_host[2].tokens)
    coming = runner.write(wanted(1, max_tokens=1500))
    assert [await anext(coming) for _ in range(5)]
    await coming.aclose()
    assert alike(await written(runner, ASKED[0]), by_transformers(model, ASKED[0]))
