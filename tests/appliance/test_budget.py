"""The hard limits of one request, under whatever its attempts do and in whatever order they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conductor.core import Price, Usage, Worker
from conductor.errors import BudgetExhausted, UpstreamTimeout
from conductor.run.budget import BYTES_PER_TOKEN_LOW, Allowance, Budget, estimate_tokens
from conductor.settings import RequestLimits
from support.rawpeer import remote_worker

FREE = Price()
DEAR = Price(1.0, 4.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def worker(price: Price = DEAR, max_output_tokens: int = 4096) -> Worker:
    return replace(remote_worker(max_output_tokens=max_output_tokens), price=price)


def budget(
    calls: int = 8, tokens: int = 100_000, usd: float = 1.0, total_s: float = 60.0
) -> Budget:
    return Budget(RequestLimits(5, calls, tokens, usd, total_s), Clock())


def granted(given: Budget, prompt_bytes: int = 400, wanted: int | None = None, **more: int) -> int:
    return given.open(worker(), prompt_bytes, wanted, **more).output_tokens


# -- caps -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "allowed"),
    [
        ({}, 4096),
        ({"max_output_tokens": 10}, 10),
        ({"wanted": 7}, 7),
        ({"wanted": 9_000_000}, 4096),
        ({"tokens": 101 + 50}, 50),
        ({"tokens": 101 + 1}, 1),
        ({"usd": 204.1e-6}, 1),  # 200 tokens in, 1 out: 200 + 4 micro-USD
        ({"usd": 204e-6, "price": FREE}, 4096),
        ({"usd": 0.0, "price": FREE}, 4096),
        ({"usd": 200e-6, "price": Price(1.0, 0.0)}, 4096),
        ({"usd": 1e-6, "price": Price(0.0, 1.0)}, 1),
        ({"usd": 1.0, "price": Price(0.0, 5e-324)}, 4096),
        ({"choices": 3}, 4096),
        ({"choices": 3, "tokens": 101 + 10}, 3),
        ({"choices": 2, "usd": 216.1e-6}, 2),
        ({"choices": 8, "wanted": 2}, 2),
    ],
)
def test_an_answer_is_capped_by_the_tightest_limit(what: dict[str, Any], allowed: int) -> None:
    one = worker(what.get("price", DEAR), what.get("max_output_tokens", 4096))
    room = budget(tokens=what.get("tokens", 100_000), usd=what.get("usd", 1.0))
    found = room.open(one, 400, what.get("wanted"), what.get("choices", 1))
    assert found.output_tokens == allowed and type(found.output_tokens) is int


@pytest.mark.parametrize(
    ("limits", "price", "choices", "said"),
    [
        ({"calls": 0}, FREE, 1, "calls (0)"),
        ({"tokens": 101}, FREE, 1, "tokens (101)"),
        ({"tokens": 101 + 2}, FREE, 3, "tokens (103)"),
        ({"tokens": 0}, FREE, 1, "tokens (0)"),
        ({"usd": 0.0}, DEAR, 1, "money, in USD (0.0)"),
        ({"usd": 203e-6}, DEAR, 1, "money, in USD"),
        ({"usd": 199e-6}, Price(1.0, 0.0), 1, "money"),
        ({"usd": 207e-6}, DEAR, 2, "money"),
    ],
)
def test_without_room_for_a_token_nothing_is_granted_and_nothing_is_held(
    limits: dict[str, float], price: Price, choices: int, said: str
) -> None:
    room = budget(**limits)  # type: ignore[arg-type]
    with pytest.raises(BudgetExhausted) as refused:
        room.open(worker(price), 400, None, choices)
    assert said in refused.value.message and refused.value.status == 429
    assert refused.value.headers["x-should-retry"] == "false"
    assert (room.calls, room.cost_usd, room.busy_s) == (0, 0.0, 0.0)


def test_what_is_reserved_is_not_granted_twice_and_comes_back_when_settled() -> None:
    room = budget(tokens=1000)
    first = room.open(worker(), 400, None)
    assert first.output_tokens == 1000 - 101
    with pytest.raises(BudgetExhausted):
        room.open(worker(), 400, None)
    room.settle(first, DEAR, Usage(50, 50))
    assert granted(room) == 1000 - 100 - 101


def test_money_that_one_attempt_holds_is_not_promised_to_another() -> None:
    room = budget(usd=0.001)
    first = room.open(worker(), 400, None)
    assert first.output_tokens == pytest.approx((1000 - 200) / 4, abs=1)
    with pytest.raises(BudgetExhausted, match="money"):
        room.open(worker(), 400, None)
    room.settle(first, DEAR, Usage(100, 10))
    assert granted(room) == pytest.approx((1000 - 140 - 200) / 4, abs=1)


def test_a_worker_that_used_more_than_it_was_granted_leaves_no_room() -> None:
    room = budget(tokens=1000)
    room.settle(room.open(worker(), 4, 10), DEAR, Usage(5000, 5000))
    with pytest.raises(BudgetExhausted):
        granted(room, prompt_bytes=4)
    room = budget(usd=0.001, tokens=2_000_000)
    cost = room.settle(room.open(worker(), 4, 10), DEAR, Usage(1, 1_000_000))
    assert cost == room.cost_usd == pytest.approx(4.000001)
    with pytest.raises(BudgetExhausted):
        granted(room, prompt_bytes=4)
    assert room.open(worker(FREE), 4, None).output_tokens == 4096  # money is no matter at home


def test_a_failed_call_counts_as_a_call() -> None:
    room = budget(calls=2)
    for _ in range(2):
        room.settle(room.open(worker(), 4, 1), DEAR, Usage())
    with pytest.raises(BudgetExhausted, match="calls"):
        granted(room)


# -- time -------------------------------------------------------------------------------------


def test_time_runs_out_and_says_so() -> None:
    room = budget(total_s=10.0)
    room.clock.now = 9.5  # type: ignore[attr-defined]
    assert room.seconds_left() == 0.5
    for now in (10.0, 1e9):
        room.clock.now = now  # type: ignore[attr-defined]
        with pytest.raises(UpstreamTimeout, match="10 s"):
            room.seconds_left()


def test_time_at_work_counts_overlapping_attempts_once() -> None:
    clock = Clock()
    room = Budget(RequestLimits(5, 9, 10_000, 1.0, 60.0), clock)
    clock.now = 1
    first = room.open(worker(), 4, 1)
    clock.now = 2
    second = room.open(worker(), 4, 1)
    clock.now = 4
    room.settle(first, DEAR, Usage())
    clock.now = 5
    room.settle(second, DEAR, Usage())
    assert room.busy_s == 4
    clock.now = 10
    third = room.open(worker(), 4, 1)
    clock.now = 11
    room.settle(third, DEAR, Usage())
    assert room.busy_s == 5


# -- under any interleaving -------------------------------------------------------------------

prices = st.sampled_from([FREE, DEAR, Price(0.0, 15.0), Price(30.0, 0.0), Price(75.0, 600.0)])
opens = st.tuples(
    st.just("open"),
    prices,
    st.integers(0, 20_000),
    st.none() | st.integers(1, 10_000),
    st.integers(1, 8),
)
settles = st.tuples(st.just("settle"), st.integers(0, 9), st.floats(0, 1), st.floats(0, 1))


@given(
    steps=st.lists(opens | opens | settles, min_size=3, max_size=40),
    calls=st.sampled_from([0, 3, 20]),
    tokens=st.integers(0, 50_000),
    usd=st.sampled_from([0.0, 0.0001, 0.01, 0.1]),
)
def test_nothing_exceeds_any_limit_in_whatever_order_attempts_end(
    steps: list[tuple[Any, ...]], calls: int, tokens: int, usd: float
) -> None:
    """As long as workers keep to what they were granted, and prompts to their estimate."""
    room = budget(calls, tokens, usd)
    held: list[tuple[Allowance, Price, int, int]] = []
    for step in steps:
        if step[0] == "open":
            _, price, prompt_bytes, wanted, choices = step
            try:
                allowance = room.open(worker(price), prompt_bytes, wanted, choices)
            except BudgetExhausted:
                continue
            assert 1 <= allowance.output_tokens <= min(4096, wanted or 4096)
            held.append((allowance, price, prompt_bytes, choices))
        elif held:
            _, place, read, written = step
            allowance, price, prompt_bytes, choices = held.pop(place % len(held))
            room.settle(
                allowance,
                price,
                Usage(
                    int(estimate_tokens(prompt_bytes) * read),
                    int(allowance.output_tokens * choices * written),
                ),
            )
        assert room.calls <= calls
        assert room._tokens_used() <= tokens
        assert room.cost_usd + room._held_usd <= usd + 1e-12
    spent = room.spent
    for allowance, price, *_ in held:
        room.settle(allowance, price, Usage())
    assert (room._held_tokens, room._active) == (0, 0)
    assert room._held_usd == pytest.approx(0, abs=1e-12)
    assert room.spent == spent


@given(st.text(alphabet="abc de,.", max_size=200))
def test_the_reservation_covers_a_prompt_of_one_token_for_two_bytes(text: str) -> None:
    assume(text)
    allowance = budget().open(worker(), len(text), 1)
    tokens = -(-len(text) // BYTES_PER_TOKEN_LOW)
    assert allowance.cost_usd == pytest.approx(DEAR.cost_usd(Usage(tokens, 1)))
