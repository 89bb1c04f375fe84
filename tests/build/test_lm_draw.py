"""Games of an LM conductor's training: the same each time, and drawn as the recipe says."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from conductor.plan.validate import PlanPool
from conductor_build.live.game import Game
from conductor_build.lm.draw import Dealer, Ground, Purpose
from conductor_build.lm.recipe import Draw, Rounds
from support.lmgames import Named, workers

PLAIN = Draw(fixed=0.0, pool=(2, 3), refused=0.0)


def games(draw: Draw = PLAIN, count: int = 200, rounds: Rounds = Rounds(), seed: int = 0,  # noqa: B008
          first: int = 0) -> tuple[Game, ...]:  # fmt: skip
    ground = Ground(((Named(64), 1.0),), workers())
    return Dealer(ground, draw, rounds, seed).games(Purpose.TRAINING, first, count)


def ids(game: Game) -> tuple[str, ...]:
    return tuple(worker.id for worker in game.workers)


WHOLE = tuple(worker.id for worker in workers())


def test_a_game_hangs_on_seed_and_number_alone() -> None:
    assert games(count=30)[20:] == games(count=10, first=20)
    assert games(seed=1)[:5] != games(seed=2)[:5]


def test_each_purpose_has_games_of_its_own() -> None:
    ground = Ground(((Named(64), 1.0),), workers())
    dealer = Dealer(ground, PLAIN, Rounds(), 0)
    drawn = {tuple(g.seed for g in dealer.games(one, 0, 5)) for one in Purpose}
    assert len(drawn) == len(Purpose)


def test_a_fixed_share_has_the_whole_pool_in_its_own_order_at_its_own_prices() -> None:
    whole = [game for game in games(replace(PLAIN, fixed=0.7)) if game.workers == workers()]
    assert 120 < len(whole) < 160


def test_the_others_have_a_random_part_in_random_order() -> None:
    drawn = games()
    assert {len(game.workers) for game in drawn} == {2, 3}
    assert len({ids(game) for game in drawn}) == 12, "6 pairs and 6 orders of three"
    assert {len(game.workers) for game in games(replace(PLAIN, pool=(2, 2)))} == {2}


def test_prices_spread_as_told() -> None:
    def factors(spread: float) -> list[float]:
        drawn = games(replace(PLAIN, price_spread=spread))
        return [math.log(w.price.output_usd_per_mtok / 0.2) for g in drawn for w in g.workers]

    assert all(abs(one) < 1e-9 for one in factors(0.0))
    wide = factors(0.5)
    assert math.sqrt(sum(one**2 for one in wide) / len(wide)) == pytest.approx(0.5, abs=0.06)


def test_the_request_tells_the_prices_that_are_paid() -> None:
    for game in games(count=20):
        assert [c.price for c in game.request.candidates] == [w.price for w in game.workers]


def test_whoever_is_refused_is_no_candidate_but_somebody_always_is() -> None:
    sizes = Counter(len(game.workers) for game in games(replace(PLAIN, pool=(3, 3), refused=0.5)))
    assert sizes[1] > 30 and sizes[2] > 30 and sizes[3] > 5
    assert min(sizes) == 1


def test_where_some_are_veiled_somebody_is_not_and_a_redaction_is_possible() -> None:
    drawn = games(replace(PLAIN, pool=(3, 3), veiled=1.0))
    some = [game for game in drawn if game.request.flow is not None]
    assert len(some) > 150
    for game in some:
        veiled = {i for i, one in enumerate(game.request.candidates) if one.veiled}
        assert game.request.flow is not None and game.request.may_redact
        assert game.request.flow.sees[game.request.flow.question] == {0, 1, 2} - veiled
        assert 0 < len(veiled) < 3
        PlanPool.of(game.request)
    assert all(game.request.flow is None for game in games())


def test_lambda_is_drawn_evenly_on_a_log_scale() -> None:
    drawn = [game.cost_weight for game in games(replace(PLAIN, weights=(0.01, 1.0)))]
    assert min(drawn) >= 0.01 and max(drawn) <= 1.0
    assert 80 < sum(one < 0.1 for one in drawn) < 120
    assert all(game.request.cost_weight == game.cost_weight for game in games(count=3))


def test_limits_are_those_of_the_recipe() -> None:
    drawn = games(replace(PLAIN, max_steps=(1, 2), max_calls=(2, 4)))
    assert {game.limits.max_steps for game in drawn} == {1, 2}
    assert {game.limits.max_calls for game in drawn} == {2, 3, 4}
    assert all(game.request.max_steps == game.limits.max_steps for game in drawn)
    assert all(game.request.calls_left == game.limits.max_calls for game in drawn)


def test_a_share_of_the_games_has_further_rounds() -> None:
    drawn = games(rounds=Rounds(share=0.5, most=3))
    assert Counter(game.limits.max_rounds for game in drawn).keys() == {1, 3}
    assert 70 < sum(game.request.rounds_left == 2 for game in drawn) < 130


def test_tasks_are_drawn_by_their_shares() -> None:
    one, other = Named(5), Named(50)
    ground = Ground(((one, 3.0), (other, 1.0)), workers())
    drawn = Dealer(ground, PLAIN, Rounds(), 0).games(Purpose.TRAINING, 0, 400)
    assert 270 < sum(game.task is one for game in drawn) < 330
