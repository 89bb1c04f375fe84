"""Plans written by vLLM under the mask, for training: the side of the trainer, and that of vLLM.

    trainer   `VllmWriter` asks the vLLM of a TRL trainer, and reads plans out of what comes
    vLLM      `Masked` walks each request's automaton along, and hides what may not come;
              `vllm_plugin.py` is how vLLM finds it

vLLM runs in the trainer's own process (`colocate`), on the weights that TRL has put there. What it
says the log-probabilities were is what the objective's ratio is taken against, so that the small
difference between its arithmetic and the trainer's is clipped as any other. Its plans do not hang
on our seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from conductor.errors import ConductorError, PlanError
from conductor.plan.language import Plan, parse
from conductor.plan.validate import PlanPool, validate
from conductor.planner import wire
from conductor_build.lm.policy import Written
from conductor_build.lm.sampling import Masks
from conductor_build.lm.tokens import Ask, Writer, ids_of
from conductor_build.lm.walk import SLACK, Spelling, Walk

if TYPE_CHECKING:
    from trl.generation.vllm_generation import VLLMGeneration

KEY = "conductor_plan"
"""Of the extra arguments of a request to vLLM that is to be masked."""


class VllmError(ConductorError):
    """vLLM does not do what masked plans need: the message says what to change."""


# -- the trainer's side ---------------------------------------------------------------------------


@dataclass(frozen=True)
class VllmWriter:
    """Writes plans as `PlanPolicy.write` does."""

    generation: VLLMGeneration
    """Of a TRL trainer, in the mode `colocate`."""
    writer: Writer

    def write(
        self,
        asks: Sequence[Ask],
        group: int,
        generator: torch.Generator | None,
        *,
        constrained: bool = True,
        temperature: float = 1.0,
        max_tokens: int = 256,
    ) -> list[list[Written]]:
        """`group` plans for each ask. The temperature is the trainer's."""
        return [self._group(ask, group, max_tokens) for ask in asks]

    def _group(self, ask: Ask, group: int, most: int) -> list[Written]:
        eos = list(self.writer.tables.eos)
        asked = {"request": wire.encode_request(ask.request).decode(), "eos": eos, "most": most}
        self.generation.generation_kwargs = {
            "extra_args": {KEY: asked},
            "stop_token_ids": eos,
            "max_tokens": most + SLACK,
        }
        prompt = [*self.writer.prefix, *ask.rest]
        generate: Any = self.generation.generate
        _, tokens, chances, _ = generate(
            prompts=[prompt] * group, images=None, num_generations=group, profiler=nullcontext()
        )
        return [
            written(self.writer, ask, ids, [one[0] for one in each], most)
            for ids, each in zip(tokens, chances, strict=True)
        ]


def written(
    writer: Writer, ask: Ask, tokens: Sequence[int], log_probs: Sequence[float | None], most: int
) -> Written:
    """What vLLM wrote, with what of it was a choice. Raises `VllmError` when it wrote unmasked, or
    cannot say how likely a choice was."""
    walk, forced = Walk(spelling_of(writer), ask.request, most), []
    try:
        forced = [walk.take(token) for token in tokens]
    except PlanError:
        raise VllmError(
            "vLLM wrote what the mask forbids: its entry point `vllm.logits_processors` is not "
            "installed, or the model runner has another interface (set VLLM_USE_V2_MODEL_RUNNER=0)"
        ) from None
    chances = [0.0 if fixed else log for fixed, log in zip(forced, log_probs, strict=True)]
    if any(one is None for one in chances):
        raise VllmError("vLLM gives no log-probability for a token that it chose")
    text, ended = writer.text(tuple(tokens)), bool(tokens) and tokens[-1] in writer.tables.eos
    plan = _plan(text, ask) if ended else None
    known = tuple(one for one in chances if one is not None)
    return Written(tuple(tokens), known, tuple(forced), text, plan, ended)


def spelling_of(writer: Writer) -> Spelling:
    """What walks need of a writer."""
    return Spelling(writer.tables, lambda text: ids_of(writer.tokenizer, text))


def _plan(text: str, ask: Ask) -> Plan:
    """Whoever wrote under the mask to the end wrote a plan."""
    pool = PlanPool.of(ask.request)
    plan = parse(text, pool.first)
    validate(plan, pool)
    return plan


# -- vLLM's side ----------------------------------------------------------------------------------


class Masked:
    """What vLLM calls before it samples a request's next token."""

    def __init__(self, walk: Walk, masks: Masks) -> None:
        self._walk, self._masks, self._taken = walk, masks, 0

    def __call__(self, output_ids: list[int], logits: Tensor) -> Tensor:
        """`logits` [V] with minus infinity where a token may not come. Raises `VllmError` when it
        is not said which tokens were sampled."""
        for token in output_ids[self._taken :]:
            if token < 0:
                raise VllmError("vLLM samples ahead: start it with async_scheduling=False")
            self._walk.take(token)
        self._taken = len(output_ids)
        must = self._walk.must()
        if must is None:
            return logits.masked_fill(~self._masks.of(self._walk.allowed()), -torch.inf)
        only = torch.full_like(logits, -torch.inf)
        only[must] = 0.0
        return only


def masked(
    asked: Mapping[str, Any], spelling: Callable[[tuple[int, ...]], Spelling], masks: Masks
) -> Masked:
    """The mask of a request; `asked` is what `VllmWriter` put under `KEY`, `spelling` gives what
    walks need of the tokenizer for end tokens."""
    request = wire.decode_request(asked["request"].encode())
    return Masked(Walk(spelling(tuple(asked["eos"])), request, asked["most"]), masks)
