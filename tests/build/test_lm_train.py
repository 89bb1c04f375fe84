"""Training an LM conductor: what it leaves, that no interruption changes what comes out, and that
it learns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conductor.core import PlanRequest
from conductor.plan.language import Plan
from conductor_build.curves import PICTURE, read_as
from conductor_build.files import OutputError
from conductor_build.live.accounts import CostReached
from conductor_build.live.environment import Outcome, Session
from conductor_build.live.game import Game
from conductor_build.lm import train
from conductor_build.lm.progress import LmLine, Recent
from conductor_build.lm.recipe import HeldOut, LmRecipe, Rounds
from conductor_build.lm.train import WEIGHTS
from conductor_build.train import Stopped
from support.lmgames import Planned, Stand
from support.lmtrainings import KILLED_AT, RECIPE, Quiet, shortened, trained


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing interrupted."""
    out = tmp_path_factory.mktemp("lm") / "out"
    trained(out)
    return out


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pictures take longer than the rest."""
    if "drawn" not in request.keywords:
        monkeypatch.setattr(train, "draw", lambda out: None)


def numbers(out: Path) -> list[dict[str, Any]]:
    """The curves, without what the clock says."""
    lines = [vars(line) for line in read_as(LmLine, out)]
    return [{name: one for name, one in line.items() if name[-2:] != "_s"} for line in lines]


def weights(out: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(out / WEIGHTS, weights_only=True)
    return found


def same(one: Path, other: Path) -> bool:
    left, right = weights(one), weights(other)
    return numbers(one) == numbers(other) and all(torch.equal(left[n], right[n]) for n in right)


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


def test_a_training_leaves_curves_a_picture_weights_and_a_report(unbroken: Path) -> None:
    lines = read_as(LmLine, unbroken)
    assert [line.iteration for line in lines] == list(range(1, 7))
    assert [line.stage for line in lines] == ["warm start"] * 2 + ["learn"] * 4
    assert lines[0].reward is None
    assert all(line.parsed == 1.0 for line in lines[2:])
    assert (unbroken / PICTURE).read_bytes().startswith(b"\x89PNG")
    assert weights(unbroken)


def test_the_report_compares_with_the_untrained_and_with_single_workers(unbroken: Path) -> None:
    found = report(unbroken)
    assert found["simulated"] is True
    assert set(found["moments"]) == {"untrained", "warm start", "trained"}
    assert [one["iteration"] for one in found["watched"]] == [2, 4, 6]
    pools = [found[name] for name in ("whole_pool", "drawn_pools") if name in found]
    assert sum(pool["games"] for pool in pools) == 4
    for pool in pools:
        assert {"untrained", "warm start", "best by card"} <= set(pool["gains"])
    assert found["moments"]["trained"]["parse_rate"] in (0.0, 0.5, 1.0)


def test_no_question_is_in_what_a_training_leaves(unbroken: Path) -> None:
    for name in ("report.json", "curves.jsonl", "run.json"):
        assert "Who is number" not in (unbroken / name).read_text()


@pytest.mark.parametrize("stops_after", [1, 3])
def test_a_stopped_training_goes_on_to_the_same_curve_and_weights(
    unbroken: Path, tmp_path: Path, stops_after: int
) -> None:
    watch = Quiet()
    with pytest.raises(Stopped):
        trained(tmp_path, watch=watch, signal=told_after(watch, stops_after))
    trained(tmp_path, resume=True)
    assert same(tmp_path, unbroken)


def told_after(watch: Quiet, lines: int) -> Callable[[], int | None]:
    return lambda: signal.SIGTERM if len(watch.lines) >= lines else None


def test_a_killed_training_goes_on_to_the_same_curve_and_weights(
    unbroken: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.lmtrainings", str(tmp_path)]
    killed = subprocess.run(command, env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(numbers(tmp_path)) >= KILLED_AT - 1
    assert not (tmp_path / "report.json").exists()
    trained(tmp_path, resume=True)
    assert same(tmp_path, unbroken)


def test_another_recipe_cannot_go_on_with_it(unbroken: Path) -> None:
    with pytest.raises(OutputError, match="another recipe"):
        trained(unbroken, replace(RECIPE, rounds=Rounds(share=0.5)), resume=True)


def test_a_checkpoint_of_another_prompt_is_refused(
    unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = json.loads((unbroken / "run.json").read_text())
    other = {**run, "prompt": "0" * 64}
    monkeypatch.setattr(Path, "read_bytes", lambda path: json.dumps(other).encode())
    with pytest.raises(OutputError, match="another prompt"):
        trained(unbroken, resume=True)


# -- what is played -------------------------------------------------------------------------------


def test_voids_are_counted_and_teach_nothing(tmp_path: Path) -> None:
    trained(tmp_path, shortened(iterations=1), environment=Broken())
    (line,) = read_as(LmLine, tmp_path)
    assert (line.voids, line.episodes, line.skipped) == (8, 8, 2)
    assert line.loss == 0.0
    assert line.reward is None
    assert report(tmp_path)["moments"]["trained"]["voids"] == 2


class Broken(Stand):
    """Every worker is down."""

    def open(self, game: Game) -> Session:
        return Down(game)


class Down(Planned):
    def outcome(self) -> Outcome:
        return replace(super().outcome(), quality=None, void="worker:refused")


def test_a_training_ends_cleanly_when_the_money_does(tmp_path: Path) -> None:
    with pytest.raises(CostReached):
        trained(tmp_path, shortened(), environment=Dear(plays=20))
    lines = len(numbers(tmp_path))
    assert 0 < lines < 4
    trained(tmp_path, shortened(), resume=True, environment=Dear(plays=1000))
    assert len(numbers(tmp_path)) == 4


class Dear(Stand):
    """Lets so many plays be paid."""

    def __init__(self, plays: int) -> None:
        self.left = plays

    def open(self, game: Game) -> Session:
        self.left -= 1
        if self.left < 0:
            raise CostReached(1.0)
        return super().open(game)


def test_further_rounds_are_written_for_and_learned_from(tmp_path: Path) -> None:
    recipe = replace(shortened(iterations=1), rounds=Rounds(share=1.0))
    watch, looks = Quiet(), Looks()
    trained(tmp_path, recipe, watch=watch, environment=looks)
    (line,) = watch.lines
    assert line.rounds == 2.0
    assert looks.seen.count(True) == looks.seen.count(False) >= line.episodes
    assert line.plan_tokens is not None and line.plan_tokens > 16, "two plans an episode"


class Looks(Stand):
    """Notes which rounds were looked at. A second round is the last."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def open(self, game: Game) -> Session:
        return Looked(game, self.seen)


