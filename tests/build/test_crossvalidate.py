"""Cross-validation of a recipe: no conductor is judged on what it, or a card, was made from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from conductor.planner import encoderfiles
from conductor.planner.bundle import Bundle, open_bundle
from conductor_build.baselines.plays import EvaluationError, Plays
from conductor_build.bootstrap import Estimate
from conductor_build.cli import conductor_build
from conductor_build.crossvalidate import Held, Settings, crossvalidate, divided
from conductor_build.evaluate.kept import Kept, encode, read
from conductor_build.evaluate.scores import Resampling
from conductor_build.outcomes import Table
from conductor_build.recipe import Evaluation, JudgedPool, Recipe, TableUse
from conductor_build.report import write
from conductor_build.sources import Source, Sources
from support.judging import KEY, FakeReader, bundle, folder, outcomes, vectors_of

RECIPE = Recipe(
    tables=(),
    stages=(),
    evaluation=Evaluation((0.05,), (JudgedPool("all", ("a", "b", "c", "d")),)),
)
PROMPTS = 60


class Untrained:
    """Training without any: remembers what it was given, and bundles an untrained network."""

    def __init__(self) -> None:
        self.given: list[Sources] = []

    def __call__(self, recipe: Recipe, sources: Sources, out: Path) -> Bundle:
        self.given.append(sources)
        (part,) = sources.parts
        return open_bundle(bundle(out / "bundle", part.table), [KEY.public_key()])


def sources(*tables: Table, pool: tuple[str, ...] = ()) -> Sources:
    parts = tuple(
        Source(TableUse(f"table{n}", f"table{n}", pool=pool), one) for n, one in enumerate(tables)
    )
    return Sources(parts, {"outcomes": "a" * 64})


def judged(tmp_path: Path, table: Table, train: Untrained, **settings: Any) -> Held:
    told = Settings(**{"folds": 2, "draws": 20, "calibration": 10, **settings})
    (held,) = crossvalidate(
        RECIPE, sources(table, pool=("a", "b")), tmp_path, train, vectors_of, told, lambda _: None
    )
    return held


def test_every_prompt_is_judged_once_by_a_conductor_that_did_not_see_it(tmp_path: Path) -> None:
    train, table = Untrained(), outcomes(PROMPTS)
    held = judged(tmp_path, table, train)
    seen = [set(given.parts[0].table.prompts) for given in train.given]
    assert len(seen) == 2 and seen[0].isdisjoint(seen[1]) and len(seen[0] | seen[1]) == PROMPTS
    assert set(held.plays[0].ids) == set(table.prompts)
    assert held.evaluation.pools[0].n == PROMPTS
    assert train.given[0].data != train.given[1].data  # so that none is taken for the other


def test_training_that_sees_what_is_judged_is_found_out(tmp_path: Path) -> None:
    table = outcomes(PROMPTS)

    def cheat(recipe: Recipe, given: Sources, out: Path) -> Bundle:
        return open_bundle(bundle(out / "bundle", table), [KEY.public_key()])

    with pytest.raises(EvaluationError, match="trained on a prompt that it is judged on"):
        judged(tmp_path, table, cheat)  # type: ignore[arg-type]


def test_a_question_is_in_one_fold_whichever_tables_ask_it() -> None:
    one, other = outcomes(40, mark="one"), outcomes(40, seed=1, mark="other")
    shared = replace(other, questions=tuple(f" {q.upper()}" for q in one.questions))
    folds = divided(sources(one, shared), 4, 0)
    assert np.array_equal(folds[0], folds[1])
    assert not np.array_equal(folds[0], divided(sources(other), 4, 0)[0])


def test_workers_left_out_are_judged_but_never_trained_on(tmp_path: Path) -> None:
    train = Untrained()
    held = judged(tmp_path, outcomes(PROMPTS), train, left_out=("b",))
    for given in train.given:
        assert given.parts[0].table.names == ("a", "c", "d")
        assert given.parts[0].use.pool == ()  # of its two workers one is left
    assert held.evaluation.pools[0].pool.workers == ("a", "b", "c", "d")
    assert held.evaluation.pools[0].n == PROMPTS  # calibration takes none of the judged prompts
    assert held.provenance["workers_left_out_of_training"] == "b"


def test_the_outcomes_of_a_fold_move_nothing_that_is_played_on_it(tmp_path: Path) -> None:
    """Scores of one fold turned round: the same workers are asked there, with the same cards."""
    table = outcomes(PROMPTS)
    fold = divided(sources(table), 2, 0)[0]
    score = table.score.copy()
    score[fold == 0] = 1 - score[fold == 0]
    costs = []
    for number, one in enumerate((table, replace(table, score=score))):
        held = judged(tmp_path / str(number), one, Untrained(), left_out=("b",))
        (plays,) = held.plays[0].plays.values()
        costs.append(plays.cost)
    assert np.array_equal(costs[0][fold == 0], costs[1][fold == 0])


def test_too_little_is_refused(tmp_path: Path) -> None:
    for left_out, said in ((("ghost",), "no worker 'ghost'"), (("a", "b", "c"), "fewer than two")):
        with pytest.raises(EvaluationError, match=said):
            judged(tmp_path, outcomes(PROMPTS), Untrained(), left_out=left_out)
    with pytest.raises(EvaluationError, match="there are 30"):
        judged(tmp_path, outcomes(PROMPTS), Untrained(), left_out=("b",), calibration=31)


# -- plays that are kept ----------------------------------------------------------------------


def kept(score: list[float], ids: str = "pqr", lambdas: tuple[float, ...] = (0.0, 1.0)) -> Kept:
    plays = Plays(np.array(score), np.full(len(score), 0.25))
    return Kept("All workers", ("a", "b"), tuple(ids), dict.fromkeys(lambdas, plays))


def test_a_difference_is_taken_prompt_by_prompt_whatever_their_order() -> None:
    own, other = kept([1.0, 0.5, 0.0]), kept([-0.25, 0.25, 0.75], "rqp")
    less = own.less(other, Resampling(0, 50))
    assert less == dict.fromkeys([0.0, 1.0, None], Estimate(0.25, 0.25, 0.25))


def test_kept_plays_read_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "plays.npz").write_bytes(encode([kept([1.0, 0.5, 0.0]), kept([0.0, 0.0, 1.0])]))
    first, second = read(tmp_path / "plays.npz")
    assert (first.title, first.workers, first.ids) == ("All workers", ("a", "b"), ("p", "q", "r"))
    assert first.plays[1.0].score.tolist() == [1.0, 0.5, 0.0]
    assert second.plays[0.0].score.tolist() == [0.0, 0.0, 1.0]


def test_plays_that_do_not_belong_together_are_not_compared(tmp_path: Path) -> None:
    own = kept([1.0, 0.5, 0.0])
    for other in (
        kept([1.0, 0.5, 0.0], "pqx"),
        kept([1.0, 0.5], "pq"),
        kept([1.0, 0.5, 0.0], lambdas=(0.5,)),
        replace(own, workers=("a", "c")),
    ):
        with pytest.raises(EvaluationError):
            own.less(other, Resampling(0, 5))
    with pytest.raises(EvaluationError, match="holds no plays"):
        read(tmp_path / "plays.npz")


# -- the command ------------------------------------------------------------------------------

TEXT = """
tables:
  - folder: data
