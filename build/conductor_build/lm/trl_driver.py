"""Training on GPUs: TRL's GRPOTrainer over the recipe, objective, games and rewards of our loop.

    dataset      the games of all iterations in their order, as prompts in the very words of serving
    rollouts     our sampler or vLLM, under the mask; plays in the environment; rewards
    learning     `trl_trainer.PlanTrainer`: accumulation, FSDP, checkpoints by TRL

A stage is a trainer of its own: the optimiser starts anew with each. What TRL cannot do is refused
before anything starts (`trl_settings.check`). A warm start comes before, in the other loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from conductor_build.lm.distributed import seed_of
from conductor_build.lm.draw import Dealer, Purpose
from conductor_build.lm.episodes import Episode, Players, Sampling, Turn, roll_out
from conductor_build.lm.progress import LmLine
from conductor_build.lm.recipe import LmRecipe, Objective, Stage
from conductor_build.lm.schedule import factor
from conductor_build.lm.trl_choices import choices_of
from conductor_build.lm.trl_settings import Machine, check, settings

if TYPE_CHECKING:
    from datasets import Dataset  # type: ignore[import-untyped]
    from transformers import PreTrainedTokenizerFast

    from conductor_build.lm.base import Base
    from conductor_build.lm.policy import PlanPolicy
    from conductor_build.lm.tokens import Writer
    from conductor_build.lm.trl_trainer import PlanTrainer, Rolled
    from conductor_build.lm.vllm_plans import VllmWriter

CHECKPOINTS = "trl"
"""Folder of TRL's own checkpoints, one folder a stage, in a training's folder."""


class Told(Protocol):
    """Who is told how far the stages are, and may end them."""

    def iteration(self, line: LmLine) -> None:
        """One more iteration is done; `line.iteration` counts from 1 over the stages alone."""

    def ends(self) -> bool:
        """Whether training is to end now, with a checkpoint. Asked by every process at once."""


@dataclass(frozen=True)
class Parts:
    """What a training is made of, beside its recipe."""

    base: Base
    policy: PlanPolicy
    writer: Writer
    players: Players
    dealer: Dealer


def learn(
    recipe: LmRecipe, parts: Parts, out: Path, machine: Machine, *, told: Told, resume: bool = False
) -> dict[str, Tensor]:
    """Train the policy through all stages of the recipe, or until it is told to end.

    Returns the trained weights, by the policy's own names; under FSDP in the first process alone.
    Raises `TrlError` before anything starts for a recipe that TRL cannot train here.
    """
    check(recipe, machine)
    trainer = None
    for place, stage in enumerate(recipe.stages):
        trainer = trainer_of(recipe, place, parts, out, machine, told)
        last = _latest(out, stage) if resume else None
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        if trainer.state.global_step < trainer.args.max_steps:
            break
    if machine.sharded and trainer is not None:
        whole: dict[str, Tensor] = trainer.accelerator.get_state_dict(trainer.model)
        return whole
    return parts.policy.state()


def reached(recipe: LmRecipe, out: Path) -> int:
    """How many iterations of the stages the checkpoints in `out` stand for."""
    done = 0
    for stage in recipe.stages:
        last = _latest(out, stage)
        if last is None:
            break
        done += _steps(last) // stage.objective.passes
    return done


def _latest(out: Path, stage: Stage) -> Path | None:
    """The newest whole checkpoint: TRL writes its own state last."""
    found = [one.parent for one in (out / CHECKPOINTS / stage.name).glob("checkpoint-*/" + _LAST)]
    return max(found, key=_steps, default=None)


_LAST = "trainer_state.json"


def _steps(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def trainer_of(
    recipe: LmRecipe, place: int, parts: Parts, out: Path, machine: Machine, told: Told
) -> PlanTrainer:
    """The trainer of the stage at that place, ready to train."""
    _quiet()
    from transformers import PrinterCallback
    from transformers.utils.logging import disable_progress_bar

    from conductor_build.lm.trl_trainer import PlanTrainer

    disable_progress_bar()  # type: ignore[no-untyped-call]
    stage = recipe.stages[place]
    objective, before = stage.objective, recipe.stages[:place]
    first = sum(one.objective.iterations * one.objective.prompts for one in before)
    done = sum(one.objective.iterations for one in before)
    args = settings(recipe, stage, out / CHECKPOINTS / stage.name, machine)
    roller = Roller(recipe, parts, objective, args.process_index, machine.gpu)
    trainer = PlanTrainer(
        roller,
        objective,
        rate_of(recipe, done, objective.passes),
        recipe.rounds.discount,
        model=parts.policy.model,
        args=args,
        train_dataset=dataset_of(parts, first, objective.iterations * objective.prompts),
        processing_class=tokenizer_of(parts.base),
        callbacks=[_telling(stage, done, told)],
    )
    trainer.remove_callback(PrinterCallback)
    if machine.vllm:
        from conductor_build.lm.vllm_plans import VllmWriter

        roller.sampler = VllmWriter(trainer.vllm_generation, parts.writer)
    return trainer


def _quiet() -> None:
    """What the libraries read from the environment when they are imported: nothing is fetched,
    nobody is told."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


