"""A warm start for the pointer: imitate a rule of thumb before any reward is seen.

The rule looks one step ahead: ask the worker whose gain is furthest above its price, and look at
the answer while rounds are left; keep the best answer once nobody's gain is worth its price. The
states are those that the policy itself gets into by sampling, so that it learns to come back from
its own mistakes (DAgger, Ross et al. 2011, arXiv:1011.0686).
"""

from __future__ import annotations

import torch
from torch import Tensor

from conductor_build.environment import Hand
from conductor_build.grpo import Figures, Objective, Rollout, appraise, rewards, roll_out
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.network import Pocket, Seen
from conductor_build.pocket.state import KEEP, LAST, LOOK

_NEVER = -1e9


def teach(seen: Seen) -> Tensor:
    """What the rule chooses in each state, [B]: 0..4K-1.

    Where nothing can be kept, somebody is asked even at a loss.
    """
    count, places = seen.price.shape
    allowed = seen.open.view(count, 4, places)
    look, last, keep = allowed[:, LOOK], allowed[:, LAST], allowed[:, KEEP]
    worth = (seen.belief.gain - seen.price).masked_fill(~(look | last), _NEVER)
    best, place = worth.max(1)
    looks = look.gather(1, place[:, None])[:, 0]
    asked = torch.where(looks, LOOK * places + place, LAST * places + place)
    kept = KEEP * places + keep.to(torch.int64).argmax(1)
    return torch.where((best <= 0) & keep.any(1), kept, asked)


def imitate(
    pocket: Pocket,
    optimiser: torch.optim.Optimizer,
    critic: torch.optim.Optimizer,
    deck: Deck,
    dealt: Hand,
    objective: Objective,
    generator: torch.Generator,
) -> Figures:
    """One batch: play it by sampling, then, in each pass, one step down the cross-entropy to what
    the rule would have chosen in every state on the way."""
    rollout = roll_out(pocket, deck, dealt, generator)
    appraise(pocket, critic, rollout)
    for _ in range(objective.passes):
        loss, entropy = _apart(pocket, rollout)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(pocket.pointer_parameters(), objective.max_gradient)
        optimiser.step()
    recorded = rewards(rollout, objective)[1]
    return Figures.of(rollout.episodes, recorded, float(loss.detach()), float(entropy))


def _apart(pocket: Pocket, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy from the rule to the policy, and the policy's entropy, in nats."""
    losses, entropies, count = [], [], 0
    for moment in rollout.choices:
        log = torch.log_softmax(pocket.score(moment.seen, moment.present), 1)
        losses.append(torch.nn.functional.nll_loss(log, teach(moment.seen), reduction="sum"))
        entropies.append(-(log.exp() * log.clamp(min=-50)).sum().detach())
        count += len(log)
    return torch.stack(losses).sum() / count, torch.stack(entropies).sum() / count
