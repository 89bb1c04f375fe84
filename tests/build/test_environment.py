"""Episodes worked out by hand, and every plan of random ones held against the daemon's rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conductor.plan.language import Plan, resolve
from conductor.plan.validate import Head, PlanPool, validate
from conductor.run.exchange import Limits, Progress, goes_on, room, settle
from conductor_build import grpo
from conductor_build.environment import Draw, Episodes, deal
from conductor_build.outcomes import Table
from conductor_build.pocket.state import KEEP, LAST, LOOK, MORE
from support.outcomes import NAN, generated, table
from support.training import bare_deck, careless, dealt

A, B, C = range(3)
# Answers cost 1, 2 and 3. Prompts: a is wrong; all are right and agree; a is not recorded.
TABLE = table(
    [[0, 1, 1], [1, 1, 1], [NAN, 0, 1]],
    [[4, 7, 7], [5, 5, 5], [-1, 2, 3]],
)


def played(row: int, *choices: tuple[int, int], limits: Limits = Limits()) -> Episodes:  # noqa: B008
    """One episode: kind and worker of every choice."""
    _, deck = bare_deck(TABLE)
    episodes = Episodes(deck, dealt(deck, [row], limits=limits))
    for kind, worker in choices:
        assert episodes.live.tolist() == [True]
        episodes.choose(torch.tensor([0]), torch.tensor([3 * kind + worker]))
    return episodes


@pytest.mark.parametrize(
    ("row", "choices", "quality", "cost", "rounds"),
    [
        (0, [(LAST, A)], 0, 1, 1),
        (0, [(LAST, C)], 1, 3, 1),
        (0, [(LOOK, A), (KEEP, A)], 0, 1, 2),
        (0, [(LOOK, A), (LAST, B)], 1, 3, 2),
        (0, [(MORE, A), (LOOK, B), (KEEP, A)], 0, 3, 2),  # a vote for a's step
        (0, [(MORE, A), (LOOK, B), (KEEP, B)], 1, 3, 2),  # it stands anyway
        (0, [(MORE, A), (LOOK, B), (LAST, C)], 1, 6, 2),
        (0, [(LOOK, B), (LOOK, A), (KEEP, B)], 1, 3, 3),
        (2, [(LAST, A)], 0, 0, 1),  # a worker without an outcome fails, and takes nothing
        (2, [(LOOK, A), (LAST, C)], 1, 3, 2),
        (2, [(LOOK, C), (LAST, A)], 1, 3, 2),  # what stands is given when the last one fails
        (2, [(LOOK, A), (KEEP, A)], 0, 0, 2),  # nothing to keep
    ],
)
def test_episode_by_hand(
    row: int, choices: list[tuple[int, int]], quality: float, cost: float, rounds: int
) -> None:
    episodes = played(row, *choices)
    assert episodes.live.tolist() == [False]
    assert episodes.quality().tolist() == [quality]
    assert episodes.cost().tolist() == pytest.approx([cost])
    assert episodes.tokens().tolist() == pytest.approx([1000.0 * cost_calls(episodes)])
    assert episodes.rounds().tolist() == [rounds]


def cost_calls(episodes: Episodes) -> int:
    return int((episodes.asked & episodes.recorded).sum())


def test_what_was_asked_is_shown_and_nothing_else() -> None:
    episodes = played(0, (MORE, A))
    state = episodes.state(torch.tensor([0]))
    assert state.pending.tolist() == [[True, False, False]]
    assert state.answer.tolist() == [[-1, -1, -1]]  # not heard yet
    episodes.choose(torch.tensor([0]), torch.tensor([3 * LOOK + B]))
    state = episodes.state(torch.tensor([0]))
    assert state.pending.any().item() is False
    assert state.asked.tolist() == [[True, True, False]]
    assert state.answer.tolist() == [[4, 7, -1]]


def test_what_is_left_goes_down_with_what_is_used() -> None:
    limits = Limits(max_rounds=3, max_calls=4)
    left = []
    for choices in ([], [(MORE, A)], [(MORE, A), (LOOK, B)]):
        state = played(0, *choices, limits=limits).state(torch.tensor([0]))
        left.append([int(part) for part in (state.rounds_left, state.calls_left, state.steps_left)])
    assert left == [[2, 4, 5], [2, 3, 4], [1, 2, 5]]


def test_a_look_in_the_last_round_answers_instead() -> None:
    """The grammar offers none; should one come all the same, the request ends as in the daemon."""
    episodes = played(0, (LOOK, B), limits=Limits(max_rounds=1))
    assert episodes.live.tolist() == [False]
    assert episodes.quality().tolist() == [1]


def test_a_failed_worker_is_shown_as_asked_and_silent() -> None:
    state = played(2, (LOOK, A)).state(torch.tensor([0]))
    assert state.asked.tolist() == [[True, False, False]]
    assert state.answer.tolist() == [[-1, -1, -1]]


def test_the_same_episode_by_the_rules_of_exchange() -> None:
    episodes = played(0, (MORE, A), (LOOK, B), (KEEP, A))
    first, second = episodes.plans[0]
    progress = settle(Progress(), first, True, {0: 4, 1: 7}, 2)
    assert progress.stands == 1
    progress = settle(progress, second, False, {}, 0)
    assert progress.stands == 0
    assert episodes.progress == [progress]


def random_rollout(seed: int, made: Table, draw: Draw) -> Episodes:
    pocket, deck = bare_deck(made, seed)
    careless(pocket)
    rng = np.random.default_rng(seed)
    requests = deal(deck, draw, 100, 2, range(len(made.workers)), rng)
    return grpo.roll_out(pocket, deck, requests, torch.Generator().manual_seed(seed)).episodes


@pytest.mark.parametrize("seed", range(3))
def test_every_plan_is_one_that_the_daemon_would_run(seed: int) -> None:
    made, _ = generated(50, workers=6, seed=seed)
    holes = made.score.copy()
    holes[np.random.default_rng(seed).random(holes.shape) < 0.2] = NAN
    made = Table(made.prompts, made.tasks, made.questions, made.workers, holes, made.answer,
                 made.tokens, made.comparable)  # fmt: skip
    episodes = random_rollout(seed, made, Draw(pool=6))
    kinds = set()
    for number, plans in enumerate(episodes.plans):
        progress = replayed(episodes, number, plans)
        assert progress == episodes.progress[number]
        kinds.add(len(plans))
    assert len(kinds) > 2


def replayed(episodes: Episodes, number: int, plans: list[Plan]) -> Progress:
    """Each plan validated against what was left, and then settled from the records."""
    limits, progress = episodes.hand.limits[number], Progress()
    heads: tuple[Head, ...] = ()
    for place, plan in enumerate(plans):
        left = room(limits, progress.used)
        validate(
            plan,
            PlanPool(
                workers=episodes.hand.present.shape[1],
                max_steps=left.max_steps,
                max_calls=left.calls_left,
                may_stop=progress.stands is not None,
                earlier=heads,
            ),
        )
        asked = {step: plan.steps[step - plan.first].worker for step, _ in plan.numbered()}
        answered = {
            step: int(episodes.answer[number, worker])
            for step, worker in asked.items()
            if isinstance(worker, int) and bool(episodes.recorded[number, worker])
        }
        for worker in asked.values():
            if isinstance(worker, int):
                assert episodes.hand.present[number, worker], "policy does not permit this one"
        look = goes_on(plan, place < len(plans) - 1, limits, progress.used)
        assert look == (place < len(plans) - 1)
        progress = settle(progress, plan, look, answered, plan.calls)
        heads += tuple(Head(s.worker, resolve(s.access, n), False) for n, s in plan.numbered())
    assert progress.used.calls <= limits.max_calls
    assert progress.used.rounds <= limits.max_rounds
    return progress


def test_dealt_requests_vary_as_the_draw_says() -> None:
    made, _ = generated(50, workers=6)
    _, deck = bare_deck(made)
    draw = Draw(pool=4, whole=0.5, weights=(0.1, 0.2), refused=0.2)
    requests = deal(deck, draw, 500, 1, range(6), np.random.default_rng(0))
    sizes = requests.present.sum(1)
    assert requests.columns.shape == (500, 4)
    assert sizes.min() >= 1
    assert set(sizes.tolist()) == {1, 2, 3, 4}
    assert float(requests.weight.min()) >= 0.1
    assert float(requests.weight.max()) <= 0.2
    for columns in requests.columns.tolist():
        assert len(set(columns)) == 4  # nobody twice


def test_prices_are_perturbed_the_same_in_cards_and_bills() -> None:
    made, _ = generated(50, workers=4)
    _, deck = bare_deck(made)
    requests = deal(deck, Draw(pool=4), 200, 1, range(4), np.random.default_rng(0))
    expected = requests.cost / deck.cost[requests.columns]
    paid = requests.spend / (
        deck.tokens[requests.rows[:, None], requests.columns] * deck.price[requests.columns] / 1000
    )
    assert torch.allclose(expected[:, :, 0], paid, rtol=1e-4)
    assert 0.2 < float(torch.log(paid).std()) < 0.4


def test_a_group_plays_the_same_request() -> None:
    made, _ = generated(50, workers=4)
    _, deck = bare_deck(made)
    requests = deal(deck, Draw(pool=4), 5, 3, range(4), np.random.default_rng(0))
    for part in (requests.rows, requests.columns, requests.skill, requests.weight, requests.spend):
        grouped = part.view(5, 3, *part.shape[1:])
        assert (grouped == grouped[:, :1]).all()
    assert requests.limits[0] == requests.limits[2]
