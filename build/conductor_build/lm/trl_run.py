"""A training by TRL from end to end: what `train.py` is to our own loop.

    claim       the folder is new, or holds this very training                first process
    measure     the untrained policy on held-out questions                    first process
    warm start  imitate sensible plans                                        every process alike
    learn       trl_driver.py: TRL's checkpoints below `trl/`
    finish      weights, curves, what was measured, the report last           first process

Under FSDP no process can play with all the weights: nothing is measured then, and the report says
so. Load the weights with `driver: cpu` on one machine for that.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from conductor_build.checkpoints import claim
from conductor_build.curves import Curves
from conductor_build.files import replace_file
from conductor_build.lm import judging
from conductor_build.lm.draw import Dealer
from conductor_build.lm.episodes import Players
from conductor_build.lm.iteration import Trainer
from conductor_build.lm.progress import LmLine, Watch
from conductor_build.lm.recipe import LmRecipe
from conductor_build.lm.schedule import rate
from conductor_build.lm.setting import Setting
from conductor_build.lm.state import Learner
from conductor_build.lm.train import WEIGHTS, begin, draw
from conductor_build.lm.trl_driver import Parts, Told, learn, reached
from conductor_build.lm.trl_settings import Machine, check
from conductor_build.train import Signal, Stopped

MEASURED = "measured.json"


def here(*, vllm: bool = False) -> Machine:
    """The machine that a launcher has told this process of, by its environment."""
    gpu = torch.cuda.is_available()
    return Machine(
        processes=int(os.environ.get("WORLD_SIZE", "1")),
        gpu=gpu,
        sharded=os.environ.get("ACCELERATE_USE_FSDP") == "true",
        vllm=vllm,
    )


def train_trl(
    recipe: LmRecipe,
    setting: Setting,
    out: Path,
    machine: Machine,
    *,
    resume: bool = False,
    watch: Watch,
    signal: Signal = lambda: None,
) -> Path:
    """Train, and write everything to `out`; returns the report's path.

    Raises `TrlError` before anything is written, `Stopped`, `CostReached`, `OutputError`.
    """
    check(recipe, machine)
    first = int(os.environ.get("RANK", "0")) == 0
    if machine.gpu and not machine.sharded:
        setting.base.model.to(torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))
    own = claim(out, _identity(recipe, setting), resume=resume) if first else nullcontext()
    with own, Players(setting.environment, setting.close) as players:
        run = _Run(recipe, setting, out, machine, players, begin(recipe, setting), watch, signal)
        return run.all(first)


@dataclass
class _Run:
    recipe: LmRecipe
    setting: Setting
    out: Path
    machine: Machine
    players: Players
    learner: Learner
    watch: Watch
    signal: Signal

    def all(self, first: bool) -> Path:
        recipe, done = self.recipe, reached(self.recipe, self.out)
        dealer = Dealer(self.setting.training, recipe.draw, recipe.rounds, recipe.seed)
        measures = first and not self.machine.sharded
        parts = Parts(
            self.setting.base, self.learner.policy, self.setting.writer, self.players, dealer
        )
        with self._told(first, done and recipe.warm_steps + done) as told:
            if measures:
                self._measure(judging.UNTRAINED)
            if not done:
                self._warm(dealer, told)
                if measures and recipe.warm_steps:
                    self._measure(judging.WARM)
            weights = learn(recipe, parts, self.out, self.machine, resume=done > 0, told=told)
        if first and told.stopped is None:
            self._finish(weights, measures)
        if told.stopped is not None:
            raise Stopped(told.stopped, f"after iteration {told.done} of {recipe.iterations}")
        return self.out / judging.REPORT

    def _warm(self, dealer: Dealer, told: _Line) -> None:
        """Every process takes the same steps, on the same plans."""
        trainer = Trainer(self.recipe, self.setting.writer, dealer, self.players)
        while self.learner.done < self.recipe.warm_steps:
            for group in self.learner.optimiser.param_groups:
                group["lr"] = rate(self.recipe, self.learner.done)
            told.line(trainer.warm(self.learner))

    @contextmanager
    def _told(self, first: bool, done: int) -> Iterator[_Line]:
        """The curves go on after `done` lines, in the first process."""
        if not first:
            yield _Line(self, None)
            return
        with Curves(self.out, done) as curves:
            yield _Line(self, curves)

    def _measure(self, moment: str) -> None:
        """Once, also if the training was stopped since."""
        learner, path = self.learner, self.out / MEASURED
        if path.exists():
            learner.evaluations = json.loads(path.read_bytes())
        if judging.found(learner.evaluations, moment):
            return
        self.watch.note(f"measuring: {moment}")
        judge = judging.Judge(self.recipe, self.setting, self.players)
        found = judge.measured(moment, learner.policy, learner.done)
        learner.evaluations.append(found)
        replace_file(path, json.dumps(learner.evaluations).encode())
        self.watch.note(judging.told(found))

    def _finish(self, weights: dict[str, Any], measures: bool) -> None:
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        replace_file(self.out / WEIGHTS, buffer.getvalue())
        draw(self.out)
        if not measures:
            report: dict[str, Any] = {"measured": False, "recipe": self.recipe.sha256()}
        else:
            self._measure(judging.TRAINED)
            judge = judging.Judge(self.recipe, self.setting, self.players)
            report = judge.report(self.learner.evaluations, self.recipe.iterations, False)
        replace_file(self.out / judging.REPORT, judging.encoded(report))


@dataclass
class _Line(Told):
    """Tells the watch and the curves what TRL says of a step, and TRL whether to stop."""

    run: _Run
    curves: Curves | None
    stopped: int | None = None
    done: int = 0

    def iteration(self, line: LmLine) -> None:
        """One more is done. `line` counts the stages' iterations alone."""
        self.line(replace(line, iteration=self.run.recipe.warm_steps + line.iteration))

    def line(self, line: LmLine) -> None:
        """One more is done, of all."""
        self.done = line.iteration
        if self.curves is not None:
            self.curves.add(line)
            self.run.watch.iteration(line, self.run.recipe.iterations)

    def ends(self) -> bool:
        """Whether a signal, to any process, asks to stop."""
        self.stopped = _anywhere(self.run.signal())
        return self.stopped is not None


def _anywhere(number: int | None) -> int | None:
    """The greatest of what the processes say."""
    if not dist.is_initialized():
        return number
    said: list[int | None] = [None] * dist.get_world_size()
    dist.all_gather_object(said, number)
    return max((one for one in said if one is not None), default=None)


def _identity(recipe: LmRecipe, setting: Setting) -> dict[str, Any]:
    """What the weights depend on."""
    return {
        "recipe": recipe.sha256(),
        "base": setting.base.digest,
        "prompt": setting.writer.prompter.digest,
        "data": setting.data,
        "software": {name: version(name) for name in ("torch", "transformers", "peft", "trl")},
    }
