"""Tasks made of tasks, and tables of recorded outcomes as tasks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from conductor.plan.agreement import clusters
from conductor_build.tasks.common import Example, TaskError, Void, judged
from conductor_build.tasks.recorded import RecordedTask
from conductor_build.tasks.views import Mixture, held_out, part
from support.outcomes import table


@dataclass(frozen=True)
class Numbers:
    """Questions 0 to n-1; the answer to each is itself."""

    count: int
    name: str = "number"

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < self.count:
            raise IndexError
        return Example(str(index), f"{self.name} {index}")

    def score(self, example: Example, answer: str) -> float:
        return float(answer == example.key)

    def domain(self, example: Example) -> str:
        return self.name


def questions(task) -> list[str]:
    return [task[place].question for place in range(len(task))]


# -- verifiers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odd(Numbers):
    """A verifier that does what it is told."""

    def score(self, example: Example, answer: str) -> float:
        return float(eval(answer))


@pytest.mark.parametrize("answer", ["1 / 0", "nothing", "[][1]", "float('nan')", "1.5", "-1"])
def test_whatever_a_verifier_throws_or_makes_up_is_void(answer):
    task = Odd(1)
    with pytest.raises(Void, match="crashed"):
        judged(task, task[0], answer)
    assert judged(task, task[0], "0.25") == 0.25


# -- slices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [((0, 2), [0, 1]), ((3, 99), [3, 4]), ((0, 5, 2), [0, 2, 4]), ((4, 2), [])],
)
def test_a_slice_is_a_view_of_some_questions(bounds, wanted):
    view = part(Numbers(5), *bounds)
    assert questions(view) == [f"number {place}" for place in wanted]
    assert all(view.score(view[i], str(place)) == 1 for i, place in enumerate(wanted))


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_a_view_has_no_question_outside_its_length(index):
    for view in (part(Numbers(5), 0, 2), Mixture([("a", Numbers(2))])):
        with pytest.raises(IndexError):
            view[index]


# -- mixtures -------------------------------------------------------------------------------------


def test_a_mixture_asks_its_tasks_in_turn_and_scores_with_the_right_one():
    mixed = Mixture([("a", Numbers(1, "math")), ("b", Numbers(3, "code"))])
    assert questions(mixed) == ["math 0", "code 0", "code 1", "code 2"]
    assert [mixed[i].key for i in range(4)] == ["a/0", "b/0", "b/1", "b/2"]
    assert [mixed.domain(mixed[i]) for i in (0, 3)] == ["math", "code"]
    assert [mixed.score(mixed[3], answer) for answer in ("2", "0")] == [1.0, 0.0]


def test_mixtures_may_hold_mixtures():
    inner = Mixture([("a", Numbers(2))])
    outer = Mixture([("x", inner), ("y", part(Numbers(9), 7, 8))])
    assert outer[0].key == "x/a/0"
    assert outer.score(outer[1], "7") == 1.0


def test_two_tasks_of_one_name_are_an_error():
    with pytest.raises(TaskError, match="different names"):
        Mixture([("a", Numbers(1)), ("a", Numbers(2))])


# -- held out -------------------------------------------------------------------------------------


def test_held_out_and_training_questions_are_all_and_share_none():
    training, held = held_out(Numbers(1000), 0.2, seed=3)
    assert sorted(questions(training) + questions(held)) == sorted(questions(Numbers(1000)))
    assert 150 < len(held) < 250


def test_what_is_held_out_does_not_depend_on_how_many_there_are():
    few, many = (set(questions(held_out(Numbers(n), 0.3, seed=1)[1])) for n in (100, 400))
    assert few == {one for one in many if int(one.split()[1]) < 100}


def test_the_same_words_are_on_the_same_side_in_every_task():
    twice = Mixture([("a", Numbers(200)), ("b", Numbers(200))])
    training, held = held_out(twice, 0.5, seed=8)
    assert set(questions(training)).isdisjoint(questions(held))


def test_another_seed_holds_out_others():
    one, other = (questions(held_out(Numbers(200), 0.5, seed=seed)[1]) for seed in (1, 2))
    assert one != other


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_a_share_outside_0_to_1_is_an_error(share):
    with pytest.raises(TaskError):
        held_out(Numbers(3), share, seed=0)


# -- recorded outcomes ----------------------------------------------------------------------------


def recorded() -> RecordedTask:
    outcomes = table(
        [[1, 1, 0, 0.5], [0, float("nan"), 1, 0]],
        [[7, 7, 2, -1], [-1, -1, 5, -1]],
        tasks=["gsm", "crux"],
    )
    return RecordedTask(outcomes, {"gsm": "math"})


def test_a_recorded_answer_has_its_recorded_score():
    task = recorded()
    told = [task.score(task[0], task.answer(task[0], worker)) for worker in "abcd"]
    assert told == [1.0, 1.0, 0.0, 0.5]
    assert [task.domain(task[place]) for place in range(2)] == ["math", "crux"]


def test_recorded_answers_agree_as_the_answers_did():
    task = recorded()
    assert clusters([task.answer(task[0], worker) for worker in "abcd"]) == (0, 0, 1, 2)
    # without an extracted answer nobody agrees with anybody
    assert clusters([task.answer(task[1], worker) for worker in "acd"]) == (0, 1, 2)


def test_what_was_not_recorded_is_void():
    task = recorded()
    with pytest.raises(Void, match="unrecorded"):
        task.answer(task[1], "b")
    with pytest.raises(Void, match="unrecorded"):
        task.score(task[0], "some answer that nobody gave")


def test_a_final_answer_around_a_recorded_one_has_its_score():
    task = recorded()
    assert task.score(task[0], f"They agree: {task.answer(task[0], 'c')}.") == 0.0
