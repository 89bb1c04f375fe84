"""What is learned from what was played: advantages, discounts and weights by hand."""

from __future__ import annotations

import math

import pytest
import torch

from conductor_build.lm.objective import Weighing, credit, discounted, group_loss
from conductor_build.lm.recipe import Objective
from conductor_build.surrogate import clipped_gain, entropy

PLAIN = Objective(scale="group", spread_floor=1e-6)


def advantages(*groups: list[float | None], scale: str = "group") -> list[tuple[float | None, ...]]:
    objective = Objective(scale=scale, spread_floor=1e-6)  # type: ignore[arg-type]
    return [one.advantages for one in credit(groups, objective)]


def test_a_void_is_left_out_of_its_group() -> None:
    (found,) = advantages([1.0, None, 0.0])
    assert found[1] is None
    assert [found[0], found[2]] == pytest.approx([1.0, -1.0], abs=1e-4)


@pytest.mark.parametrize("group", [[None, None], [0.3, None], [None]])
def test_a_group_with_fewer_than_two_left_teaches_nothing(group: list[float | None]) -> None:
    skipped, other = credit([group, [1.0, 0.0]], PLAIN)
    assert skipped.skipped and skipped.advantages == (None,) * len(group)
    assert not other.skipped


def test_nothing_is_learned_where_all_is_void() -> None:
    assert all(one.skipped for one in credit([[None, None], [None, None]], PLAIN))


def test_the_scale_says_whose_spread_counts() -> None:
    alone = advantages([1.0, 0.0], [0.51, 0.5])
    assert alone[1][0] == pytest.approx(1.0, abs=1e-3)
    together = advantages([1.0, 0.0], [0.51, 0.5], scale="batch")
    assert together[1][0] == pytest.approx(0.01 / math.sqrt(0.5), abs=2e-3)


@pytest.mark.parametrize(
    ("place", "turns", "worth"), [(0, 1, 2.0), (0, 2, 0.5), (1, 2, 2.0), (1, 3, 0.5), (2, 3, 2.0)]
)
def test_a_plan_that_another_round_followed_is_credited_with_less(
    place: int, turns: int, worth: float
) -> None:
    assert discounted(2.0, place, turns, 0.25) == worth


@pytest.mark.parametrize(
    ("per", "wanted"),
    [
        ("token", [[0.25, 0.25, 0.0], [0.25, 0.0, 0.25]]),
        ("plan", [[0.25, 0.25, 0.0], [0.25, 0.0, 0.25]]),
    ],
)
def test_weights_of_plans_with_as_many_choices_are_equal(
    per: str, wanted: list[list[float]]
) -> None:
    chosen = torch.tensor([[True, True, False], [True, False, True]])
    assert Weighing(4, 2, per).of(chosen).tolist() == wanted


def test_a_short_plan_weighs_as_much_as_a_long_one_only_per_plan() -> None:
    chosen = torch.tensor([[True, False, False], [True, True, True]])
    assert Weighing(4, 2, "token").of(chosen).sum(1).tolist() == pytest.approx([0.25, 0.75])
    assert Weighing(4, 2, "plan").of(chosen).sum(1).tolist() == pytest.approx([0.5, 0.5])


def test_the_loss_is_the_clipped_gain_and_the_entropy_bonus() -> None:
    log = torch.tensor([[math.log(0.5), math.log(0.2)]])
    sampled = torch.tensor([[math.log(0.4), math.log(0.2)]])
    weight = torch.tensor([[0.5, 0.5]])
    loss, spread = group_loss(
        log, torch.tensor([[1.0, 3.0]]), sampled, torch.tensor([2.0]), weight,
        Objective(clip=0.2, entropy=0.1),
    )  # fmt: skip
    assert float(spread) == pytest.approx(2.0)
    assert float(loss) == pytest.approx(-(0.5 * 1.2 * 2 + 0.5 * 2) - 0.1 * 2.0)


def test_a_ratio_is_clipped_where_it_would_gain_more() -> None:
    def gain(ratio: float, advantage: float) -> float:
        found = clipped_gain(
            torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), 0.2
        )
        return float(found[0])

    assert gain(1.5, 1.0) == pytest.approx(1.2)
    assert gain(0.5, 1.0) == pytest.approx(0.5)
    assert gain(0.5, -1.0) == pytest.approx(-0.8)
    assert gain(1.5, -1.0) == pytest.approx(-1.5)


def test_entropy_of_what_cannot_be_is_nothing() -> None:
    log = torch.tensor([[0.0, float("-inf")], [math.log(0.5), math.log(0.5)]])
    assert entropy(log).tolist() == pytest.approx([0.0, math.log(2)])
