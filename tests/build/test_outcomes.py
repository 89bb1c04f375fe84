"""Recorded outcomes: small generated tables, no file of anybody else's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor_build.cli import conductor_build
from conductor_build.outcomes import OutcomesError, load, summarise

PROMPTS = [{"id": "a:1", "task": "a", "question": "?"}, {"id": "b:1", "task": "b", "question": "?"}]
ROWS = ["a:1,cheap,x,1,100", "b:1,cheap,,0,300", "a:1,dear,x,1,50", "b:1,dear,y,1,150"]


def folder(path: Path, rows: list[str] = ROWS, head: str | None = None) -> Path:
    with gzip.open(path / "prompts.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in PROMPTS)
    with gzip.open(path / "outcomes.csv.gz", "wt") as file:
        file.write(
            "\n".join([head or "prompt_id,model,answer,correct,output_tokens", *rows]) + "\n"
        )
    (path / "workers.csv").write_text("model,usd_out_per_mtok\ncheap,0.5\ndear,10\n")
    return path


def test_a_model_is_scored_over_its_prompts_and_priced_by_its_tokens(tmp_path: Path) -> None:
    dear, cheap = summarise(load(folder(tmp_path)))
    assert (dear.model, dear.score, cheap.score) == ("dear", 1.0, 0.5)
    assert cheap.score_by_task == {"a": 1.0, "b": 0.0}
    assert cheap.cost_usd_per_1k == pytest.approx(0.1)  # 200 tokens at 0.5 USD a million, x 1,000
    assert dear.cost_usd_per_1k == pytest.approx(1.0)


def test_scores_without_tokens_have_no_cost(tmp_path: Path) -> None:
    rows = ["a:1,m,0.25", "b:1,m,0.75"]
    (summary,) = summarise(load(folder(tmp_path, rows, "prompt_id,model,score")))
    assert summary.score == 0.5
    assert summary.cost_usd_per_1k is None


@pytest.mark.parametrize("bad", ["nan", "2", "-1", "", "x"])
def test_a_score_that_is_no_share_is_refused_with_its_line(tmp_path: Path, bad: str) -> None:
    with pytest.raises(OutcomesError, match=r"outcomes\.csv\.gz:2"):
        load(folder(tmp_path, [f"a:1,m,{bad}"], "prompt_id,model,score"))


def test_an_unknown_prompt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutcomesError, match="its prompt is not"):
        load(folder(tmp_path, ["c:9,m,x,1,5"]))


def test_a_cut_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    whole = folder(tmp_path) / "outcomes.csv.gz"
    whole.write_bytes(whole.read_bytes()[:-12])
    with pytest.raises(OutcomesError, match="not a whole gzip file"):
        load(tmp_path)
    whole.unlink()
    with pytest.raises(OutcomesError, match="no such file"):
        load(tmp_path)


def test_the_command_prints_every_model_and_fails_with_one_line(tmp_path: Path) -> None:
    shown = CliRunner().invoke(conductor_build, ["outcomes", str(folder(tmp_path)), "--json"])
    assert [row["model"] for row in json.loads(shown.output)] == ["dear", "cheap"]
    (tmp_path / "prompts.jsonl.gz").unlink()
    failed = CliRunner().invoke(conductor_build, ["outcomes", str(tmp_path)])
    assert isinstance(failed.exception, OutcomesError)
