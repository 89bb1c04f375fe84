"""What a training will take is told before anything is spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor_build.cli import conductor_build
from conductor_build.lm.base import BaseError
from conductor_build.lm.estimate import KNOWN, Figure, estimate, shape_of
from conductor_build.lm.recipe import LmRecipe
from conductor_build.lm.recipefile import load_lm_recipe
from support.lmgames import workers

RECIPES = Path(__file__).parents[2] / "configs" / "recipes"


def figures(recipe: LmRecipe) -> dict[str, Figure]:
    return {one.name: one for one in estimate(recipe, shape_of(recipe.base.source), workers())}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("lm-*.yaml")), ids=lambda path: path.stem)
def test_a_dry_run_of_every_recipe_writes_nothing(path: Path, tmp_path: Path) -> None:
    asked = ["train", str(path), "--data", str(RECIPES.parents[1]), "--dry-run",
             "--out", str(tmp_path / "out")]  # fmt: skip
    said = CliRunner().invoke(conductor_build, asked)
    assert said.exit_code == 0, said.output
    for name in ("memory", "episodes", "worker calls", "money", "model time"):
        assert name in said.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "millions"),
    [("smollm2-135m", 134.5), ("qwen2.5-coder-0.5b", 494), ("Qwen2.5-7B-Instruct", 7615)],
)
def test_weights_are_counted_as_their_makers_count_them(name: str, millions: float) -> None:
    assert KNOWN[name].weights / 1e6 == pytest.approx(millions, rel=0.005)


def test_adapters_are_counted_as_peft_makes_them() -> None:
    """Rank 8 over all linear layers of a 7B: 20.2 million, as `print_trainable_parameters` says."""
    assert KNOWN["Qwen2.5-7B-Instruct"].adapter(8) == 20_185_088


def test_a_folder_is_measured_by_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, '
        '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 49152, '
        '"tie_word_embeddings": true}'
    )
    assert shape_of(str(tmp_path)) == KNOWN["tiny"]
    with pytest.raises(BaseError, match=r"config\.json"):
        shape_of(str(tmp_path / "none"))


def test_money_is_calls_times_price_and_simulated_workers_cost_none() -> None:
    live = load_lm_recipe(RECIPES / "lm-7b.yaml")
    found = figures(live)
    usd = (250 * 0.1 + 400 * 0.2) / 1e6
    assert found["money"].value == pytest.approx(found["worker calls"].value * usd)
    assert figures(load_lm_recipe(RECIPES / "lm-tiny.yaml"))["money"].value == 0.0


def test_more_plans_and_longer_prompts_take_more() -> None:
    recipe = load_lm_recipe(RECIPES / "lm-7b.yaml")
    stage = recipe.stages[0]
    doubled = replace(stage, objective=replace(stage.objective, group=128))
    less, more = figures(recipe), figures(replace(recipe, stages=(doubled,)))
    for name in ("episodes", "memory", "model time", "worker calls"):
        assert more[name].value > less[name].value, name
    short = replace(recipe, base=replace(recipe.base, examples=0))
    assert figures(short)["prompt tokens"].value < less["prompt tokens"].value
