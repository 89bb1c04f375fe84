"""Tables derived from what can be cloned or exported. Every record here is made up."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from conductor_build.cli import conductor_build
from conductor_build.importers import forms, write
from conductor_build.importers.replies import stated
from conductor_build.importers.rows import Faults, Row, prompt_of
from conductor_build.importers.write import gather, write_folder
from conductor_build.outcomes import OutcomesError, Prompt, load


def run(*arguments: object) -> Result:
    return CliRunner().invoke(conductor_build, ["outcomes", "import", *map(str, arguments)])


def reply(answer: str, reasoning: str = "It is so.") -> str:
    return json.dumps({"reasoning": reasoning, "answer": answer}, indent=4)


def record(task: str, number: int, gold: str, output: str) -> dict[str, Any]:
    asked = "problem" if task == "math-l5" else "question"
    given: object = number if task == "math-l5" else f"{task}-test-#{number}"
    return {"id": given, asked: f"What is {task} {number}?", "answer": gold, "output": [output]}


def checkout(path: Path, files: dict[str, list[dict[str, Any]]]) -> Path:
    for name, records in files.items():
        file = path / "result_dirs" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(records, indent=2))
    return path


def small(path: Path) -> Path:
    return checkout(
        path,
        {
            "gsm/one": [
                record("gsm", 0, "# 18", reply("$18.00")),
                record("gsm", 1, "# 1,450,000", reply("1450000 dollars")),
            ],
            "gsm/two": [record("gsm", 0, "# 18", reply("9 x 2 = 18 a day"))],
            "crux/one": [record("crux", 4, "{'a': 1}", reply("{'a':1}"))],
            "crux/two": [record("crux", 4, "{'a': 1}", reply("[]"))],
            "math-l5/one": [record("math-l5", 7, "-15", "So it is $\\boxed{-15}$")],
            "math-l5/two": [record("math-l5", 7, "-15", reply("x = -15"))],
        },
    )


# What a reply states, and when two answers are the same.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"reasoning": "r", "answer": "42"}', "42"),
        ('Sure!\n```json\n{"answer": "42"}\n```\nHope it helps.', "42"),
        ('{"reasoning": "two\nlines", "answer" :  "42"}', "42"),
        ('{"reasoning": "r"\n "answer": "42"', "42"),
        ('{"answer": "1"} and better {"answer": "2"}', "2"),
        ('{"answer": "1"} and then {"answer": cut', "1"),
        ('{"answer": 42}', 42),
        ('{"answer": [1, "a"]}', [1, "a"]),
        ('{"answer": "say \\"hi\\""}', 'say "hi"'),
        ('{"answer": "\\sqrt{2} \\u00e9"}', "\\sqrt{2} \\u00e9"),
        ('{"answer": "\\\\sqrt{2}"}', "\\sqrt{2}"),
        ('{"answer": ""}', ""),
        ("{\"answer\": 'single'}", None),
        ('{"answer": "never ends', None),
        ('{"answer": ' + "[" * 300 + "]" * 300 + "}", None),
        ("The answer is 42.", None),
        ("\\boxed{42}", None),
        ("", None),
    ],
)
def test_the_last_answer_that_can_be_read_is_what_a_reply_states(text: str, value: object) -> None:
    assert stated(text) == value


@pytest.mark.parametrize("part", ['"answer": "', '"answer": [', '{"answer": {', "\\", '"answer":'])
def test_a_reply_made_to_be_slow_is_read_all_the_same(part: str) -> None:
    stated(part * (300_000 // len(part)))


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("42", "42"),
        (42, "42"),
        ("42.0", "42"),
        ("$1,234.50$", "1234.5"),
        ("2, 3, 4", "2,3,4"),
        ("-1,000,000", "-1e+06"),
        ("x = 5", "5"),
        ("12 cm", "12"),
        ("12\\text{ cm}", "12"),
        ("90^\\circ", "90"),
        ("45%", "45"),
        ("\\boxed{7}", "7"),
        ("\\frac{22}{7}", "3.14286"),
        ("-\\dfrac{1}{2}", "-0.5"),
        ("7/2", "3.5"),
        ("7/0", "7/0"),
        ("3 \\sqrt{2}", "3\\sqrt{2}"),
        ("\\left( 1, 2 \\right)", "(1,2)"),
        ("No such number.", "nosuchnumber"),
        ("No Such Number", "nosuchnumber"),
        ("   ", ""),
        ({"a": 1}, '{"a":1}'),
        ("y" * 500, "y" * 200),
    ],
)
def test_mathematics_is_compared_in_one_form(answer: object, form: str) -> None:
    assert forms.mathematics(answer) == form


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("$70,000", "70000"),
        ("1/4", "0.25"),
        ("3 apples and 4 pears make 7", "7"),
        ("from 10 to -3", "-3"),
        (7.50, "7.5"),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_of_a_number_task_only_the_number_counts(answer: object, form: str) -> None:
    assert forms.number(answer) == form


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ('"a b"', "'a b'"),
        ("a b", "'a b'"),
        ("[1,2]", "[1, 2]"),
        ([1, 2], "[1, 2]"),
        ("{'k':('v',)}", "{'k': ('v',)}"),
        ("{'c', 'a', 'b'}", "{'a', 'b', 'c'}"),
        (True, "True"),
        ("true", "'true'"),
        ("f(1) == 2", "'f(1) == 2'"),
        ("", "''"),
        ("{{1: 2}: 3}", "'{{1: 2}: 3}'"),
        ("(" * 100_000, repr("(" * 300)[:200]),
        ("-" * 4000 + "1", repr("-" * 300)[:200]),
        ("9" * 4000, "9" * 200),
        ("9" * 5000, "'" + "9" * 199),
        ("1if 2else 3", "'1if 2else 3'"),
    ],
)
def test_a_literal_is_compared_as_python_prints_it(answer: object, form: str) -> None:
    assert forms.literal(answer) == form


def test_a_literal_passes_for_the_string_of_itself() -> None:
    assert forms.same_literal("123", "'123'")
    assert not forms.same_literal("12", "'123'")
    assert not forms.same_literal("", "''")


@given(st.one_of(st.text(), st.floats(), st.lists(st.integers()), st.booleans(), st.none()))
def test_every_answer_has_a_form_that_is_its_own_form(answer: object) -> None:
    for form in (forms.mathematics, forms.number, forms.literal):
        assert len(form(answer)) <= forms.MAX_FORM_CHARS
    number = forms.number(answer)
    assert number == "" or forms.number(number) == number


def test_of_prose_a_table_keeps_a_hash() -> None:
    said = "Our client Ada Byron would rather wait, since the matter is still with the court."
    assert forms.conclusion(said) == forms.conclusion(f"  {said.upper()} ")
    assert "Ada" not in forms.conclusion(said)
    assert "ada" not in forms.conclusion(said)
    assert forms.conclusion(said) != forms.conclusion(said + " Or not.")
    assert forms.conclusion("The answer is 1,000.") == forms.conclusion("1000.0") == "1000"
    assert forms.conclusion(" \n") == ""


# ZeroEval


def test_result_files_become_a_table(tmp_path: Path) -> None:
    out = tmp_path / "table"
    done = run("zeroeval", small(tmp_path / "z"), "--out", out)
    assert done.exit_code == 0, done.output
    assert "7 outcomes of 2 models on 4 prompts" in done.output
    table = load(out)
    assert table.prompts == ("crux:4", "gsm:0", "gsm:1", "math-l5:7")
    assert table.questions[3] == "What is math-l5 7?"
    assert table.names == ("one", "two")
    assert np.array_equal(table.score, [[1, 0], [1, 1], [1, np.nan], [0, 1]], equal_nan=True)
    assert table.answer.tolist() == [[1, 0], [0, 0], [0, -1], [-1, 0]]
    assert table.tokens[1, 0] == round(len(reply("$18.00")) / 4)
    prompts = gzip.decompress((out / "prompts.jsonl.gz").read_bytes()).decode()
    assert json.loads(prompts.splitlines()[1]) == {
        "id": "gsm:0",
        "task": "gsm",
        "question": "What is gsm 0?",
        "answer": "18",
    }
    head = gzip.decompress((out / "outcomes.csv.gz").read_bytes()).split(b"\n")[0]
    assert head == b"prompt_id,model,answer,correct,output_tokens"


def test_tokens_are_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    files = {"gsm/one": [record("gsm", 0, "# 1", "é" * 11), record("gsm", 1, "# 1", "")]}
    out = tmp_path / "table"
    run("zeroeval", checkout(tmp_path / "z", files), "--out", out, "--task", "gsm")
    assert load(out).tokens.tolist() == [[6], [0]]  # 22 bytes: 5.5, to the even number


def test_the_same_records_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    rows = [
        Row("f:1", Prompt(f"t:{i}", "t", f"q{i}"), model, "x", 1.0, 5.0)
        for i in range(20)
        for model in ("a", "b")
    ]
    for name, order in (("one", rows), ("two", rows[::-1])):
        write_folder(tmp_path / name, gather(order, Faults(), workers={}))
    for file in ("prompts.jsonl.gz", "outcomes.csv.gz", "workers.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"answer": 18}, "a record needs a text in 'answer'"),
        ({"output": []}, "a record needs a text in 'output'"),
        ({"output": [None]}, "a record needs a text in 'output'"),
        ({"question": None}, "a record needs a text in 'question'"),
        ({"question": ""}, "must not be empty"),
        ({"question": "half \ud800"}, "lone surrogate"),
        ({"id": "no number"}, "an 'id' that ends in a number"),
        ({"id": None}, "an 'id' that ends in a number"),
        ({"id": "gsm-test-#0"}, "repeats the answer of gsm/one.json:2"),
    ],
)
def test_a_bad_record_is_refused_with_its_line_or_counted(
    tmp_path: Path, broken: dict[str, Any], message: str
) -> None:
    records = [record("gsm", i, "# 1", reply("1")) for i in range(3)]
    records[1].update(broken)
    if "id" in broken:
        records[1]["question"] = records[0]["question"]
    source = checkout(tmp_path / "z", {"gsm/one": records})
    command = ("zeroeval", source, "--task", "gsm", "--out", tmp_path / "table")
    refused = run(*command)
    assert isinstance(refused.exception, OutcomesError)
    assert message in str(refused.exception)
    assert str(refused.exception).startswith("gsm/one.json:10: ")
    assert not (tmp_path / "table").exists()
    done = run(*command, "--skip-bad")
    assert done.exit_code == 0, done.output
    assert "1 bad rows were left out" in done.output
    assert message in done.output
    assert load(tmp_path / "table").prompts == ("gsm:0", "gsm:2")


@pytest.mark.parametrize("text", ["", "{}", "[1,", "[1 2]", "[1]x", "[1,]", "]", "[" * 90_000])
def test_a_file_that_is_no_array_is_refused_even_when_bad_rows_are_skipped(
    tmp_path: Path, text: str
) -> None:
    source = checkout(tmp_path / "z", {"gsm/one": []})
    (source / "result_dirs" / "gsm" / "one.json").write_text(text)
    refused = run("zeroeval", source, "--task", "gsm", "--out", tmp_path / "t", "--skip-bad")
    assert isinstance(refused.exception, OutcomesError)
    assert "one.json:1: not an array of JSON records" in str(refused.exception)


def test_a_checkout_without_results_is_refused(tmp_path: Path) -> None:
    refused = run("zeroeval", tmp_path, "--out", tmp_path / "t")
    assert "no result files of this task" in str(refused.exception)
    empty = checkout(tmp_path / "z", {"gsm/one": []})
    refused = run("zeroeval", empty, "--task", "gsm", "--out", tmp_path / "t")
    assert "there is no outcome to write" in str(refused.exception)
    assert run("zeroeval", empty, "--task", "poems", "--out", tmp_path / "t").exit_code == 2


def test_prompts_can_be_chosen_by_id(tmp_path: Path) -> None:
    ids = tmp_path / "ids"
    ids.write_text("gsm:0\ncrux:4\ncrux:99\n")
    out = tmp_path / "table"
    done = run("zeroeval", small(tmp_path / "z"), "--out", out, "--ids", ids)
    assert "1 of the ids" in done.output
    assert load(out).prompts == ("crux:4", "gsm:0")


# One CSV


def csv_file(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_csv_becomes_a_table_whose_prices_are_what_its_costs_come_to(tmp_path: Path) -> None:
    source = csv_file(
        tmp_path / "in.csv",
        [
            "prompt,model,answer,score,tokens,cost,task",
            "What is 2+2?,small,The answer is 4.,1,100,0.0001,sums",
            "What is 2+2?,big,4,0.5,50,0.001,sums",
            '"Who, then?",small,,0,300,0.0003,',
        ],
    )
    facts = csv_file(
        tmp_path / "w.csv", ["model,kind,params_b,usd_out_per_mtok", "small,local,7,9"]
    )
    out = tmp_path / "table"
    done = run("csv", source, "--out", out, "--workers", facts, "--task", "people")
    assert done.exit_code == 0, done.output
    table = load(out)
    assert sorted(zip(table.tasks, table.questions, strict=True)) == [
        ("people", "Who, then?"),
        ("sums", "What is 2+2?"),
    ]
    big, small_ = table.workers
    assert (big.usd_out_per_mtok, small_.usd_out_per_mtok) == pytest.approx((20.0, 1.0))
    assert (small_.local, small_.params_b) == (True, 7.0)
    sums = table.tasks.index("sums")
    assert table.answer[sums, 0] == table.answer[sums, 1] >= 0
    assert np.nansum(table.cost()) == pytest.approx(1.4)  # USD 0.0014 in all, x 1,000


def test_columns_can_be_named_and_left_out(tmp_path: Path) -> None:
    source = csv_file(tmp_path / "in.csv", ["q,who,mark", "A?,m,0.5", "B?,m,1"])
    out = tmp_path / "table"
    named = ("--prompt-column", "q", "--model-column", "who", "--score-column", "mark")
    assert run("csv", source, "--out", out, *named).exit_code == 0
    table = load(out)
    assert sorted(table.score[:, 0].tolist()) == [0.5, 1.0]
    assert not table.comparable
    assert np.isnan(table.tokens).all()
    refused = run("csv", source, "--out", tmp_path / "t", *named, "--cost-column", "usd")
    assert "in.csv:1: there is no column 'usd'" in str(refused.exception)
    refused = run("csv", source, "--out", tmp_path / "t")
    assert "in.csv:1: there is no column 'prompt'" in str(refused.exception)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A?,m,x,2,5,", "score is out of range"),
        ("A?,m,x,nan,5,", "score is out of range"),
        ("A?,m,x,,5,", "score is no number"),
        ("A?,m,x,1,-5,", "tokens is out of range"),
        ("A?,m,x,1,5,-1", "cost is out of range"),
        ("A?,m,x,1,,0.1", "a cost needs its tokens"),
        (" ,m,x,1,5,", "its question is empty"),
        ("A?,,x,1,5,", "must not be empty"),
        ("Z?,m,y,1,5,", "repeats the answer of in.csv:2"),
    ],
)
def test_a_bad_line_of_a_csv_is_refused_or_counted(tmp_path: Path, line: str, message: str) -> None:
    head = "prompt,model,answer,score,tokens,cost"
    source = csv_file(tmp_path / "in.csv", [head, "Z?,m,x,1,5,", line, "Y?,m,x,1,5,"])
    refused = run("csv", source, "--out", tmp_path / "table")
    assert str(refused.exception).startswith("in.csv:3: ")
    assert message in str(refused.exception)
    done = run("csv", source, "--out", tmp_path / "table", "--skip-bad")
    assert "1 bad rows were left out" in done.output
    assert len(load(tmp_path / "table").prompts) == 2


def test_a_prompt_of_200_000_characters_and_any_characters_survive(tmp_path: Path) -> None:
    question = 'He said: "one,\r\ntwo"\r' + "\u2028\x00" + "é" * 200_000
    quoted = '"' + question.replace('"', '""') + '"'
    source = tmp_path / "in.csv"
    source.write_bytes(f"prompt,model,score\n{quoted},m,1\n".encode())
    out = tmp_path / "table"
    assert run("csv", source, "--out", out).exit_code == 0
    assert load(out).questions == (question,)


def test_costs_without_a_single_token_have_no_price(tmp_path: Path) -> None:
    source = csv_file(tmp_path / "in.csv", ["prompt,model,score,tokens,cost", "A?,m,1,0,0.1"])
    refused = run("csv", source, "--out", tmp_path / "t")
    assert "'m': its answers have a cost, and not one token" in str(refused.exception)


# The appliance's own log


def judgement(**changed: object) -> dict[str, object]:
    record: dict[str, object] = {
        "request_id": "r1",
        "time": "2026-01-31T12:00:00Z",
        "question": "How long is the warranty?",
        "worker": "local-a",
        "answer": "It is 24 months.",
        "score": 1,
        "output_tokens": 12,
        "plan": "0 q Answer.",
    }
    return {name: value for name, value in {**record, **changed}.items() if value is not None}


def log(path: Path, judgements: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(judgement) + "\n" for judgement in judgements))
    return path


def test_judged_answers_become_a_table_and_the_later_judgement_counts(tmp_path: Path) -> None:
    one = log(
        tmp_path / "a.jsonl",
        [
            judgement(score=0.25, time="2026-02-01T12:00:00+02:00", request_id="late"),
            judgement(score=1, time="2026-02-01T11:00:00+02:00", request_id="early"),
            judgement(worker="remote-b", log_prob=-0.7, task="support"),
        ],
    )
    two = log(tmp_path / "b.jsonl", [judgement(question="Other?", answer=None, request_id="x")])
    out = tmp_path / "table"
    done = run("feedback", one, two, "--out", out)
    assert done.exit_code == 0, done.output
    table = load(out)
    assert sorted(table.tasks) == ["feedback", "feedback", "support"]
    score = dict(zip(zip(table.tasks, table.questions, strict=True), table.score, strict=True))
    assert score["feedback", "How long is the warranty?"][0] == 0.25
    assert score["support", "How long is the warranty?"][1] == 1
    assert b"months" not in gzip.decompress((out / "outcomes.csv.gz").read_bytes())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"score": 1.5}, "score is out of range"),
        ({"score": "1"}, "score must be a number"),
        ({"score": True}, "score must be a number"),
        ({"score": None}, "score must be a number"),
        ({"output_tokens": -1}, "output_tokens is out of range"),
        ({"output_tokens": None}, "output_tokens must be a number"),
        ({"log_prob": 0.1}, "log_prob is out of range"),
        ({"question": ""}, "question must be a text"),
        ({"question": " "}, "its question is empty"),
        ({"worker": None}, "worker must be a text"),
        ({"plan": 7}, "plan must be a text"),
        ({"task": 7}, "task must be a text"),
        ({"time": "yesterday"}, "time must be ISO 8601"),
        ({"time": "2026-01-31T12:00:00"}, "time must say its zone"),
        ({"user": "someone"}, "a field that a judgement does not have"),
        ({"request_id": "first"}, "this answer was judged before"),
    ],
)
def test_a_bad_judgement_is_refused_with_its_line_or_counted(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    good = judgement(request_id="first", question="Other?")
    source = log(tmp_path / "log.jsonl", [good, judgement(**changed)])
    refused = run("feedback", source, "--out", tmp_path / "table")
    assert str(refused.exception).startswith("log.jsonl:2: ")
    assert message in str(refused.exception)
    assert "warranty" not in str(refused.exception)
    done = run("feedback", source, "--out", tmp_path / "table", "--skip-bad")
    assert "1 bad rows were left out" in done.output
    assert load(tmp_path / "table").questions == ("Other?",)


@pytest.mark.parametrize("line", [b"", b"7", b"{", b'{"time": NaN}', b"\xff", b"[" * 90_000])
def test_a_line_that_is_no_judgement_is_refused(tmp_path: Path, line: bytes) -> None:
    source = tmp_path / "log.jsonl"
    source.write_bytes(json.dumps(judgement()).encode() + b"\n" + line + b"\n")
    refused = run("feedback", source, "--out", tmp_path / "t")
    assert str(refused.exception).startswith("log.jsonl:2: ")


# Writing


def one_row(**changed: Any) -> Row:
    fields: dict[str, Any] = {
        "where": "f:1",
        "prompt": prompt_of("t", "Q?", "f:1"),
        "model": "m",
        "answer": "x",
        "score": 1.0,
        "output_tokens": None,
    }
    return Row(**{**fields, **changed})


def test_a_prompt_given_twice_with_different_words_is_a_fault() -> None:
    rows = [one_row(prompt=Prompt("t:1", "t", "Q?")), one_row(prompt=Prompt("t:1", "t", "R?"))]
    with pytest.raises(OutcomesError, match="given before with another text"):
        gather(rows, Faults(), workers={})


def test_what_is_there_already_is_not_replaced(tmp_path: Path) -> None:
    gathered = gather([one_row()], Faults(), workers={})
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("there", "dangling"):
        with pytest.raises(OutcomesError, match="is there already"):
            write_folder(tmp_path / name, gathered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "there"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    gathered = gather([one_row()], Faults(), workers={})
    monkeypatch.setattr(write.Path, "write_bytes", full)
    with pytest.raises(OutcomesError, match="cannot be written: No space left on device"):
        write_folder(tmp_path / "table", gathered)
    assert list(tmp_path.iterdir()) == []


def test_literals_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from conductor_build.importers.forms import literal as f; print(f(\"{'a','b','c'}\"))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(shown) == 1


def test_a_table_survives_another_import_of_itself(tmp_path: Path) -> None:
    run("zeroeval", small(tmp_path / "z"), "--out", tmp_path / "one")
    run("zeroeval", tmp_path / "z" / "result_dirs", "--out", tmp_path / "two")
    for file in ("prompts.jsonl.gz", "outcomes.csv.gz", "workers.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    shutil.rmtree(tmp_path / "two")
