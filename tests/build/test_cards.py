"""Cards: what is known of a worker, also when that is little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conductor_build.cards import measure
from conductor_build.outcomes import merge
from support.outcomes import NAN, generated, table

DOMAINS = ("even", "odd")


def test_many_outcomes_speak_for_themselves() -> None:
    made = table([[1.0, 0.0]] * 400 + [[0.0, 0.0]] * 100, tokens=[[100, 300]] * 500)
    cards = measure(made, ("t",))
    assert cards.skill[:, 0] == pytest.approx([0.8, 0.0], abs=0.01)
    assert cards.tokens[:, 0] == pytest.approx([100, 300], rel=0.02)
    assert cards.cost[:, 0] == pytest.approx([0.1, 0.6], rel=0.02)
    assert cards.counts[:, 0].tolist() == [500, 500]


def test_one_outcome_decides_nothing() -> None:
    """b was wrong the one time that it was asked, where every second answer of a is right."""
    scores = [[float(n % 2), NAN] for n in range(100)]
    scores[0][1] = 0.0
    cards = measure(table(scores), ("t",))
    assert cards.counts[:, 0].tolist() == [100, 1]
    assert cards.skill[0, 0] == pytest.approx(0.5, abs=0.02)
    assert 0.15 < cards.skill[1, 0] < 0.45


def test_a_worker_without_any_outcome_is_taken_for_an_average_one() -> None:
    cards = measure(table([[1.0, NAN], [0.0, NAN]] * 50), ("t",))
    assert cards.skill[1, 0] == pytest.approx(0.5, abs=0.02)


def test_ability_carries_over_to_a_domain_that_a_worker_was_never_asked_in() -> None:
    """In `odd` only c was asked; a, who is better than b in `even`, is expected to be so there."""
    scores = [[1, 0.0, 1] if n % 2 == 0 else [NAN, NAN, n % 4 == 1] for n in range(80)]
    cards = measure(table(scores, tasks=["even", "odd"] * 40), DOMAINS)
    assert cards.counts[:2, 1].tolist() == [0, 0]
    assert cards.skill[0, 1] > cards.skill[1, 1] + 0.2


def test_a_domain_that_the_table_lacks_has_finite_numbers() -> None:
    made, _ = generated(40)
    cards = measure(made, (*DOMAINS, "other"))
    for part in (cards.skill, cards.tokens, cards.cost):
        assert part.shape == (4, 3)
        assert np.isfinite(part).all()
    assert (cards.counts[:, 2] == 0).all()


def test_without_token_counts_a_call_costs_by_size() -> None:
    made = table([[1.0], [0.0]], tokens=[[NAN], [NAN]])
    cards = measure(made, ("t",))
    assert cards.cost[:, 0] == pytest.approx([7.0 / 1000])


def test_an_unknown_price_stays_unknown() -> None:
    made = table([[1.0, 1.0]], prices=[1.0, NAN])
    assert np.isnan(measure(made, ("t",)).price).tolist() == [False, True]


def test_the_order_of_prompts_and_workers_changes_nothing() -> None:
    made, _ = generated(60)
    one = measure(made, DOMAINS)
    order = ["c", "a", "d", "b"]
    rows = np.random.default_rng(1).permutation(60)
    other = measure(made.columns(order).rows(rows), DOMAINS)
    place = [made.names.index(name) for name in order]
    assert other.names == tuple(order)
    assert other.skill == pytest.approx(one.skill[place], abs=1e-6)
    assert other.cost == pytest.approx(one.cost[place], rel=1e-5)


def test_a_name_says_nothing() -> None:
    made, _ = generated(60)
    workers = tuple(replace(worker, name=f"x{n}") for n, worker in enumerate(made.workers))
    renamed = measure(replace(made, workers=workers), DOMAINS)
    assert np.array_equal(renamed.skill, measure(made, DOMAINS).skill)


def test_other_prompts_of_the_same_workers_add_to_their_cards() -> None:
    made, _ = generated(60)
    half = made.rows(range(30))
    assert (measure(made, DOMAINS).counts > measure(half, DOMAINS).counts).all()
    assert merge([half]).names == made.names
