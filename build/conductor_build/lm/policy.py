"""The policy: a base model, a low-rank adapter or all its weights to train, and plans it writes.

    write    samples plans; the prefix is computed once for as long as no weight changes, a prompt's
             rest once a group
    score    the log-probabilities of written plans again, with gradients, one group at a time

In float32 the two agree to 1e-4. In bfloat16 a log-probability differs by some 0.05 from one to the
other (standard deviation, SmolLM2-135M), because other shapes are multiplied in another order.

The gradient of the prefix gathers at its keys and values over all groups of a call and goes
through the prefix once, when the iterator of `score` is exhausted: so step an optimiser after it,
not within.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from conductor.errors import ConductorError
from conductor_build.lm.base import Base
from conductor_build.lm.sampling import Masks, entropy, log_probs
from conductor_build.lm.shared import Reader, Stretch
from conductor_build.lm.tokens import Ask, Writer
from conductor_build.lm.writing import Desk, Terms, Written

__all__ = ["Lora", "PlanPolicy", "PolicyError", "Scored", "Written"]

_ROWS_OF_LOGITS = 128
"""Logits that are held at once while scoring: 128 of 150,000 tokens are 77 MB in float32."""


class PolicyError(ConductorError):
    """A policy is used in a way that cannot be right: the message says what to do."""


@dataclass(frozen=True)
class Lora:
    """A low-rank adapter (Hu et al. 2021, arXiv:2106.09685)."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ()
    """Names of linear modules; empty: all but the head."""
    seed: int = 0


@dataclass(frozen=True)
class Scored:
    """One group's plans under the weights as they are; n plans of at most T tokens."""

    log_prob: Tensor
    """[n, T], 0 where nothing was chosen."""
    entropy: Tensor
    """[n, T] of the masked distribution, in nats, 0 where nothing was chosen."""
    chosen: Tensor
    """[n, T] true where a token was chosen by the policy."""


