"""TRL's trainer on the CPU, with our rollouts: its loss and gradient are those of our own loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conductor_build.lm import trl_driver
from conductor_build.lm.draw import Purpose
from conductor_build.lm.episodes import Rollout
from conductor_build.lm.improve import gradient, lessons, weighing
from conductor_build.lm.progress import LmLine
from conductor_build.lm.recipe import LmRecipe, Rounds
from conductor_build.lm.schedule import rate
from conductor_build.lm.trl_choices import FORCED, Choices, choices_of, scores, unpacked
from conductor_build.lm.trl_driver import Parts, Roller, learn, rate_of, reached, trainer_of
from conductor_build.lm.trl_settings import Machine, TrlError, check, settings
from conductor_build.lm.trl_turns import Later, credited, lengthened
from support import lmparts

pytestmark = pytest.mark.filterwarnings(
    # TRL and transformers of the lock, among themselves.
    "ignore:`(is_)?gradient_checkpointing:FutureWarning"
)
RECIPE = lmparts.recipe(
    iterations=2, prompts=2, group=3, entropy=0.01, max_gradient=100.0, max_tokens=16
)
SMALL = Machine(plans_at_once=2)
"""Six plans a batch, two at a time: three micro-batches make a step."""


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    with lmparts.parts() as found:
        yield found


@pytest.fixture
def fresh(parts: Parts) -> Iterator[Parts]:
    """With the weights as they were before."""
    before = parts.policy.state()
    yield parts
    parts.policy.load_state(before)


def ours(parts: Parts, recipe: LmRecipe) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the first batch by our own loop, on the plans that TRL's will get."""
    objective = recipe.stages[0].objective
    episodes = list(Roller(recipe, parts, objective)._episodes([0, 0, 0, 1, 1, 1]))
    groups = (tuple(episodes[:3]), tuple(episodes[3:]))
    rewards = [[one.reward(recipe.reward) for one in group] for group in groups]
    assert None in rewards[0] + rewards[1], "a void is to be among them"
    taught = lessons(Rollout(groups, 0, 0), rewards, objective, recipe.rounds.discount)
    loss, _ = gradient(parts.policy, taught, objective, weighing(taught, objective.per))
    named = parts.policy.base.model.named_parameters()
    found = {name: one.grad.clone() for name, one in named if one.grad is not None}
    for one in parts.policy.parameters():
        one.grad = None
    return loss, found


class Heard:
    """Implements `trl_driver.Told`; ends after `most` iterations."""

    def __init__(self, most: int = 100) -> None:
        self.lines: list[LmLine] = []
        self._most, self._asked = most, 0

    def iteration(self, line: LmLine) -> None:
        self.lines.append(line)

    def ends(self) -> bool:
        self._asked += 1
        return self._asked >= self._most


class Caught(Exception):
    """The step that was to be looked at is over."""


