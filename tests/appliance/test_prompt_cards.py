"""How a worker is described: its figures, and what it may be shown."""

from __future__ import annotations

import pytest

from conductor.core import Candidate, Card, Flow, Heard, PlanRequest, Price
from conductor.plan.cards import MAX_DOMAINS, figure, worker_lines

LOCAL = Candidate(Card({"general": 0.5}, 10, "measured"), Price(), True, 4096)
REMOTE = Candidate(Card({"math": 0.931}, 81.4, "declared", 2.0), Price(3, 15), False, 128_000)


def request(*candidates: Candidate, **more: object) -> PlanRequest:
    return PlanRequest("r", "Why?", candidates or (LOCAL, REMOTE), 1000, **more)  # type: ignore[arg-type]


def sees(**more: object) -> list[str]:
    return [line.partition("; sees ")[2] for line in worker_lines(request(**more)).splitlines()]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.5, "0.5"), (0.456, "0.46"), (1, "1"), (14.2, "14"), (123.4, "120"),
        (1e6, "1000000"), (0.00012345, "0.00012"), (6.96, "7"), (99.6, "100"),
    ],
)  # fmt: skip
def test_a_figure_has_two_digits_that_count(value, text):
    assert figure(value) == text


def test_a_worker_is_a_line_without_a_name():
    assert worker_lines(request()) == (
        "0: local; skill general 0.5; 10 tokens/s; free; window 4k; sees all\n"
        # (1,000 x 3 + 400 x 2.0 x 15) / 1e6 x 1,000 = 15
        "1: remote; claimed math 0.93; 81 tokens/s; $15 a thousand; window 128k; sees all\n"
    )


def test_a_card_of_many_domains_is_cut_and_keeps_general():
    skill = {f"d{number:02}": 0.5 for number in range(20)} | {"general": 0.7, "zulu": 0.1}
    line = worker_lines(request(Candidate(Card(skill, 1, "measured"), Price(), True, 1)))
    words = line.partition("skill ")[2].partition(";")[0].split()
    assert len(words) == 2 * MAX_DOMAINS
    assert words[-2:] == ["general", "0.7"]


def test_an_empty_card_is_told_as_such():
    line = worker_lines(request(Candidate(Card({}, 1, "measured"), Price(), True, 900)))
    assert "skill unknown" in line
    assert "window 900" in line


def flow(*sees_: set[int], heard: tuple[int, ...] = ()) -> Flow:
    """Class 0 the question, 1 what `redact` makes of it, 2 whatever is public."""
    joins = ((0, 0, 0), (0, 1, 1), (0, 1, 2))
    return Flow(0, 0, heard, joins, (1, 1, 2), tuple(map(frozenset, sees_)))


def test_who_may_see_every_class_sees_all():
    assert sees(flow=flow({0, 1}, {0, 1}, {0, 1}), may_redact=True) == ["all", "all"]


def test_a_veiled_worker_sees_what_redact_makes_and_none_of_the_planner_s_words():
    assert sees(flow=flow({0}, {0, 1}, {0, 1}), may_redact=True) == ["all", "redacted q"]


def test_without_redact_a_veiled_worker_sees_nothing():
    assert sees(flow=flow({0}, {0, 1}, {0, 1})) == ["all", "nothing"]
    assert sees(flow=flow({0}, {0, 1}, {0, 1}), may_redact=True, one_step=True)[1] == "nothing"


def test_results_are_named_by_their_numbers():
    heard = (Heard(0, 0, "a", 1), Heard(1, 0, "b", 1))
    told = sees(flow=flow({0}, {0, 1}, {0, 1}, heard=(0, 2)), heard=heard, may_redact=True)
    assert told == ["all", "1, redacted q, redacted 0"]


def test_who_sees_the_question_but_not_every_class_is_told_piece_by_piece():
    assert sees(flow=flow({0, 1}, {0, 1}, {0}), may_redact=True)[1] == "q, own words"
