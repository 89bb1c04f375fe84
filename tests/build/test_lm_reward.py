"""What an episode of an LM conductor is worth, as a table; and what of it is void."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_build.live.environment import Outcome
from conductor_build.lm.draw import Dealer, Ground, Purpose
from conductor_build.lm.episodes import UTILITY, Episode, value
from conductor_build.lm.recipe import Draw, Rounds
from conductor_build.reward import Spent, Terms, worth
from support.lmgames import Named, workers

SPENT = Spent(cost_usd_per_1k=2.0, rounds=2, output_tokens=500.0, seconds=3.0)
PAPER, PRICED = Terms(), Terms("utility", price=1.0)


def rewarded(terms: Terms, **changes: Any) -> float:
    asked = {"parsed": True, "quality": 1.0, "cost_weight": 0.1, "spent": SPENT}
    return worth(terms, **{**asked, **changes})


@pytest.mark.parametrize(
    ("terms", "changes", "wanted"),
    [
        (PAPER, {}, 1.0),
        (PAPER, {"quality": 0.0}, 0.5),
        (PAPER, {"quality": 0.5}, 0.75),
        (PAPER, {"parsed": False}, 0.0),
        (PAPER, {"cost_weight": 9.0}, 1.0),
        (Terms("paper", price=0.5), {}, 0.9),
        (Terms("paper", per_round=0.1), {}, 0.9),
        (Terms("paper", per_1k_tokens=0.2), {}, 0.9),
        (Terms("paper", per_second=0.01), {}, 0.97),
        (PRICED, {}, 0.8),
        (PRICED, {"quality": 0.0}, -0.2),
        (PRICED, {"quality": 0.0, "cost_weight": 10.0}, -1.0),
        (Terms("utility", price=1.0, floor=-0.5), {"cost_weight": 10.0}, -0.5),
        (Terms("utility"), {"cost_weight": 10.0}, 1.0),
        (PRICED, {"parsed": False}, 0.0),
    ],
)
def test_what_an_episode_is_worth(terms: Terms, changes: dict[str, Any], wanted: float) -> None:
    assert rewarded(terms, **changes) == pytest.approx(wanted)


def outcome(quality: float | None) -> Outcome:
    void = "worker:refused" if quality is None else None
    return Outcome(quality, void, 2.0, 10, 20, 1, 1, 0.5, (0,))


def test_a_void_is_worth_nothing_at_all_and_not_zero() -> None:
    ground = Ground(((Named(), 1.0),), workers())
    game = Dealer(ground, Draw(), Rounds(), 0).game(Purpose.TRAINING, 0)
    assert value(game, outcome(None), PAPER) is None
    assert Episode(game, outcome=outcome(None)).reward(PAPER) is None
    assert Episode(game, outcome=outcome(None)).void == "worker:refused"
    utility = value(game, outcome(1.0), UTILITY)
    assert utility == pytest.approx(1.0 - 2.0 * game.cost_weight)
