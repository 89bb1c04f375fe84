"""Plays on Ray actors: what they come to, and what comes of actors that die. One small cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from conductor.core import PlanRequest
from conductor.plan.language import Access, Plan, Step
from conductor_build.live.accounts import CostReached
from conductor_build.live.environment import Outcome, Session
from conductor_build.live.game import Game
from conductor_build.lm.draw import Purpose
from conductor_build.lm.episodes import Players, Sampling, roll_out
from conductor_build.lm.raycluster import Cluster, RayError, running
from conductor_build.lm.rayrollouts import LATE, LOST, Crew, RayEnvironment
from conductor_build.lm.recipe import Rounds
from support import lmgames, lmparts

PLANS = [Plan((Step(worker, Access(question=True)),)) for worker in range(lmgames.WORKERS)]
CREW = Crew(actors=2, in_flight=2, cpus=0.5, play_timeout_s=30)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # Sockets are made under the folder, so its path must be short; actors find `support` by the
    # environment, as they would find whatever else is installed on a node.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="r") as folder:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        before = {one.pid for one in psutil.Process().children(recursive=True)}
        with running(Cluster(cpus=1), Path(folder)):
            yield
        left = [one for one in psutil.Process().children() if one.pid not in before]
        assert not left, "Ray leaves no process behind"


@pytest.fixture(scope="module")
def environment(cluster: None) -> Iterator[RayEnvironment]:
    found = RayEnvironment(Fragile, CREW)
    yield found
    found.close()


def deal(count: int, rounds: Rounds | None = None) -> tuple[Game, ...]:
    return lmparts.dealer(rounds).games(Purpose.TRAINING, 0, count)


class Fragile(lmgames.Stand):
    """Its process dies when a flag is there, or stops answering; or money runs out."""

    def open(self, game: Game) -> Session:
        return _Fragile(super().open(game), game)


class _Fragile:
    def __init__(self, inner: Session, game: Game) -> None:
        self._inner, self._flag = inner, Path(game.request.request_id)

    async def play(self, plan: Plan, look: bool) -> PlanRequest | None:
        if self._flag.name == "money":
            raise CostReached(1.5)
        if self._flag.name == "late":
            await asyncio.sleep(60)
        if self._flag.exists():
            if self._flag.name == "once" and not look:
                self._flag.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            if self._flag.name == "always":
                os.kill(os.getpid(), signal.SIGKILL)
        return await self._inner.play(plan, look)

    def outcome(self) -> Outcome:
        return self._inner.outcome()


def marked(game: Game, flag: Path) -> Game:
    """The game, with what it is to come across."""
    return replace(game, request=replace(game.request, request_id=str(flag)))


async def played(environment: Any, game: Game, looks: tuple[bool, ...]) -> Outcome:
    session = environment.open(game)
    for look in looks:
        request = await session.play(PLANS[0], look)
        assert (request is None) == (not look)
    outcome: Outcome = session.outcome()
    return outcome


def test_plays_come_to_what_they_come_to_in_this_process(environment: RayEnvironment) -> None:
    assert environment.simulated
    games, plans = deal(6), PLANS * 2
    with Players(environment) as there, Players(lmgames.Stand()) as here:
        assert there.play_plans(games, plans) == here.play_plans(games, plans)


def test_rollouts_of_the_tiny_model_are_those_of_this_process(environment: RayEnvironment) -> None:
    sampling, found = Sampling(2, max_tokens=16), []
    with lmparts.parts() as parts:
        for own in (environment, lmgames.Stand()):
            generator = torch.Generator().manual_seed(5)
            with Players(own) as players:
                games = deal(2, Rounds(share=1.0))
                rollout = roll_out(
                    parts.policy, parts.writer, players, games, sampling, generator
                )  # fmt: skip
            found.append([(one.turns, one.outcome) for one in rollout.episodes])
    assert found[0] == found[1]
    assert all(len(turns) == 2 for turns, _ in found[0]), "with the round that followed"


async def test_what_an_actor_held_when_it_died_is_played_again_from_its_first_round(
    environment: RayEnvironment, tmp_path: Path
) -> None:
    flag = tmp_path / "once"
    flag.touch()
    (game,), lost = deal(1, Rounds(share=1.0)), environment.lost
    outcome = await played(environment, marked(game, flag), (True, False))
    assert environment.lost == lost + 1
    assert outcome == await played(lmgames.Stand(), game, (True, False))
    assert outcome.rounds == 2


async def test_what_kills_two_actors_is_void_and_the_others_are_not(
    environment: RayEnvironment, tmp_path: Path
) -> None:
    flag = tmp_path / "always"
    flag.touch()
    bad, good = deal(2)
    outcome = await played(environment, marked(bad, flag), (False,))
    assert (outcome.quality, outcome.void) == (None, LOST)
    assert await played(environment, good, (False,)) == await played(
        lmgames.Stand(), good, (False,)
    )


async def test_a_play_that_does_not_end_is_void(environment: RayEnvironment) -> None:
    (game,), hasty = deal(1), RayEnvironment(Fragile, Crew(cpus=0, play_timeout_s=0.5))
    outcome = await played(hasty, marked(game, Path("late")), (False,))
    assert (outcome.quality, outcome.void) == (None, LATE)
    hasty.close()


async def test_what_an_actor_raises_is_raised_here(environment: RayEnvironment) -> None:
    (game,) = deal(1)
    with pytest.raises(CostReached, match=r"1\.5 USD"):
        await played(environment, marked(game, Path("money")), (False,))


async def test_no_more_plays_are_in_flight_than_the_crew_holds(
    environment: RayEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, now = 0, 0
    real = RayEnvironment.played

    async def counted(self: RayEnvironment, *asked: Any) -> Any:
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            return await real(self, *asked)
        finally:
            now -= 1

    monkeypatch.setattr(RayEnvironment, "played", counted)
    await asyncio.gather(*(played(environment, game, (False,)) for game in deal(12)))
    assert most == CREW.actors * CREW.in_flight


def test_a_crew_that_no_node_has_room_for_is_refused(cluster: None) -> None:
    with pytest.raises(RayError, match="ask for fewer"):
        RayEnvironment(lmgames.Stand, Crew(cpus=64, start_timeout_s=1))


def test_one_process_uses_one_cluster_at_a_time(cluster: None, tmp_path: Path) -> None:
    with pytest.raises(RayError, match="already"), running(Cluster(), tmp_path):
        pass


def test_a_session_that_has_not_ended_has_no_outcome(environment: RayEnvironment) -> None:
    with pytest.raises(RuntimeError):
        environment.open(deal(1)[0]).outcome()
