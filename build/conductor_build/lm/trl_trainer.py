"""TRL's GRPOTrainer with our rollouts and our objective.

    TRL does       batches over processes, accumulation, the optimiser, FSDP, checkpoints, vLLM
    we do          plans (written under the mask), plays, rewards, advantages, the loss

Three methods of the trainer are replaced, all of one version of TRL, which the lock pins: what
calls the reward functions, what turns a generated batch into one to learn from, and the loss. TRL's
own loss would score tokens among all tokens instead of the allowed ones, count tokens that had no
alternative, divide by a standard deviation of its own, and take a void for a reward.

TRL sends usage statistics when a trainer is made, writes a card for a model hub at every
checkpoint, and logs prompt and completion when a reward is missing. None of that happens here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer

from conductor_build.lm.objective import Weighing, credit, group_loss
from conductor_build.lm.recipe import Objective
from conductor_build.lm.trl_choices import FORCED, Choices, scores, total
from conductor_build.lm.trl_turns import Later, credited, filled, lengthened


@dataclass(frozen=True)
class Rolled:
    """Plans that were written and played, B of them, in the order in which they were asked for."""

    prompts: list[list[int]]
    plans: list[list[int]]
    log_probs: list[list[float]]
    """When they were sampled; 0 at tokens that had to come."""
    choices: Choices
    """Of these plans, then of the later ones."""
    rewards: list[float | None]
    """None: void."""
    turns: list[int]
    """How many rounds each was the first of."""
    later: list[Later]


Roll = Callable[[Sequence[int]], Rolled]
"""Plays games, by their numbers; a number that stands n times in a row is a group of n."""
GAME = "game"
"""The dataset's column that numbers games."""


class PlanTrainer(GRPOTrainer):
    """See above. Everything but `roll`, `objective` and `rate` goes to TRL."""

    def __init__(
        self,
        roll: Roll,
        objective: Objective,
        rate: Callable[[int], float],
        discount: float,
        **trl: Any,
    ) -> None:
        """`rate` gives the factor on the learning rate after so many steps, `discount` the share of
        its advantage that a plan gets which another round followed."""
        self._roll, self._objective, self._rate = roll, objective, rate
        self._discount = discount
        self._numbers: list[int] = []
        self._rolled: Rolled | None = None
        self._rewards = torch.empty(0)
        self._masks = torch.empty(0)
        funcs: dict[str, Any] = {"reward_funcs": [played], "rollout_func": _rolled_out}
        super().__init__(**funcs, **trl)

    # -- a batch ----------------------------------------------------------------------------------

    def rolled_out(self) -> dict[str, list[Any]]:
        """The plans of the batch that is being made, as TRL takes them."""
        rolled = self._rolled = self._roll(self._numbers)
        return {
            "prompt_ids": rolled.prompts,
            "completion_ids": rolled.plans,
            "logprobs": rolled.log_probs,
        }

    def _calculate_rewards(self, *_: Any) -> Tensor:
        rolled = self._made()
        own = [math.nan if one is None else one for one in rolled.rewards]
        column = torch.tensor(own, device=self.accelerator.device)[:, None]
        self._rewards = self.accelerator.gather(column)
        return self._rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._numbers = [int(one[GAME]) for one in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        made, device = self._made(), self.accelerator.device
        advantages = credited(self._advantages(), made.turns, made.later, self._discount)
        counted = [one is not None for one in advantages]
        choices = made.choices
        own = torch.tensor([total(choices, counted), sum(counted)], device=device)
        tokens, plans = self.accelerator.gather(own).view(-1, 2).sum(0).tolist()
        parts: int = getattr(self.args, "steps_per_generation")  # noqa: B009  TRL's own
        whole = lengthened(output, made.later, parts, int(output["completion_ids"][0, 0]))
        count, length = whole["completion_ids"].shape
        rows = choices.rows.clone()
        rows[~torch.tensor(counted)] = FORCED
        rows = filled(rows, count, length).to(device)
        self._masks = choices.masks.to(device)
        weighing = Weighing(tokens, plans, self._objective.per)
        worth = [one or 0.0 for one in advantages] + [0.0] * (count - len(advantages))
        whole["advantages"] = torch.tensor(worth, device=device)
        whole["choice_rows"], whole["weights"] = rows, weighing.of(rows != FORCED)
        return whole

    def _advantages(self) -> list[float | None]:
        """Of this process's plans, by what the plans of all processes came to."""
        size = self._objective.group
        rewards = [None if math.isnan(one) else one for one in self._rewards[:, 0].tolist()]
        groups = [rewards[at : at + size] for at in range(0, len(rewards), size)]
        whole = [one for group in credit(groups, self._objective) for one in group.advantages]
        begin = self.accelerator.process_index * len(self._numbers)
        return whole[begin : begin + len(self._numbers)]

    def _made(self) -> Rolled:
        assert self._rolled is not None
        return self._rolled

    # -- the loss ---------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **_: Any
    ) -> tuple[Tensor, None, None]:
        """TRL asks for log-probabilities of before a step only; ours came with the plans."""
        return torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device), None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        tokens = inputs["completion_ids"]
        seen = model(
            input_ids=torch.cat([inputs["prompt_ids"], tokens], 1),
            attention_mask=torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            logits_to_keep=tokens.shape[1] + 1,
            use_cache=False,
        )
        choices = Choices(inputs["choice_rows"], self._masks)
        log_prob, spread = scores(seen.logits[:, :-1], tokens, choices, self._objective.temperature)
        loss, entropy = group_loss(
            log_prob, spread, inputs["sampling_per_token_logps"], inputs["advantages"],
            inputs["weights"], self._objective,
        )  # fmt: skip
        share = self.accelerator.reduce(entropy.detach(), "sum")
        self._metrics["train"]["entropy"].append(
            float(share) * self.current_gradient_accumulation_steps
        )
        # Weights sum to 1 over all processes, whose gradients are averaged.
        whole: Tensor = loss * self.accelerator.num_processes
        return whole

    # -- what TRL does beside training ------------------------------------------------------------

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """The recipe's schedule, of the run as a whole."""
        if self.lr_scheduler is None:
            of: Any = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(of, self._rate)
            self._created_lr_scheduler = True
        scheduler: torch.optim.lr_scheduler.LRScheduler = self.lr_scheduler
        return scheduler

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None."""

    def _send_telemetry(self) -> None:
        """Nothing."""


def played(**_: Any) -> list[float]:
    """Names the column of rewards. `_calculate_rewards` fills it."""
    raise NotImplementedError("rewards come with the plans")


def _rolled_out(prompts: list[str], trainer: PlanTrainer) -> dict[str, list[Any]]:
    return trainer.rolled_out()
