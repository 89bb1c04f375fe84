"""Recipes of LM conductors: the shipped ones tell the truth, faults are told with their place."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from conductor.errors import ConfigError
from conductor_build.lm import recipe as values
from conductor_build.lm.recipe import Adapter, LmRecipe, Objective, PoolUse
from conductor_build.lm.recipefile import kind_of, load_lm_recipe
from conductor_build.lm.schedule import rate, stage_at
from conductor_build.reward import Terms

RECIPES = Path(__file__).parents[2] / "configs" / "recipes"
SHIPPED = RECIPES / "lm-smollm2.yaml"
LEAST = """\
kind: lm
base: {source: tiny}
tasks: [{kind: sketches}]
pool: {kind: simulated, workers: [{name: a, skill: {general: 0.5}}, {name: b, skill: {code: 1}}]}
stages: [{name: learn}]
"""


def load(folder: Path, text: str) -> LmRecipe:
    path = folder / "r.yaml"
    path.write_text(text)
    return load_lm_recipe(path)


def faults(folder: Path, text: str) -> list[str]:
    """Line, column and code of each."""
    with pytest.raises(ConfigError) as raised:
        load(folder, text)
    return [f"{fault.line}:{fault.column} {fault.code}" for fault in raised.value.faults]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("lm-*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_loads(path: Path) -> None:
    recipe = load_lm_recipe(path)
    assert kind_of(path) == "lm"
    assert recipe.iterations > 0


def test_a_recipe_without_a_kind_is_the_pocket_conductors() -> None:
    assert kind_of(RECIPES / "pocket.yaml") == "pocket"


def test_the_recipes_for_7b_follow_the_published_method() -> None:
    full = load_lm_recipe(RECIPES / "lm-7b.yaml")
    small = load_lm_recipe(RECIPES / "lm-7b-lora-1gpu.yaml")
    for recipe, learning_rate in ((full, 1e-6), (small, 1e-5)):
        objective = recipe.stages[0].objective
        assert recipe.driver == "trl" and recipe.reward == Terms("paper")
        assert (objective.iterations, objective.prompts, objective.group) == (200, 4, 64)
        assert (objective.temperature, objective.max_tokens) == (1.0, 1024)
        assert objective.learning_rate == learning_rate
    assert full.lora is None and small.lora is not None


def test_the_shipped_recipe_documents_the_defaults_as_they_are(tmp_path: Path) -> None:
    least, text = load(tmp_path, LEAST), SHIPPED.read_text()
    told = dict(re.findall(r"^ *(\w+): .*# .*?Default:? (\S.*?)\.?$", text, re.MULTILINE))
    stages = dict(re.findall(r"^#   ([a-z_]+) +([\d.]+|group|token|prompt)\b", text, re.MULTILINE))
    parts: list[Any] = [
        least.draw, least.rounds, least.warm_start, least.schedule, least.held_out,
        least.checkpoints,
    ]  # fmt: skip
    shared = {"games", "prompts", "learning_rate", "max_gradient", "through", "share", "iterations"}
    for one in parts:
        for name in (each.name for each in fields(one)):
            if name not in shared:
                assert told[name] == spelled(getattr(one, name)), name
    for name in (one.name for one in fields(Objective)):
        assert float_or(stages[name]) == getattr(least.stages[0].objective, name), name
    for name in ("temperature", "max_tokens", "card_outcomes"):
        assert told[name] == str(getattr(PoolUse("simulated"), name))
    assert told["rank"] == str(Adapter().rank) and told["alpha"] == str(Adapter().alpha)
    assert told["threads"] == str(least.threads) and told["driver"] == least.driver


def spelled(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def float_or(text: str) -> float | str:
    return float(text) if re.fullmatch(r"[\d.]+", text) else text


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (LEAST + "sede: 1\n", ["6:1 unknown-key"]),
        (LEAST.replace("kind: lm", "kind: pocket"), ["1:7 bad-value"]),
        (LEAST.replace("kind: sketches", "kind: riddles"), ["3:16 bad-value"]),
        (LEAST.replace("sketches}", "sketches, file: a}"), ["3:26 unknown-key"]),
        (LEAST.replace("sketches}", "jsonl, file: /etc/passwd}"), ["3:29 bad-value"]),
        (LEAST.replace("sketches}", "jsonl, file: a/../b}"), ["3:29 bad-value"]),
        (LEAST.replace("sketches}", "gym}"), ["3:9 missing-key"]),
        (LEAST.replace("sketches}]", "sketches}, {kind: sketches}]"), ["3:27 duplicate-id"]),
        (LEAST.replace("sketches", "recorded, folder: x"), ["3:8 bad-value"]),
        (LEAST.replace("name: b", "name: a"), ["4:76 duplicate-id"]),
        (LEAST.replace("{general: 0.5}", "{general: 1.5}"), ["4:62 bad-value"]),
        (LEAST.replace("{general: 0.5}", "{}"), ["4:52 bad-value"]),
        (LEAST.replace("simulated, w", "simulated, only: [a], w"), ["4:25 unknown-key"]),
        (LEAST.replace("learn}", "learn, group: 1}"), ["5:31 bad-value"]),
        (LEAST.replace("learn}", "learn, scale: none}"), ["5:31 bad-value"]),
        (LEAST.replace("learn}", "learn, lr: 0.1}"), ["5:24 unknown-key"]),
        (LEAST + "lora: {rank: 0}\n", ["6:14 bad-value"]),
        (LEAST + "reward: {form: points}\n", ["6:16 bad-value"]),
        (LEAST + "draw: {weights: [2, 1]}\n", ["6:17 bad-value"]),
        (LEAST + "draw: {pool: [3, 4]}\n", ["6:7 bad-value"]),
        (LEAST + "held_out: {share: 0}\n", ["6:19 bad-value"]),
        (LEAST + "driver: gpu\nbase_dtype: x\n", ["6:9 bad-value", "7:1 unknown-key"]),
        (LEAST.replace("tiny}", "tiny, dtype: int8}"), ["2:29 bad-value"]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, changed: str, told: list[str]
) -> None:
    assert faults(tmp_path, changed) == told


def test_a_pool_larger_than_a_plan_can_name_is_refused(tmp_path: Path) -> None:
    many = ", ".join(f"{{name: w{place}, skill: {{general: 0.5}}}}" for place in range(257))
    text = re.sub(r"workers: \[.*\]\}", f"workers: [{many}]}}", LEAST)
    assert faults(tmp_path, text) == ["4:34 bad-value"]


def test_the_digest_hangs_on_what_the_weights_hang_on(tmp_path: Path) -> None:
    plain = load(tmp_path, LEAST).sha256()
    same = "# a comment\n" + LEAST + "checkpoints: {seconds: 5}\nmax_cost_usd: 3\nseed: 0\n"
    assert load(tmp_path, same).sha256() == plain
    for change in (
        "seed: 1", "threads: 2", "lora: {rank: 4}", "draw: {fixed: 0.5}", "rounds: {share: 0.5}",
        "reward: {form: utility}", "warm_start: {games: 8}", "schedule: {end: 0.5}",
        "held_out: {every: 5}",
    ):  # fmt: skip
        assert load(tmp_path, LEAST + change + "\n").sha256() != plain


def test_the_learning_rate_rises_and_falls_in_warm_start_and_stages_apart(tmp_path: Path) -> None:
    text = LEAST.replace(
        "[{name: learn}]",
        "[{name: one, iterations: 10, learning_rate: 1}, {name: two, iterations: 10}]",
    )
    text += "warm_start: {games: 20, prompts: 2, epochs: 2, learning_rate: 0.5}\n"
    recipe = load(tmp_path, text + "schedule: {warmup: 0.2, end: 0.1}\n")
    assert recipe.warm_steps == 20
    rates = [rate(recipe, done) for done in range(recipe.iterations)]
    assert rates[0] < rates[3] == max(rates[:20]) <= 0.5
    assert rates[20] < rates[23] == max(rates[20:]) <= 1.0
    assert rates[19] == pytest.approx(0.05, rel=0.1)
    assert stage_at(recipe, 29).name == "one" and stage_at(recipe, 30).name == "two"
    with pytest.raises(IndexError):
        stage_at(recipe, 40)


def test_steps_of_the_warm_start_are_counted_whole(tmp_path: Path) -> None:
    recipe = load(tmp_path, LEAST + "warm_start: {games: 9, prompts: 4, epochs: 3}\n")
    assert recipe.warm_steps == 9
    assert recipe.iterations == 9 + values.Objective().iterations