def theirs(parts: Parts, recipe: LmRecipe, out: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The same of TRL's: micro-batches' losses added up, and the gradient before its first step."""
    trainer, losses, found = trainer_of(recipe, 0, parts, out, SMALL, Heard()), [], {}
    compute = trainer.compute_loss

    def noted(*args: Any, **named: Any) -> torch.Tensor:
        losses.append(compute(*args, **named))
        return losses[-1]

    def caught(*_: Any, **__: Any) -> None:
        for name, one in parts.policy.base.model.named_parameters():
            if one.grad is not None:
                found[name] = one.grad.clone()
        raise Caught

    trainer.compute_loss = noted  # type: ignore[method-assign]
    trainer.callback_handler.on_pre_optimizer_step = caught  # type: ignore[method-assign]
    with pytest.raises(Caught):
        trainer.train()
    for one in parts.policy.parameters():
        one.grad = None
    return float(sum(float(one.detach()) for one in losses)), found


@pytest.mark.parametrize(
    ("per", "rounds"),
    [
        ("token", Rounds()),
        ("plan", Rounds()),
        ("token", Rounds(share=0.5, most=3, discount=0.25)),
        ("plan", Rounds(share=1.0, discount=0.5)),
    ],
)
def test_the_first_step_has_the_loss_and_the_gradient_of_our_loop(
    per: str, rounds: Rounds, fresh: Parts, tmp_path: Path
) -> None:
    stage = replace(RECIPE.stages[0], objective=replace(RECIPE.stages[0].objective, per=per))
    recipe = replace(RECIPE, stages=(stage,), rounds=rounds)
    fresh = replace(fresh, dealer=lmparts.dealer(rounds))
    rolled = Roller(recipe, fresh, stage.objective)([0, 0, 0, 1, 1, 1])
    assert bool(rolled.later) == (rounds.share > 0)
    loss, wanted = ours(fresh, recipe)
    got, found = theirs(fresh, recipe, tmp_path)
    assert abs(loss) > 0.01
    assert got == pytest.approx(loss, rel=1e-4)
    assert found.keys() == wanted.keys()
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, atol=2e-6, rtol=1e-3)
        assert float(one.abs().max()) > 1e-5, name


def test_a_stage_is_trained_to_its_end_and_told_of(fresh: Parts, tmp_path: Path) -> None:
    told, before = Heard(), fresh.policy.state()
    after = learn(RECIPE, fresh, tmp_path, SMALL, told=told)
    assert [line.iteration for line in told.lines] == [1, 2]
    rewards = [line.reward or 0.0 for line in told.lines]
    assert all(0.5 <= one <= 1 for one in rewards), "of form paper, and no void counts"
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert not list(tmp_path.rglob("README.md")), "no card for a hub"


def test_a_training_that_was_ended_goes_on_to_the_weights_of_an_unbroken_one(
    fresh: Parts, tmp_path: Path
) -> None:
    before = fresh.policy.state()
    whole = learn(RECIPE, fresh, tmp_path / "whole", SMALL, told=Heard())
    fresh.policy.load_state(before)
    learn(RECIPE, fresh, tmp_path / "parts", SMALL, told=Heard(most=1))
    assert reached(RECIPE, tmp_path / "parts") == 1
    fresh.policy.load_state(before)
    told = Heard()
    again = learn(RECIPE, fresh, tmp_path / "parts", SMALL, told=told, resume=True)
    assert [line.iteration for line in told.lines] == [2]
    assert reached(RECIPE, tmp_path / "parts") == 2
    for name, one in whole.items():
        torch.testing.assert_close(again[name], one, atol=1e-6, rtol=1e-5)


def test_prompts_are_those_of_serving(parts: Parts) -> None:
    rows = trl_driver.dataset_of(parts, 5, 2)
    for row, number in zip(rows, (5, 6), strict=True):
        request = parts.dealer.game(Purpose.TRAINING, number).request
        assert row == {"prompt": parts.writer.prompter.write(request).text, "game": number}


def test_two_processes_that_share_a_group_write_different_plans(parts: Parts) -> None:
    objective = RECIPE.stages[0].objective
    one, other = (Roller(RECIPE, parts, objective, process)([0, 0]).plans for process in (0, 1))
    assert one != other


def test_a_later_stage_goes_on_with_the_schedule_of_the_whole() -> None:
    first, second = RECIPE.stages[0], replace(RECIPE.stages[0], name="second")
    recipe = replace(RECIPE, stages=(first, second))
    factor = rate_of(recipe, first.objective.iterations, passes=2)
    wanted = [rate(recipe, done) / second.objective.learning_rate for done in (2, 2, 3, 3)]
    assert [factor(step) for step in range(4)] == pytest.approx(wanted)


def test_tokens_are_scored_among_those_that_were_allowed() -> None:
    masks = torch.tensor([[0b0011], [0b1110]], dtype=torch.uint8)
    logits = torch.tensor([[[1.0, 2.0, 30.0, 40.0], [9.0, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0]]])
    choices = Choices(torch.tensor([[0, 1, FORCED]]), masks)
    log, spread = scores(logits, torch.tensor([[1, 2, 3]]), choices, 1.0)
    assert log[0].tolist() == pytest.approx([-0.3132617, -1.0986123, 0.0])
    assert spread[0, 1] == pytest.approx(1.0986123)
    assert spread[0, 2] == 0


def test_a_head_padded_beyond_the_tokenizer_allows_nothing_there() -> None:
    assert (
        unpacked(torch.tensor([[255]], dtype=torch.uint8), 10)[0].tolist()
        == [True] * 8 + [False] * 2
    )
    assert unpacked(torch.tensor([[255, 1]], dtype=torch.uint8), 9).shape == (1, 9)


def test_choices_are_found_again_from_what_was_written(parts: Parts) -> None:
    ask = parts.writer.ask(parts.dealer.game(Purpose.TRAINING, 0).request)
    generator = torch.Generator().manual_seed(1)
    (group,) = parts.policy.write([ask], 2, generator, max_tokens=16)
    choices = choices_of((parts.writer.automaton(ask), one) for one in group)
    for row, written in zip(choices.rows, group, strict=True):
        for place, (token, forced) in enumerate(zip(written.tokens, written.forced, strict=True)):
            assert (row[place] == FORCED) == forced
            if not forced:
                mask = choices.masks[row[place]]
                assert int(mask[token // 8]) >> token % 8 & 1
        assert (row[len(written.tokens) :] == FORCED).all()


@pytest.mark.parametrize(
    ("changed", "machine", "says"),
    [
        ({}, Machine(gpu=True, sharded=True), "vLLM"),
        ({}, Machine(vllm=True), "needs a GPU"),
        ({}, Machine(processes=4), "4 processes"),
    ],
)
def test_what_trl_cannot_do_is_refused_before_anything_starts(
    changed: dict[str, Any], machine: Machine, says: str
) -> None:
    with pytest.raises(TrlError, match=says):
        check(replace(RECIPE, **changed), machine)


def test_plans_of_later_rounds_are_rows_of_their_own() -> None:
    batch = {
        "prompt_ids": torch.tensor([[0, 5], [6, 7]]),
        "prompt_mask": torch.tensor([[0, 1], [1, 1]]),
        "completion_ids": torch.tensor([[8], [9]]),
        "completion_mask": torch.tensor([[1], [1]]),
        "sampling_per_token_logps": torch.tensor([[-1.0], [-2.0]]),
        "num_items_in_batch": torch.tensor(2),
        "old_per_token_logps": torch.zeros(2, 1),
    }
    later = [Later(1, 1, [1, 2, 3], [4, 4], [-3.0, -4.0])]
    whole = lengthened(batch, later, 2, 9)
    assert "old_per_token_logps" not in whole, "of rows that are no more all"
    assert whole["prompt_ids"].tolist() == [[9, 0, 5], [9, 6, 7], [1, 2, 3], [9, 9, 9]]
    assert whole["prompt_mask"].tolist() == [[0, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]]
    assert whole["completion_ids"].tolist() == [[8, 9], [9, 9], [4, 4], [9, 9]]
    assert whole["completion_mask"].tolist() == [[1, 0], [1, 0], [1, 1], [1, 0]]
    assert whole["sampling_per_token_logps"].tolist()[2:] == [[-3.0, -4.0], [0.0, 0.0]]
    assert credited([1.0, -1.0], [1, 2], later, 0.25) == [1.0, -0.25, -1.0]
    assert credited([1.0, None], [1, 2], later, 0.25) == [1.0, None, None]
    assert lengthened(batch, [], 2, 9)["prompt_ids"].tolist() == batch["prompt_ids"].tolist()


def test_settings_are_the_recipes(tmp_path: Path) -> None:
    stage = lmparts.recipe(prompts=4, group=64, passes=2, learning_rate=1e-6).stages[0]
    found = settings(RECIPE, stage, tmp_path, Machine(plans_at_once=8))
    assert found.per_device_train_batch_size * found.gradient_accumulation_steps == 256
    assert (found.num_generations, found.num_iterations, found.max_steps) == (64, 2, 4)
    assert (found.beta, found.learning_rate, found.temperature) == (0.0, 1e-6, 1.0)
    assert found.report_to == []
    assert not found.shuffle_dataset
