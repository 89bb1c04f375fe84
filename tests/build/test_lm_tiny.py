"""The tiny recipe from the command line: reward rises within seconds; what a recipe opens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor.plan.language import Access, Plan, Step
from conductor_build.cli import conductor_build
from conductor_build.curves import read_as
from conductor_build.live.accounts import Account
from conductor_build.live.executed import Executed
from conductor_build.lm import pools
from conductor_build.lm.draw import Dealer, Ground, Purpose
from conductor_build.lm.episodes import Players
from conductor_build.lm.progress import LmLine
from conductor_build.lm.recipe import Draw, HeldOut, LmRecipe, PoolUse, Rounds, TaskUse
from conductor_build.lm.recipefile import load_lm_recipe
from conductor_build.lm.setting import SettingError, named_tasks, split
from conductor_build.tasks.recorded import RecordedTask
from support.lmparts import MODELS
from support.outcomes import generated

TINY = Path(__file__).parents[2] / "configs" / "recipes" / "lm-tiny.yaml"


def test_the_tiny_recipe_learns_within_seconds(tmp_path: Path) -> None:
    asked = ["train", str(TINY), "--out", str(tmp_path / "out"), "--models-dir", str(MODELS)]
    said = CliRunner().invoke(conductor_build, asked)
    assert said.exit_code == 0, said.output
    course = [line.reward or 0.0 for line in read_as(LmLine, tmp_path / "out")]
    assert sum(course[-3:]) > sum(course[:3]) + 0.6
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["simulated"] is True
    gain = report["whole_pool"]["gains"]["untrained"]
    assert gain["mean"] > 0.1 and gain["low"] > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--out", "x", "--base", "tiny"], "--base is for recipes of the kind lm"),
        (["--out", "x", "--dry-run"], "--dry-run is for recipes of the kind lm"),
        (["--out", "x"], "--data is needed"),
        ([], "--out is needed"),
    ],
)
def test_what_a_pocket_recipe_cannot_use_is_refused(options: list[str], told: str) -> None:
    said = CliRunner().invoke(
        conductor_build, ["train", str(TINY.with_name("pocket.yaml")), *options]
    )
    assert said.exit_code == 2
    assert told in said.output


def tiny(**changes: object) -> LmRecipe:
    return replace(load_lm_recipe(TINY), **changes)  # type: ignore[arg-type]


def test_questions_are_split_in_three_that_share_none() -> None:
    recipe = tiny()
    parts = split(recipe, named_tasks(recipe, Path()))
    asked = [{task[i].question for task, _ in part for i in range(len(task))} for part in parts]
    assert len(asked[0]) > 500 and len(asked[1]) > 40 and len(asked[2]) > 40
    assert not asked[0] & asked[1] and not asked[0] & asked[2] and not asked[1] & asked[2]


def test_too_few_questions_to_split_are_refused() -> None:
    recipe = tiny(tasks=(TaskUse("sketches", "few", size=4),), held_out=HeldOut(share=0.1))
    with pytest.raises(SettingError, match="too few questions"):
        split(recipe, named_tasks(recipe, Path()))


def test_tasks_bring_their_shares_sizes_and_kinds() -> None:
    uses = (
        TaskUse("sketches", "one", share=2.0, size=70, of=("dates",)),
        TaskUse("sketches", "two", size=140),
    )
    recipe = tiny(tasks=uses, held_out=HeldOut(share=0.3))
    tasks = named_tasks(recipe, Path())
    assert [len(task) for _, task in tasks] == [70, 140]
    assert {task.domain(task[i]) for _, task in tasks[:1] for i in range(70)} == {"dates"}
    assert [share for _, share in split(recipe, tasks)[0]] == [2.0, 1.0]


def test_workers_sample_as_the_recipe_says_and_cards_are_as_well_measured(tmp_path: Path) -> None:
    pool = replace(tiny().pool, temperature=0.7, max_tokens=50, card_outcomes=2)
    recipe = tiny(pool=pool)
    tasks = named_tasks(recipe, Path())
    with pools.opened(recipe, tasks, (), Path(), tmp_path, Account()) as opened:
        assert isinstance(opened.environment, Executed)
        assert opened.environment.sampling.temperature == 0.7
        assert opened.environment.sampling.max_tokens == 50
        skills = {one for worker in opened.workers for one in worker.card.skill.values()}
    assert skills <= {0.0, 0.5, 1.0}, "of two questions each"


def test_only_named_workers_are_taken_and_unknown_ones_refused(tmp_path: Path) -> None:
    configs = TINY.parents[1]
    everybody = pools.live_workers(PoolUse("live", configs="configs"), configs.parent)
    first = everybody[0].id
    use = PoolUse("live", configs="configs", only=(first,), in_flight=1)
    (worker,) = pools.live_workers(use, configs.parent)
    assert (worker.id, worker.limits.max_in_flight) == (first, 1)
    with pytest.raises(pools.PoolError, match="nobody"):
        pools.live_workers(replace(use, only=("nobody",)), configs.parent)


def test_a_recorded_worker_without_a_price_is_refused_by_name(tmp_path: Path) -> None:
    made, _ = generated(40)
    unpriced = replace(made.workers[1], usd_out_per_mtok=float("nan"))
    made = replace(made, workers=(made.workers[0], unpriced, *made.workers[2:]))
    task, use = RecordedTask(made), TaskUse("recorded", "t", path="t")
    recipe = tiny(pool=PoolUse("recorded", folder="t"), tasks=(use,), held_out=HeldOut(share=0.5))
    training = split(recipe, [(use, task)])[0]
    with pytest.raises(pools.PoolError, match=f"no price is recorded of {made.names[1]}:"):
        with pools.opened(recipe, [(use, task)], training, Path(), tmp_path, Account()):
            pass


def test_recorded_workers_have_cards_of_training_questions_and_answer_from_the_records(
    tmp_path: Path,
) -> None:
    made, _ = generated(40)
    task = RecordedTask(made)
    use = TaskUse("recorded", "t", path="t")
    recipe = tiny(pool=PoolUse("recorded", folder="t"), tasks=(use,), held_out=HeldOut(share=0.5))
    training = split(recipe, [(use, task)])[0]
    with pools.opened(recipe, [(use, task)], training, Path(), tmp_path, Account()) as opened:
        assert not opened.environment.simulated
        assert [worker.id for worker in opened.workers] == list(made.names)
        known = training[0][0]
        rows = [made.prompts.index(known[place].key) for place in range(len(known))]
        assert opened.workers == pools.recorded_workers(RecordedTask(made.rows(rows)), known)
        dealer = Dealer(Ground(training, opened.workers), Draw(fixed=1.0), Rounds(), 0)
        games = dealer.games(Purpose.TRAINING, 0, 6)
        with Players(opened.environment) as players:
            plan = Plan((Step(1, Access(question=True)),))
            outcomes = players.play_plans(games, [plan] * 6)
    for game, outcome in zip(games, outcomes, strict=True):
        recorded = made.score[made.prompts.index(game.example.key), 1]
        assert outcome.quality == pytest.approx(float(recorded)), "an answer that others gave too"
