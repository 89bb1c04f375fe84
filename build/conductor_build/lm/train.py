"""Training an LM conductor on one machine: from a recipe to weights, curves and a report.

    claim       the folder is new, or holds this very training            checkpoints.py
    measure     the untrained policy: its plans without the mask, its play on held-out questions
    warm start  imitate sensible plans                                    warmstart.py
    learn       draw, write, play, credit, improve                        iteration.py
    measure     now and then, after the warm start, and at the end        heldout.py
    finish      the weights that did best, the report last

What is interrupted, by a signal, a kill, a full disk or a limit of money, goes on from the last
checkpoint to the very weights that an unbroken run gives.
"""

from __future__ import annotations

import io
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from conductor_build import curves
from conductor_build.checkpoints import claim
from conductor_build.curves import Curves
from conductor_build.files import OutputError, replace_file
from conductor_build.live.accounts import CostReached
from conductor_build.lm import judging, state
from conductor_build.lm.distributed import Leading, follow, leading
from conductor_build.lm.draw import Dealer
from conductor_build.lm.episodes import Players
from conductor_build.lm.iteration import Trainer
from conductor_build.lm.policy import Lora, PlanPolicy
from conductor_build.lm.progress import SHOWN, LmLine, Watch
from conductor_build.lm.ranks import Ranks
from conductor_build.lm.recipe import LmRecipe
from conductor_build.lm.schedule import rate, stage_at
from conductor_build.lm.setting import Setting
from conductor_build.lm.state import Learner
from conductor_build.train import Signal, Stopped

BETAS = (0.9, 0.999)
WEIGHTS = "policy.pt"
PICTURE_EVERY_S = 60.0
ALONE = Ranks()


def train_lm(
    recipe: LmRecipe,
    setting: Setting,
    out: Path,
    *,
    resume: bool = False,
    watch: Watch,
    signal: Signal = lambda: None,
    ranks: Ranks = ALONE,
) -> Path:
    """Train, and write everything to `out`; returns the report's path. Of several processes only
    the one that leads measures and writes.

    Raises `Stopped`, `CostReached`, `PeersError`, `OutputError` for a folder that cannot be used.
    """
    dealer = Dealer(setting.training, recipe.draw, recipe.rounds, recipe.seed)
    with ExitStack() as held:
        if ranks.leads:
            held.enter_context(claim(out, _identity(recipe, setting), resume=resume))
        held.enter_context(_threads(recipe.threads))
        learner = begin(recipe, setting)
        players = held.enter_context(Players(setting.environment, setting.close))
        trainer = Trainer(recipe, setting.writer, dealer, players)
        if not ranks.leads:
            follow(ranks, trainer, learner.policy)
            return out / judging.REPORT
        state.restore(out, learner)
        runs = held.enter_context(leading(ranks, trainer))
        course = Course(recipe, setting, runs, players, learner, out, watch, signal)
        try:
            course.run()
        except CostReached:
            course.checkpoint()
            raise
        return course.finish()


def begin(recipe: LmRecipe, setting: Setting) -> Learner:
    """The policy as it is before its first iteration, and its optimiser."""
    adapter, lora = recipe.lora, None
    if adapter is not None:
        lora = Lora(rank=adapter.rank, alpha=adapter.alpha, seed=recipe.seed)
    policy = PlanPolicy(setting.base, setting.writer, lora=lora)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=0.0, betas=BETAS, weight_decay=0.0)
    return Learner(policy, optimiser)


