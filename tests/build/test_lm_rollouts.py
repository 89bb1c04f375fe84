"""Where a recipe's plans are played changes nothing of what comes of them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from conductor.plan.language import Access, Plan, Step
from conductor_build.live.environment import Outcome
from conductor_build.lm.draw import Dealer, Purpose
from conductor_build.lm.episodes import Players
from conductor_build.lm.recipe import LmRecipe, Rollouts
from conductor_build.lm.recipefile import load_lm_recipe
from conductor_build.lm.setting import opened

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]
TINY = load_lm_recipe(ROOT / "configs" / "recipes" / "lm-tiny.yaml")
PLANS = [Plan((Step(place % 2, Access(question=True)),)) for place in range(16)]


def outcomes(recipe: LmRecipe, out: Path) -> list[Outcome]:
    """What comes of short plans in the first games of a recipe."""
    with opened(recipe, ROOT, out, ROOT / "var" / "models") as setting:
        dealer = Dealer(setting.training, recipe.draw, recipe.rounds, recipe.seed)
        games = dealer.games(Purpose.TRAINING, 0, len(PLANS))
        with Players(setting.environment, setting.close) as players:
            found = players.play_plans(games, PLANS)
    return [replace(outcome, seconds=0.0) for outcome in found]


def test_the_tiny_recipe_is_played_on_a_ray_cluster_as_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    before = {one.pid for one in psutil.Process().children()}
    here = outcomes(TINY, tmp_path)
    there = outcomes(replace(TINY, rollouts=Rollouts(actors=2, in_flight=2)), tmp_path)
    assert here == there
    assert {outcome.quality for outcome in here} == {0.0, 1.0}
    left = {one.pid for one in psutil.Process().children()} - before
    assert not left, "neither actors nor servers are left"


def test_who_plays_is_no_part_of_what_a_recipe_is() -> None:
    assert replace(TINY, rollouts=Rollouts(actors=3)).sha256() == TINY.sha256()
