"""Sketches: questions without end, whose answers are right, and what is wrong is not."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from conductor_build.tasks.common import TaskError
from conductor_build.tasks.sketches import DOMAINS, Sketches
from conductor_build.tasks.views import held_out

FORMS = ("{}", "Let me see.\nAnswer: {}", "The answer is {}.")
SOME = 700


@pytest.fixture(scope="module")
def sketches() -> Sketches:
    return Sketches(SOME, seed=11)


def test_there_are_at_least_six_domains_that_come_in_turn(sketches):
    found = [sketches.domain(sketches[place]) for place in range(SOME)]
    assert len(DOMAINS) >= 6
    assert {found.count(domain) for domain in DOMAINS} == {SOME // len(DOMAINS)}


@pytest.mark.parametrize("domain", DOMAINS)
def test_each_domain_has_thousands_of_different_questions(domain):
    many = Sketches(3000, seed=1, domains=[domain])
    assert len({many[place].question for place in range(3000)}) > 2000


@pytest.mark.parametrize("form", FORMS)
def test_the_right_answer_is_right_and_the_wrong_ones_are_wrong(sketches, form):
    for place in range(SOME):
        example = sketches[place]
        assert sketches.score(example, form.format(example.facts["answer"])) == 1.0
        assert example.facts["wrong"]
        for wrong in example.facts["wrong"]:
            assert sketches.score(example, form.format(wrong)) == 0.0


def told(domain: str) -> list[tuple[str, object]]:
    task = Sketches(60, seed=5, domains=[domain])
    return [(task[place].question, task[place].facts["answer"]) for place in range(60)]


def test_sums_are_what_python_makes_of_them():
    for question, answer in told("arithmetic"):
        assert eval(question.split(".")[0].removeprefix("Calculate ")) == answer


def test_programs_print_what_they_print(capsys):
    for question, answer in told("code"):
        exec(question.partition("\n")[2])
        assert capsys.readouterr().out.strip() == str(answer)


def test_dates_are_as_many_days_later():
    for question, answer in told("dates"):
        words = question.split()
        begin, days = date.fromisoformat(words[5]), int(words[8])
        assert (begin + timedelta(days)).isoformat() == answer


def test_words_are_sorted():
    for question, answer in told("sorting"):
        words = question.partition(": ")[2].partition(".")[0].split(", ")
        assert sorted(words) == str(answer).split(", ")


def test_the_same_seed_gives_the_same_questions_and_another_one_others(sketches):
    again, other = Sketches(SOME, seed=11), Sketches(SOME, seed=12)
    assert [sketches[n] for n in range(30)] == [again[n] for n in range(30)]
    assert not {other[n].question for n in range(30)} & {again[n].question for n in range(30)}


def test_a_longer_task_begins_with_the_same_questions(sketches):
    longer = Sketches(5 * SOME, seed=11)
    assert [longer[n] for n in range(50)] == [sketches[n] for n in range(50)]


def test_difficulty_is_drawn_within_its_bounds():
    task = Sketches(100, seed=3, difficulty=(2, 3))
    assert {task[place].facts["difficulty"] for place in range(100)} == {2, 3}


def test_some_can_be_held_out_by_their_words(sketches):
    kept, held = held_out(sketches, 0.2, seed=3)
    assert len(kept) + len(held) == SOME
    assert 0.1 < len(held) / SOME < 0.3
    seen = {kept[place].question for place in range(len(kept))}
    assert not seen & {held[place].question for place in range(len(held))}


def test_what_cannot_be_drawn_is_refused():
    for wrong in ({"domains": ["poems"]}, {"difficulty": (3, 2)}, {"difficulty": (0, 2)}):
        with pytest.raises(TaskError):
            Sketches(10, seed=1, **wrong)
    with pytest.raises(TaskError):
        Sketches(0, seed=1)
    with pytest.raises(IndexError):
        Sketches(10, seed=1)[10]
