"""Draws from masked distributions, and the shortest way to end a plan."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.plan.automaton import Automaton, compile
from conductor.plan.closing import closing
from conductor.plan.language import parse
from conductor.plan.validate import PlanPool, validate
from conductor.plan.writing import walk
from conductor_build.lm.attention import Layout, _part, _part_backward, _Sides
from conductor_build.lm.sampling import Masks, draw, entropy, log_probs
from support.automata import EOS, ODD, ids_in, pick
from support.plans import pools

TABLES = compile(ODD, [EOS])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_bit_mask_becomes_the_tokens_that_it_names() -> None:
    masks = Masks(21, torch.device("cpu"))
    for mask in (b"\x05\x80\x10\x00", b"\x00" * 4, b"\xff" * 4):
        wanted = [i in ids_in(mask) for i in range(21)]
        assert masks.of(mask).tolist() == wanted
        assert masks.stacked([mask, mask]).tolist() == [wanted, wanted]


def test_masks_that_nobody_asks_for_any_more_are_forgotten() -> None:
    masks = Masks(32, torch.device("cpu"))
    for number in range(1000):
        masks.of(number.to_bytes(4, "little"))
    assert len(masks._kept) < 300


def test_a_forbidden_token_is_never_drawn_however_likely_it_was() -> None:
    logits = torch.zeros(2000, 50)
    logits[:, ::2] = 80.0
    allowed = torch.zeros(2000, 50, dtype=torch.bool)
    allowed[:, 1:48:2] = True
    log = log_probs(logits, allowed, 1.0)
    drawn = draw(log, generator())
    assert allowed.gather(1, drawn[:, None]).all()
    assert set(drawn.tolist()) == set(range(1, 48, 2))


def test_draws_come_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([0.0, 1.0, -30.0, 2.0])
    log = log_probs(logits.repeat(40_000, 1), None, 2.0)
    share = torch.bincount(draw(log, generator()), minlength=4) / 40_000
    assert torch.allclose(share, torch.softmax(logits / 2, 0), atol=0.01)


def test_the_only_token_is_certain_and_has_no_entropy() -> None:
    allowed = torch.tensor([[False, True, False]])
    log = log_probs(torch.tensor([[9.0, -9.0, 0.0]]), allowed, 1.0)
    assert log[0, 1] == 0 and entropy(log) == 0
    assert draw(log, generator()) == draw(log, None) == 1


def test_the_entropy_of_a_masked_distribution_has_a_gradient_that_is_finite() -> None:
    logits = torch.randn(3, 6, generator=generator(), requires_grad=True)
    allowed = torch.tensor([[True, True, False, False, True, False]]).repeat(3, 1)
    spread = entropy(log_probs(logits, allowed, 1.0))
    plain = torch.distributions.Categorical(logits=logits[:, [0, 1, 4]]).entropy()
    assert torch.allclose(spread, plain, atol=1e-6)
    spread.sum().backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    assert not logits.grad[:, [2, 3, 5]].any() and logits.grad[:, 0].any()


def test_attention_written_out_is_that_of_the_kernel_backwards_too() -> None:
    """The way that GPUs take, run on the CPU."""
    query, key, value, felt = (
        torch.randn(2, 2, n, 8, generator=generator(n)) for n in (6, 9, 9, 6)
    )
    mask = torch.zeros(2, 1, 6, 9).masked_fill(torch.rand(2, 1, 6, 9) < 0.3, -torch.inf)
    mask[..., 0] = 0
    found = []
    for written_out in (False, True):
        out, log = _part(query, key, value, mask, 0.3, written_out=written_out)
        sides = _Sides(felt, query, out, log[..., None] + 0.5)  # as if other keys were seen too
        back = _part_backward(sides, key, value, mask, 0.3, written_out=written_out)
        found.append((out, log, *back))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))


def test_packed_tokens_and_padded_ones_are_the_same_tokens() -> None:
    rows, slots = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 0, 1, 2])
    layout = Layout(rows, slots, 3, 3, (), torch.zeros(1, 1, 3, 3))
    packed = torch.arange(10.0).view(5, 2)
    assert torch.equal(layout.packed(layout.padded(packed)), packed)
    assert not layout.padded(packed)[1].any()


@settings(max_examples=60, deadline=None)
@given(pools(), st.randoms(use_true_random=False), st.integers(0, 30))
def test_a_plan_that_is_cut_anywhere_is_ended_so_that_it_fits(
    pool: PlanPool, chance: random.Random, tokens: int
) -> None:
    automaton = Automaton(TABLES, pool)
    state, text = automaton.start(), b""
    for _ in range(tokens):
        allowed = ids_in(automaton.allowed(state)) - {EOS}
        if not allowed:
            break
        token = pick(chance, allowed, ODD)
        state, text = automaton.advance(state, token), text + (ODD[token] or b"")
    if not any(automaton.allowed(state)):
        return  # nothing at all can be planned in this pool
    ending = closing(state)
    validate(parse((text + ending).decode(), pool.first), pool)


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        (b"", b"0 q -\n"),
        (b"0 q -\n1 q,", b"0 -\n"),
        (b"0 q Check", b"\n"),
        (b"0 q Check ", b"-\n"),
        (b"0 q caf\xc3", b"\x80\n"),
        (b"redact q -\n", b"0 - -\n"),
        (b"0 q -\n", b""),
    ],
)
def test_endings_are_short(text: bytes, ending: bytes) -> None:
    state = walk(Automaton(TABLES, PlanPool(3)).start(), text)
    assert state is not None
    assert len(closing(state)) == len(ending)
