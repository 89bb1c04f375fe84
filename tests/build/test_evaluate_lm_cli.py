"""`conductor-build evaluate --recipe`: what may be judged, what is refused, what is left behind.

The model is a small random one on disk, the workers are simulated: nothing is fetched or called.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from conductor.planner.manifest import Provenance
from conductor.process.keyfiles import public_pem
from conductor_build.cli import conductor_build
from conductor_build.lm.checkpoint import Opened, Prompting
from conductor_build.lm.export import Wanted, export_lm
from conductor_build.lm.quantise import Scheme
from conductor_build.lm.recipefile import load_lm_recipe
from conductor_build.report import write
from support.bundles import KEY
from support.lmexports import loaded, write_model

RECIPE = """
kind: lm
base: {{source: {base}, examples: 0}}
tasks: [{task}]
pool:
  kind: simulated
  workers:
    - {{name: cheap, skill: {{general: 0.3}}, usd_per_mtok: 0.1}}
    - {{name: able, skill: {{general: 0.9}}, usd_per_mtok: 3.0}}
draw: {{fixed: 0.5, pool: [2, 2], weights: [0.01, 0.5], max_steps: [2, 2]}}
stages:
  - {{name: learn, iterations: 2, prompts: 1, group: 2, max_tokens: 8, learning_rate: 0.001}}
held_out: {{share: 0.3, games: 4, parsing: 2}}
"""
SKETCHES = "{kind: sketches, size: 60}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def recipe(model: Path) -> Path:
    path = model.parent / "recipe.yaml"
    path.write_text(RECIPE.format(base=model, task=SKETCHES))
    return path


@pytest.fixture(scope="module")
def made(model: Path, recipe: Path) -> Path:
    """A bundle of the untrained model, said to be trained by the recipe; its key is beside it."""
    return bundle(model, recipe, model.parent / "bundle")


def bundle(model: Path, recipe: Path, out: Path, scheme: Scheme | None = None) -> Path:
    origin = Provenance(load_lm_recipe(recipe).plain(), {}, 0, {}, {})
    opened = Opened(replace(loaded(model), name="small"), Prompting(0), origin, {})
    export_lm(opened, out, Wanted(quantise=scheme, compared=0), KEY)
    out.with_suffix(".pub").write_bytes(public_pem(KEY.public_key()))
    return out


@pytest.fixture(autouse=True)
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the rest."""
    if "picture" not in request.node.name:
        monkeypatch.setattr(write, "frontier_png", lambda evaluation: b"")


