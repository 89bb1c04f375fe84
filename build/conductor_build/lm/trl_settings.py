"""A recipe's stage in the words of TRL's configuration. What the objective says itself, TRL is not
told: see `trl_trainer.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.errors import ConductorError
from conductor_build.lm.recipe import LmRecipe, Stage

if TYPE_CHECKING:
    from trl.trainer.grpo_config import GRPOConfig


BETAS = (0.9, 0.999)
"""Of AdamW, as in `train.py`."""


class TrlError(ConductorError):
    """TRL cannot train this recipe here: the message says what to change."""


@dataclass(frozen=True)
class Machine:
    """What a training runs on."""

    processes: int = 1
    gpu: bool = False
    sharded: bool = False
    """FSDP: no process has all the weights."""
    plans_at_once: int = 8
    """Plans of which a process keeps the activations at a time: more are faster, and need more
    memory (7B, 2,000 tokens, recomputed activations: about 1 GB a plan for the logits). Of a
    recipe with further rounds, so many first plans, with those of the later rounds beside them."""
    vllm: bool = False
    """vLLM writes the plans, on the GPUs that train."""
    vllm_memory: float = 0.3
    """Share of each GPU's memory for vLLM: its copy of the weights, and keys and values."""


def check(recipe: LmRecipe, machine: Machine) -> None:
    """Raises `TrlError` for what only the other driver can do, and for what fits no machine."""
    if machine.sharded and not machine.vllm:
        raise TrlError(
            "under FSDP no process has all the weights, so it cannot write plans: let vLLM write "
            "them, or train adapters (`lora`) without FSDP"
        )
    if machine.vllm and not machine.gpu:
        raise TrlError("vLLM needs a GPU: without one, plans are written by our own sampler")
    for stage in recipe.stages:
        _own(stage, machine)


def settings(recipe: LmRecipe, stage: Stage, out: Path, machine: Machine) -> GRPOConfig:
    """What TRL is told for a stage. Its checkpoints go to `out`."""
    from trl.trainer.grpo_config import GRPOConfig

    objective, own = stage.objective, _own(stage, machine)
    at_once = max(n for n in range(1, machine.plans_at_once + 1) if own % n == 0)
    return GRPOConfig(
        output_dir=str(out),
        seed=recipe.seed,
        max_steps=objective.iterations * objective.passes,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=own // at_once,
        num_generations=objective.group,
        num_iterations=objective.passes,
        max_completion_length=objective.max_tokens,
        temperature=objective.temperature,
        learning_rate=objective.learning_rate,
        max_grad_norm=objective.max_gradient,
        # The fused one changes weights without raising their versions: the policy would go on with
        # its prompt's keys of before.
        optim="adamw_torch",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        weight_decay=0.0,
        beta=0.0,
        epsilon=objective.clip,
        disable_dropout=True,
        shuffle_dataset=False,
        save_strategy="steps",
        save_steps=recipe.checkpoints.iterations * objective.passes,
        save_total_limit=2,
        **_quiet(),
        **_precision(machine),
        **_vllm(machine),
    )


def _own(stage: Stage, machine: Machine) -> int:
    """Plans a process has of a batch."""
    plans = stage.objective.prompts * stage.objective.group
    if plans % machine.processes:
        raise TrlError(
            f"stage {stage.name}: its {plans} plans a batch cannot be dealt out evenly to "
            f"{machine.processes} processes"
        )
    return plans // machine.processes


def _quiet() -> dict[str, Any]:
    """Nobody is reported to, and no text is kept."""
    return {
        "report_to": [],
        "log_completions": False,
        "logging_steps": 1,
        "disable_tqdm": True,
        "push_to_hub": False,
        "dataloader_pin_memory": False,
    }


def _precision(machine: Machine) -> dict[str, Any]:
    # Under FSDP the launcher's configuration says which activations are computed again.
    return {
        "use_cpu": not machine.gpu,
        "bf16": machine.gpu,
        "activation_checkpointing": machine.gpu and not machine.sharded,
    }


def _vllm(machine: Machine) -> dict[str, Any]:
    if not machine.vllm:
        return {}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": machine.vllm_memory,
        # What vLLM says its tokens' probabilities were is what our ratio is taken against.
        "vllm_importance_sampling_correction": False,
    }