def dataset_of(parts: Parts, first: int, count: int) -> Dataset:
    """The games with numbers from `first` on, as TRL deals them out: the prompt in the words of
    serving, and the number, by which everything else is found."""
    from datasets import Dataset

    numbers = range(first, first + count)
    prompts = [
        parts.writer.prompter.write(parts.dealer.game(Purpose.TRAINING, number).request).text
        for number in numbers
    ]
    return Dataset.from_dict({"prompt": prompts, "game": list(numbers)})


def tokenizer_of(base: Base) -> PreTrainedTokenizerFast:
    """The base's tokenizer as transformers wants it. Padding is masked everywhere: what stands
    there does not matter."""
    from transformers import PreTrainedTokenizerFast

    end = base.tokenizer.id_to_token(base.eos[0])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=base.tokenizer, eos_token=end, pad_token=end, padding_side="left"
    )


@dataclass
class Roller:
    """Writes and plays the plans of a batch, or of a process's part of one."""

    recipe: LmRecipe
    parts: Parts
    objective: Objective
    process: int = 0
    gpu: bool = False
    sampler: VllmWriter | None = None
    """Who writes in the policy's place."""

    def __call__(self, numbers: Sequence[int]) -> Rolled:
        """A number that stands n times in a row is a game that n plans are written for."""
        from conductor_build.lm.trl_trainer import Rolled
        from conductor_build.lm.trl_turns import Later

        episodes = list(self._episodes(numbers))
        writer, first = self.parts.writer, [episode.turns[0] for episode in episodes]
        further = [
            (row, place, turn)
            for row, episode in enumerate(episodes)
            for place, turn in enumerate(episode.turns[1:], 1)
        ]
        turns = [*first, *(turn for _, _, turn in further)]
        return Rolled(
            prompts=[self._prompt(turn) for turn in first],
            plans=[list(turn.written.tokens) for turn in first],
            log_probs=[list(turn.written.log_probs) for turn in first],
            choices=choices_of((writer.automaton(turn.ask), turn.written) for turn in turns),
            rewards=[episode.reward(self.recipe.reward) for episode in episodes],
            turns=[len(episode.turns) for episode in episodes],
            later=[
                Later(
                    row, place, self._prompt(turn),
                    list(turn.written.tokens), list(turn.written.log_probs),
                )
                for row, place, turn in further
            ],
        )  # fmt: skip

    def _prompt(self, turn: Turn) -> list[int]:
        return [*self.parts.writer.prefix, *turn.ask.rest]

    def _episodes(self, numbers: Sequence[int]) -> Iterator[Episode]:
        runs = [(number, len(list(run))) for number, run in groupby(numbers)]
        for size, same in groupby(runs, key=lambda run: run[1]):
            yield from self._played([number for number, _ in same], size)

    def _played(self, numbers: Sequence[int], size: int) -> list[Episode]:
        parts, objective = self.parts, self.objective
        games = [parts.dealer.game(Purpose.TRAINING, number) for number in numbers]
        sampling = Sampling(size, objective.temperature, objective.max_tokens)
        seed = seed_of(self.recipe.seed, self.process, *numbers)
        source: Any = self.sampler or parts.policy
        model = parts.policy.model
        training = model.training
        model.eval()  # keys and values cannot be kept while activations are to be computed again
        try:
            with torch.autocast("cuda", torch.bfloat16, enabled=self.gpu):  # as plans are scored
                rollout = roll_out(
                    source, parts.writer, parts.players, games, sampling,
                    torch.Generator().manual_seed(seed),
                )  # fmt: skip
        finally:
            model.train(training)
        return rollout.episodes


def rate_of(recipe: LmRecipe, before: int, passes: int) -> Callable[[int], float]:
    """The schedule of the whole recipe for a stage that `before` iterations precede."""
    return lambda step: factor(recipe, before + step // passes)


def _telling(stage: Stage, done: int, told: Told) -> Any:
    """TRL's figures of its last step in an iteration as a line."""
    from transformers import TrainerCallback

    class Telling(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, **also: Any) -> None:
            said, passes = also["logs"], stage.objective.passes
            if "reward" in said and state.global_step % passes == 0:
                told.iteration(_line(stage, done + state.global_step // passes, said))

        def on_step_end(self, args: Any, state: Any, control: Any, **also: Any) -> None:
            if state.global_step % stage.objective.passes == 0 and told.ends():
                control.should_save = control.should_training_stop = control.should_log = True

    return Telling()


def _line(stage: Stage, iteration: int, said: dict[str, float]) -> LmLine:
    return LmLine(
        iteration=iteration,
        stage=stage.name,
        loss=said["loss"],
        entropy=said["entropy"],
        reward=said["reward"],
        plan_tokens=said["completions/mean_length"],
        episodes=stage.objective.prompts * stage.objective.group,
        improve_s=said["step_time"],
    )
