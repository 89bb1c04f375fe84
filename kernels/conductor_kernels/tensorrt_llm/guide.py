"""One plan's choices, made where TensorRT-LLM shows the logits before it samples.

Its PyTorch backend calls a request's own logits processor with that request's row and its tokens so
far, and nothing else: no client id and no stream, and a batched processor is never called. So each
request carries a `Guide`, which holds the automaton, and needs no table of requests.

The guide chooses by itself, as our own runner does, and leaves the sampler one token to take. So
seeds, temperatures and log-probabilities mean the same in every runner and version. Nothing here
waits for the device: what was chosen is read once the token has come out at the other end.

`apply` is called by TensorRT-LLM's thread, `token` by whoever waits; each thread calls one of them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from conductor.errors import StartError
from conductor.planner.lm_runner import RunnerFailed, Token, Wanted

_KEPT = 256
"""Masks kept on the device; one of 150,000 tokens is 150 kB."""


class Masks:
    """The automaton's bit masks on the device, shared by all guides of a runner. In a text nearly
    all rows ask for the same few."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[bytes, int, torch.device], Tensor] = OrderedDict()

    def of(self, packed: bytes, like: Tensor) -> Tensor:
        """[V] true where a token may come, for logits `like` [V]; padding may not."""
        key = packed, len(like), like.device
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = _unpacked(packed, len(like)).to(like.device)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found


@dataclass(frozen=True, eq=False)
class _Choice:
    """The token of one place, before anybody has seen it."""

    token: Tensor
    """0-dimensional, on the device."""
    log_prob: Tensor | None
    """0-dimensional, on the device; None: it was forced."""
    beyond: bool = False
    """The plan was over already."""


class Guide:
    """Of one request."""

    def __init__(self, wanted: Wanted, masks: Masks, end: int) -> None:
        """`end` is the token that makes TensorRT-LLM stop."""
        self._wanted, self._masks, self._end = wanted, masks, end
        self._prompt = len(wanted.prefix) + len(wanted.rest)
        self._state = wanted.automaton.start()
        self._due = wanted.automaton.forced(self._state)
        self._taken = 0
        self._choices: list[_Choice] = []
        self._numbers: tuple[int, Tensor] | None = None
        self._random: torch.Generator | None = None
        if wanted.seed is not None:
            self._random = torch.Generator().manual_seed(wanted.seed)
        self.error: str | None = None
        """What broke in `apply`, as the kind of the error."""

    def __reduce__(self) -> NoReturn:
        """Where it would be sent to another process, its choices would stay there."""
        raise StartError(
            "TensorRT-LLM runs the model in a process of its own: plans can only be guided in "
            "ours, by TLLM_WORKER_USE_SINGLE_PROCESS=1 and one GPU"
        )

    # -- TensorRT-LLM's thread ------------------------------------------------------------------

    def apply(self, logits: Tensor, token_ids: list[list[int]], stream: int | None = None) -> None:
        """Choose the next token: of `logits` [.., V], changed in place, all but its are minus
        infinity. `token_ids` are those of each beam, the prompt's in front. Raises nothing: an
        error here would end the plans of all others. After one, nothing is chosen any more."""
        if self.error is not None:
            return
        try:
            with torch.inference_mode(), _on(stream):
                self._apply(logits, token_ids[0][self._prompt :])
        except Exception as error:  # noqa: BLE001  told to whoever waits for this plan
            self.error = type(error).__name__

    def _apply(self, logits: Tensor, written: list[int]) -> None:
        place = len(written)
        self._catch_up(written)
        row = logits.view(-1, logits.shape[-1])[0]
        choice = self._choose(row, place)
        # A prompt read in pieces asks for its first token after each; only the last counts.
        self._choices[place:] = [choice]
        logits.fill_(-torch.inf)
        logits.view(-1, logits.shape[-1])[0].scatter_(0, choice.token[None], 0.0)

    def _catch_up(self, written: list[int]) -> None:
        """Walk on by what has come. Raises `RuntimeError` for a request that is sampled ahead."""
        if len(written) != len(self._choices) and (written or len(self._choices) > 1):
            raise RuntimeError("a token is asked for before the one in front of it is known")
        for token in written[self._taken :]:
            self._taken += 1
            if self._over:
                continue
            self._state = self._wanted.automaton.advance(self._state, token)
            self._due = self._due[1:] or self._wanted.automaton.forced(self._state)

    @property
    def _over(self) -> bool:
        return not any(self._wanted.automaton.allowed(self._state))

    def _choose(self, row: Tensor, place: int) -> _Choice:
        if self._over:
            return _Choice(_number(self._end, row), None, beyond=True)
        if self._due:
            return _Choice(_number(self._due[0], row), None)
        mask = self._masks.of(self._wanted.automaton.allowed(self._state), row)
        heated = row.float() / self._wanted.temperature
        scores = heated.masked_fill(~mask, -torch.inf).log_softmax(-1)
        numbers = self._drawn(place, row)
        token = (scores if numbers is None else scores - numbers.log()).argmax()
        return _Choice(token, scores[token])

    def _drawn(self, place: int, row: Tensor) -> Tensor | None:
        """Exponential numbers to draw with (Gumbel's trick, as our own runner's): those of a place
        stay, however often it is asked for."""
        if self._random is None:
            return None
        if self._numbers is None or self._numbers[0] != place:
            fresh = torch.empty(len(row)).exponential_(generator=self._random)
            self._numbers = place, fresh.to(row.device)
        return self._numbers[1]

    # -- whoever waits --------------------------------------------------------------------------

    def token(self, place: int, given: int) -> Token | None:
        """The token that came out at a place; None when the plan was over before.

        Raises `RunnerFailed` when it is not the one that was chosen, or chosen from nothing.
        """
        if place >= len(self._choices):
            raise RunnerFailed(f"guiding a plan failed ({self.error or 'it was not asked for'})")
        choice = self._choices[place]
        if choice.beyond:
            return None
        log_prob = 0.0 if choice.log_prob is None else float(choice.log_prob)
        if not math.isfinite(log_prob):
            raise RunnerFailed("the runner broke (ArithmeticError)")
        if int(choice.token) != given:
            raise RunnerFailed("TensorRT-LLM took another token than the one it was left")
        return Token(given, log_prob, choice.log_prob is None)

    def last(self, place: int) -> Token | None:
        """The token at a place that was chosen and never shown, as an end token is in some
        versions; None when there is none. Raises as `token` does."""
        if place >= len(self._choices):
            return None
        return self.token(place, int(self._choices[place].token))


def _number(token: int, row: Tensor) -> Tensor:
    return torch.full((), token, dtype=torch.int64, device=row.device)


def _unpacked(packed: bytes, size: int) -> Tensor:
    bytewise = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    bits = (bytewise[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten().bool()
    mask = torch.zeros(size, dtype=torch.bool)
    count = min(size, len(bits))
    mask[:count] = bits[:count]
    return mask


def _on(stream: int | None) -> AbstractContextManager[object]:
    """The stream that the logits are computed on; None: the current one, or there is no GPU."""
    if not stream:
        return nullcontext()
    given = torch.cuda.ExternalStream(stream)  # type: ignore[no-untyped-call]
    return torch.cuda.stream(given)
