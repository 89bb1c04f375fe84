"""reasoning-gym's generators as tasks, played by a package of that name which is made here.
So that verifiers can be made to crash, to hang and to lie.
"""

from __future__ import annotations

import importlib
import sys

import pytest

from conductor_build.tasks.common import TaskError, Void
from conductor_build.tasks.gym import FORM, GymTask, Verifier, gym_tasks, readings

FAKE = """
import os, time
def readable(path):
    try: return bool(open(path).read())
    except OSError: return False
class Sums:
    def __init__(self, size, seed): self.size, self.seed = size, seed
    def __getitem__(self, i): return {"question": f"{self.seed}+{i}?", "answer": str(self.seed + i)}
    def score_answer(self, answer, item):
        print("noise on the standard output")
        if answer == "crash": raise RuntimeError("no")
        if answer == "die": os._exit(1)
        if answer == "hang": time.sleep(60)
        if answer == "lie": return float("nan")
        if answer == "spy": return float("KEY" in os.environ or readable("/etc/passwd"))
        return 1.0 if answer == item["answer"] else 0.2 * (item["answer"] in answer)
Sums.__module__ = "reasoning_gym.arithmetic.sums"
def create_dataset(name, **settings):
    if name != "sums": raise ValueError(name)
    return Sums(**settings)
"""


@pytest.fixture(scope="module")
def fake_package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake")
    (folder / "reasoning_gym").mkdir()
    (folder / "reasoning_gym" / "__init__.py").write_text(FAKE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        real = sys.modules.pop("reasoning_gym", None)
        importlib.invalidate_caches()
        yield
        sys.modules.pop("reasoning_gym", None)
        if real is not None:
            sys.modules["reasoning_gym"] = real


@pytest.fixture(scope="module")
def task(fake_package):
    verifier = Verifier(limit_s=1.0)
    yield GymTask("sums", 50, 7, verifier=verifier)
    verifier.close()


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("10", 1), ("The answer is 10.", 1), ("Adding them:\n\n10", 1), ("it may be 10 or 11", 0),
        ("11", 0), ("", 0), ("\ud800", 0), ("x" * 100_000, 0),
    ],
)  # fmt: skip
def test_a_reply_is_right_when_what_it_concludes_with_is(task, answer, score):
    assert task.score(task[3], answer) == score


def test_questions_are_drawn_from_the_seed_and_have_the_domain_of_their_shelf(task):
    assert task[3].question == f"7+3?\n\n{FORM}"
    assert (len(task), task.domain(task[0])) == (50, "math")
    with pytest.raises(IndexError):
        task[50]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("crash", "crashed"), ("die", "crashed"), ("hang", "timeout"), ("lie", "crashed")],
)
def test_a_verifier_that_breaks_is_void_and_the_next_score_is_a_score_again(task, answer, reason):
    with pytest.raises(Void, match=reason):
        task.score(task[3], answer)
    assert task.score(task[3], "10") == 1


def test_a_verifier_has_neither_our_environment_nor_our_files(task, monkeypatch):
    monkeypatch.setenv("KEY", "secret")
    assert task.score(task[3], "spy") == 0


def test_an_unknown_generator_or_setting_is_an_error(fake_package):
    with pytest.raises(TaskError, match="cannot make 'other'"):
        gym_tasks(["other"], size=1, seed=1)
    with pytest.raises(TaskError, match="TypeError"):
        GymTask("sums", 1, 1, verifier=Verifier(), settings={"colour": "red"})


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("conductor_build.tasks.gym.find_spec", lambda name: None)
    with pytest.raises(TaskError, match="pip install"):
        gym_tasks(["gcd"], size=1, seed=1)


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("42", ["42"]), ("", [""]), ("So x = 3, which gives\n\n**12**", ["12"]),
        ("First\nthen\nWorld, hello", ["World, hello"]),
    ],
)  # fmt: skip
def test_a_reply_has_a_few_readings(reply, wanted):
    assert set(wanted) <= set(readings(reply))
    assert len(readings(reply)) <= 3
