"""Baselines on tables small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from conductor_build.baselines import linear
from conductor_build.baselines.bounds import CheapestRight, Oracle, Random
from conductor_build.baselines.choose import SEARCHED, searched, tally
from conductor_build.baselines.field import Field
from conductor_build.baselines.fixed import Agree, Agree3, Fixed, Single, Vote, fixed_strategies
from conductor_build.baselines.plays import EvaluationError, Prompts, Records, recorded
from conductor_build.baselines.routers import logistic_forecast, neighbourhood
from conductor_build.baselines.training import FEWEST, training
from conductor_build.outcomes import Table
from support.outcomes import NAN, generated, table

# Prompts: all agree; a and b agree; c agrees with a; c agrees with b; nobody agrees; nothing said.
ANSWERS = [[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 1, 3], [2, 1, 1, 3], [1, 2, 3, 4], [-1, -1, -1, -1]]
SCORES = [[1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
# Costs are 1, 2, 3 and 4 for a, b, c and d.


def played(strategy: Fixed, made: Table) -> tuple[list[float], list[float]]:
    plays = strategy.play(made, range(len(made.prompts)))
    return plays.score.tolist(), plays.cost.tolist()


@pytest.mark.parametrize(
    ("strategy", "score", "cost"),
    [
        (Single("b"), [1, 0, 0, 1, 0, 0], [2] * 6),
        (Agree(("a", "b"), "d"), [1, 0, 0, 0, 1, 0], [3, 3, 7, 7, 7, 7]),
        (Agree3(("a", "b"), "c", "d"), [1, 0, 1, 1, 1, 0], [3, 3, 6, 6, 10, 10]),
        (Vote(("a", "b", "c")), [1, 0, 1, 1, 0, 0], [6] * 6),
        (Vote(("a", "b", "c", "d")), [1, 0.5, 1, 1, 0.25, 0], [10] * 6),
    ],
)
def test_a_fixed_strategy_gives_what_was_worked_out_by_hand(
    strategy: Fixed, score: list[float], cost: list[float]
) -> None:
    assert played(strategy, table(SCORES, ANSWERS)) == (score, cost)


def test_missing_answers_never_agree_even_with_each_other() -> None:
    made = table([[1, 1, 0, 0]], [[-1, -1, -1, -1]])
    assert played(Agree(("a", "b"), "c"), made) == ([0], [6])
    assert played(Agree3(("a", "b"), "c", "d"), made) == ([0], [10])
    assert played(Vote(("a", "b", "c")), made)[0] == pytest.approx([2 / 3])


def test_an_outcome_that_a_cascade_does_not_ask_for_may_be_missing() -> None:
    made = table([[1, 1, NAN], [0, 1, NAN]], [[1, 1, -1], [1, 2, -1]])
    score, cost = played(Agree(("a", "b"), "c"), made)
    assert (score[0], cost[0]) == (1, 3)
    assert np.isnan([score[1], cost[1]]).all()


def test_rows_are_played_in_the_order_they_are_asked_for() -> None:
    plays = Agree(("a", "b"), "d").play(table(SCORES, ANSWERS), [4, 0, 4])
    assert plays.score.tolist() == [1, 1, 1]
    assert plays.cost.tolist() == [7, 3, 7]


def test_every_strategy_of_a_pool_of_eleven_is_listed_once() -> None:
    names = [f"w{number:02}" for number in range(11)]
    kinds = [strategy.kind for strategy in fixed_strategies(names)]
    assert kinds.count("single") == 11
    assert kinds.count("vote") == 165 + 462
    assert kinds.count("cascade") == 55 * 9 + 55 * 9 * 8
    assert len({strategy.name for strategy in fixed_strategies(names)}) == len(kinds)


def test_without_comparable_answers_only_single_workers_are_left() -> None:
    assert [s.name for s in fixed_strategies("ba", False)] == ["single(a)", "single(b)"]


@pytest.mark.parametrize("pool", [[], ["a", "a"]])
def test_an_empty_pool_and_a_worker_named_twice_are_refused(pool: list[str]) -> None:
    with pytest.raises(EvaluationError):
        list(fixed_strategies(pool))


def test_an_unknown_worker_is_refused_by_name() -> None:
    with pytest.raises(EvaluationError, match="'nobody'"):
        Single("nobody").play(table(SCORES, ANSWERS), [0])


def test_the_best_strategy_is_that_of_highest_utility_then_lowest_cost_then_first_name() -> None:
    sums = tally(table([[1, 1, 0], [0, 1, 0]]), [Single(name) for name in "abc"])
    assert sums.best(0.0) == Single("b")
    assert sums.best(0.5) == Single("a")  # .5 - .5 against 1 - 1: level, and cheaper
    level = tally(table([[1, 1]], prices=[2, 2]), [Single("a"), Single("b")])
    assert level.best(0.1) == Single("a")


def test_the_choice_by_task_differs_and_an_unknown_task_gets_the_best_of_all() -> None:
    sums = tally(table([[1, 0], [1, 0], [0, 1]], tasks=["x", "x", "y"]), [Single("a"), Single("b")])
    assert sums.best(0.0, task="x") == Single("a")
    assert sums.best(0.0, task="y") == Single("b")
    assert sums.best(0.0, task="never seen") == sums.best(0.0) == Single("a")


def test_a_strategy_with_a_missing_outcome_is_never_chosen() -> None:
    made = table([[1, 0], [NAN, 0]])
    assert tally(made, [Single("a"), Single("b")]).best(0.0) == Single("b")
    assert tally(made, [Single("a")]).best(0.0) is None


def test_nothing_can_be_chosen_on_no_prompts() -> None:
    with pytest.raises(EvaluationError, match="no training prompt"):
        tally(table(SCORES, ANSWERS).rows([]), [Single("a")])


def test_the_sums_of_a_tally_are_those_of_playing_each_strategy_alone() -> None:
    made, _ = generated(40, 5)
    strategies = list(fixed_strategies(made.names))
    sums = tally(made, strategies)
    for number, task in enumerate(sums.tasks):
        rows = [row for row, name in enumerate(made.tasks) if name == task]
        for place, strategy in enumerate(strategies):
            plays = strategy.play(made, rows)
            assert sums.score[place, number] == pytest.approx(plays.score.sum())
            assert sums.cost[place, number] == pytest.approx(plays.cost.sum())


def test_a_large_pool_is_searched_among_those_best_alone_and_all_singles() -> None:
    draw = np.random.default_rng(0)
    names = [f"w{number:02}" for number in range(SEARCHED + 6)]
    skill = np.linspace(0.1, 0.9, len(names))
    right = (draw.random((200, len(names))) < skill).astype(float)
    made = table(right.tolist(), right.astype(int).tolist(), names=names, prices=[1.0] * len(names))
    strategies = searched(made, [0.0])
    assert {s.name for s in strategies if s.kind == "single"} == {f"single({n})" for n in names}
    among = {worker for s in strategies if isinstance(s, Agree) for worker in (*s.pair, s.last)}
    alone = sorted(names, key=lambda name: -right[:, names.index(name)].mean())
    assert among == set(alone[:SEARCHED])


def test_random_is_the_mean_of_all_workers() -> None:
    plays = Random().play(table([[1, 0, 0, 0]]), [0])
    assert (plays.score.tolist(), plays.cost.tolist()) == ([0.25], [2.5])


def test_the_oracle_trades_score_for_cost_and_the_cheapest_right_does_not() -> None:
    made = table([[0, 0, 1], [0, 1, 1], [0, 0, 0]])
    rows = range(3)
    assert Oracle(0.1).play(made, rows).cost.tolist() == [3, 2, 1]
    assert Oracle(1.0).play(made, rows).cost.tolist() == [1, 1, 1]
    assert CheapestRight().play(made, rows).score.tolist() == [1, 1, 0]
    assert CheapestRight().play(made, rows).cost.tolist() == [3, 2, 1]


def test_the_oracle_does_not_know_where_an_outcome_is_missing() -> None:
    plays = Oracle(0.1).play(table([[1, NAN], [1, 0]]), [0, 1])
    assert np.isnan(plays.score).tolist() == [True, False]
    assert np.isnan(plays.cost).tolist() == [True, False]


def clusters(*sizes: int) -> tuple[np.ndarray, Records]:
    """Prompts in clusters along axes of their own; in cluster i only worker i % 2 is right."""
    where = np.repeat(np.arange(len(sizes)), sizes)
    known = np.eye(len(sizes))[where] * (1 + np.arange(len(where)))[:, None]
    right = np.stack([where % 2 == 0, where % 2 == 1], axis=1).astype(float)
    return known, Records.of(table(right.tolist(), prices=[1, 1]), range(len(where)))


def test_neighbours_are_those_in_the_same_direction_however_long() -> None:
    known, train = clusters(30, 30)
    hood = neighbourhood(train, known, np.array([[0.1, 0.0], [0.0, 900.0]]))
    assert hood.sizes == (5, 10, 20, 40)
    forecast = hood.forecast(0.0)  # k = 40, the largest of equals
    assert forecast.score.tolist() == [[0.75, 0.25], [0.25, 0.75]]


def test_the_number_of_neighbours_is_chosen_leaving_one_out() -> None:
    known, train = clusters(40, 8)
    forecast = neighbourhood(train, known, np.eye(2)).forecast(0.0)
    assert forecast.score[:, 1].tolist() == [0.2, 0.8]  # k = 10, for 20 would outvote the eight
    assert forecast.choice(0.0).tolist() == [0, 1]


def test_a_training_prompt_is_no_neighbour_of_itself() -> None:
    made = table([[1, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 1]], prices=[1, 1])
    hood = neighbourhood(Records.of(made, range(6)), np.ones((6, 2)), np.ones((1, 2)))
    assert hood.sizes == (5,)
    assert hood.left_out[0].score.tolist() == [[0, 0.2, 0.2, 0.2, 0.2, 0.2], [0.2] * 5 + [0]]


def test_a_router_weighs_what_it_expects_to_pay() -> None:
    made, embeddings = generated(80)
    records = Records.of(made, range(80))
    forecast = logistic_forecast(records, embeddings, embeddings, np.arange(80) % 3)
    assert set(forecast.choice(100.0)) == {0}  # the cheapest by far
    assert 3 in set(forecast.choice(0.0))


def test_logistic_regression_is_where_its_gradient_vanishes() -> None:
    draw = np.random.default_rng(2)
    features = draw.normal(size=(300, 5)) * [5, 1, 1, 1, 0.2] + 3
    target = (draw.random((300, 2)) < linear.sigmoid(features[:, :2] - 3)).astype(float)
    fit = linear.logistic(features, target, 0.01)
    x = (features - fit.mean) / fit.scale
    wrong = linear.sigmoid(fit(features)) - target
    assert np.abs(x.T @ wrong / 300 + 0.01 * fit.weight).max() < 1e-4
    assert np.abs(wrong.mean(axis=0)).max() < 1e-4


def test_ridge_regression_finds_a_line_and_keeps_the_mean_of_a_constant() -> None:
    features = np.arange(20.0)[:, None]
    target = np.column_stack([2 * features[:, 0] + 1, np.full(20, 7.0)])
    assert linear.ridge(features, target, 1e-9)(features) == pytest.approx(target)


def test_regression_survives_features_and_targets_that_say_nothing() -> None:
    features, target = np.ones((12, 3)), np.ones((12, 2))
    folds = np.arange(12) % 3
    best = linear.best_strength(linear.logistic, linear.cross_entropy, features, target, folds)
    fit = linear.logistic(features, target, best)
    assert (linear.sigmoid(fit(features)) > 0.99).all()


def test_the_order_of_workers_changes_no_baseline() -> None:
    made, embeddings = generated(60)
    rows = np.arange(60)
    expected: dict[str, tuple[list[float], list[float]]] = {}
    for order in list(permutations("abcd"))[::7]:
        turned = made.columns(order)
        parts, _ = training(Prompts(turned, embeddings), rows, None, 0)
        for strategy in Field.fit(turned, embeddings, parts, [0.05]).at(0.05):
            plays = strategy.play(turned, rows)
            found = (plays.score.tolist(), plays.cost.tolist())
            assert expected.setdefault(strategy.name, found) == found, strategy.name


@pytest.mark.parametrize("size", [1, 2])
def test_a_pool_of_one_or_two_has_every_baseline_that_exists(size: int) -> None:
    made, embeddings = generated(30)
    pool = made.columns("abcd"[:size])
    parts, _ = training(Prompts(pool, embeddings), np.arange(30), None, 0)
    names = {s.name for s in Field.fit(pool, embeddings, parts, [0.1]).at(0.1)}
    assert {"single(a)", "best_fixed", "best_fixed_per_task", "knn", "logistic"} <= names
    assert names.isdisjoint({"best_vote", "best_cascade"})


def test_cross_fitting_never_chooses_on_the_prompts_it_is_scored_on() -> None:
    made, embeddings = generated(60)
    rows = np.arange(60)
    parts, sentence = training(Prompts(made, embeddings), rows, None, 3)
    assert "cross-fitted in 5 folds" in sentence
    assert sorted(row for part in parts for row in part.rows) == list(rows)
    for part in parts:
        judged = {made.prompts[row] for row in part.rows}
        assert judged.isdisjoint(part.train.prompts)
        assert len(part.train.prompts) == len(part.known) == 60 - len(part.rows)
        for place, prompt in enumerate(part.train.prompts):
            assert (part.known[place] == embeddings[made.prompts.index(prompt)]).all()


@pytest.mark.parametrize("same", ["prompts", "questions"])
def test_training_prompts_that_are_judged_by_id_or_question_are_left_out(same: str) -> None:
    train, known = generated(FEWEST + 10)
    judged, embeddings = generated(6, seed=1)
    fresh = tuple(f"new {number}" for number in range(6))
    judged = replace(judged, **{part: fresh for part in ("prompts", "questions") if part != same})
    parts, sentence = training(Prompts(judged, embeddings), np.arange(6), Prompts(train, known), 0)
    assert len(parts) == 1
    assert set(parts[0].train.prompts) == {f"p{number}" for number in range(6, FEWEST + 10)}
    assert f"{FEWEST + 4} training prompts" in sentence


def test_training_is_charged_at_the_prices_of_the_judged_table() -> None:
    train, known = generated(FEWEST + 10)
    judged, embeddings = generated(6)
    dear = replace(judged, workers=tuple(replace(w, usd_out_per_mtok=50.0) for w in judged.workers))
    parts, _ = training(Prompts(dear, embeddings), np.arange(6), Prompts(train, known), 0)
    assert parts[0].train.cost() == pytest.approx(parts[0].train.tokens * 50.0 / 1e3)


def test_cascades_learned_where_answers_compare_are_not_played_where_they_do_not() -> None:
    train, known = generated(FEWEST + 10)
    judged, embeddings = generated(6)
    bare = replace(judged, answer=np.full_like(judged.answer, -1), comparable=False)
    parts, _ = training(Prompts(bare, embeddings), np.arange(6), Prompts(train, known), 0)
    assert {s.kind for s in searched(parts[0].train, [0.0])} == {"single"}


def test_embeddings_of_two_encoders_are_refused() -> None:
    train, known = generated(FEWEST + 10)
    judged, embeddings = generated(6)
    with pytest.raises(EvaluationError, match="different encoders"):
        training(Prompts(judged, embeddings[:, :4]), np.arange(6), Prompts(train, known), 0)


def test_training_that_does_not_cover_the_pool_gives_way_to_cross_fitting() -> None:
    judged, embeddings = generated(20)
    few, few_known = generated(FEWEST)  # of which 20 are judged
    other = few.columns("abc")
    for train in (Prompts(few, few_known), Prompts(other, few_known)):
        parts, sentence = training(Prompts(judged, embeddings), np.arange(20), train, 0)
        assert len(parts) == 5
        assert "training outcomes cover this pool on fewer than" in sentence


def test_too_few_prompts_to_cross_fit_are_refused() -> None:
    judged, embeddings = generated(2)
    with pytest.raises(EvaluationError, match="too few"):
        training(Prompts(judged, embeddings), np.arange(2), None, 0)


def test_only_prompts_with_every_outcome_count_as_recorded() -> None:
    assert recorded(table([[1, 0], [NAN, 0], [0, 0]])).tolist() == [0, 2]


@pytest.mark.parametrize("embeddings", [np.ones((3, 2)), np.ones(4), np.full((4, 2), NAN)])
def test_embeddings_that_do_not_fit_their_table_are_refused(embeddings: np.ndarray) -> None:
    with pytest.raises(EvaluationError, match="embedding"):
        Prompts(table([[1], [1], [0], [0]]), embeddings)
