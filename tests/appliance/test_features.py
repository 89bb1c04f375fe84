"""From a request to the network's numbers: cards, prices, windows, and what was heard."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest

from conductor.core import Candidate, Card, Price
from conductor.errors import BundleError
from conductor.planner import facts as factsfile
from conductor.planner import features
from conductor.planner.facts import Domain, Facts
from conductor.planner.lexical import FEATURES, lexical
from support.plans import candidate, heard, request

FACTS = Facts(
    sentence=4,
    lexical=FEATURES,
    domains=(
        Domain("gsm", "math", 200.0, 0.8),
        Domain("crux", "code", 100.0, 0.5),
        Domain("other", "general", 300.0, 0.6),
    ),
    cost_weights=(0.003, 2.0),
    max_calls=6,
    max_rounds=5,
)


def embed(text: str) -> np.ndarray:
    return np.array([len(text), 1, 2, 3], np.float32)


def never(one: str, other: str) -> bool:
    return False


# -- cards and prices -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ({"gsm": 0.9, "math": 0.1, "general": 0.2}, [0.9, 0.2, 0.2]),
        ({"math": 0.7, "general": 0.2}, [0.7, 0.2, 0.2]),
        ({"general": 0.2}, [0.2, 0.2, 0.2]),
        ({"code": 0.3}, [0.8, 0.3, 0.6]),
        ({"law": 0.3}, [0.8, 0.5, 0.6]),
        ({}, [0.8, 0.5, 0.6]),
    ],
)
def test_a_skill_is_the_domains_own_else_its_familys_else_general_else_the_level(card, expected):
    worker = Candidate(Card(card, 1.0, "declared"), Price(), True, 8192)
    assert features.skills((worker,), FACTS)[0] == pytest.approx(expected)


def test_a_cost_is_of_the_expected_answer_and_the_prompt_per_thousand_requests():
    price = Price(input_usd_per_mtok=2.0, output_usd_per_mtok=10.0)
    wordy = Candidate(Card({}, 1.0, "declared", verbosity=1.5), price, False, 8192)
    costs = features.costs((wordy, candidate(price=0.0)), 500, FACTS)
    # 200 tokens x 1.5 x 10 USD per million x 1,000 requests, and 500 tokens at 2 USD
    assert costs[0] == pytest.approx([3.0 + 1.0, 1.5 + 1.0, 4.5 + 1.0])
    assert costs[1] == pytest.approx([0, 0, 0])


def test_a_pool_of_nobody_has_no_rows():
    assert features.skills((), FACTS).shape == (0, 3)
    assert features.costs((), 10, FACTS).shape == (0, 3)


def test_the_largest_numbers_of_the_wire_stay_finite():
    dear = Candidate(Card({}, 1.0, "declared", 100.0), Price(1e12, 1e12), False, 8192)
    assert np.isfinite(features.costs((dear,), 2**53, FACTS)).all()


def test_a_prompt_is_its_vector_and_its_lexical_features():
    found = features.prompt("How many?", embed)
    assert found.dtype == np.float32 and len(found) == FACTS.width
    assert found[:4].tolist() == [9, 1, 2, 3]
    assert (found[4:] == lexical("How many?")).all()


def test_windows_count_unless_nobodys_holds_the_conversation():
    pool = (candidate(context=1000), candidate(context=4000))
    asked = replace(request(*pool), prompt_tokens=1000)
    assert features.roomy(asked).tolist() == [False, True]
    assert features.roomy(replace(asked, prompt_tokens=9000)).tolist() == [True, True]


# -- what was heard ---------------------------------------------------------------------------


def hear(*answers: str, workers: tuple[int | None, ...] = (), pool: int = 4):
    asked = replace(request(*[candidate()] * pool), heard=heard(*answers, workers=workers))
    return features.hear(asked, never)


def test_answers_that_agree_are_equal_and_empty_ones_are_asked_without_an_answer():
    said = hear("The answer is 7.", "", "7", "8", workers=(2, 0, 1, 3))
    assert said.asked.all()
    assert said.answer[0] == -1
    assert said.answer[2] == said.answer[1] != said.answer[3]
    assert said.steps == {2: 0, 1: 2, 3: 3}
    assert said.agreeing[0] == said.agreeing[2] == (0, 2)
    assert said.stands == 3


def test_nothing_heard_and_nothing_said_leave_nothing_standing():
    nothing = hear()
    assert not nothing.asked.any() and nothing.stands is None and not nothing.steps
    empty = hear("", "")
    assert empty.asked.tolist() == [True, True, False, False]
    assert empty.stands is None and (empty.answer == -1).all()


def test_an_answer_of_marks_alone_agrees_with_nobody_but_stands():
    said = hear("!!!", "!!!")
    assert (said.answer == -1).all()
    assert said.agreeing == {0: (0,), 1: (1,)} and said.stands == 1


def test_who_is_no_candidate_any_more_counts_in_who_agrees():
    said = hear("7", "7", workers=(1, None))
    assert said.asked.tolist() == [False, True, False, False]
    assert said.agreeing[0] == (0, 1) and said.stands == 1


def test_of_two_answers_of_one_worker_the_first_that_says_something_counts():
    said = hear("", "5", "6", workers=(1, 1, 1))
    assert said.steps == {1: 1}


def test_prose_is_compared_by_whoever_can():
    asked = replace(
        request(*[candidate()] * 2),
        heard=heard(
            "Cats sleep a lot because they hunt at night. In the day they rest in warm places.",
            "As hunters of the night, cats rest by day. They look for somewhere warm to sleep.",
        ),
    )
    assert features.hear(asked, lambda one, other: True).agreeing[0] == (0, 1)
    assert features.hear(asked, never).agreeing[0] == (0,)


# -- large pools ------------------------------------------------------------------------------


def state(skill: list[list[float]], asked: tuple[int, ...] = (), gone: tuple[int, ...] = ()):
    count = len(skill)
    flags = np.zeros(count, np.bool_)
    heard_of, present = flags.copy(), ~flags
    heard_of[list(asked)], present[list(gone)] = True, False
    return features.State(
        np.zeros(1, np.float32), np.array(skill, np.float32), np.zeros((count, 3), np.float32),
        present, heard_of, np.full(count, -1), flags, np.float32(0.1),
        np.int64(1), np.int64(5), np.int64(5),
    )  # fmt: skip


def test_the_short_list_has_the_specialists_and_who_was_heard():
    skill = [[0.5, 0.5, 0.5]] * 20
    skill[7], skill[11], skill[15] = [0.9, 0.1, 0.1], [0.1, 0.1, 0.9], [0.1, 0.9, 0.1]
    rows = features.shortlist(state(skill, asked=(3,), gone=(19,)), 5)
    assert {3, 7, 11, 15} <= set(rows.tolist()) and 19 not in rows and len(rows) == 5
    assert rows.tolist() == sorted(rows.tolist())
    assert features.shortlist(state(skill), 20).tolist() == list(range(20))


def test_rows_of_a_state_keep_what_is_not_of_workers():
    some = state([[0.1] * 3, [0.2] * 3, [0.3] * 3])
    part = features.rows_of(some, np.array([0, 2]))
    assert part.skill[:, 0] == pytest.approx([0.1, 0.3])
    assert part.prompt is some.prompt and part.weight == some.weight


# -- facts ------------------------------------------------------------------------------------

BAD = {
    "format": 2,
    "features": {"sentence": 0, "lexical": []},
    "domains": [],
    "cost_weights": [2.0, 0.003],
    "max_calls": 0,
    "max_rounds": True,
}


def test_facts_come_back_as_they_were_written():
    assert factsfile.decode(factsfile.encode(FACTS)) == FACTS


@pytest.mark.parametrize("name", BAD)
def test_facts_out_of_form_are_refused_by_name_of_the_field(name):
    record = orjson.loads(factsfile.encode(FACTS))
    record[name] = BAD[name]
    with pytest.raises(BundleError, match=r"facts\.json cannot be used"):
        factsfile.decode(orjson.dumps(record))


@pytest.mark.parametrize(
    "change",
    [
        {"cost_weights": [1.0]},
        {"cost_weights": [0.0, 1.0]},
        {"cost_weights": "xx"},
        {"features": {"sentence": 4, "lexical": ["a", "a"]}},
        {"features": {"sentence": 4, "lexical": ["A b"]}},
        {"domains": [{"name": "a", "family": "b", "output_tokens": 1.0, "level": 2.0}]},
        {"domains": [{"name": "a", "family": "b", "output_tokens": 1.0, "level": 0.5}] * 2},
        {"domains": [7]},
        {"more": 1},
    ],
)
def test_every_part_of_the_facts_is_checked(change):
    record = {**orjson.loads(factsfile.encode(FACTS)), **change}
    with pytest.raises(BundleError):
        factsfile.decode(orjson.dumps(record))
    with pytest.raises(BundleError):
        factsfile.decode(b"\xff" + orjson.dumps(record))