class Course:
    """One training under way."""

    def __init__(
        self,
        recipe: LmRecipe,
        setting: Setting,
        trainer: Trainer | Leading,
        players: Players,
        learner: Learner,
        out: Path,
        watch: Watch,
        signal: Signal,
    ) -> None:
        self._trainer = trainer
        self._judge = judging.Judge(recipe, setting, players, self._stop_if_asked)
        self._recipe, self._setting, self._learner = recipe, setting, learner
        self._out, self._watch, self._signal = out, watch, signal
        self._saved = self._drawn = time.monotonic()

    def run(self) -> None:
        """All iterations that are left, and what is measured between them."""
        recipe, learner = self._recipe, self._learner
        with Curves(self._out, learner.done) as lines:
            self._measure(judging.UNTRAINED)
            while learner.done < recipe.iterations and not learner.stopped:
                if learner.done == recipe.warm_steps > 0:
                    self._measure(judging.WARM)
                line = self._iteration()
                lines.add(line)
                self._watch.iteration(line, recipe.iterations)
                self._look()
                self._keep(lines)
            self.checkpoint(lines)

    def _iteration(self) -> LmLine:
        recipe, learner = self._recipe, self._learner
        for group in learner.optimiser.param_groups:
            group["lr"] = rate(recipe, learner.done)
        if learner.done < recipe.warm_steps:
            return self._trainer.warm(learner)
        return self._trainer.learn(learner, stage_at(recipe, learner.done))

    def _measure(self, moment: str) -> None:
        """Play the reported games, once at each moment."""
        learner = self._learner
        if judging.found(learner.evaluations, moment) or (
            moment == judging.UNTRAINED and learner.done
        ):
            return
        self._watch.note(f"measuring: {moment}")
        found = self._judge.measured(moment, learner.policy, learner.done)
        learner.evaluations.append(found)
        self._watch.note(judging.told(found))
        self.checkpoint()

    def _look(self) -> None:
        """Play the watched games when it is time; stop when reward stays below its best."""
        learner, settings = self._learner, self._recipe.held_out
        since = learner.done - self._recipe.warm_steps
        if not settings.every or since < 0 or since % settings.every:
            return
        found = self._judge.watched(learner.policy, learner.done)
        learner.evaluations.append(found)
        self._watch.note(judging.told(found))
        if found["voids"] == found["games"]:
            return  # workers or verifiers are down, which says nothing of the policy
        reward = float(found["reward"])
        if learner.best is None or reward > learner.best:
            learner.best, learner.falls = reward, 0
            state.save_best(self._out, learner)
            return
        learner.falls = learner.falls + 1 if reward < learner.best - settings.fall else 0
        if learner.falls >= settings.patience:
            learner.stopped = True
            self._watch.note("stopped: reward on the watched games stays below its best")

    def _keep(self, lines: Curves) -> None:
        """Write a checkpoint when it is time, or when asked to stop."""
        checkpoints, learner = self._recipe.checkpoints, self._learner
        due = learner.done % checkpoints.iterations == 0
        late = time.monotonic() - self._saved > checkpoints.seconds
        if due or late or self._signal():
            self.checkpoint(lines)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        """Raises `Stopped`; what was reached since the last checkpoint comes again."""
        if number := self._signal():
            reached = f"after iteration {self._learner.done} of {self._recipe.iterations}"
            raise Stopped(number, reached)

    def checkpoint(self, lines: Curves | None = None) -> None:
        """Write where the training stands."""
        try:
            if lines is not None:
                lines.sync()
            state.save(self._out, self._learner)
        except (OSError, OutputError) as error:
            raise OutputError(
                f"no checkpoint can be written after iteration {self._learner.done} ({error}); the "
                "one before is whole: make room, then go on with --resume"
            ) from None
        self._saved = time.monotonic()
        if self._saved - self._drawn > PICTURE_EVERY_S:
            self._drawn = self._saved
            draw(self._out)

    def finish(self) -> Path:
        """Take the best weights, measure them, and write what is left behind, the report last."""
        learner = self._learner
        kept = state.restore_best(self._out, learner) if self._recipe.held_out.every else None
        self._measure(judging.TRAINED)
        buffer = io.BytesIO()
        torch.save(learner.policy.state(), buffer)
        replace_file(self._out / WEIGHTS, buffer.getvalue())
        draw(self._out)
        done = learner.done if kept is None else kept
        report = self._judge.report(learner.evaluations, done, learner.stopped)
        path = self._out / judging.REPORT
        replace_file(path, judging.encoded(report))
        return path


def draw(out: Path) -> None:
    """The picture of the lines so far."""
    lines = curves.read_as(LmLine, out)
    if lines:
        replace_file(out / curves.PICTURE, curves.picture(lines, SHOWN))


def _identity(recipe: LmRecipe, setting: Setting) -> dict[str, Any]:
    """What the weights depend on."""
    versions = {name: version(name) for name in ("torch", "transformers", "peft", "numpy")}
    return {
        "recipe": recipe.sha256(),
        "seed": recipe.seed,
        "base": setting.base.digest,
        "prompt": setting.writer.prompter.digest,
        "data": setting.data,
        "software": {**versions, "python": platform.python_version()},
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Sums depend on how they are split over threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
