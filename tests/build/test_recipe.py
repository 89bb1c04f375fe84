"""Recipes: the shipped one loads, and whatever is wrong in one is told with its place."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from conductor.errors import ConfigError
from conductor.planner.encoderfiles import known_encoders
from conductor.workers.catalogue import load_catalogue
from conductor_build.environment import Draw
from conductor_build.grpo import Objective
from conductor_build.recipe import Recipe, load_recipe

SHIPPED = Path(__file__).parents[2] / "configs" / "recipes" / "pocket.yaml"
LEAST = """\
tables:
  - folder: mine
stages:
  - name: learn
    method: grpo
    iterations: 10
"""


def load(folder: Path, text: str) -> Recipe:
    path = folder / "r.yaml"
    path.write_text(text)
    return load_recipe(path)


def faults(folder: Path, text: str) -> list[str]:
    """Line, column and code of each."""
    with pytest.raises(ConfigError) as raised:
        load(folder, text)
    return [f"{fault.line}:{fault.column} {fault.code}" for fault in raised.value.faults]


def test_the_shipped_recipe_loads_and_its_encoder_is_in_the_catalogue() -> None:
    recipe = load_recipe(SHIPPED)
    assert [use.folder for use in recipe.tables] == ["reasoning", "open9"]
    assert len(recipe.tables[0].pool) == 11
    assert recipe.evaluation.pools[0].workers == recipe.tables[0].pool
    assert recipe.iterations > 0
    assert recipe.encoder in known_encoders(load_catalogue()).values()


def test_the_shipped_recipe_documents_the_defaults_as_they_are(tmp_path: Path) -> None:
    least, text = load(tmp_path, LEAST), SHIPPED.read_text()
    told = dict(re.findall(r"^ *(\w+): .*# .*?Default:? (\S.*)$", text, re.MULTILINE))
    stages = dict(re.findall(r"^#  +([a-z_0-9]+) ([\d.]+|batch)\b", text, re.MULTILINE))
    weights, objective = least.stages[0].objective.weights, least.stages[0].objective
    for one in fields(Draw):
        default = getattr(least.draw, one.name)
        spelled = list(default) if isinstance(default, tuple) else default
        assert told[one.name] == str(spelled), one.name
    for one in fields(Objective):
        if one.name not in ("method", "weights"):
            assert stages[one.name] == str(getattr(objective, one.name)), one.name
    assert stages["worst"] == str(-weights.floor)
    assert stages["per_round"] == str(weights.per_round)
    assert told["hidden"] == str(least.hidden)
    assert told["threads"] == str(least.threads)
    assert told["folds"] == str(least.evaluation.folds)
    assert told["warmup"] == str(least.schedule.warmup)
    assert told["end"] == str(least.schedule.end)


def test_everything_that_is_left_out_has_its_default(tmp_path: Path) -> None:
    recipe = load(tmp_path, LEAST)
    assert recipe.draw == Draw()
    assert recipe.stages[0].objective == Objective()
    assert recipe.tables[0].name == "mine"
    assert recipe.tables[0].pool_share == 0.5
    assert recipe.evaluation.lambdas == (0.01, 0.03, 0.1, 0.3, 1.0)


def test_stages_keep_their_order_and_their_own_numbers(tmp_path: Path) -> None:
    text = LEAST + "  - {name: last, method: reinforce, iterations: 5, learning_rate: 0.01,"
    text += " reward: {per_round: 0.01, worst: 0.5}}\n"
    first, last = load(tmp_path, text).stages
    assert (first.name, last.name) == ("learn", "last")
    assert last.objective.method == "reinforce"
    assert last.objective.learning_rate == 0.01
    assert last.objective.weights.floor == -0.5
    assert first.objective.weights.per_round == 0.0


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (LEAST + "sede: 1\n", ["7:1 unknown-key"]),
        (LEAST + "seed: 1\nseed: 2\n", ["8:1 duplicate-key"]),
        (LEAST + "seed: -1\n", ["7:7 wrong-kind"]),
        (LEAST + "threads: 0\n", ["7:10 bad-value"]),
        (LEAST + "ensemble: 99\n", ["7:11 bad-value"]),
        (LEAST + "draw: {pool: 1}\n", ["7:14 bad-value"]),
        (LEAST + "draw: {weights: [0.1]}\n", ["7:17 bad-value"]),
        (LEAST + "draw: {weights: [2, 1]}\n", ["7:17 bad-value"]),
        (LEAST + "draw: {max_calls: [1.5, 2]}\n", ["7:20 wrong-kind"]),
        (LEAST + "draw: {size: 3}\n", ["7:8 unknown-key"]),
        (LEAST + "network: {width: 3}\n", ["7:11 unknown-key"]),
        (LEAST + "    lr: 0.1\n", ["7:5 unknown-key"]),
        (LEAST + "    clip: 0.0\n", ["7:11 bad-value"]),
        (LEAST + "    scale: none\n", ["7:12 bad-value"]),
        (LEAST + "    group: 1\n", ["7:12 bad-value"]),
        (LEAST + "    reward: {floor: 1}\n", ["7:14 unknown-key"]),
        (LEAST + "  - {name: learn, method: grpo, iterations: 1}\n", ["7:12 duplicate-id"]),
        (
            LEAST + "  - {name: w, method: imitate, iterations: 1, clip: 0.2}\n",
            ["7:47 unknown-key"],
        ),
        (LEAST.replace("grpo", "ppo"), ["5:13 bad-value"]),
        (LEAST.replace("iterations: 10", "iterations: 0"), ["6:17 bad-value"]),
        (LEAST.replace("    iterations: 10\n", ""), ["4:5 missing-key"]),
        (LEAST.replace("folder: mine", "folder: ../mine"), ["2:13 bad-value"]),
        (LEAST.replace("folder: mine", "{folder: mine, pool: [a, a]}"), ["2:26 duplicate-id"]),
        (LEAST.replace("folder: mine", "{folder: mine, pool: [a]}"), ["2:26 bad-value"]),
        ("tables: []\n" + LEAST.partition("mine\n")[2], ["1:9 bad-value"]),
        (LEAST.partition("stages")[0], ["1:1 missing-key"]),
        (LEAST + "seed: 1\ndraw: 3\nthreads: x\n", ["8:7 wrong-kind", "9:10 wrong-kind"]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, changed: str, told: list[str]
) -> None:
    assert faults(tmp_path, changed) == told


def test_the_digest_hangs_on_what_the_weights_hang_on(tmp_path: Path) -> None:
    plain = load(tmp_path, LEAST).sha256()
    same = "# a comment\n" + LEAST + "seed: 0\ncheckpoints: {seconds: 5}\nevaluation: {folds: 3}\n"
    assert load(tmp_path, same).sha256() == plain
    for change in ("seed: 1", "threads: 2", "draw: {refused: 0.2}", "network: {hidden: 8}"):
        assert load(tmp_path, LEAST + change + "\n").sha256() != plain
