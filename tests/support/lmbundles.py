"""Language-model bundles for tests: a small tokenizer, its tables, and a runner without a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from conductor.plan.automaton import compile
from conductor.plan.language import LANGUAGE_VERSION
from conductor.plan.prompt import CHATML, PROMPT_VERSION, Prompter
from conductor.plan.tablefile import pack
from conductor.plan.tokens import of_tokenizer
from conductor.planner.lm import Decoding, LmEngine
from conductor.planner.lm_parts import Parts, read_parts
from conductor.planner.lm_runner import Token, Wanted

VOCABULARY = 700
END = "<|im_end|>"


@cache
def tokenizer_json(first: str = "<|im_start|>") -> bytes:
    """A byte-level BPE that knows the prompt's own words. Another `first` shifts no id."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(first, special=True), AddedToken(END, special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([Prompter.of(CHATML).prefix], trainer)
    return made.to_str().encode()


@cache
def files(rounds: int = 3, examples: int = 4) -> dict[str, bytes]:
    """A bundle's files but for its model."""
    data = tokenizer_json()
    made = Tokenizer.from_str(data.decode())
    end = made.token_to_id(END)
    assert end is not None
    tables = compile(of_tokenizer(data, VOCABULARY), [end])

    def count(text: str) -> int:
        return len(made.encode(text, add_special_tokens=False).ids)

    said = {
        "frame": "chatml",
        "examples": examples,
        "digest": Prompter.of(CHATML, count, examples=examples).digest,
        "prompt_version": PROMPT_VERSION,
        "language_version": LANGUAGE_VERSION,
        "rounds": rounds,
    }
    return {
        "lm/tokenizer.json": data,
        "plan/tables.bin": pack(tables),
        "plan/prompt.json": json.dumps(said).encode(),
    }


def prompt_with(**changed: Any) -> dict[str, bytes]:
    """The same files with other words in `plan/prompt.json`."""
    said = json.loads(files()["plan/prompt.json"]) | changed
    return files() | {"plan/prompt.json": json.dumps(said).encode()}


def parts(rounds: int = 3) -> Parts:
    """What an engine makes of them."""
    return read_parts(files(rounds).__getitem__)


def write_folder(folder: Path, given: dict[str, bytes]) -> None:
    """Lay the files out on disk."""
    for name, data in given.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@dataclass
class FakeRunner:
    """Writes one text, token by token, as far as the automaton lets it; knows what it was asked."""

    text: str = "0 q -\n"
    vocabulary: int = VOCABULARY
    at_once: int = 136
    gate: asyncio.Event | None = None
    """Waits for it before its second token."""
    error: Exception | None = None
    asked: list[Wanted] = field(default_factory=list)
    running: int = 0
    closed: bool = False

    async def write(self, wanted: Wanted) -> AsyncGenerator[Token, None]:
        self.asked.append(wanted)
        self.running += 1
        try:
            if self.error:
                raise self.error
            for number, token in enumerate(_spelled(self.text, wanted)):
                if number and self.gate:
                    await self.gate.wait()
                yield Token(token, -0.25, False)
        finally:
            self.running -= 1

    def close(self) -> None:
        self.closed = True


def _spelled(text: str, wanted: Wanted) -> list[int]:
    tables, state = parts().tables, wanted.automaton.start()
    tokens = parts().encode(text)[: wanted.max_tokens]
    for token in tokens:
        state = wanted.automaton.advance(state, token)
    ended = wanted.max_tokens > len(tokens)
    return [*tokens, *tables.eos] if ended else tokens


def engine(runner: FakeRunner, rounds: int = 3, **decoding: Any) -> LmEngine:
    """One that gives up after a minute."""
    return LmEngine(runner, parts(rounds), Decoding(**{"limit_s": 60.0, **decoding}), "ab" * 32)
