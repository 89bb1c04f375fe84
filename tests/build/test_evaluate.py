"""Judging: who is compared with whom, on which prompts, and what a choice may see."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from conductor_build.baselines.field import Assigned, Field
from conductor_build.baselines.fixed import Single
from conductor_build.baselines.plays import EvaluationError, Plays, Prompts, Strategy
from conductor_build.baselines.routers import Router
from conductor_build.baselines.training import training
from conductor_build.evaluate.judge import CONDUCTOR, Evaluation, evaluate
from conductor_build.evaluate.pools import ALL_WORKERS, LOCAL_WORKERS, Pool, complete, views
from conductor_build.evaluate.scores import Result
from conductor_build.outcomes import OutcomesError, Table, split
from support.outcomes import NAN, generated, table

POOL = Pool("All workers", ("a", "b", "c", "d"), (0.01, 0.1))


@dataclass(frozen=True)
class Canned:
    """A conductor that gives the same to every prompt, whatever the records say."""

    score: float
    cost: float
    name: str = "anything"

    def play(self, table: Table, rows: np.ndarray) -> Plays:
        return Plays(np.full(len(rows), self.score), np.full(len(rows), self.cost))


def judged(prompts: int = 40, **more: int) -> Prompts:
    return Prompts(*generated(prompts, **more))


def result(evaluation: Evaluation, policy: str, lam: float, pool: int = 0) -> Result:
    (found,) = [r for r in evaluation.pools[pool].results if (r.policy, r.lam) == (policy, lam)]
    return found


def test_a_conductor_is_scored_as_it_plays_and_stands_under_one_name() -> None:
    evaluation = evaluate(lambda lam: Canned(0.5, 10 * lam), judged(), [POOL], draws=20)
    score = result(evaluation, CONDUCTOR, 0.1).overall
    assert (score.n, score.accuracy.mean, score.cost.mean) == (40, 0.5, 1.0)
    assert score.utility.mean == pytest.approx(0.4)
    assert not any(r.policy == "anything" for r in evaluation.pools[0].results)


def test_a_difference_is_paired_and_exact_for_a_constant_lead() -> None:
    prompts = judged()

    @dataclass(frozen=True)
    class Ahead:
        name: str = "ahead"

        def play(self, table: Table, rows: np.ndarray) -> Plays:
            plays = Single("d").play(table, rows)
            return Plays(plays.score + 0.25, plays.cost)

    evaluation = evaluate(lambda lam: Ahead(), prompts, [POOL], draws=50)
    for lam in (*POOL.lambdas, None):
        (less,) = [
            less
            for less in evaluation.pools[0].differences
            if (less.against, less.lam) == ("single(d)", lam)
        ]
        utility = less.score.utility
        assert [utility.mean, utility.low, utility.high] == pytest.approx([0.25] * 3)


def test_without_a_conductor_the_baselines_are_judged_alone() -> None:
    evaluation = evaluate(None, judged(), [POOL], draws=10)
    assert evaluation.pools[0].differences == ()
    assert CONDUCTOR not in {r.policy for r in evaluation.pools[0].results}


def test_every_baseline_that_was_asked_for_is_there_at_every_lambda() -> None:
    evaluation = evaluate(None, judged(), [POOL], draws=10)
    asked = {
        "best_single", "best_single_per_task", "best_vote", "best_cascade",
        "best_cascade_per_task", "best_fixed", "best_fixed_per_task", "knn", "logistic", "random",
        "oracle", "oracle_cheapest_right", *(f"single({name})" for name in "abcd"),
    }  # fmt: skip
    for lam in POOL.lambdas:
        found = [r.policy for r in evaluation.pools[0].results if r.lam == lam]
        assert len(found) == len(set(found))
        assert set(found) == asked


def test_tasks_add_up_to_the_whole() -> None:
    evaluation = evaluate(None, judged(41), [POOL], draws=10)
    for one in evaluation.pools[0].results:
        assert {task: score.n for task, score in one.by_task.items()} == {"even": 21, "odd": 20}
        total = sum(score.n * score.accuracy.mean for score in one.by_task.values())
        assert total / 41 == pytest.approx(one.overall.accuracy.mean)


def test_choices_do_not_hang_on_the_outcomes_they_are_scored_on() -> None:
    train = Prompts(*generated(80, seed=5))
    fresh = replace(
        train.table,
        prompts=tuple(f"q{number}" for number in range(80)),
        questions=tuple(f"another {number}" for number in range(80)),
    )
    order = np.random.default_rng(0).permutation(80)
    shuffled = replace(
        fresh, score=1 - fresh.score[order], answer=fresh.answer[order], tokens=fresh.tokens[order]
    )
    chosen = []
    asked = []
    for judged_table in (fresh, shuffled):
        evaluation = evaluate(
            None, Prompts(judged_table, train.embeddings), [POOL], train=train, draws=10
        )
        results = evaluation.pools[0].results
        chosen.append({(r.policy, r.lam): r.chosen for r in results if r.chosen})
        asked.append({r.lam: r.overall.cost.mean for r in results if r.policy == "knn"})
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 14
    assert asked[0] != asked[1]  # the outcomes did change


def test_in_cross_fitting_a_fold_is_chosen_for_without_its_outcomes() -> None:
    made, embeddings = generated(60)
    rows = np.arange(60)

    def choices(table: Table, at: np.ndarray) -> list[object]:
        parts, _ = training(Prompts(table, embeddings), rows, None, 0)
        field = Field.fit(table, embeddings, parts, [0.05])
        found: list[object] = []
        for strategy in field.at(0.05):
            if isinstance(strategy, Assigned):
                found += [strategy.strategies[strategy.of[row]] for row in at]
            if isinstance(strategy, Router):
                found += strategy.forecast.choice(0.05)[at].tolist()
        return found

    folds = split(made, folds=5, seed=0)
    changed = 0
    for fold in range(5):
        at = np.flatnonzero(folds == fold)
        score, tokens = made.score.copy(), made.tokens.copy()
        score[at], tokens[at] = [1, 0, 0, 0], [1, 9e4, 9e4, 9e4]
        trap = replace(made, score=score, tokens=tokens)
        assert choices(trap, at) == choices(made, at)
        changed += choices(trap, rows) != choices(made, rows)
    assert changed == 5  # the other folds may look, and do


def test_prompts_with_a_missing_outcome_are_left_out_for_all_and_counted() -> None:
    made, embeddings = generated(40)
    score = made.score.copy()
    score[3, 1] = score[7, 2] = NAN
    pool = Pool("some", ("a", "b"), (0.1,))
    evaluation = evaluate(
        None, Prompts(replace(made, score=score), embeddings), [POOL, pool], draws=10
    )
    assert [(j.n, j.not_recorded) for j in evaluation.pools] == [(38, 2), (39, 1)]
    assert all(math.isfinite(r.overall.utility.mean) for j in evaluation.pools for r in j.results)


def test_a_conductor_whose_plays_are_not_known_is_not_known_and_baselines_are() -> None:
    evaluation = evaluate(lambda lam: Canned(NAN, 1.0), judged(), [POOL], draws=10)
    assert math.isnan(result(evaluation, CONDUCTOR, 0.1).overall.utility.mean)
    assert math.isfinite(result(evaluation, "best_fixed", 0.1).overall.utility.mean)


def test_plays_of_the_wrong_length_are_refused() -> None:
    class Short:
        name = "short"

        def play(self, table: Table, rows: np.ndarray) -> Plays:
            return Plays(np.zeros(1), np.zeros(1))

    def short(lam: float) -> Strategy:
        return Short()

    with pytest.raises(EvaluationError, match="asked for 40 prompts"):
        evaluate(short, judged(), [POOL], draws=10)


def test_a_conductor_sees_the_pool_in_its_order_and_rows_of_the_judged_table() -> None:
    seen: list[tuple[tuple[str, ...], list[int]]] = []

    class Watching:
        name = "watching"

        def play(self, table: Table, rows: np.ndarray) -> Plays:
            seen.append((table.names, list(rows)))
            return Plays(np.zeros(len(rows)), np.zeros(len(rows)))

    made, embeddings = generated(12)
    score = made.score.copy()
    score[0, 3] = NAN
    pool = Pool("turned", ("d", "a"), (0.1,))
    evaluate(
        lambda lam: Watching(), Prompts(replace(made, score=score), embeddings), [pool], draws=5
    )
    assert seen == [(("d", "a"), list(range(1, 12)))]


def test_a_pool_of_one_has_nothing_to_beat() -> None:
    evaluation = evaluate(None, judged(), [Pool("one", ("c",), (0.1,))], draws=10)
    utilities = {r.overall.utility.mean for r in evaluation.pools[0].results}
    assert max(utilities) - min(utilities) < 1e-12


def test_a_table_without_answers_has_singles_and_routers_only() -> None:
    made, embeddings = generated(40)
    bare = replace(
        made,
        answer=np.full_like(made.answer, -1),
        tokens=np.full_like(made.tokens, NAN),
        comparable=False,
    )
    evaluation = evaluate(None, Prompts(bare, embeddings), [POOL], draws=10)
    policies = {r.policy for r in evaluation.pools[0].results}
    assert policies.isdisjoint({"best_vote", "best_cascade", "best_cascade_per_task"})
    assert {"best_fixed", "knn", "logistic", "oracle"} <= policies
    assert result(evaluation, "single(a)", 0.1).overall.cost.mean == pytest.approx(0.007)


def test_no_common_prompt_and_an_unknown_worker_are_refused() -> None:
    made = table([[1, NAN], [NAN, 1]] * 3)
    prompts = Prompts(made, np.eye(6))
    with pytest.raises(EvaluationError, match="no prompt has outcomes of every worker"):
        evaluate(None, prompts, [Pool("both", ("a", "b"), (0.1,))], draws=5)
    with pytest.raises(OutcomesError, match="nobody"):
        evaluate(None, prompts, [Pool("none", ("nobody",), (0.1,))], draws=5)


def test_the_same_seed_gives_the_same_evaluation() -> None:
    first, again = (evaluate(None, judged(), [POOL], seed=4, draws=30) for _ in range(2))
    assert first.pools[0].results == again.pools[0].results


@pytest.mark.parametrize(
    ("workers", "lambdas"),
    [((), (0.1,)), (("a",), ()), (("a",), (-0.1,)), (("a",), (NAN,)), (("a",), (math.inf,)),
     (("a", "a"), (0.1,)), (("a",), (0.1, 0.1))],
)  # fmt: skip
def test_a_pool_that_makes_no_sense_is_refused(
    workers: tuple[str, ...], lambdas: tuple[float, ...]
) -> None:
    with pytest.raises(EvaluationError):
        Pool("odd", workers, lambdas)


def test_local_workers_are_a_view_of_their_own_judged_by_accuracy() -> None:
    whole, local = views(judged().table, ["d", "b", "a"], [0.1])
    assert (whole.title, whole.workers, whole.lambdas) == (ALL_WORKERS, ("d", "b", "a"), (0.1,))
    assert (local.title, local.workers, local.lambdas) == (LOCAL_WORKERS, ("b", "a"), (0.0,))


def test_a_pool_with_at_most_one_local_worker_has_one_view() -> None:
    assert [p.workers for p in views(judged().table, ["a", "c"])] == [("a", "c")]
    assert [p.workers for p in views(judged().table, ["c", "d"])] == [("c", "d")]


def test_a_pool_of_local_workers_alone_is_judged_at_lambda_zero_too() -> None:
    (only,) = views(judged().table, ["a", "b"], [0.0, 0.1])
    assert (only.title, only.lambdas) == (LOCAL_WORKERS, (0.0, 0.1))


def test_the_pool_by_default_is_every_worker_with_all_outcomes_and_a_cost() -> None:
    made = table([[1, 1, NAN], [0, 1, 1]], prices=[1, NAN, 1])
    assert complete(made) == ("a",)
    assert views(made)[0].workers == ("a",)


@pytest.mark.parametrize("names", [[], None])
def test_an_empty_pool_is_refused(names: list[str] | None) -> None:
    with pytest.raises(EvaluationError, match="pool is empty"):
        views(table([[NAN], [1]]), names)