class Looked(Planned):
    def __init__(self, game: Game, seen: list[bool]) -> None:
        super().__init__(game)
        self.seen = seen

    async def play(self, plan: Plan, look: bool) -> PlanRequest | None:
        if self.rounds or look:
            self.seen.append(look)
        asked = await super().play(plan, look)
        return None if asked is None else replace(asked, rounds_left=0)


# -- whether it learns ----------------------------------------------------------------------------


def test_reward_rises_where_one_worker_is_always_right(tmp_path: Path) -> None:
    recipe = shortened(iterations=10, prompts=2, group=12, learning_rate=0.02, max_tokens=6)
    watch = Quiet()
    trained(tmp_path, recipe, watch=watch, environment=Favouring())
    course = [line.reward or 0.0 for line in watch.lines]
    assert sum(course[:2]) / 2 < 0.55
    assert sum(course[-3:]) / 3 > sum(course[:2]) / 2 + 0.25


class Favouring(Stand):
    """The last step's worker is right if his place is the second, whatever is asked."""

    def open(self, game: Game) -> Session:
        return Favoured(game)


class Favoured(Planned):
    def outcome(self) -> Outcome:
        assert self.plan is not None
        right = self.plan.steps[-1].worker == 1
        return replace(super().outcome(), quality=float(right), void=None)


def test_training_stops_at_its_best_when_watched_reward_falls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conductor_build.lm.judging import Judge

    told = iter([0.5, 0.9, 0.2, 0.1])
    fake = dict.fromkeys(("quality", "utility", "cost_usd_per_1k", "steps", "calls", "voids"), 0.0)
    fake["games"] = 2
    monkeypatch.setattr(
        Judge, "watched",
        lambda self, policy, done: {
            "moment": "watched", "iteration": done, "reward": next(told), **fake,
        },
    )  # fmt: skip
    recipe: LmRecipe = replace(
        shortened(iterations=9),
        held_out=HeldOut(games=2, parsing=0, every=1, fall=0.3, patience=2),
    )
    watch = Quiet()
    trained(tmp_path, recipe, watch=watch)
    assert len(watch.lines) == 4
    found = report(tmp_path)
    assert (found["stopped_early"], found["kept_iteration"]) == (True, 2)


def test_workers_that_are_down_do_not_end_a_training_nor_choose_its_weights(
    tmp_path: Path,
) -> None:
    recipe = replace(
        shortened(iterations=3),
        held_out=HeldOut(games=2, parsing=0, every=1, fall=0.0001, patience=1),
    )
    trained(tmp_path, recipe, environment=Broken())
    assert not (tmp_path / "best.pt").exists()
    found = report(tmp_path)
    assert (found["stopped_early"], len(found["watched"])) == (False, 3)
    assert all(part["best_single"] is None for part in parts_of(found))


def parts_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [report[name] for name in ("whole_pool", "drawn_pools") if name in report]


def test_the_shown_line_tells_the_phases_apart() -> None:
    recent = Recent()
    recent.add(LmLine(3, "learn", 0.1, 2.0, reward=0.5, accuracy=0.5, cost_usd_per_1k=1.0,
                      parsed=1.0, steps=2.0, write_s=3.0, play_s=0.1, improve_s=5.0))  # fmt: skip
    text = recent.text(10)
    assert "write 3.0 + play 0.1 + improve 5.0" in text
    assert "reward 0.500" in text
    assert "ETA 0:57" in text
