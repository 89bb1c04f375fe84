"""The files that an evaluation leaves: for programs, for people, and as a picture."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conductor_build.baselines.plays import EvaluationError, Plays, Prompts
from conductor_build.bootstrap import Estimate
from conductor_build.evaluate.judge import Evaluation, evaluate
from conductor_build.evaluate.pools import Pool
from conductor_build.evaluate.scores import UNKNOWN
from conductor_build.outcomes import Table
from conductor_build.report.document import document, fingerprint
from conductor_build.report.frontier import frontier_png
from conductor_build.report.markdown import markdown
from conductor_build.report.write import write_report
from support.outcomes import NAN, generated

POOLS = [
    Pool("All workers", ("a", "b", "c", "d"), (0.01, 0.1)),
    Pool("Local workers only", ("a", "b"), (0.0,)),
]
FACTS = {"bundle": "none", "judged_sha256": "00"}


class Halfway:
    """A conductor of no skill."""

    name = "halfway"

    def play(self, table: Table, rows: np.ndarray) -> Plays:
        return Plays(np.full(len(rows), 0.5), np.full(len(rows), 1.0))


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return evaluate(lambda lam: Halfway(), Prompts(*generated(40)), POOLS, draws=40)


def with_estimate(evaluation: Evaluation, estimate: Estimate) -> Evaluation:
    """The same with every number of the first pool's conductor replaced."""
    judged = evaluation.pools[0]
    results = tuple(
        replace(r, overall=replace(r.overall, accuracy=estimate, cost=estimate, utility=estimate))
        if r.policy == "conductor"
        else r
        for r in judged.results
    )
    return replace(evaluation, pools=(replace(judged, results=results), *evaluation.pools[1:]))


def test_rows_have_exactly_the_keys_that_were_promised(evaluation: Evaluation) -> None:
    rows = document(evaluation, FACTS)["rows"]
    keys = {"policy", "pool", "lambda", "accuracy", "cost_usd_per_1k", "utility", "n"}
    assert all(set(row) == keys for row in rows)
    (ours,) = [r for r in rows if r["policy"] == "conductor" and r["lambda"] == 0.1]
    assert ours == {
        "policy": "conductor", "pool": ["a", "b", "c", "d"], "lambda": 0.1,
        "accuracy": 0.5, "cost_usd_per_1k": 1.0, "utility": pytest.approx(0.4), "n": 40,
    }  # fmt: skip


def test_every_row_has_its_interval_and_its_tasks(evaluation: Evaluation) -> None:
    made = document(evaluation, FACTS)

    def key(row: dict) -> tuple[str, tuple[str, ...], float]:
        pool = row["pool"]
        names = made["pools"][pool]["workers"] if isinstance(pool, int) else pool
        return row["policy"], tuple(names), row["lambda"]

    rows = {key(row): row for row in made["rows"]}
    assert [key(row) for row in made["intervals"]] == list(rows)
    for interval in made["intervals"]:
        for name in ("accuracy", "cost_usd_per_1k", "utility"):
            low, high = interval[name]
            assert low - 1e-9 <= rows[key(interval)][name] <= high + 1e-9
    assert {(key(row), row["task"]) for row in made["tasks"]} == {
        (row, task) for row in rows for task in ("even", "odd")
    }


def test_a_report_says_what_was_chosen_against_whom_and_where_from(evaluation: Evaluation) -> None:
    made = document(evaluation, FACTS)
    assert made["provenance"] == {"seed": 0, "draws": 40, **FACTS}
    assert "cross-fitted" in made["pools"][0]["baselines"]
    for choice in made["choices"]:
        assert sum(choice["share"].values()) == pytest.approx(1)
    less = [d for d in made["differences"] if d["against"] == "best_fixed" and d["pool"] == 0]
    assert [d["lambda"] for d in less] == [0.01, 0.1, None]
    assert less[-1]["accuracy"] == {"mean": None, "interval": [None, None]}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_known_is_null_and_json_stays_strict(
    evaluation: Evaluation, odd: float
) -> None:
    made = document(with_estimate(evaluation, Estimate(odd, odd, odd)), FACTS)
    text = json.dumps(made, allow_nan=False)
    (ours,) = [r for r in json.loads(text)["rows"]
               if r["policy"] == "conductor" and r["lambda"] == 0.1]  # fmt: skip
    assert [ours[k] for k in ("accuracy", "cost_usd_per_1k", "utility", "n")] == [None] * 3 + [40]


