"""Two processes over gloo train what one trains; the launchers' configurations."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as processes

from conductor_build.live.accounts import CostReached
from conductor_build.lm import command, distributed
from conductor_build.lm.command import Asked
from conductor_build.lm.distributed import batch, leading, merged, taught_by
from conductor_build.lm.episodes import Rollout
from conductor_build.lm.iteration import Trainer
from conductor_build.lm.objective import credit
from conductor_build.lm.progress import LmLine
from conductor_build.lm.ranks import PeersError, Ranks, joined
from conductor_build.lm.recipe import Objective, Stage
from support.lmpeers import RECIPE, one_of_two


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes came to. They are forked from one that has imported everything:
    that is the most costly part."""
    out = tmp_path_factory.mktemp("peers")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["support.lmpeers", "transformers.models.llama.modeling_llama"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        processes.start_processes(
            one_of_two, (free_port(), out), nprocs=2, start_method="forkserver"
        )
    return [torch.load(out / f"{rank}.pt") for rank in (0, 1)]


def test_two_processes_come_to_the_weights_of_one(told: list[dict[str, Any]]) -> None:
    together, alone = told[0]["found"]["weights"], told[0]["alone"]["weights"]
    moved = 0.0
    for name, weight in alone.items():
        torch.testing.assert_close(together[name], weight, atol=2e-6, rtol=1e-4)
        moved = max(moved, float((weight - told[0]["alone"]["begun"][name]).abs().max()))
    assert moved > 1e-4, "a training that moves nothing compares nothing"


def test_two_processes_tell_of_a_batch_what_one_tells(told: list[dict[str, Any]]) -> None:
    for together, alone in zip(told[0]["found"]["lines"], told[0]["alone"]["lines"], strict=True):
        for name in ("loss", "entropy", "reward", "steps", "episodes", "voids", "plans"):
            assert together[name] == pytest.approx(alone[name], abs=1e-5), name


def test_only_the_leader_has_a_result(told: list[dict[str, Any]]) -> None:
    assert told[1]["found"] is None
    assert told[0]["total"] == told[1]["total"] == [2.0, 1.0]


def test_shares_are_put_together_again_in_the_order_of_the_batch() -> None:
    items = list(range(7))
    parts = [Ranks(rank, 3).share(items) for rank in range(3)]
    assert parts == [[0, 3, 6], [1, 4], [2, 5]]
    assert Ranks().gathered(items) == items


def test_games_are_numbered_as_one_process_numbers_them() -> None:
    first = Stage("first", Objective(iterations=2, prompts=3))
    second = Stage("second", Objective(iterations=1, prompts=5))
    recipe = replace(RECIPE, stages=(first, second))
    trainer = Trainer(recipe, None, None, None)  # type: ignore[arg-type]
    for done in range(recipe.iterations):
        stage, numbers = batch(recipe, done)
        assert numbers[0] == trainer._first(done)
        assert len(numbers) == stage.objective.prompts
    with pytest.raises(IndexError):
        batch(recipe, recipe.iterations)


def test_advantages_divide_by_the_spread_of_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = Objective(scale="batch", spread_floor=0.01)
    groups = [[0.0, 1.0, 1.0], [0.5, 0.5, 0.7]]
    whole = credit(groups, objective)
    monkeypatch.setattr(Ranks, "gathered", lambda self, own: groups)
    monkeypatch.setattr(distributed, "lessons", lessons_of)
    for rank in (0, 1):
        (lesson,) = taught_by(Ranks(rank, 2), Rollout((), 0, 0), [groups[rank]], objective, 1.0)
        assert lesson.advantages == pytest.approx(whole[rank].advantages)


def lessons_of(rollout: Rollout, rewards: object, objective: Objective, discount: float) -> object:
    from conductor_build.lm.improve import Lesson

    (credited,) = credit(rewards, objective)  # type: ignore[arg-type]
    return [Lesson(None, (), credited.advantages)]  # type: ignore[arg-type]


def line(**told: object) -> LmLine:
    return LmLine(iteration=1, stage="plans", loss=0.5, entropy=0.1, **told)  # type: ignore[arg-type]


def test_a_share_of_voids_weighs_nothing_in_the_line_of_a_batch() -> None:
    shares = [line(reward=0.2, episodes=4, voids=1), line(reward=0.6, episodes=4, voids=3)]
    whole = merged([*shares, line(reward=None, episodes=4, voids=4)])
    assert whole.reward == pytest.approx((3 * 0.2 + 1 * 0.6) / 4)
    assert (whole.episodes, whole.voids) == (12, 8)
    assert whole.accuracy is None


@pytest.mark.parametrize("said", ["money", "the tokenizer is another one"])
def test_what_fails_in_one_process_ends_the_iteration_in_all(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ranks, "gathered", lambda self, own: [*own, said])
    monkeypatch.setattr(distributed, "rolled", lambda *_: Rollout((), 0, 0))
    trainer = Trainer(RECIPE, None, None, None)  # type: ignore[arg-type]
    with pytest.raises(CostReached if said == "money" else PeersError):
        distributed._played(Ranks(0, 2), trainer, None, [0], Objective())  # type: ignore[arg-type]


def test_followers_are_let_go_when_the_leader_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(Ranks, "told", lambda self, what=None: told.append(what))
    with pytest.raises(CostReached), leading(Ranks(0, 2), None):  # type: ignore[arg-type]
        raise CostReached(1.0)
    assert told == [None]


def test_what_stopped_the_leader_is_told_though_the_others_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(self: Ranks, what: object = None) -> None:
        raise PeersError("gone")

    monkeypatch.setattr(Ranks, "told", gone)
    with pytest.raises(CostReached), leading(Ranks(0, 2), None):  # type: ignore[arg-type]
        raise CostReached(1.0)


@pytest.mark.parametrize(
    ("said", "recipes", "own"), [(6.0, None, 3.0), (6.0, 2.0, 1.0), (None, 2.0, 1.0), (6.0, 0, 0)]
)
def test_processes_share_the_money(
    said: float | None,
    recipes: float | None,
    own: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def opened(recipe: object, data: object, out: object, models: object, most: float) -> None:
        raise PeersError(str(most))

    monkeypatch.setattr("conductor_build.lm.ranks.joined", lambda: nullcontext(Ranks(1, 2)))
    monkeypatch.setattr("conductor_build.lm.setting.opened", opened)
    asked = Asked(tmp_path, tmp_path, tmp_path, tmp_path, max_cost_usd=said)
    with pytest.raises(PeersError) as caught:
        command._train(replace(RECIPE, max_cost_usd=recipes), asked, tmp_path)
    assert float(str(caught.value)) == own


def test_without_a_launcher_a_process_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as ranks:
        assert ranks == Ranks()
