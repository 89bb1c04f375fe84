"""What a training will take, before anything is spent: memory, tokens, calls, money, time. Pure.

    memory   weights, gradients, Adam's two moments, keys and values, activations, logits
    tokens   prompts once a game, plans once an episode; of the workers by their lengths
    calls    episodes times the calls of a plan
    money    calls times what one costs at the pool's mean price and length
    time     floating point operations over the machine's speed, and the workers' seconds

All are estimates from the numbers that are printed beside them; what the plans will look like is
not known, so that a plan is taken to call `CALLS_A_PLAN` workers, as trained conductors do on
average (arXiv:2512.04388). A forward pass takes 2 operations a weight and token, a backward pass
twice that (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor.core import Worker
from conductor.plan.cards import ANSWER_TOKENS
from conductor_build.lm.base import BaseError
from conductor_build.lm.recipe import LmRecipe, Objective

CALLS_A_PLAN = 2.0
PLAN_TOKENS = 80
"""Of a plan with two or three worded subtasks."""
PREFIX_TOKENS = (790, 860, 1010, 1230, 1480)
"""Of the prompt's fixed part, by how many examples it shows (SmolLM2's tokenizer)."""
REQUEST_TOKENS = 350
"""Of the rest: five workers and a question of a hundred tokens."""
ANSWER_PROMPT_TOKENS = 250
"""What a worker is shown on average: question, instruction, an earlier answer."""
SPEED_TFLOPS = {"cpu": 0.25, "trl": 300.0}
"""What a machine of the driver is taken to sustain: two cores with AMX; one H100 in bfloat16."""
MEMORY_BYTES = {"float32": 4, "bfloat16": 2}
_ADAM_BYTES = 8
_MASTER_BYTES = 4
_GB = 1e9


@dataclass(frozen=True)
class Shape:
    """What a causal language model's config says of its size."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def linear(self) -> int:
        """Weights of the layers: attention and gated feed-forward."""
        kv = self.kv_heads * self.head_size
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * kv
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def weights(self) -> int:
        """All weights, norms and biases left out."""
        tables = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.linear + tables

    def adapter(self, rank: int) -> int:
        """Weights of a low-rank adapter of all linear layers."""
        kv = self.kv_heads * self.head_size
        pairs = 2 * (self.hidden + self.hidden) + 2 * (self.hidden + kv)
        return self.layers * rank * (pairs + 3 * (self.hidden + self.intermediate))

    def kv_bytes(self, bytes_each: int) -> int:
        """Of the keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_size * bytes_each


KNOWN = {
    "tiny": Shape(64, 2, 128, 4, 2, 49_152, True),
    "smollm2-135m": Shape(576, 30, 1536, 9, 3, 49_152, True),
    "qwen2.5-coder-0.5b": Shape(896, 24, 4864, 14, 2, 151_936, True),
    "qwen2.5-coder-1.5b": Shape(1536, 28, 8960, 12, 2, 151_936, True),
    "Qwen2.5-7B-Instruct": Shape(3584, 28, 18_944, 28, 4, 152_064, False),
}
"""From the models' config.json, so that nothing needs to be there to be estimated. A base is looked
up by its name, or by the last part of its path."""


def shape_of(source: str) -> Shape:
    """Of a known name, or of a folder with a config.json. Raises `BaseError`."""
    known = KNOWN.get(source) or KNOWN.get(Path(source).name)
    if known is not None:
        return known
    try:
        config: dict[str, Any] = json.loads((Path(source) / "config.json").read_bytes())
        return Shape(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            intermediate=config["intermediate_size"],
            heads=config["num_attention_heads"],
            kv_heads=config.get("num_key_value_heads", config["num_attention_heads"]),
            vocabulary=config["vocab_size"],
            tied=config.get("tie_word_embeddings", False),
        )
    except (OSError, ValueError, KeyError):
        raise BaseError(
            f"nothing is known of the size of {source!r}: name a folder with a config.json, or one "
            f"of {', '.join(KNOWN)}"
        ) from None


@dataclass(frozen=True)
class Figure:
    """One number, and what it was made of."""

    name: str
    value: float
    unit: str
    how: str


def estimate(recipe: LmRecipe, shape: Shape, workers: Sequence[Worker]) -> list[Figure]:
    """Everything, in the order in which it is printed."""
    plays = _plays(recipe)
    return [*_memory(recipe, shape), *_tokens(recipe, plays), *_workers(recipe, workers, plays),
            *_time(recipe, shape, workers, plays)]  # fmt: skip


@dataclass(frozen=True)
class Plays:
    """How much is written and played, over a whole training."""

    games: int
    episodes: int
    learned: int
    """Episodes times passes: what gradients are computed of."""
    held_out: int
    """Greedy games."""
    warm: int
    """Plans of the warm start, over all epochs."""


def _plays(recipe: LmRecipe) -> Plays:
    stages = [stage.objective for stage in recipe.stages]
    iterations = sum(one.iterations for one in stages)
    held = recipe.held_out
    times = 3 + (iterations // held.every if held.every else 0)
    warm = recipe.warm_start
    return Plays(
        games=sum(one.iterations * one.prompts for one in stages),
        episodes=sum(_episodes(one) for one in stages),
        learned=sum(_episodes(one) * one.passes for one in stages),
        held_out=times * held.games,
        warm=warm.games * warm.plans * warm.epochs,
    )


def _episodes(one: Objective) -> int:
    return one.iterations * one.prompts * one.group


def _memory(recipe: LmRecipe, shape: Shape) -> list[Figure]:
    each = MEMORY_BYTES[recipe.base.dtype]
    trained = shape.weights if recipe.lora is None else shape.adapter(recipe.lora.rank)
    grown = trained * ((each if recipe.lora is None else _MASTER_BYTES) + _ADAM_BYTES)
    group = max(stage.objective.group for stage in recipe.stages)
    prompts = max(stage.objective.prompts for stage in recipe.stages)
    longest = min(PLAN_TOKENS, max(stage.objective.max_tokens for stage in recipe.stages))
    prompt = _prompt(recipe)
    keys = shape.kv_bytes(each) * (prompts * (prompt + group * longest))
    tokens = prompt + group * longest
    kept = shape.layers * tokens * (10 * shape.hidden + 3 * shape.intermediate) * each
    parts = [
        Figure("weights", shape.weights * each / _GB, "GB", f"{shape.weights:,} x {each} bytes"),
        Figure(
            "gradients and optimiser", grown / _GB, "GB", f"{trained:,} trained weights, Adam"
        ),
        Figure(
            "keys and values", keys / _GB, "GB",
            f"{prompts} prompts x ({prompt} + {group} plans x {longest} tokens)",
        ),
        Figure("activations of a group", kept / _GB, "GB", f"{tokens:,} tokens"),
    ]  # fmt: skip
    whole = sum(one.value for one in parts)
    return [*parts, Figure("memory", whole, "GB", "of all processes together")]


def _prompt(recipe: LmRecipe) -> int:
    return PREFIX_TOKENS[recipe.base.examples] + REQUEST_TOKENS


def _tokens(recipe: LmRecipe, plays: Plays) -> list[Figure]:
    return [
        Figure("games", plays.games, "", "iterations x prompts of all stages"),
        Figure("episodes", plays.episodes, "", "games x group"),
        Figure(
            "plan tokens", plays.episodes * PLAN_TOKENS, "", f"episodes x {PLAN_TOKENS}"
        ),
        Figure(
            "prompt tokens", plays.games * _prompt(recipe), "",
            f"games x {_prompt(recipe):,}, each computed once for its group",
        ),
    ]  # fmt: skip


def _workers(recipe: LmRecipe, workers: Sequence[Worker], plays: Plays) -> list[Figure]:
    asked = plays.episodes + plays.held_out
    calls = asked * CALLS_A_PLAN * (1 + recipe.rounds.share)
    mean = [_usd(worker) for worker in workers] or [0.0]
    usd = sum(mean) / len(mean)
    free = recipe.pool.kind != "live"
    return [
        Figure("worker calls", calls, "", f"{asked:,} plays x {CALLS_A_PLAN:g} calls a plan"),
        Figure(
            "worker tokens", calls * ANSWER_TOKENS, "", f"calls x {ANSWER_TOKENS} tokens an answer"
        ),
        Figure(
            "money", 0.0 if free else calls * usd, "USD",
            f"nobody is called: the pool is {recipe.pool.kind}" if free
            else f"calls x {usd:.6f} USD, the mean over {len(workers)} workers; answers asked for "
            "twice are paid once",
        ),
    ]  # fmt: skip


def _usd(worker: Worker) -> float:
    written = ANSWER_TOKENS * worker.card.verbosity
    return (
        ANSWER_PROMPT_TOKENS * worker.price.input_usd_per_mtok
        + written * worker.price.output_usd_per_mtok
    ) / 1e6


def _time(recipe: LmRecipe, shape: Shape, workers: Sequence[Worker], plays: Plays) -> list[Figure]:
    speed = SPEED_TFLOPS[recipe.driver] * 1e12
    prompts = plays.games + plays.held_out
    plans = (plays.episodes + plays.held_out) * PLAN_TOKENS
    read = 2 * shape.linear * (prompts * REQUEST_TOKENS + plans)
    steps = recipe.iterations
    prefix = 6 * shape.linear * steps * PREFIX_TOKENS[recipe.base.examples]
    head = 6 * shape.hidden * shape.vocabulary * plays.learned * PLAN_TOKENS
    learned = 6 * shape.linear * (plays.games * REQUEST_TOKENS + plays.learned * PLAN_TOKENS)
    told = recipe.warm_start.games * recipe.warm_start.epochs * REQUEST_TOKENS
    warm = 6 * shape.linear * (plays.warm * PLAN_TOKENS + told)
    model = (read + prefix + head + learned + warm) / speed
    return [
        Figure(
            "model time", model / 3600, "h",
            f"{(read + prefix + head + learned + warm):.3g} operations at "
            f"{SPEED_TFLOPS[recipe.driver]:g} TFLOP/s sustained; writing token by token is slower",
        ),
        _waiting(recipe, workers, plays),
    ]  # fmt: skip


def _waiting(recipe: LmRecipe, workers: Sequence[Worker], plays: Plays) -> Figure:
    speeds = [worker.card.output_tokens_per_s for worker in workers] or [50.0]
    seconds = ANSWER_TOKENS / (sum(speeds) / len(speeds))
    at_once = max(1, recipe.pool.in_flight * len(workers))
    calls = (plays.episodes + plays.held_out) * CALLS_A_PLAN
    hours = 0.0 if recipe.pool.kind != "live" else calls * seconds / at_once / 3600
    return Figure(
        "waiting for workers", hours, "h",
        f"calls x {seconds:.1f} s, {at_once} at once" if hours else "nobody is waited for",
    )  # fmt: skip


def table(figures: Sequence[Figure]) -> str:
    """For people: a line each."""
    return "".join(
        f"{one.name:24} {_number(one.value):>14} {one.unit:4} {one.how}\n" for one in figures
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:,.3g}"
