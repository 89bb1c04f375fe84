"""Recorded outcomes: small generated tables, no file of anybody else's."""

from __future__ import annotations

import gzip
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from conductor_build.cli import conductor_build
from conductor_build.outcomes import (
    OutcomesError,
    Table,
    Worker,
    load,
    merge,
    split,
    summarise,
)

PROMPTS = [{"id": "a:1", "task": "a", "question": "?"}, {"id": "b:1", "task": "b", "question": "!"}]
ROWS = ["a:1,cheap,x,1,100", "b:1,cheap,,0,300", "a:1,dear,x,1,50", "b:1,dear,y,1,150"]
FACTS = ["cheap,local,7,,0.5", "dear,remote,,2,10"]


def folder(
    path: Path,
    rows: list[str] = ROWS,
    head: str = "prompt_id,model,answer,correct,output_tokens",
    prompts: list[dict[str, str]] = PROMPTS,
    facts: list[str] = FACTS,
) -> Path:
    path.mkdir(exist_ok=True)
    with gzip.open(path / "prompts.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
    with gzip.open(path / "outcomes.csv.gz", "wt", newline="") as file:
        file.write("\n".join([head, *rows]) + "\n")
    (path / "workers.csv").write_text(
        "\n".join(["model,kind,params_b,usd_in_per_mtok,usd_out_per_mtok", *facts]) + "\n"
    )
    return path


def table(tasks: list[str], workers: int = 2, tag: str = "") -> Table:
    shape = (len(tasks), workers)
    draw = np.random.default_rng(len(tasks))
    return Table(
        prompts=tuple(f"{tag}{task}:{i}" for i, task in enumerate(tasks)),
        tasks=tuple(tasks),
        questions=tuple(f"What is {tag}{i}?" for i in range(len(tasks))),
        workers=tuple(Worker(f"m{j}", True, 7.0, 0.1, 0.2) for j in range(workers)),
        score=draw.integers(0, 2, shape).astype(np.float32),
        answer=draw.integers(-1, 3, shape).astype(np.int32),
        tokens=draw.integers(1, 500, shape).astype(np.float32),
        comparable=True,
    )


def test_a_model_is_scored_over_its_prompts_and_priced_by_its_tokens(tmp_path: Path) -> None:
    dear, cheap = summarise(load(folder(tmp_path)))
    assert (dear.model, dear.score, cheap.score) == ("dear", 1.0, 0.5)
    assert cheap.score_by_task == {"a": 1.0, "b": 0.0}
    assert cheap.cost_usd_per_1k == pytest.approx(0.1)  # 200 tokens at 0.5 USD a million, x 1,000
    assert dear.cost_usd_per_1k == pytest.approx(1.0)


def test_a_table_has_a_row_a_prompt_and_a_column_a_worker(tmp_path: Path) -> None:
    loaded = load(folder(tmp_path))
    assert loaded.prompts == ("a:1", "b:1")
    assert (loaded.tasks, loaded.questions) == (("a", "b"), ("?", "!"))
    cheap, dear = loaded.workers
    assert (cheap.name, cheap.local, cheap.params_b, cheap.usd_out_per_mtok) == (
        "cheap",
        True,
        7.0,
        0.5,
    )
    assert (dear.local, dear.usd_in_per_mtok) == (False, 2.0)
    assert math.isnan(dear.params_b)
    assert loaded.score.tolist() == [[1, 1], [0, 1]]
    assert loaded.answer.tolist() == [[0, 0], [-1, 0]]  # x and x agree; none, and y
    assert loaded.tokens.tolist() == [[100, 50], [300, 150]]
    assert loaded.comparable
    assert np.allclose(loaded.cost(), [[0.05, 0.5], [0.15, 1.5]], rtol=1e-6)
    with pytest.raises(ValueError, match="read-only"):
        loaded.score[0, 0] = 0


def test_the_order_of_the_file_is_no_part_of_the_table(tmp_path: Path) -> None:
    rows = [f"{p},m{j},{(j * 7) % 3},1,{j + 1}" for p in ("a:1", "b:1") for j in range(9)]
    shuffled = random.Random(3).sample(rows, len(rows))
    one, other = load(folder(tmp_path / "a", rows)), load(folder(tmp_path / "b", shuffled))
    assert repr(one.workers) == repr(other.workers)  # a fact that is not known is NaN
    for part in ("score", "answer", "tokens"):
        assert np.array_equal(getattr(one, part), getattr(other, part))


def test_what_a_worker_did_not_answer_is_nan_and_agrees_with_nobody(tmp_path: Path) -> None:
    loaded = load(folder(tmp_path, ROWS[:3]))
    assert np.isnan(loaded.score[1, 1])
    assert np.isnan(loaded.tokens[1, 1])
    assert np.isnan(loaded.cost()[1, 1])
    assert loaded.answer[1, 1] == -1
    assert summarise(loaded)[0].prompts == 1


def test_answers_without_tokens_are_charged_by_the_size_of_the_model(tmp_path: Path) -> None:
    rows = ["a:1,lean-7b,0.25", "b:1,lean-7b,0.75", "a:1,wide-1.5-70B-chat,0.5"]
    loaded = load(folder(tmp_path, rows, "prompt_id,model,score"))
    assert not loaded.comparable
    assert loaded.cost()[0].tolist() == pytest.approx([0.007, 0.07])
    assert np.isnan(loaded.cost()[1, 1])
    lean = summarise(loaded)[0]
    assert (lean.score, lean.cost_usd_per_1k) == (0.5, None)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("mistral-7b-instruct-v0.3", 7.0),
        ("Qwen2.5-0.5B", 0.5),
        ("nemotron-super-49b-v1", 49.0),
        ("Mixtral-8x7B-Instruct", math.nan),
        ("gpt-4o", math.nan),
        ("v2b2-beta", math.nan),
        ("draft-1b-for-70b", math.nan),
    ],
)
def test_a_size_is_read_from_a_name_only_where_it_states_one(name: str, size: float) -> None:
    assert repr(Worker.unlisted(name).params_b) == repr(size)


