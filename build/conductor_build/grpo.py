"""Group-relative policy optimisation of the pocket conductor, one file, top to bottom.

GRPO (Shao et al. 2024, arXiv:2402.03300) without a critic and without a KL term, as the RL
Conductor was trained (arXiv:2512.04388): every request is played by a whole group of episodes,
which differ only in what the policy sampled; an episode's advantage is its reward less the group's
mean, over the group's standard deviation; the ratio to the sampling policy is clipped; each batch
is used for several passes of minibatches.

    roll out    play groups, remember states, choices, log-probabilities     roll_out()
    credit      reward of every episode, advantages within its group         advantages()
    improve     clipped surrogate, entropy as an option                      improve()

`method: reinforce` is REINFORCE (Williams 1992): the baseline is the batch's mean, one pass, no
clipping. The arithmetic that the LM conductor shares stands in `surrogate.py`, where rewards come
from in `reward.py`, what episodes are in `environment.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from conductor_build.environment import Episodes, Hand
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.network import Pocket, Seen
from conductor_build.pocket.state import LAST
from conductor_build.reward import RewardWeights, reward
from conductor_build.surrogate import Scale, clipped_gain, entropy, group_advantages

Method = Literal["grpo", "reinforce"]


@dataclass(frozen=True)
class Objective:
    """What is optimised, and how."""

    method: Method = "grpo"
    prompts: int = 64
    """Requests a batch."""
    group: int = 16
    """Episodes a request."""
    passes: int = 2
    minibatches: int = 2
    clip: float = 0.2
    entropy: float = 0.003
    learning_rate: float = 1e-3
    max_gradient: float = 1.0
    scale: Scale = "batch"
    """Whose standard deviation advantages are divided by. A group in which all answers are right
    differs only by cost, in thousandths: its own deviation would blow these up to the size of right
    against wrong, and the policy learns to save money at any price (Liu et al. 2025,
    arXiv:2503.20783, on the same bias). Measured: docs/log.md."""
    spread_floor: float = 0.01
    """Added to the standard deviation."""
    estimated: float = 1.0
    """How much of an answer's quality is what the latent model expects of it, given all that was
    heard, instead of the recorded 0 or 1: the same on average where it is calibrated, with far less
    noise. 0: the records alone."""
    prune: float = 0.04
    """Of `tree.py`: branches that are reached less often are opened by chance alone."""
    weights: RewardWeights = field(default_factory=RewardWeights)


class Choice(NamedTuple):
    """What was decided at one moment in N episodes."""

    episode: Tensor
    """[N]"""
    seen: Seen
    domain: Tensor
    present: Tensor
    choice: Tensor
    """[N]"""
    log_prob: Tensor
    """[N]"""


@dataclass
class Rollout:
    """A batch that was played."""

    episodes: Episodes
    choices: list[Choice]
    estimate: Tensor
    """[B] what the latent model expected of the answer that was given."""


@dataclass(frozen=True)
class Figures:
    """One batch, in numbers: means over its episodes. `reward` is by the records alone."""

    reward: float
    quality: float
    cost_usd_per_1k: float
    entropy: float
    calls: float
    rounds: float
    loss: float

    @classmethod
    def of(cls, episodes: Episodes, recorded: Tensor, loss: float, entropy: float) -> Figures:
        """Of a batch that was played; `recorded` are its rewards, [B]."""
        return cls(
            reward=float(recorded.mean()),
            quality=float(episodes.quality().mean()),
            cost_usd_per_1k=float(episodes.cost().mean()),
            entropy=entropy,
            calls=float(episodes.asked.sum(1).float().mean()),
            rounds=float(episodes.rounds().mean()),
            loss=loss,
        )


def roll_out(pocket: Pocket, deck: Deck, dealt: Hand, generator: torch.Generator | None) -> Rollout:
    """Play all requests to their end; with a generator sampled, without greedily."""
    episodes = Episodes(deck, dealt)
    estimate, choices = torch.zeros(len(dealt.rows)), []
    with torch.no_grad():
        while episodes.live.any():
            chosen = torch.nonzero(episodes.live)[:, 0]
            state = episodes.state(chosen)
            domain, ease = episodes.read(chosen)
            seen = pocket.see(state, domain, ease)
            log = torch.log_softmax(pocket.score(seen, state.present), 1)
            choice = log.argmax(1) if generator is None else _sample(log, generator)
            expected = torch.sigmoid(pocket.expected(seen, domain, choice))
            estimate[chosen] = torch.where(_ends(choice, seen), expected, estimate[chosen])
            taken = log.gather(1, choice[:, None])[:, 0]
            choices.append(Choice(chosen, seen, domain, state.present, choice, taken))
            episodes.choose(chosen, choice)
    return Rollout(episodes, choices, estimate)


def _sample(log: Tensor, generator: torch.Generator) -> Tensor:
    return torch.multinomial(log.exp(), 1, generator=generator)[:, 0]


def _ends(choice: Tensor, seen: Seen) -> Tensor:
    """Which choices end their request with an answer."""
    return choice // seen.price.shape[1] >= LAST


def rewards(rollout: Rollout, objective: Objective) -> tuple[Tensor, Tensor]:
    """Rewards [B] to learn from, and those by the records alone, which are reported."""
    episodes, share = rollout.episodes, objective.estimated
    recorded, cost = episodes.quality(), episodes.cost()
    weight, rounds, tokens = episodes.hand.weight.tolist(), episodes.rounds(), episodes.tokens()
    learned = (1 - share) * recorded + share * rollout.estimate.numpy().astype(np.float64)

    def value(quality: float, i: int) -> float:
        return reward(
            parsed=True,
            quality=quality,
            cost_usd_per_1k=float(cost[i]),
            cost_weight=weight[i],
            rounds=int(rounds[i]),
            output_tokens=float(tokens[i]),
            weights=objective.weights,
        )

    count = range(len(cost))
    both = ([value(float(q[i]), i) for i in count] for q in (learned, recorded))
    return tuple(torch.tensor(one, dtype=torch.float32) for one in both)  # type: ignore[return-value]


def advantages(reward: Tensor, objective: Objective) -> Tensor:
    """Advantages [B]; consecutive runs of `objective.group` rewards belong to one request."""
    if objective.method == "reinforce":
        return (reward - reward.mean()) / (reward.std(correction=0) + objective.spread_floor)
    groups = reward.view(-1, objective.group).unbind()
    scale, floor = objective.scale, objective.spread_floor
    return torch.cat(group_advantages(groups, scale=scale, spread_floor=floor))


def improve(
    pocket: Pocket,
    optimiser: torch.optim.Optimizer,
    rollout: Rollout,
    advantage: Tensor,
    objective: Objective,
    generator: torch.Generator,
) -> tuple[float, float]:
    """Several passes of minibatches over a rollout. Returns mean loss and entropy."""
    batch = _join(rollout.choices)
    value = advantage[batch.episode]
    once = objective.method == "reinforce"
    losses, entropies = [], []
    for _ in range(1 if once else objective.passes):
        order = torch.randperm(len(value), generator=generator)
        for part in order.chunk(1 if once else objective.minibatches):
            log = torch.log_softmax(pocket.score(_at(batch.seen, part), batch.present[part]), 1)
            taken = log.gather(1, batch.choice[part][:, None])[:, 0]
            spread = entropy(log).mean()
            if once:
                gain = (taken * value[part]).mean()
            else:
                gain = clipped_gain(taken, batch.log_prob[part], value[part], objective.clip).mean()
            loss = -gain - objective.entropy * spread
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(pocket.pointer_parameters(), objective.max_gradient)
            optimiser.step()
            losses.append(float(loss.detach()))
            entropies.append(float(spread.detach()))
    return float(np.mean(losses)), float(np.mean(entropies))


def appraise(
    pocket: Pocket, optimiser: torch.optim.Optimizer, rollout: Rollout, weight: float = 1e-4
) -> float:
    """Fit the expectation of an answer's quality to the records of a rollout; returns the loss,
    the mean cross-entropy in nats. Its own optimiser: it shares no parameter with the pointer."""
    quality = torch.tensor(rollout.episodes.quality(), dtype=torch.float32)
    losses = []
    for moment in rollout.choices:
        ends = _ends(moment.choice, moment.seen)
        if not ends.any():
            continue
        part = torch.nonzero(ends)[:, 0]
        odds = pocket.expected(_at(moment.seen, part), moment.domain[part], moment.choice[part])
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(
            odds, quality[moment.episode[part]], reduction="sum"))  # fmt: skip
    loss = torch.stack(losses).sum() / len(quality)
    optimiser.zero_grad()
    (loss + weight * pocket.appraise.weight.square().sum()).backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return float(loss.detach())


def step(
    pocket: Pocket,
    optimiser: torch.optim.Optimizer,
    critic: torch.optim.Optimizer,
    deck: Deck,
    dealt: Hand,
    objective: Objective,
    generator: torch.Generator,
) -> Figures:
    """One batch: roll out, credit, improve."""
    rollout = roll_out(pocket, deck, dealt, generator)
    appraise(pocket, critic, rollout)
    learned, recorded = rewards(rollout, objective)
    loss, entropy = improve(
        pocket, optimiser, rollout, advantages(learned, objective), objective, generator
    )
    return Figures.of(rollout.episodes, recorded, loss, entropy)


def _join(choices: Sequence[Choice]) -> Choice:
    """All moments of a rollout as one batch."""
    seen = [choice.seen for choice in choices]
    belief = type(seen[0].belief)(
        *(torch.cat(part) for part in zip(*(s.belief for s in seen), strict=True))
    )
    rest = [torch.cat(part) for part in zip(*(s[1:] for s in seen), strict=True)]
    return Choice(
        torch.cat([choice.episode for choice in choices]),
        Seen(belief, *rest),
        torch.cat([choice.domain for choice in choices]),
        torch.cat([choice.present for choice in choices]),
        torch.cat([choice.choice for choice in choices]),
        torch.cat([choice.log_prob for choice in choices]),
    )


def _at(seen: Seen, part: Tensor) -> Seen:
    belief = type(seen.belief)(*(one[part] for one in seen.belief))
    return Seen(belief, *(one[part] for one in seen[1:]))
