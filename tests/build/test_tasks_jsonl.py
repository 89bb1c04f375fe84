"""Questions of a file: how answers are judged, and what is wrong with a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from conductor_build.tasks import judge
from conductor_build.tasks.common import TaskError, Void
from conductor_build.tasks.jail import Jail
from conductor_build.tasks.jsonl import JsonlTask

JAIL = Jail(cpu_s=1, wall_s=4, memory_bytes=256 << 20)


def written(folder: Path, *rows: object) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Paris", True), ("The answer is **Paris**.", True), ("paris!", True),
        ("It is Paris, the capital.", False), ("Lyon", False), ("", False),
    ],
)  # fmt: skip
def test_exact_answers_are_read_as_the_appliance_reads_them(answer, right):
    assert judge.exact(answer, ["Paris"]) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("12.5", True), ("So the result is $12.50.", True), ("\\boxed{25/2}", True),
        ("first 3, then 12.5", True), ("12.6", False), ("twelve", False), ("", False),
        ("12.505", True), ("-12.5", False), ("12.5 of 13 km", False),
    ],
)  # fmt: skip
def test_numeric_answers_may_differ_by_the_tolerance(answer, right):
    assert judge.numeric(answer, 12.5, 0.01) is right


def test_large_numbers_are_compared_to_the_last_digit():
    assert judge.numeric("So it is 1,912,147.", 1912147, 0)
    assert not judge.numeric("So it is 1,912,148.", 1912147, 0)


CODE = "assert double(2) == 4\nassert double(-1) == -2"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("```python\ndef double(x):\n    return 2 * x\n```", True),
        ("So:\n```\nfoo\n```\nor better\n```py\ndef double(x): return x + x\n```\nDone.", True),
        ("def double(x): return 2 * x", True),
        ("```python\ndef double(x):\n    return x * x\n```", False),
        ("```python\ndef double(x)\n```", False),
        ("I cannot.", False),
        ("", False),
        ("```python\nimport sys\nsys.exit(0)\n```", False),
        ("```python\nimport os\nos._exit(0)\n```", False),
        ("```python\nx = 'a' * (4 << 30)\n```", False),
        ("```python\nprint('noise')\ndef double(x): return 2 * x\n```", True),
        ("```python\nraise SystemExit\n```\ud800", False),
    ],
)  # fmt: skip
def test_a_program_is_right_when_it_passes_its_tests(answer, right):
    assert judge.program(answer, CODE, JAIL) is right


def test_a_program_that_hangs_is_wrong_and_not_void():
    assert judge.program("while True: pass", CODE, Jail(wall_s=0.7)) is False


def test_a_bench_that_cannot_run_is_void(monkeypatch, tmp_path):
    monkeypatch.setattr("conductor_build.tasks.jail._INSIDE", tmp_path / "none.py")
    with pytest.raises(Void):
        judge.program("def double(x): return 2 * x", CODE, JAIL)


def test_a_file_holds_questions_of_all_three_kinds(tmp_path):
    path = written(
        tmp_path,
        {"question": "Capital of France?", "answer": ["Paris", "Paris, France"]},
        {"id": "n", "question": "Half of 25?", "answer": 12.5, "domain": "math"},
        {"question": "Write double(x).", "tests": CODE},
    )
    task = JsonlTask.read(path, JAIL)
    assert [task[place].key for place in range(len(task))] == ["1", "n", "3"]
    assert [task.domain(task[place]) for place in range(3)] == ["general", "math", "code"]
    answers = ("paris", "12.5", "def double(x): return 2 * x")
    assert [task.score(task[place], text) for place, text in enumerate(answers)] == [1, 1, 1]
    assert [task.score(task[place], "no") for place in range(3)] == [0, 0, 0]


def test_a_zipped_file_is_read(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"question": "1+1?", "answer": 2}\n'))
    assert len(JsonlTask.read(path)) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": 1}, "there is no question"),
        ({"question": "", "answer": 1}, "question must be a text"),
        ({"question": "q"}, "either an answer or tests"),
        ({"question": "q", "answer": 1, "tests": "pass"}, "either an answer or tests"),
        ({"question": "q", "answer": True}, "answer must be a text"),
        ({"question": "q", "answer": []}, "answer must be a text"),
        ({"question": "q", "answer": "a", "tolerance": 1}, "needs an answer that is a number"),
        ({"question": "q", "answer": 1, "tolerance": -1}, "tolerance must be"),
        ({"question": "q", "tests": "assert ("}, "line 1 of the tests is not Python"),
        ({"question": "q", "answer": 1, "domain": "A B"}, "a domain is a lower case word"),
        ({"question": "q", "answer": 1, "other": 1}, "a question is an object of"),
        ([], "a question is an object of"),
    ],
)  # fmt: skip
def test_a_faulty_line_is_named(tmp_path, row, message):
    path = written(tmp_path, {"question": "q", "answer": 1}, row)
    with pytest.raises(TaskError, match=f"questions.jsonl:2: .*{message}"):
        JsonlTask.read(path)


def test_a_file_without_a_question_or_with_one_id_twice_or_missing_is_an_error(tmp_path):
    with pytest.raises(TaskError, match="no question"):
        JsonlTask.read(written(tmp_path))
    row = {"id": "x", "question": "q", "answer": 1}
    with pytest.raises(TaskError, match=":2: this id"):
        JsonlTask.read(written(tmp_path, row, row))
    with pytest.raises(TaskError, match="no such file"):
        JsonlTask.read(tmp_path / "none.jsonl")
