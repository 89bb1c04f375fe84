"""The policy: what it writes and scores is what a plain forward of each whole sequence says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conductor.core import PlanRequest
from conductor.plan.validate import PlanPool, validate
from conductor_build.lm.policy import Lora, PlanPolicy, PolicyError, Scored
from conductor_build.lm.sampling import Masks, log_probs
from conductor_build.lm.tokens import Ask
from conductor_build.lm.writing import Written
from support.lmmodels import policy, requests
from support.plans import candidate

TINY = Lora(rank=4, alpha=8.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def asks(made: PlanPolicy) -> list[Ask]:
    return [made.writer.ask(one) for one in requests()]


def written(made: PlanPolicy, group: int = 3, tokens: int = 24) -> list[list[Written]]:
    return made.write(asks(made), group, generator(), max_tokens=tokens)


def plainly(made: PlanPolicy, ask: Ask, one: Written, temperature: float = 1.0) -> Tensor:
    """The log-probability of every chosen token, from one forward of the whole sequence."""
    ids = [*made.writer.prefix, *ask.rest, *one.tokens]
    logits = made.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    logits = logits[len(ids) - len(one.tokens) - 1 : -1]
    automaton, masks = made.writer.automaton(ask), Masks(logits.shape[1], torch.device("cpu"))
    state, found = automaton.start(), []
    for place, (token, forced) in enumerate(zip(one.tokens, one.forced, strict=True)):
        allowed = masks.stacked([automaton.allowed(state)])
        if not forced:
            found.append(log_probs(logits[place : place + 1], allowed, temperature)[0, token])
        state = automaton.advance(state, token)
    return torch.stack(found)


def gradients(made: PlanPolicy) -> list[Tensor]:
    found = [one.grad if one.grad is not None else torch.zeros(()) for one in made.parameters()]
    made.model.zero_grad()
    return [one.clone() for one in found]


def furthest(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest difference, against the largest gradient of all."""
    most = max(float(one.abs().max()) for one in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / most


def score_and_back(made: PlanPolicy, plans: list[list[Written]], **how: bool) -> list[Scored]:
    scored = []
    for one in made.score(asks(made), plans, **how):
        (one.log_prob * torch.linspace(-1, 1, one.log_prob.shape[1])).sum().backward()
        scored.append(one)
    return scored


def plain_back(made: PlanPolicy, plans: list[list[Written]]) -> None:
    for ask, group in zip(asks(made), plans, strict=True):
        weight = torch.linspace(-1, 1, max(len(one.tokens) for one in group))
        for one in group:
            chosen = torch.tensor([not forced for forced in one.forced])
            (plainly(made, ask, one) * weight[: len(chosen)][chosen]).sum().backward()


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("lora", [None, TINY], ids=["full", "lora"])
def test_scores_and_gradients_are_those_of_plain_forwards(kind: str, lora: Lora | None) -> None:
    made = policy(kind, lora=lora)
    with torch.no_grad():
        for one in made.parameters():  # a fresh adapter gives zeros, and so no gradient upwards
            one.add_(torch.randn(one.shape, generator=generator(7)), alpha=0.05)
    plans = written(made)
    scored = score_and_back(made, plans)
    ours = gradients(made)
    plain_back(made, plans)
    assert furthest(ours, gradients(made)) < 1e-4
    for ask, group, one in zip(asks(made), plans, scored, strict=True):
        theirs = torch.cat([plainly(made, ask, plan) for plan in group])
        assert torch.allclose(one.log_prob[one.chosen], theirs, atol=1e-4)


def test_what_was_written_is_scored_alike_at_any_temperature() -> None:
    made = policy(lora=TINY)
    plans = made.write(asks(made), 3, generator(), temperature=0.7, max_tokens=24)
    for group, one in zip(plans, made.score(asks(made), plans, temperature=0.7), strict=True):
        for row, plan in enumerate(group):
            told = torch.tensor(plan.log_probs)
            assert torch.allclose(one.log_prob[row, : len(told)], told, atol=1e-4)
            assert one.chosen[row].tolist()[: len(told)] == [not f for f in plan.forced]
        assert not one.log_prob[~one.chosen].any() and not one.entropy[~one.chosen].any()
        assert (one.entropy[one.chosen] >= 0).all() and one.entropy.max() > 1


def test_the_likeliest_plan_is_the_one_that_plain_forwards_lead_to() -> None:
    made = policy()
    ask = asks(made)[1]
    [[plan]] = made.write([ask], 1, None, max_tokens=12)
    automaton, state, tokens = made.writer.automaton(ask), made.writer.automaton(ask).start(), []
    for place, token in enumerate(plan.tokens):
        ids = torch.tensor([[*made.writer.prefix, *ask.rest, *tokens]])
        logits = made.model(input_ids=ids).logits[0, -1:].detach()
        allowed = Masks(logits.shape[1], logits.device).stacked([automaton.allowed(state)])
        if not plan.forced[place]:
            assert token == int(log_probs(logits, allowed, 1.0).argmax())
        state = automaton.advance(state, token)
        tokens.append(token)


def test_the_same_seed_gives_the_same_plans_and_another_gives_others() -> None:
    made = policy()
    again = made.write(asks(made), 3, generator(), max_tokens=24)
    assert again == written(made) == written(policy())
    assert again != made.write(asks(made), 3, generator(1), max_tokens=24)


def test_every_constrained_plan_fits_also_when_its_room_runs_out() -> None:
    made = policy()
    for room in (1, 3, 8, 40):
        for ask, group in zip(asks(made), written(made, 6, room), strict=True):
            for one in group:
                assert one.ended and one.plan is not None
                validate(one.plan, PlanPool.of(ask.request))
                assert one.forced[-1] or len(one.tokens) <= room


def test_without_a_mask_a_random_model_writes_no_plans_and_is_scored_all_the_same() -> None:
    made = policy()
    plans = made.write(asks(made), 3, generator(), constrained=False, max_tokens=10)
    assert all(one.plan is None and len(one.tokens) <= 10 for group in plans for one in group)
    for group, one in zip(plans, made.score(asks(made), plans, constrained=False), strict=True):
        for row, plan in enumerate(group):
            told = torch.tensor(plan.log_probs)
            assert torch.allclose(one.log_prob[row, : len(told)], told, atol=1e-4)


def test_a_step_of_training_is_seen_by_the_next_plans_and_makes_the_prefix_anew() -> None:
    made = policy(lora=TINY)
    plans = written(made)
    optimiser = torch.optim.SGD(made.parameters(), lr=0.5)
    for _ in range(2):  # the first step leaves the upper half of an adapter as it was
        score_and_back(made, plans)
        optimiser.step()
        optimiser.zero_grad()
    fresh = policy(lora=TINY)
    fresh.load_state(made.state())
    assert written(made) == written(fresh) != plans


def test_only_the_adapter_is_trained_and_only_it_is_the_state() -> None:
    made = policy(lora=TINY)
    before = {n: p.clone() for n, p in made.base.model.named_parameters() if "lora_" not in n}
    score_and_back(made, written(made))
    torch.optim.SGD(made.parameters(), lr=0.1).step()
    assert made.state() and all("lora_" in name for name in made.state())
    now = dict(made.base.model.named_parameters())
    assert all(torch.equal(one, now[name]) for name, one in before.items())


def test_weights_of_another_adapter_are_refused() -> None:
    with pytest.raises(PolicyError, match="another base model or adapter"):
        policy(lora=TINY).load_state(policy(lora=Lora(rank=2)).state())


def test_a_step_between_two_groups_is_refused() -> None:
    made = policy(lora=TINY)
    optimiser = torch.optim.SGD(made.parameters(), lr=0.1)
    with pytest.raises(PolicyError, match="after all groups"):
        for one in made.score(asks(made), written(made)):
            one.log_prob.sum().backward()
            optimiser.step()


@pytest.mark.parametrize("left_out", ["prefix_gradient", "rest_gradient"])
def test_a_prompt_that_counts_as_constant_changes_gradients_and_not_scores(left_out: str) -> None:
    made = policy()
    plans = written(made)
    whole = score_and_back(made, plans)
    all_of_it = gradients(made)
    part = score_and_back(made, plans, **{left_out: False})
    assert furthest(gradients(made), all_of_it) > 1e-3
    assert all(torch.equal(a.log_prob, b.log_prob) for a, b in zip(whole, part, strict=True))


def test_scoring_without_gradients_leaves_none() -> None:
    made = policy()
    plans = written(made)
    with torch.no_grad():
        scored = list(made.score(asks(made), plans))
    assert not any(one.log_prob.requires_grad for one in scored)
    assert all(one.grad is None for one in made.parameters())


def test_plans_in_which_nothing_was_chosen_are_scored_with_nothing() -> None:
    made = policy()
    alone = PlanRequest("r", "Hello", (candidate(),), 2, one_step=True)
    ask = made.writer.ask(alone)
    [[one]] = made.write([ask], 1, None, max_tokens=1)
    fixed = replace(one, forced=(True,) * len(one.tokens))
    [scored] = made.score([ask], [[fixed]])
    scored.log_prob.sum().backward()
    assert scored.log_prob.shape == (1, len(one.tokens)) and not scored.chosen.any()
    with pytest.raises(PolicyError, match="without plans"):
        list(made.score([ask], [[]]))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    made = policy()
    with pytest.raises(PolicyError, match="greater than 0"):
        made.write(asks(made), 1, None, temperature=temperature)
