"""What plans mean over rounds: tables, laws, and that the daemon plays by the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conductor.core import Failure
from conductor.errors import ApiError, WorkerError
from conductor.plan.agreement import NONE
from conductor.plan.language import MAX_TOTAL_STEPS, Plan, View, parse
from conductor.run.conduct import Conducted
from conductor.run.exchange import (
    Limits,
    Progress,
    Room,
    Used,
    calls,
    elect,
    goes_on,
    may_answer,
    needed,
    room,
    settle,
    shown,
    stands,
    waves,
)
from support.fakes import Made, kit, parsed

BESIDE = "0 q -\n1 q -\n"
CHAIN = "0 q -\n1 0 -\n2 1 -\n"
UNUSED = "0 q -\n1 q -\n2 q,0 -\n"
VOTE = "0 q -\n1 q -\n2 q -\nvote 0,1,2 -\n"
NESTED = "0 q -\n1 q -\nvote 0,1 -\n2 q,0 -\nvote 2,3 -\n"
ACCEPT = "vote 1 -\n"


def plan(text: str, first: int = 0) -> Plan:
    return parse(text, first)


# -- what runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "look", "steps"),
    [
        ("", 0, False, ()),
        ("", 4, True, ()),
        ("0 q -\n", 0, False, (0,)),
        (BESIDE, 0, True, (0, 1)),
        (BESIDE, 0, False, (1,)),
        (BESIDE, 3, False, (4,)),
        (CHAIN, 0, False, (0, 1, 2)),
        (UNUSED, 0, False, (0, 2)),
        (UNUSED, 0, True, (0, 1, 2)),
        ("0 q,1 -\n1 q -\n", 2, False, (3,)),
        ("0 1 -\n1 2 -\n", 2, False, (2, 3)),
        ("0 q -\n1 * -\n", 2, False, (2, 3)),
        (VOTE, 0, False, (0, 1, 2, 3)),
        (NESTED, 0, False, (0, 1, 2, 3, 4)),
        (ACCEPT, 2, False, (2,)),
        ("vote 0,1 -\nvote 0 -\n", 2, False, (3,)),
    ],
)
def test_a_look_runs_all_steps_and_a_final_round_what_its_last_one_needs(
    text: str, first: int, look: bool, steps: tuple[int, ...]
) -> None:
    assert needed(plan(text, first), look) == steps


@pytest.mark.parametrize(
    ("text", "first", "look", "expected"),
    [
        ("", 0, False, ()),
        (BESIDE, 0, True, ((0, 1),)),
        (CHAIN, 0, True, ((0,), (1,), (2,))),
        (UNUSED, 0, True, ((0, 1), (2,))),
        (VOTE, 0, False, ((0, 1, 2), (3,))),
        (NESTED, 0, False, ((0, 1), (2, 3), (4,))),
        ("0 q,0,1 -\n1 1 -\n2 q,2 -\n", 2, True, ((2, 3), (4,))),
    ],
)
def test_a_step_runs_in_the_wave_after_the_last_that_it_is_shown(
    text: str, first: int, look: bool, expected: tuple[tuple[int, ...], ...]
) -> None:
    assert waves(plan(text, first), look) == expected


@pytest.mark.parametrize(
    ("text", "look", "expected"),
    [("", False, 0), (BESIDE, True, 2), (BESIDE, False, 1), (VOTE, False, 3), (NESTED, True, 3)],
)
def test_only_workers_that_run_are_calls(text: str, look: bool, expected: int) -> None:
    assert calls(plan(text), look) == expected


@pytest.mark.parametrize(
    ("text", "first", "look", "expected"),
    [
        ("", 0, False, ()),
        (CHAIN, 0, False, (2,)),
        (CHAIN, 0, True, (0, 1, 2)),
        (VOTE, 0, False, (0, 1, 2, 3)),
        (NESTED, 0, False, (0, 1, 2, 3, 4)),
        ("0 q -\n1 0 -\n2 q -\nvote 1,2 -\n", 0, False, (1, 2, 3)),
        ("0 q -\nvote 0,2 -\n", 2, False, (2, 3)),
    ],
)
def test_what_may_become_the_answer(
    text: str, first: int, look: bool, expected: tuple[int, ...]
) -> None:
    assert may_answer(plan(text, first), look) == expected


# -- which round follows ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "look", "used", "expected"),
    [
        (BESIDE, 0, True, Used(), True),
        (BESIDE, 0, False, Used(), False),
        ("", 2, True, Used(1, 2, 2), False),
        (ACCEPT, 2, True, Used(1, 2, 2), False),
        (BESIDE, 2, True, Used(1, 2, 2), True),
        (BESIDE, 4, True, Used(2, 4, 4), False),
        (BESIDE, 4, True, Used(9, 4, 4), False),
        (BESIDE, 2, True, Used(1, 2, 8), True),
        (BESIDE, 7, True, Used(1, 7, 7), True),
        (BESIDE, 8, True, Used(1, 8, 8), False),
    ],
)
def test_a_round_follows_a_look_while_there_is_one_left_and_something_to_choose(
    text: str, first: int, look: bool, used: Used, expected: bool
) -> None:
    assert goes_on(plan(text, first), look, Limits(), used) is expected


@pytest.mark.parametrize("most", range(1, 6))
def test_no_request_has_more_rounds_than_it_may(most: int) -> None:
    limits, used = Limits(max_rounds=most), Used()
    while goes_on(plan("0 q -\n", used.steps), True, limits, used):
        assert room(limits, used).rounds_left > 0
        used = Used(used.rounds + 1, used.steps + 1, used.calls + 1)
    assert used.rounds + 1 == most
    assert room(limits, used).rounds_left == 0


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (Used(), Room(2, 5, 8)),
        (Used(1, 2, 3), Room(1, 5, 5)),
        (Used(2, 7, 8), Room(0, 3, 0)),
        (Used(3, 10, 11), Room(0, 0, 0)),
    ],
)
def test_what_a_round_may_use_is_what_the_others_left(used: Used, expected: Room) -> None:
    assert room(Limits(), used) == expected


# -- what is shown, elected, kept -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first", "look", "answered", "expected"),
    [
        ("0 q -\n", 0, True, {}, View(True, ())),
        ("0 - Guess.\n", 0, True, {}, View(False, ())),
        ("0 0,1 -\n", 2, True, {0, 1}, View(False, (0, 1))),
        ("0 0,1 -\n", 2, False, {1}, View(False, (1,))),
        ("0 0,1 -\n", 2, False, {}, None),
        ("0 q,0,1 -\n", 2, False, {}, View(True, ())),
        ("0 * -\n", 3, False, {1}, View(True, (1,))),
        ("vote 0,1 -\n", 2, False, {1}, View(False, (1,))),
        ("vote 0,1 -\n", 2, False, {}, None),
    ],
)
def test_a_step_is_shown_the_answers_that_there_are(
    text: str, first: int, look: bool, answered: set[int], expected: View | None
) -> None:
    assert shown(plan(text, first), first, look, answered) == expected


@pytest.mark.parametrize(("look", "expected"), [(True, View(True, ())), (False, None)])
def test_a_final_round_is_not_made_of_what_failed_in_it(look: bool, expected: View | None) -> None:
    assert shown(plan("0 q -\n1 q,0 -\n"), 1, look, set()) == expected


@pytest.mark.parametrize(
    ("steps", "answers", "elected"),
    [
        ((0,), {0: 7}, 0),
        ((1,), {1: NONE}, 1),
        ((0, 1, 2), {0: 1, 1: 2, 2: 2}, 1),
        ((0, 1, 2), {0: 1, 1: 2, 2: 3}, 0),
        ((0, 1, 2), {0: NONE, 1: NONE, 2: 3}, 2),
        ((0, 1), {0: NONE, 1: NONE}, 0),
        ((2, 3, 5), {2: 0, 3: 4, 5: 4}, 3),
        ((0, 1, 2, 3), {0: 5, 1: 6, 2: 6, 3: 5}, 0),
    ],
)
def test_a_vote_elects_what_most_agree_with(
    steps: tuple[int, ...], answers: Mapping[int, int], elected: int
) -> None:
    assert elect(View(False, steps), answers) == elected


@pytest.mark.parametrize(
    ("text", "first", "look", "answered", "stood", "expected"),
    [
        (BESIDE, 0, True, {0, 1}, None, 1),
        (BESIDE, 0, True, {0}, None, 0),
        (BESIDE, 0, True, set(), None, None),
        (BESIDE, 2, True, {0, 1}, 1, 1),
        (BESIDE, 2, False, {0, 1, 3}, 0, 3),
        (BESIDE, 2, False, {0, 1, 2}, 0, 0),
        ("", 2, False, {0, 1}, 0, 0),
        (ACCEPT, 2, False, {0, 1, 2}, 0, 2),
        (UNUSED, 0, False, {0}, None, None),
    ],
)
def test_the_last_answer_stands_or_else_the_one_before(
    text: str, first: int, look: bool, answered: set[int], stood: int | None, expected: int | None
) -> None:
    assert stands(plan(text, first), look, answered, stood) == expected


# -- played from records ----------------------------------------------------------------------


def test_two_that_agree_are_accepted_and_two_that_do_not_are_asked_a_third() -> None:
    first = settle(Progress(), plan(BESIDE), True, {0: 4, 1: 4}, 2)
    assert first == Progress(Used(1, 2, 2), (4, 4), (0, 1), 1)
    kept = settle(first, plan("", 2), False, {}, 0)
    assert kept == Progress(Used(2, 2, 2), (4, 4), (0, 1), 1)
    differ = settle(Progress(), plan(BESIDE), True, {0: 4, 1: 5}, 2)
    third = settle(differ, plan("2 q -\n", 2), False, {2: 4}, 1)
    assert third == Progress(Used(2, 3, 3), (4, 5, 4), (0, 1, 2), 2)


def test_a_vote_over_all_rounds_names_the_worker_step_that_it_elects() -> None:
    first = settle(Progress(), plan(BESIDE), True, {0: 4, 1: 5}, 2)
    last = settle(first, plan("2 q -\n3 q -\nvote 0,1,2,3 -\n", 2), False, {2: 5, 3: 9}, 2)
    assert last == Progress(Used(2, 5, 4), (4, 5, 5, 9, 5), (0, 1, 2, 3, 1), 1)
    again = settle(last, plan("vote 4 -\n", 5), False, {}, 0)
    assert (again.stands, again.answers[-1]) == (1, 5)


def test_a_later_round_that_fails_leaves_what_stood() -> None:
    first = settle(Progress(), plan(BESIDE), True, {0: 4}, 2)
    assert (first.answers, first.stands) == ((4, None), 0)
    last = settle(first, plan("2 q -\n3 q,2 -\n", 2), False, {3: 8}, 1)
    assert (last.answers, last.stands) == ((4, None, None, None), 0)


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[str, bool]]:
    """Plans for up to four rounds, in text, with whether their engine asks for a look."""
    rounds, first = [], 0
    for turn in range(draw(st.integers(1, 4))):
        lines = []
        for number in range(first, first + draw(st.integers(0 if turn else 1, 3))):
            seen = [str(one) for one in range(number) if draw(st.booleans())]
            if seen and draw(st.integers(0, 3)) == 0:
                lines.append(f"vote {','.join(seen)} -\n")
            else:
                access = "*" if draw(st.integers(0, 4)) == 0 else ",".join(["q", *seen])
                access = ",".join(seen) if seen and draw(st.integers(0, 4)) == 0 else access
                lines.append(f"{draw(st.integers(0, 1))} {access} Do part {number}.\n")
        if first + len(lines) > MAX_TOTAL_STEPS:
            break
        rounds.append(("".join(lines), draw(st.integers(0, 3)) > 0))
        first += len(lines)
    return rounds


outcomes = st.builds(
    lambda said, failed: {step: one for step, one in enumerate(said) if step not in failed},
    st.lists(st.integers(0, 2), min_size=MAX_TOTAL_STEPS, max_size=MAX_TOTAL_STEPS),
    st.sets(st.integers(0, MAX_TOTAL_STEPS - 1), max_size=4),
)
"""What each step answers; one that is left out fails."""


@given(scripts(), outcomes)
def test_progress_grows_by_every_round_and_never_loses_an_answer(
    script: list[tuple[str, bool]], said: dict[int, int]
) -> None:
    before = Progress()
    for text, look in script:
        made = plan(text, before.used.steps)
        runs = needed(made, look)
        after = settle(before, made, look, said, calls(made, look))
        assert hash(after) == hash(settle(before, made, look, said, calls(made, look)))
        assert after.answers[: len(before.answers)] == before.answers
        assert after.used.steps == len(after.answers) == before.used.steps + len(made.steps)
        assert set(may_answer(made, look)) <= set(runs)
        assert sorted(one for wave in waves(made, look) for one in wave) == list(runs)
        if before.stands is not None:
            assert after.stands is not None
        if after.stands is not None:
            assert after.answers[after.stands] is not None
        before = after


@given(scripts(), outcomes)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_daemon_plays_a_request_as_it_is_played_from_records(
    tmp_path: Path, script: list[tuple[str, bool]], said: dict[int, int]
) -> None:
    asyncio.run(_check_played(tmp_path, script, said))


async def _check_played(
    directory: Path, script: list[tuple[str, bool]], said: dict[int, int]
) -> None:
    limits = Limits(max_calls=20)
    progress, ran = Progress(), []
    for text, wanted in script:
        made = plan(text, progress.used.steps)
        if not made.steps and progress.stands is None:
            return  # no engine may keep what is not there
        look = goes_on(made, wanted, limits, progress.used)
        progress = settle(progress, made, look, said, calls(made, look))
        ran += needed(made, look)
        if not look:
            break
        if progress.stands is None:
            break
    else:
        return  # the script is over, and its last round asks for a further one

    box = kit(directory)
    box.planner.script = list(script)
    called: list[int] = []

    def answered(made: Made) -> str:
        step = int(made.seen.rpartition("Do part ")[2][0])
        called.append(step)
        if step not in said:
            raise WorkerError(Failure.BAD_REQUEST)
        return f"step {step}\nThe answer is {said[step]}."

    box.caller.answer = answered
    state = Conducted("req_1")
    try:
        async with box.conduct.answer(state, *parsed(), box.key, None) as begun:
            assert begun.body is not None
            text = begun.body["choices"][0]["message"]["content"]
    except ApiError:
        assert progress.stands is None
    else:
        assert progress.stands is not None
        assert text == f"step {progress.stands}\nThe answer is {said[progress.stands]}."
    assert set(called) <= set(ran)
    assert {step for step in called if step in said} >= {
        step for step in ran if progress.answers[step] is not None and _asks(script, step)
    }


def _asks(script: list[tuple[str, bool]], step: int) -> bool:
    lines = "".join(text for text, _ in script).splitlines()
    return not lines[step].startswith("vote")
