"""Prompts as token ids, and the automaton that goes with them, of one base model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conductor.core import PlanRequest
from conductor.errors import PlanError
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.prompt import Prompter
from conductor.plan.templates import Template
from conductor.plan.tokens import of_tokenizer
from conductor.plan.validate import PlanPool
from conductor_build.lm.base import Base, BaseError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Ask:
    """One plan to be written."""

    request: PlanRequest
    rest: tuple[int, ...]
    """Ids of the prompt after its prefix, which is the writer's and shared by all."""


@dataclass(frozen=True)
class Writer:
    """What turns requests into tokens, and tokens into plans."""

    tokenizer: Tokenizer
    prompter: Prompter
    prefix: tuple[int, ...]
    """Ids of the fixed part of every prompt."""
    tables: Tables

    @classmethod
    def of(cls, base: Base, *, examples: int) -> Writer:
        """Of a base model, with so many examples in the prompt.

        Raises `BaseError` for a tokenizer in which plans cannot be written.
        """
        head: Any = base.model.get_output_embeddings()  # type: ignore[operator]
        logits = int(head.weight.shape[0])
        try:
            tables = compile(of_tokenizer(base.tokenizer.to_str().encode(), logits), base.eos)
            prompter = Prompter.of(base.frame, _Counter(base.tokenizer), examples=examples)
        except PlanError as fault:
            raise BaseError(f"no plan can be written with this tokenizer: {fault}") from None
        if tables.tokens != logits:
            raise BaseError(
                f"the tokenizer has {tables.tokens} tokens and the model knows {logits}: "
                "take the tokenizer that belongs to it"
            )
        _check_spelling(base.tokenizer, tables)
        return cls(base.tokenizer, prompter, ids_of(base.tokenizer, prompter.prefix), tables)

    def ask(self, request: PlanRequest) -> Ask:
        """The request with its prompt. Raises `PlanError` when no plan is possible."""
        return Ask(request, ids_of(self.tokenizer, self.prompter.write(request).rest))

    def automaton(self, ask: Ask) -> Automaton:
        """What may be written for it."""
        pool = PlanPool.of(ask.request)
        return Automaton(self.tables, pool, lambda text: ids_of(self.tokenizer, text))

    def text(self, tokens: tuple[int, ...]) -> str:
        """What was written, the end token left out. Whatever is no text, special tokens and broken
        characters, becomes U+FFFD or the token's own name."""
        parts = [self._spelled(token) for token in tokens if token not in self.tables.eos]
        return b"".join(parts).decode(errors="replace")

    def plain(self, tokens: tuple[int, ...]) -> bool:
        """Whether all tokens but the end token stand for text."""
        return all(self.tables.length[token] for token in tokens if token not in self.tables.eos)

    def _spelled(self, token: int) -> bytes:
        return self.tables.bytes_of(token) or str(self.tokenizer.id_to_token(token)).encode()


def ids_of(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The ids of a text; marks of the chat format in it are single tokens, and none is added."""
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


@dataclass(frozen=True)
class _Counter:
    tokenizer: Tokenizer

    def __call__(self, text: str) -> int:
        return len(ids_of(self.tokenizer, text))


_SAMPLES = (*map(str, range(256)), "0 q,1,2 Check step 10, in 3 lines.\nredact q -\n1 0 -\n",
            *Template)  # fmt: skip
"""What plans are made of: every worker's number above all."""


def _check_spelling(tokenizer: Tokenizer, tables: Tables) -> None:
    """That the tokenizer's own ids of a plan spell that plan, so that what the model reads in its
    prompt and what it may write are the same. A space that some put in front is no difference."""
    for sample in _SAMPLES:
        ids = ids_of(tokenizer, sample)
        spelled = (
            b"".join(map(tables.bytes_of, ids)) if max(ids, default=0) < tables.tokens else b""
        )
        if spelled.removeprefix(b" ") != sample.encode():
            what = "numbers" if sample.isdecimal() else "the text of plans"
            raise BaseError(
                f"this tokenizer changes {what} when it splits them into tokens: take a base model "
                "whose tokenizer keeps every byte (byte-level BPE, or SentencePiece with bytes)"
            )