def test_a_model_without_facts_is_loaded_and_refused_where_its_cost_is_asked(
    tmp_path: Path,
) -> None:
    loaded = load(folder(tmp_path, [*ROWS, "a:1,newcomer,x,1,5"]))
    newcomer = loaded.workers[2]
    assert (newcomer.name, newcomer.local) == ("newcomer", False)
    with pytest.raises(OutcomesError, match="usd_out_per_mtok of newcomer: add it"):
        loaded.cost()
    assert loaded.priced().names == ("cheap", "dear")
    assert loaded.columns(["dear", "cheap"]).cost().shape == (2, 2)


def test_a_model_of_unknown_size_is_refused_where_tokens_are_missing(tmp_path: Path) -> None:
    loaded = load(folder(tmp_path, ["a:1,cheap,x,1,", "a:1,dear,x,1,"]))
    with pytest.raises(OutcomesError, match=r"params_b .* of dear"):
        loaded.cost()
    assert loaded.priced().names == ("cheap",)


@pytest.mark.parametrize("bad", ["nan", "2", "-1", "", "x", "inf", "-inf", "1e999", "0_1", "١"])
def test_a_score_that_is_no_share_is_refused_with_its_line(tmp_path: Path, bad: str) -> None:
    with pytest.raises(OutcomesError, match=r"outcomes\.csv\.gz:2: score"):
        load(folder(tmp_path, [f"a:1,m,{bad}"], "prompt_id,model,score"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a:1,m,x,0.5,1"], r"outcomes\.csv\.gz:2: correct is 0 or 1"),
        (["a:1,m,x,1,-5"], r"outcomes\.csv\.gz:2: output_tokens is out of range"),
        (["a:1,m,x,1,nan"], r"outcomes\.csv\.gz:2: output_tokens is out of range"),
        (["a:1,m,x,1,many"], r"outcomes\.csv\.gz:2: output_tokens is no number"),
        (["c:9,m,x,1,5"], r"outcomes\.csv\.gz:2: its prompt is not in prompts"),
        (["a:1,,x,1,5"], r"outcomes\.csv\.gz:2: names no model"),
        (["a:1,m,x,1,5", "a:1,m,y,0,5"], r"outcomes\.csv\.gz:3: .* answered this prompt before"),
        (["a:1,m,x,1"], r"outcomes\.csv\.gz:2: 4 fields under 5 columns"),
        (["a:1,m,x,1,5,6"], r"outcomes\.csv\.gz:2: 6 fields under 5 columns"),
        (['a:1,m,"x,1,5'], r"outcomes\.csv\.gz:2: not CSV"),
        (['a:1,m,"x"y,1,5'], r"outcomes\.csv\.gz:2: not CSV"),
        (['a:1,m,"x\ny",1,5', "a:1,n,x,7,5"], r"outcomes\.csv\.gz:4: correct is out of range"),
        ([], r"outcomes\.csv\.gz: the table is empty"),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    with pytest.raises(OutcomesError, match=message):
        load(folder(tmp_path, rows))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("prompt_id,model,answer", "needs prompt_id, model and one of score, correct"),
        ("prompt_id,prompt_id,score", "two columns have the same name"),
    ],
)
def test_a_bad_header_is_refused(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(OutcomesError, match=rf"outcomes\.csv\.gz:1: {message}"):
        load(folder(tmp_path, ["a:1,m,1"], head))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", ":2: not JSON"),
        (b"", ":2: not JSON"),
        (b'"text"', ":2: a prompt is an object"),
        (b'{"id": 7, "task": "a", "question": "?"}', ":2: a prompt needs 'id'"),
        (b'{"id": "x", "task": "a"}', ":2: a prompt needs 'question'"),
        (b'{"id": "x", "task": "", "question": "?"}', ":2: a prompt needs 'task'"),
        (b'{"id": "x", "task": "a", "question": "\\ud800"}', ":2: not JSON"),
        (b'{"id": "x", "task": "a", "question": "?", "answer": 5}', ":2: the gold 'answer'"),
        (b'{"id": "a:1", "task": "a", "question": "?"}', ":2: this id was given before"),
        (b'{"id": "\xff"}', ":2: not JSON"),
        (b"[" * 100_000, ":2: not JSON"),
    ],
)
def test_a_bad_prompt_is_refused_with_file_and_line(
    tmp_path: Path, line: bytes, message: str
) -> None:
    folder(tmp_path)
    good = json.dumps(PROMPTS[0]).encode()
    (tmp_path / "prompts.jsonl.gz").write_bytes(gzip.compress(good + b"\n" + line + b"\n"))
    with pytest.raises(OutcomesError, match=rf"prompts\.jsonl\.gz{message}"):
        load(tmp_path)