def test_the_page_has_one_table_a_pool_with_every_policy_and_lambda(evaluation: Evaluation) -> None:
    page = markdown(evaluation, FACTS)
    whole, local = page.split("\n## ")[1:]
    assert "| policy | lambda 0.01 | lambda 0.1 |" in whole
    assert "| policy | lambda 0 |" in local
    assert "| **conductor** | **0.4900 (0.5000, $1.00)** | **0.4000 (0.5000, $1.00)** |" in whole
    for policy in {r.policy for r in evaluation.pools[0].results} - {"conductor"}:
        assert f"| {policy} | " in whole
    assert "| lambda | less best_fixed | less best_fixed_per_task |" in whole
    assert "| mean | " in whole


def test_every_line_of_a_table_has_as_many_cells_as_its_head(evaluation: Evaluation) -> None:
    evil = "x|y\n# z <b>*`"
    judged = evaluation.pools[0]
    results = tuple(replace(r, chosen={evil: 1.0} if r.chosen else {}) for r in judged.results)
    results += tuple(replace(r, policy=evil) for r in results if r.policy == "random")
    page = markdown(replace(evaluation, pools=(replace(judged, results=results),)), {evil: evil})
    assert "\n# z" not in page
    assert "<b>" not in page.replace("\\<b", "")
    cells = 0
    for line in page.splitlines():
        if not line.startswith("|"):
            cells = 0
            continue
        count = line.replace("\\|", "").count("|")
        assert cells in (0, count), line
        cells = count


def test_unknown_numbers_are_words_on_the_page_and_no_bar_to_the_picture(
    evaluation: Evaluation,
) -> None:
    unknown = with_estimate(evaluation, UNKNOWN)
    assert "**not known (not known, cost not known)**" in markdown(unknown, FACTS)
    assert frontier_png(unknown).startswith(b"\x89PNG")


@pytest.mark.parametrize("cost", [0.0, 1e-9])
def test_the_picture_is_drawn_even_when_something_is_free(
    evaluation: Evaluation, cost: float
) -> None:
    from PIL import Image

    drawn = frontier_png(with_estimate(evaluation, Estimate(cost, cost / 2, cost * 2)))
    with Image.open(io.BytesIO(drawn)) as picture:
        assert picture.format == "PNG"
        assert picture.width > picture.height >= 1200  # two pools, one above the other
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24) or []}
    assert (213, 94, 0) in colours  # the conductor's


def test_the_picture_is_drawn_when_everything_is_free() -> None:
    made, embeddings = generated(20)
    free = replace(made, workers=tuple(replace(w, usd_out_per_mtok=0.0) for w in made.workers))
    evaluation = evaluate(lambda lam: Halfway(), Prompts(free, embeddings), POOLS, draws=10)
    assert frontier_png(evaluation).startswith(b"\x89PNG")


def test_names_with_signs_of_mathematics_do_not_break_the_picture() -> None:
    made, embeddings = generated(20)
    names = ("$x", "a_b^{", "\\frac", "ü" * 300)
    odd = replace(
        made,
        workers=tuple(replace(w, name=n) for w, n in zip(made.workers, names, strict=True)),
    )
    pool = Pool("All workers", names, (0.1,))
    evaluation = evaluate(None, Prompts(odd, embeddings), [pool], draws=10)
    assert frontier_png(evaluation).startswith(b"\x89PNG")


def test_the_same_evaluation_gives_the_same_bytes(evaluation: Evaluation, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_report(tmp_path / folder, evaluation, FACTS)
    for name in ("report.json", "report.md", "frontier.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_interrupted_report_is_not_taken_for_a_complete_one(
    evaluation: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_build.report.write.frontier_png", lambda _: b"drawn")
    write_report(tmp_path, evaluation, FACTS)
    assert json.loads((tmp_path / "report.json").read_bytes())["rows"]
    replaced: list[str] = []
    real = Path.replace

    def fail_at_markdown(self: Path, target: Path) -> Path:
        replaced.append(Path(target).name)
        if replaced[-1] == "report.md":
            raise OSError("disk full")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", fail_at_markdown)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path, evaluation, FACTS)
    assert replaced == ["frontier.png", "report.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frontier.png", "report.md"]


def test_without_a_library_for_pictures_the_older_report_stays(
    evaluation: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "report.json"
    older.write_text("{}")
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(EvaluationError, match="needs matplotlib"):
        write_report(tmp_path, evaluation, FACTS)
    assert older.read_text() == "{}"


def test_a_fingerprint_changes_with_anything_in_a_table() -> None:
    made, _ = generated(5)
    score, answer, tokens = made.score.copy(), made.answer.copy(), made.tokens.copy()
    score[0, 0], answer[1, 1], tokens[2, 2] = NAN, 77, 12345
    others = [
        made.rows([1, 0, 2, 3, 4]),
        made.columns("bacd"),
        replace(made, score=score),
        replace(made, answer=answer),
        replace(made, tokens=tokens),
        replace(made, questions=("?", *made.questions[1:])),
    ]
    assert fingerprint(made) == fingerprint(generated(5)[0])
    assert len({fingerprint(one) for one in [made, *others]}) == 7
