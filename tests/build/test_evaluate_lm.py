"""Judging an LM conductor: who plays beside it, on which games, and what is said of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from conductor.core import Price
from conductor.plan.language import Access, Plan, Step, parse, show
from conductor.plan.templates import Template
from conductor_build.baselines import live
from conductor_build.baselines.livechoice import Measured, ablest, best, cheapest
from conductor_build.baselines.plays import EvaluationError
from conductor_build.evaluate import lmgames, lmtraits
from conductor_build.evaluate.lmfield import affordable
from conductor_build.evaluate.lmjudge import LmEvaluation, Options, judge
from conductor_build.live.environment import Environment, Outcome, Session
from conductor_build.live.game import Game
from conductor_build.lm.draw import Dealer, Draw, Ground, Purpose
from conductor_build.lm.episodes import Players
from conductor_build.lm.recipe import HeldOut, LmRecipe, Rounds
from conductor_build.report.lmdocument import lm_document
from conductor_build.report.lmmarkdown import lm_markdown
from support.lmgames import Named, Planned, Stand, workers
from support.lmtrainings import RECIPE, setting, small_policy

WHOLE = replace(
    RECIPE, draw=Draw(fixed=1.0, max_steps=(2, 2)), held_out=HeldOut(games=6, parsing=2)
)
SHORT = replace(WHOLE, held_out=HeldOut(games=3, parsing=0))


def games(draw: Draw = WHOLE.draw, count: int = 6) -> tuple[Game, ...]:
    ground = Ground(((Named(64), 1.0),), workers())
    return Dealer(ground, draw, Rounds(), 0).games(Purpose.REPORTED, 0, count)


def judged(
    environment: Environment, recipe: LmRecipe = SHORT, lambdas: tuple[float, ...] = (0.1,)
) -> LmEvaluation:
    policies = {"conductor": small_policy(), "zero_shot": small_policy()}
    options = Options(lambdas=lambdas, choosing=9, draws=20)
    with Players(environment) as players:
        return judge(recipe, setting(environment), players, policies, options)


# -- plans of baselines ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (live.single(2), "2 q -\n"),
        (live.best_of_n(1, 1), "1 q -\n"),
        (live.best_of_n(1, 3), "1 q -\n1 q -\n1 q -\nvote 0,1,2 -\n"),
        (live.best_of_n(1, 9), "1 q -\n" * 4 + "vote 0,1,2,3 -\n"),
        (live.vote([2, 0]), "2 q -\n0 q -\nvote 0,1 -\n"),
        (live.cheap_then_strong(0, 2), "0 q -\n2 q,0 -\n"),
        (live.cheap_then_strong(1, 1), "1 q -\n"),
        (
            live.solve_then_check(0, 2),
            f"0 q -\n2 q,0 {Template.VERIFY}\n0 q,0,1 {Template.CORRECT}\n",
        ),
        (live.fan_out([0, 1, 2], 1), f"0 q -\n1 q -\n2 q -\n1 q,0,1,2 {live.AGGREGATE}\n"),
        (
            live.fan_out(range(7), 5),
            "".join(f"{n} q -\n" for n in range(4)) + f"5 q,0,1,2,3 {live.AGGREGATE}\n",
        ),
    ],
)
def test_a_baseline_is_one_plan(plan: Plan, text: str) -> None:
    assert show(plan) == text
    assert parse(text) == plan


@pytest.mark.parametrize("steps", [0, 1, 3, 5, 8])
def test_a_random_plan_is_as_long_as_the_conductors(steps: int) -> None:
    drawn = [live.random_plan([0, 2], steps, np.random.default_rng(n)) for n in range(40)]
    assert {len(plan.steps) for plan in drawn} == {max(1, min(5, steps))}
    assert {step.worker for plan in drawn for step in plan.steps} == {0, 2}


@pytest.mark.parametrize(
    ("budgets", "prices", "found"),
    [
        ([100, 100, 100], [50, 50, 50], [2, 2, 2]),
        ([75, 75, 75, 75], [50, 50, 50, 50], [1, 2, 1, 2]),  # what is left goes to the next
        ([10, 10], [50, 50], [1, 1]),  # nobody answers less than once
        ([9000], [50], [4]),
        ([100], [0], [1]),
    ],
)
def test_equal_tokens_are_spent_over_games(
    budgets: list[float], prices: list[float], found: list[int]
) -> None:
    assert affordable(budgets, prices) == found


# -- who is chosen --------------------------------------------------------------------------------


def outcome(quality: float | None, tokens: int = 100) -> Outcome:
    return Outcome(quality, None if quality is not None else "worker:refused", 0.0, tokens, tokens,
                   1, 1, 0.0, (0,))  # fmt: skip


def known() -> Measured:
    right = {"worker-0": 1.0, "worker-1": 0.5}
    answers = [(name, "maths", outcome(one)) for name, one in right.items()]
    return Measured.of(
        [*answers, ("worker-1", "code", outcome(0.9)), ("worker-2", "maths", outcome(None))]
    )


def test_workers_are_chosen_by_training_and_the_games_own_prices() -> None:
    (game,) = games(count=1)
    offers = known().offers(game)
    assert [one.record.quality for one in offers] == [1.0, 0.7, 0.0]
    assert offers[0].cost == pytest.approx((100 * 0.1 + 100 * 0.2) / 1e3)
    dear = replace(game.request.candidates[0], price=Price(100.0, 100.0))
    request = replace(game.request, candidates=(dear, *game.request.candidates[1:]))
    now = known().offers(replace(game, request=request))
    assert (best(offers, 0.1).worker, best(now, 0.1).worker) == (0, 1)
    assert ablest(now)[0].worker == 0
    assert cheapest(now).worker == 1, "a worker whose answers were never judged comes last"


def test_a_domain_that_training_did_not_have_counts_as_everything() -> None:
    (game,) = games(count=1)
    in_code = known().offers(game, "code")
    assert [one.record.quality for one in in_code] == [1.0, 0.9, 0.0]


def test_a_veiled_worker_takes_no_part() -> None:
    drawn = games(Draw(fixed=0.0, pool=(3, 3), refused=0.0, veiled=1.0), 20)
    for game in drawn:
        seen = {n for n, one in enumerate(game.request.candidates) if not one.veiled}
        assert {one.worker for one in known().offers(game)} == seen


# -- games ----------------------------------------------------------------------------------------


def test_games_at_a_lambda_are_the_same_but_for_it() -> None:
    drawn = games()
    for before, after in zip(drawn, lmgames.at(drawn, 0.5), strict=True):
        assert after.request.cost_weight == after.cost_weight == 0.5
        weight = before.cost_weight
        again = replace(after, cost_weight=weight,
                        request=replace(after.request, cost_weight=weight))  # fmt: skip
        assert again == before
    assert lmgames.at(drawn, None) == drawn


def test_games_are_judged_over_the_whole_pool_and_over_drawn_ones_apart() -> None:
    drawn = games(Draw(fixed=0.5, pool=(2, 2)), 40)
    whole, others = lmgames.groups(drawn, Ground((), workers()))
    assert (whole.title, others.title) == ("Whole pool", "Pools drawn at random")
    assert sorted((*whole.places, *others.places)) == list(range(40))
    assert all(drawn[place].workers == workers() for place in whole.places)


# -- judging --------------------------------------------------------------------------------------


class Split(Stand):
    """In training the first worker is always right, in judged games the second; counts plays."""

    def __init__(self) -> None:
        self.plays: Counter[tuple[str, str]] = Counter()

    def open(self, game: Game) -> Session:
        return Sided(game, self)


class Sided(Planned):
    def __init__(self, game: Game, stand: Split) -> None:
        super().__init__(game)
        self.stand = stand

    async def play(self, plan: Plan, look: bool) -> None:
        self.stand.plays[self.game.request.request_id, show(plan)] += 1
        await super().play(plan, False)

    def outcome(self) -> Outcome:
        assert self.plan is not None
        able = 0 if self.game.request.request_id.startswith("training") else 1
        right = self.plan.steps[-1].worker == able
        return replace(super().outcome(), quality=float(right), void=None)


@pytest.fixture(scope="module")
def split() -> tuple[Split, LmEvaluation]:
    environment = Split()
    return environment, judged(environment, WHOLE, (0.01, 1.0))


def test_baselines_are_chosen_on_training_games_and_never_on_judged_ones(
    split: tuple[Split, LmEvaluation],
) -> None:
    (pool,) = split[1].at_lambdas.pools
    accuracy = {one.policy: one.overall.accuracy.mean for one in pool.results}
    assert accuracy["best_single"] == accuracy["best_single_per_task"] == 0.0
    assert (accuracy["single(worker-0)"], accuracy["single(worker-1)"]) == (0.0, 1.0)
    assert accuracy["oracle"] == 1.0


def test_everybody_is_judged_on_the_same_games_at_every_lambda(
    split: tuple[Split, LmEvaluation],
) -> None:
    (pool,) = split[1].at_lambdas.pools
    assert pool.pool.lambdas == (0.01, 1.0)
    assert {one.overall.n for one in pool.results} == {6}
    wanted = {
        "conductor", "zero_shot", "best_single", "best_single_per_task", "best_of_n", "vote_of_n",
        "cheap_then_strong", "solve_then_check", "fan_out", "random_plans", "oracle",
        "single(worker-0)", "single(worker-1)", "single(worker-2)",
    }  # fmt: skip
    for lam in pool.pool.lambdas:
        assert {one.policy for one in pool.results if one.lam == lam} == wanted
    assert set(split[1].drawn[0].scores) == wanted


def test_a_fixed_plan_is_played_once_whatever_lambda_is(split: tuple[Split, LmEvaluation]) -> None:
    single = [count for (_, text), count in split[0].plays.items() if text == "0 q -\n"]
    assert len(single) >= 6
    assert set(single) == {1}


def test_the_trained_conductor_is_compared_with_its_untrained_self(
    split: tuple[Split, LmEvaluation],
) -> None:
    less = split[1].drawn[0].less["zero_shot"]
    assert less.utility.mean == 0.0, "the same weights write the same plans"
    assert less.n == 6


def test_the_report_says_that_it_is_simulated_and_what_a_query_takes(
    split: tuple[Split, LmEvaluation],
) -> None:
    found = lm_document(split[1], {"simulated": True})
    assert found["simulated"] is True
    row = found["rows"][0]
    assert row.keys() == {
        "policy", "pool", "lambda", "accuracy", "cost_usd_per_1k", "utility", "n", "games",
    }  # fmt: skip
    assert row["utility"] == pytest.approx(row["accuracy"] - 0.01 * row["cost_usd_per_1k"])
    ours = next(one for one in found["figures"] if one["policy"] == "conductor")
    assert 1 <= ours["steps"] <= 2
    assert ours["conductor_tokens_read"] > 100
    assert ours["tokens"] == pytest.approx(
        sum(value for key, value in ours.items() if "_tokens_" in key)
    )
    assert set(found["parse_rate"]) == {"conductor", "zero_shot"}
    assert "SIMULATED" in lm_markdown(split[1], {"simulated": True})
    assert "SIMULATED" not in lm_markdown(split[1], {"simulated": False})


def test_games_that_are_void_for_somebody_are_left_out_for_everybody_and_counted() -> None:
    found = judged(Sometimes(), replace(WHOLE, held_out=HeldOut(games=5, parsing=0)))
    (pool,) = found.at_lambdas.pools
    assert (pool.n, pool.not_recorded) == (4, 1)
    assert {one.overall.n for one in pool.results} == {4}
    figures = {one["policy"]: one for one in found.traits.figures}
    assert figures["single(worker-1)"]["voids"] == {"verifier:crashed": 1}


class Sometimes(Stand):
    """A verifier breaks in one game, for the worker 1 alone."""

    def open(self, game: Game) -> Session:
        return Odd(game)


class Odd(Planned):
    def outcome(self) -> Outcome:
        void = self.game.request.request_id == "reported-0" and self.plan == live.single(1)
        return replace(
            super().outcome(),
            quality=None if void else 1.0,
            void="verifier:crashed" if void else None,
        )


def test_a_worker_that_is_down_is_left_out_and_not_its_games() -> None:
    found = judged(Down())
    (pool,) = found.at_lambdas.pools
    names = {one.policy for one in pool.results}
    assert "single(worker-2)" not in names and "single(worker-1)" in names
    assert pool.n >= 1


class Down(Stand):
    """The last worker does not answer when he is asked alone."""

    def open(self, game: Game) -> Session:
        return Silent(game)


class Silent(Planned):
    def outcome(self) -> Outcome:
        assert self.plan is not None
        void = self.plan == live.single(2)
        return replace(
            super().outcome(), quality=None if void else 1.0,
            void="worker:refused" if void else None,
        )  # fmt: skip


def test_where_everything_is_void_there_is_no_report() -> None:
    class Dead(Stand):
        def open(self, game: Game) -> Session:
            return Lost(game)

    class Lost(Planned):
        def outcome(self) -> Outcome:
            return replace(super().outcome(), quality=None, void="worker:refused")

    with pytest.raises(EvaluationError, match="every game was void"):
        judged(Dead())


# -- plans shown ----------------------------------------------------------------------------------


def test_the_conductors_own_words_are_left_out_and_fixed_texts_are_not() -> None:
    worded = Plan(
        (
            Step(0, Access(question=True), "Add 17 and 4."),
            Step(1, Access(question=True, steps=(0,)), Template.VERIFY),
            Step(0, Access(question=True)),
        )
    )
    bare = show(lmtraits.without_words(worded))
    assert bare == f"0 q (13 bytes of its own words)\n1 q,0 {Template.VERIFY}\n0 q -\n"


def test_questions_are_shown_only_where_a_program_made_them_up(
    split: tuple[Split, LmEvaluation],
) -> None:
    made_up = replace(RECIPE, tasks=(replace(RECIPE.tasks[0], kind="jsonl"),))
    ground = Ground(((Named(64), 1.0),), workers())
    (game,) = Dealer(ground, Draw(), Rounds(), 0).games(Purpose.REPORTED, 0, 1)
    assert lmgames.generated(game, RECIPE, ground)
    assert not lmgames.generated(game, made_up, ground)
    assert all(plan["question"].startswith("Who is") for plan in split[1].traits.plans)