def test_separators_inside_a_prompt_do_not_end_its_line(tmp_path: Path) -> None:
    question = "one\x1ctwo\x85three\u2028four" + "x" * 200_000
    prompts = [{"id": "a:1", "task": "a", "question": question}]
    folder(tmp_path, ["a:1,m,1"], "prompt_id,model,score")
    line = json.dumps(prompts[0], ensure_ascii=False).encode()
    (tmp_path / "prompts.jsonl.gz").write_bytes(gzip.compress(line + b"\n"))
    assert load(tmp_path).questions == (question,)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (["m,local,7,1,1", "m,local,7,1,1"], r"workers\.csv:3: was listed before"),
        (["m,cloud,7,1,1"], r"workers\.csv:2: kind is local or remote"),
        (["m,local,7,1,nan"], r"workers\.csv:2: usd_out_per_mtok is out of range"),
        (["m,local,-7,1,1"], r"workers\.csv:2: params_b is out of range"),
        ([",local,7,1,1"], r"workers\.csv:2: names no model"),
    ],
)
def test_bad_facts_are_refused_with_file_and_line(
    tmp_path: Path, facts: list[str], message: str
) -> None:
    with pytest.raises(OutcomesError, match=message):
        load(folder(tmp_path, facts=facts))


def test_facts_are_also_found_beside_the_folder(tmp_path: Path) -> None:
    folder(tmp_path / "table")
    (tmp_path / "table" / "workers.csv").rename(tmp_path / "workers.csv")
    assert load(tmp_path / "table").workers[0].usd_out_per_mtok == 0.5


def test_a_cut_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    whole = folder(tmp_path) / "outcomes.csv.gz"
    for data in (whole.read_bytes()[:-12], b"plain text", whole.read_bytes()[:20] + b"\xff" * 60):
        whole.write_bytes(data)
        with pytest.raises(OutcomesError, match="not a whole gzip file"):
            load(tmp_path)
    whole.unlink()
    with pytest.raises(OutcomesError, match="no such file"):
        load(tmp_path)


def test_rows_and_columns_are_views_in_the_order_asked_for() -> None:
    whole = table(["a", "a", "b"], workers=3)
    part = whole.rows(np.array([2, 0])).columns(["m2", "m0"])
    assert part.prompts == ("b:2", "a:0")
    assert part.names == ("m2", "m0")
    assert np.array_equal(part.answer, whole.answer[np.ix_([2, 0], [2, 0])])
    assert whole.rows(np.array([True, False, True])).prompts == ("a:0", "b:2")
    assert whole.rows([]).score.shape == (0, 3)