stages:
  - {name: short, method: grpo, iterations: 1, prompts: 4, group: 2}
evaluation:
  folds: 2
  lambdas: [0.05]
"""


def run(*told: object) -> Result:
    result = CliRunner().invoke(conductor_build, ["crossvalidate", *map(str, told)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_recipe_is_trained_and_judged_fold_by_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For real, but for the encoder: two trainings each, then once more with a worker left out."""
    monkeypatch.setattr(encoderfiles, "load_encoder", lambda *_, **__: FakeReader())
    monkeypatch.setattr(write, "frontier_png", lambda evaluation: b"")
    data = folder(tmp_path / "data", outcomes(80, workers=3))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(TEXT)
    told = (recipe, "--data", data, "--draws", "20", "--calibration", "10")
    first = run(*told, "--out", tmp_path / "1")
    assert first.exit_code == 0 and "| **conductor** |" in first.stdout
    report = json.loads((tmp_path / "1/data/report.json").read_bytes())
    assert {row["n"] for row in report["rows"]} == {80}
    again = run(*told, "--out", tmp_path / "1")
    assert again.exit_code == 2 and "--resume" in again.stderr
    more = ("--leave-out-workers", "b", "--against", tmp_path / "1")
    second = run(*told, "--out", tmp_path / "2", *more)
    assert second.exit_code == 0
    assert "utility less that of the other run\nAll workers, lambda 0.05: " in second.stdout
    resumed = run(*told, "--out", tmp_path / "1", "--resume")
    assert resumed.stdout == first.stdout


def test_a_recipe_or_data_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("tables: 1")
    for recipe in ("recipe.yaml", "none.yaml"):
        told = (tmp_path / recipe, "--data", tmp_path, "--out", tmp_path / "out")
        result = run(*told)
        assert (result.exit_code, result.stdout) == (2, "")
        assert recipe in result.stderr