class PlanPolicy:
    """Writes plans, and scores them for training. The base's model becomes the policy's own."""

    def __init__(self, base: Base, writer: Writer, *, lora: Lora | None) -> None:
        """With an adapter to train, or, without `lora`, all weights.

        Raises `BaseError` for a model whose attention cannot be shared.
        """
        self.base, self.writer = base, writer
        self.model: Any = base.model if lora is None else _adapted(base.model, lora)
        if lora is None:
            base.model.requires_grad_(True)
        self._reader = Reader(base.model)
        self._masks = Masks(writer.tables.tokens, self._reader.device)
        self._prefix: tuple[tuple[int, ...], Stretch] | None = None

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable ones."""
        return [one for _, one in self._trainable()]

    def state(self) -> dict[str, Tensor]:
        """Copies of the trainable weights, by name."""
        return {name: one.detach().clone() for name, one in self._trainable()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take weights that `state` gave. Raises `PolicyError` when they are of another policy."""
        own = dict(self._trainable())
        if own.keys() != state.keys() or any(own[n].shape != state[n].shape for n in own):
            raise PolicyError(
                "these weights are of another base model or adapter: use their recipe"
            )
        with torch.no_grad():
            for name, one in own.items():
                one.copy_(state[name])

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
        """`group` plans for each ask; the likeliest token each time without a generator.

        After `max_tokens` a constrained plan is ended in the shortest way, which may take a few
        tokens more. Raises `PolicyError` for a temperature that is not positive.
        """
        _check_temperature(temperature)
        terms = Terms(constrained, temperature, max_tokens)
        with torch.no_grad():
            desk = Desk(self._reader, self.writer, self._masks, terms)
            return desk.write(self._read_prefix(), asks, group, generator)

    def score(
        self,
        asks: Sequence[Ask],
        written: Sequence[Sequence[Written]],
        *,
        temperature: float = 1.0,
        constrained: bool = True,
        prefix_gradient: bool = True,
        rest_gradient: bool = True,
    ) -> Iterator[Scored]:
        """One `Scored` for each ask, for a backward each; the prefix's part follows by itself when
        the iterator is exhausted.

        Without `prefix_gradient` or `rest_gradient` the keys and values of that part of the prompt
        count as constants, which is cheaper and no longer the exact gradient. Raises `PolicyError`
        when a weight has changed before the iterator was exhausted.
        """
        _check_temperature(temperature)
        with torch.no_grad():
            prefix = self._read_prefix()
        before, wanted = self._version(), prefix_gradient and torch.is_grad_enabled()
        shared = prefix.detached() if wanted else prefix
        for ask, plans in zip(asks, written, strict=True):
            with torch.set_grad_enabled(rest_gradient and torch.is_grad_enabled()):
                rest, last = self._reader.read(ask.rest, shared)
            yield self._score(ask, plans, [shared, rest], last, temperature, constrained)
        if wanted:
            self._through_prefix(shared, before)

    # -- the prefix ---------------------------------------------------------------------------

    def _read_prefix(self) -> Stretch:
        """Its keys and values, without gradients; kept until a weight changes."""
        version = self._version()
        if self._prefix is None or self._prefix[0] != version:
            self._prefix = version, self._reader.read(self.writer.prefix)[0]
        return self._prefix[1]

    def _version(self) -> tuple[int, ...]:
        """Changes with every change of a weight, but one made through `.data`."""
        return tuple(one._version for one in self.base.model.parameters())

    def _through_prefix(self, shared: Stretch, before: tuple[int, ...]) -> None:
        """Take the gradient that has gathered at the prefix's keys and values to the weights."""
        felt = [one.grad for one in shared.tensors()]
        if all(one is None for one in felt):
            return
        if self._version() != before:
            raise PolicyError("step the optimiser after all groups were scored, not in between")
        again = self._reader.read(self.writer.prefix)[0].tensors()
        pairs = [(one, g) for one, g in zip(again, felt, strict=True) if g is not None]
        torch.autograd.backward([one for one, _ in pairs], [g for _, g in pairs])

    # -- one group ----------------------------------------------------------------------------

    def _score(
        self,
        ask: Ask,
        plans: Sequence[Written],
        seen: Sequence[Stretch],
        last: Tensor,
        temperature: float,
        constrained: bool,
    ) -> Scored:
        if not plans:
            raise PolicyError("nothing can be scored for a request without plans: leave it out")
        count, longest = len(plans), max(len(one.tokens) for one in plans)
        read = [one.tokens[:-1] for one in plans]
        hidden = last
        if any(read):
            own, _ = self._reader.run(read, seen[-1].end, [(one, 0, count) for one in seen])
            hidden = torch.cat([last, own])
        rows, places = _choices(plans)
        # Row 0 of `hidden` comes before every first token, the others after the tokens as packed.
        begins = [1]
        for one in read:
            begins.append(begins[-1] + len(one))
        chosen_at = list(zip(rows, places, strict=True))
        before = [0 if at == 0 else begins[row] + at - 1 for row, at in chosen_at]
        masks = self._walked(ask, plans) if constrained else None
        tokens = [plans[row].tokens[at] for row, at in chosen_at]
        log, spread = self._at(hidden[before], tokens, masks, temperature)
        index = tuple(torch.tensor(one, dtype=torch.long, device=log.device)
                      for one in (rows, places))  # fmt: skip
        chosen = torch.zeros(count, longest, dtype=torch.bool, device=log.device)
        chosen[index] = True
        empty = torch.zeros(count, longest, device=log.device)
        return Scored(empty.index_put(index, log), empty.index_put(index, spread), chosen)

    def _walked(self, ask: Ask, plans: Sequence[Written]) -> list[bytes]:
        """The masks at all choices, in order."""
        automaton, masks = self.writer.automaton(ask), []
        for one in plans:
            state = automaton.start()
            for token, forced in zip(one.tokens, one.forced, strict=True):
                if not forced:
                    masks.append(automaton.allowed(state))
                state = automaton.advance(state, token)
        return masks

    def _at(
        self, hidden: Tensor, tokens: Sequence[int], masks: list[bytes] | None, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy [m] of choices, given the states [m, hidden] before them; the
        logits are made anew in the backward pass."""
        if not tokens:
            nothing = hidden.to(torch.float32).sum(-1)
            return nothing, nothing

        def some(part: Tensor, start: int) -> tuple[Tensor, Tensor]:
            end = start + len(part)
            allowed = None if masks is None else self._masks.stacked(masks[start:end])
            log = log_probs(self._reader.logits(part), allowed, temperature)
            token = torch.tensor(tokens[start:end], device=log.device)
            return log.gather(1, token[:, None])[:, 0], entropy(log)

        parts = [
            checkpoint(some, part, place * _ROWS_OF_LOGITS, use_reentrant=False)
            for place, part in enumerate(torch.split(hidden, _ROWS_OF_LOGITS))
        ]
        return torch.cat([one for one, _ in parts]), torch.cat([other for _, other in parts])

    def _trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        named = self.base.model.named_parameters()
        return [(name, one) for name, one in named if one.requires_grad]


def _choices(plans: Sequence[Written]) -> tuple[list[int], list[int]]:
    """Which plan each chosen token is of, and its place there."""
    rows, places = list[int](), list[int]()
    for row, one in enumerate(plans):
        own = [at for at, forced in enumerate(one.forced) if not forced]
        rows += [row] * len(own)
        places += own
    return rows, places


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise PolicyError(
            "a temperature is greater than 0; for the likeliest plan give no generator"
        )


def _adapted(model: torch.nn.Module, lora: Lora) -> Any:
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0, bias="none",
        task_type=TaskType.CAUSAL_LM,
        target_modules=list(lora.targets) or "all-linear",
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft 0.21 asks transformers 5.24 for a property by its former name.
        warnings.filterwarnings(
            "ignore", message=".*is_gradient_checkpointing", category=FutureWarning
        )
        torch.manual_seed(lora.seed)
        adapted: Any = get_peft_model(model, config)
    return adapted.eval()