def run(path: Path, recipe: Path, out: Path, *more: str | Path) -> Result:
    quick = ["--draws", "20", "--choosing", "6", "--lambda", "0.1"]
    told = [path, "--recipe", recipe, "--out", out, *quick, *more]
    if path.with_suffix(".pub").exists():
        told += ["--key", path.with_suffix(".pub")]
    result = CliRunner().invoke(conductor_build, ["evaluate", *map(str, told)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def report(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "report.json").read_bytes())
    return read


def test_a_bundle_is_judged_beside_every_baseline_with_a_picture(
    made: Path, recipe: Path, tmp_path: Path
) -> None:
    result = run(made, recipe, tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "SIMULATED" in result.stdout and "| **conductor** |" in result.stdout
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "SIMULATED" in (tmp_path / "report.md").read_text()
    found = report(tmp_path)
    assert found["simulated"] is True
    assert sum(pool["n"] for pool in found["pools"]) == 4
    policies = {row["policy"] for row in found["rows"]}
    assert policies >= {"conductor", "zero_shot", "best_single", "best_of_n", "fan_out", "oracle"}
    assert (
        found["provenance"]["conductor"] and "never trained on" in found["provenance"]["held_out"]
    )


def test_an_untrained_model_is_as_good_as_itself(made: Path, recipe: Path, tmp_path: Path) -> None:
    """The bundle holds the recipe's base as it is: prompt, mask and games are the same for both."""
    run(made, recipe, tmp_path)
    for drawn in report(tmp_path)["drawn"]:
        assert drawn["differences"]["zero_shot"]["utility"]["interval"] == [0.0, 0.0]


def test_a_quantised_bundle_is_judged_in_its_fewer_bits(
    model: Path, recipe: Path, tmp_path: Path
) -> None:
    small = bundle(model, recipe, tmp_path / "small", Scheme("int8"))
    assert run(small, recipe, tmp_path / "out", "--games", "2").exit_code == 0
    assert report(tmp_path / "out")["provenance"]["precision"] == "int8"


def test_a_training_is_judged_when_it_is_through_and_before(recipe: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "trained", tmp_path / "out"
    told = ["train", recipe, "--out", folder, "--seed", "5"]
    trained = CliRunner().invoke(conductor_build, list(map(str, told)))
    assert trained.exit_code == 0, trained.output
    assert run(folder, recipe, out, "--games", "2").exit_code == 0
    through = report(out)
    assert through["provenance"]["recipe_seed"] == 5, "that of the training"
    (folder / "policy.pt").unlink()
    assert run(folder, recipe, out, "--games", "2").exit_code == 0
    before = report(out)
    assert "after iteration 2 of 2" in before["provenance"]["conductor"]
    assert before["rows"] == through["rows"]
    (folder / "checkpoint.pt").unlink()
    refused(run(folder, recipe, tmp_path / "none"), tmp_path / "none", "no checkpoint yet")


def test_a_model_of_unknown_origin_is_judged_and_the_report_says_so(
    model: Path, recipe: Path, tmp_path: Path
) -> None:
    assert run(model, recipe, tmp_path, "--games", "2").exit_code == 0
    assert report(tmp_path)["provenance"]["held_out"].startswith("not known")


# -- what is refused ------------------------------------------------------------------------------


def refused(result: Result, out: Path, words: str, code: int = 1) -> None:
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr and "Traceback" not in result.stderr
    assert not (out / "report.json").exists()


def test_a_conductor_that_may_know_the_questions_is_refused_unless_told_otherwise(
    made: Path, recipe: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(recipe.read_text().replace("share: 0.3", "share: 0.4"))
    out = tmp_path / "out"
    refused(run(made, other, out), out, "--allow-seen")
    assert run(made, other, out, "--allow-seen", "--games", "2").exit_code == 0
    assert "NOT A FAIR JUDGEMENT" in report(out)["provenance"]["held_out"]


def test_a_bundle_of_another_maker_is_refused(made: Path, recipe: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(made, tmp_path / "copy")
    refused(run(copied, recipe, tmp_path), tmp_path, "--key")


def test_a_path_with_nothing_is_refused(recipe: Path, tmp_path: Path) -> None:
    refused(run(tmp_path / "none", recipe, tmp_path), tmp_path, "nothing to judge")


def test_without_its_recipe_a_language_model_is_told_what_it_needs(
    made: Path, tmp_path: Path
) -> None:
    told = [made, "--data", tmp_path, "--out", tmp_path, "--key", made.with_suffix(".pub")]
    result = CliRunner().invoke(conductor_build, ["evaluate", *map(str, told)])
    refused(result, tmp_path, "--recipe")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["--recipe", "R", "--calibration", "9"], "--calibration is for pocket conductors"),
        (["--recipe", "R", "--local-only"], "--local-only is for pocket conductors"),
        (["--data", "D", "--games", "3"], "--games is for language models"),
        (["--data", "D", "--max-cost-usd", "3"], "--max-cost-usd is for language models"),
        ([], "--data is needed"),
    ],
)
def test_options_of_the_other_kind_are_refused(told: list[str], words: str, tmp_path: Path) -> None:
    command = ["evaluate", "B", "--out", str(tmp_path), *told]
    result = CliRunner().invoke(conductor_build, command)
    assert result.exit_code == 2
    assert words in result.stderr


# -- what is left out -----------------------------------------------------------------------------


def test_no_question_of_a_file_is_in_the_report(model: Path, tmp_path: Path) -> None:
    lines = [{"question": f"Secretly, what is {n} plus 1?", "answer": n + 1} for n in range(40)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(base=model, task="{kind: jsonl, file: questions.jsonl}"))
    out = tmp_path / "out"
    result = run(model, recipe, out, "--data", tmp_path, "--games", "2")
    assert result.exit_code == 0, result.stderr
    assert report(out)["plans"] and "plans" in report(out)["plans"][0]
    for told in (result.stdout, result.stderr, *(path.read_text() for path in out.glob("*.[jm]*"))):
        assert "Secretly" not in told
