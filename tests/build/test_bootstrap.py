"""Bootstrap intervals: against what theory says, and paired."""

from __future__ import annotations

import numpy as np
import pytest

from conductor.errors import ConductorError
from conductor_build.bootstrap import estimates, resampled_means


def test_the_interval_of_a_share_is_close_to_the_normal_one() -> None:
    values = np.repeat([0.0, 1.0], [600, 400])[:, None]
    (estimate,) = estimates(values, seed=0, draws=4000)
    half = 1.96 * (0.4 * 0.6 / 1000) ** 0.5
    assert estimate.mean == pytest.approx(0.4)
    assert estimate.low == pytest.approx(0.4 - half, abs=0.004)
    assert estimate.high == pytest.approx(0.4 + half, abs=0.004)


def test_columns_are_resampled_with_the_same_prompts() -> None:
    draw = np.random.default_rng(0)
    noisy = draw.normal(scale=10, size=200)
    columns = np.column_stack([noisy, noisy + 1.0])
    means = resampled_means(columns, seed=1, draws=300)
    assert (means[:, 1] - means[:, 0]) == pytest.approx(np.ones(300))
    assert means[:, 0].std() > 0.3


def test_two_calls_with_one_seed_are_paired_too() -> None:
    values = np.random.default_rng(3).normal(size=(50, 2))
    both = resampled_means(values, seed=7, draws=600)
    alone = resampled_means(values[:, 1:], seed=7, draws=600)
    assert both[:, 1:] == pytest.approx(alone)
    assert resampled_means(values, seed=8, draws=600) != pytest.approx(both)


def test_every_draw_weighs_as_many_prompts_as_there_are() -> None:
    assert resampled_means(np.ones((17, 1)), seed=0, draws=501) == pytest.approx(np.ones((501, 1)))


def test_an_unknown_prompt_makes_its_own_column_unknown_and_no_other() -> None:
    values = np.array([[1.0, 1.0], [np.nan, 3.0], [1.0, 2.0]])
    unknown, known = estimates(values, seed=0, draws=100)
    assert np.isnan([unknown.mean, unknown.low, unknown.high]).all()
    assert known.low <= known.mean == 2.0 <= known.high


def test_one_prompt_has_an_interval_of_no_width() -> None:
    (estimate,) = estimates(np.array([[0.25]]), seed=0, draws=10)
    assert (estimate.mean, estimate.low, estimate.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(("prompts", "draws"), [(0, 10), (5, 0)])
def test_no_prompts_and_no_draws_are_refused(prompts: int, draws: int) -> None:
    with pytest.raises(ConductorError, match="at least one"):
        estimates(np.zeros((prompts, 1)), seed=0, draws=draws)