def test_a_pool_that_the_table_cannot_serve_is_refused() -> None:
    whole = table(["a", "b"])
    with pytest.raises(OutcomesError, match="no worker 'x'; the table has m0, m1"):
        whole.columns(["m0", "x"])
    with pytest.raises(OutcomesError, match="at least one worker"):
        whole.columns([])
    with pytest.raises(OutcomesError, match="different names"):
        whole.columns(["m0", "m0"])
    silent = replace(whole, score=np.where([True, False], whole.score, np.float32(np.nan)))
    with pytest.raises(OutcomesError, match="'m1' has no outcome"):
        silent.columns(["m0", "m1"])
    assert whole.columns(["m1"]).names == ("m1",)


def test_a_table_whose_parts_do_not_fit_is_refused() -> None:
    whole = table(["a", "b"])
    with pytest.raises(OutcomesError, match=r"shape \(2, 2\)"):
        replace(whole, tokens=whole.tokens[:, :1])
    with pytest.raises(OutcomesError, match="one task"):
        replace(whole, tasks=("a",))
    with pytest.raises(OutcomesError, match="different names"):
        replace(whole, prompts=("a:0", "a:0"))


def test_folds_are_balanced_within_tasks_and_overall() -> None:
    tasks = ["a"] * 53 + ["b"] * 29 + ["c"] * 4
    folds = split(table(tasks), folds=5, seed=1)
    for task in ("a", "b", "c"):
        sizes = np.bincount(folds[np.array(tasks) == task], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 1


def test_folds_follow_the_prompt_wherever_it_stands() -> None:
    whole = table(["a", "b"] * 20)
    folds = dict(zip(whole.prompts, split(whole, folds=4, seed=7), strict=True))
    order = random.Random(0).sample(range(40), 40)
    moved = whole.rows(order)
    assert split(moved, folds=4, seed=7).tolist() == [folds[prompt] for prompt in moved.prompts]
    assert split(whole, folds=4, seed=8).tolist() != list(folds.values())


def test_prompts_that_ask_the_same_share_a_fold() -> None:
    whole = table(["a"] * 30)
    asked = ("Same  question?", "same question?", *whole.questions[2:])
    for seed in range(8):
        folds = split(replace(whole, questions=asked), folds=5, seed=seed)
        assert folds[0] == folds[1]


@pytest.mark.parametrize("folds", [0, 1, 4])
def test_folds_that_cannot_be_filled_are_refused(folds: int) -> None:
    with pytest.raises(OutcomesError, match="3 prompts cannot be split"):
        split(table(["a", "a", "b"]), folds=folds, seed=0)


def test_merged_tables_keep_every_prompt_and_leave_gaps_where_nothing_is_known() -> None:
    one, two = table(["a", "b"], workers=3, tag="x"), table(["c"], workers=2, tag="y")
    two = replace(two, workers=(two.workers[1], replace(two.workers[0], name="new")))
    both = merge([one, two])
    assert both.prompts == one.prompts + two.prompts
    assert both.names == ("m0", "m1", "m2", "new")
    assert np.array_equal(both.score[:2, :3], one.score)
    assert both.score[2, 1] == two.score[0, 0]
    assert both.answer[2, 3] == two.answer[0, 1]
    assert np.isnan(both.score[2, [0, 2]]).all()
    assert np.isnan(both.tokens[:2, 3]).all()
    assert (both.answer[2, [0, 2]] == -1).all()
    assert both.comparable
    assert merge([one]).prompts == one.prompts


def test_tables_that_contradict_each_other_are_not_merged() -> None:
    one, two = table(["a"], tag="x"), table(["a"], tag="y")
    dearer = replace(two, workers=tuple(replace(w, usd_out_per_mtok=9.0) for w in two.workers))
    with pytest.raises(OutcomesError, match="different facts of 'm0'"):
        merge([one, dearer])
    with pytest.raises(OutcomesError, match="different names"):
        merge([one, one])
    with pytest.raises(OutcomesError, match="no table"):
        merge([])


def test_the_command_prints_every_model_and_fails_with_one_line(tmp_path: Path) -> None:
    command = ["outcomes", "show", str(folder(tmp_path))]
    shown = CliRunner().invoke(conductor_build, [*command, "--json"])
    assert [row["model"] for row in json.loads(shown.output)] == ["dear", "cheap"]
    assert "cheap" in CliRunner().invoke(conductor_build, command).output
    (tmp_path / "prompts.jsonl.gz").unlink()
    failed = CliRunner().invoke(conductor_build, command)
    assert isinstance(failed.exception, OutcomesError)
