"""Tiny random Llama and Qwen2 checkpoints, written by transformers, and what that makes of ids."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from conductor.plan.automaton import Automaton, State, compile
from conductor.plan.validate import PlanPool
from conductor.planner.lm_runner import Runner, RunnerSettings, Token, Wanted
from conductor_kernels.runner.cache import Table, blocks_for
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.load import load_decoder
from conductor_kernels.runner.step import Share
from support.automata import BYTES, EOS, ids_in

SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
}
SETTINGS = RunnerSettings(device="cpu", threads=1, cache_tokens=2048)


def checkpoint(folder: Path, kind: str = "llama", **more: Any) -> torch.nn.Module:
    """Write a random model of that kind; gives it as transformers runs it."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(3)
    config, model = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    }[kind]
    made: torch.nn.Module = model(config(**SMALL | more)).eval()
    for name, bias in made.named_parameters():
        if name.endswith("bias"):  # transformers starts them at 0, which would hide them
            torch.nn.init.normal_(bias, std=0.5)
    made.save_pretrained(folder)  # type: ignore[operator]
    return made


def log_probs(model: torch.nn.Module, ids: Sequence[int]) -> torch.Tensor:
    """Of the token after each: [T, V], by transformers."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([list(ids)])).logits[0]
        return logits.float().log_softmax(-1)


def decoder(folder: Path, **more: Any) -> Decoder:
    """Ours, from the same folder."""
    return load_decoder(folder, RunnerSettings(**{**vars(SETTINGS), **more}))


def taken(ours: Decoder, tokens: int) -> Table:
    """Blocks for so many tokens."""
    return Table(ours.cache.take(blocks_for(tokens)))


def shares(ids: Sequence[int], table: Table, *ends: int) -> Iterator[Share]:
    """The ids in pieces that end there."""
    for begin, end in zip((0, *ends), (*ends, len(ids)), strict=True):
        yield Share(ids[begin:end], begin, table)


def ours_log_probs(ours: Decoder, hidden: torch.Tensor) -> torch.Tensor:
    """Of the token after each share: [B, V], with nothing masked."""
    return (hidden @ ours._weights.head.T).float().log_softmax(-1)


# -- whole plans ------------------------------------------------------------------------------

TABLES = compile(BYTES, [EOS])
PREFIX = tuple(random.Random(2).choices(range(256), k=70))


def wanted(number: int = 0, pool: PlanPool | None = None, **more: Any) -> Wanted:
    """A plan over some prompt; each number is another prompt."""
    chance = random.Random(f"rest {number}")
    rest = tuple(chance.choices(range(256), k=chance.randrange(3, 60)))
    automaton = Automaton(TABLES, pool or PlanPool(7))
    return Wanted(PREFIX, rest, automaton, **{"max_tokens": 24, **more})


def by_transformers(model: torch.nn.Module, one: Wanted) -> list[Token]:
    """The likeliest tokens, the plain way: the whole text read again for each of them."""
    ids, tokens, state = [*one.prefix, *one.rest], list[Token](), one.automaton.start()
    waiting = one.automaton.forced(state)
    while len(tokens) < one.max_tokens and any(one.automaton.allowed(state)):
        forced = Token(waiting.pop(0), 0.0, True) if waiting else None
        token = forced or _likeliest(model, ids, one, state)
        tokens.append(token)
        ids.append(token.id)
        state = one.automaton.advance(state, token.id)
        waiting = waiting or one.automaton.forced(state)
    return tokens


def _likeliest(model: torch.nn.Module, ids: list[int], one: Wanted, state: State) -> Token:
    allowed = sorted(ids_in(one.automaton.allowed(state)))
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, -1].double() / one.temperature
    scores = logits[allowed].log_softmax(-1)
    place = int(scores.argmax())
    return Token(allowed[place], float(scores[place]), False)


def alike(ours: Sequence[Token], theirs: Sequence[Token], atol: float = 1e-4) -> bool:
    """The same tokens, with log-probabilities as near."""
    return [(one.id, one.forced) for one in ours] == [
        (one.id, one.forced) for one in theirs
    ] and all(
        abs(one.log_prob - other.log_prob) <= atol for one, other in zip(ours, theirs, strict=True)
    )


async def written(runner: Runner, one: Wanted) -> list[Token]:
    """All tokens of a plan."""
    return [token async for token in runner.write(one)]
