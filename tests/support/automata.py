"""The automaton beside the oracle: vocabularies, and walks through both at once."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conductor.plan import grammar
from conductor.plan.automaton import Automaton, State, Tables
from conductor.plan.grammar import Grammar
from conductor.plan.validate import PlanPool
from conductor.workers.catalogue import load_catalogue
from conductor.workers.fetch import locate
from support.gguf import GgufTokenizer, read_tokenizer

Vocabulary = Sequence[bytes | None]

EOS = 256
BYTES: tuple[bytes | None, ...] = (*(bytes([byte]) for byte in range(256)), None)
"""A token for every byte, and an end token."""
ODD: tuple[bytes | None, ...] = (
    *BYTES,
    b"\n0", b"-\n", b" -\n", b"0 q", b"0 q -\n", b"q -\n1 0 ", b"redact q -\n", b" q", b"q,", b",0",
    b" *", b"12", b"1 *", b"a\n", b"a\nv", b"\xe2\x80", b"\x80\xa9", b"\xc3\xa9\n", b"a ", b"  ",
    b"Solve the", b" S", b"e end.\n", b".\n", b".\n0 ", b"vote", b"vote 0", b"x" * 300, b" - ",
    b"x" * 498 + b" ", b"0 - Solve the problem", b"\n\n", b"q Check", b"\xff\xff",
    b" -\nvote 0 -\n",
)  # fmt: skip
"""And tokens such as no tokenizer has: across words, lines and characters."""


def ids_in(mask: bytes) -> frozenset[int]:
    """The token ids of a bit mask, read in the plainest way."""
    bits = ((8 * at, byte) for at, byte in enumerate(mask) if byte)
    return frozenset(at + bit for at, byte in bits for bit in range(8) if byte >> bit & 1)


def smollm2() -> GgufTokenizer:
    """The tokenizer of the model that `make test` pulls."""
    return tokenizer_in("smollm2-135m")


def tokenizer_in(model: str) -> GgufTokenizer:
    """The tokenizer of a model file of the catalogue. Skips the test where it was not pulled."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("CONDUCTOR_MODELS_DIR", root / "var" / "models"))
    path = locate(folder, load_catalogue()[model])
    if path is None:
        pytest.skip(f"run 'conductor models pull {model}' first")
    return read_tokenizer(path)


@dataclass
class Tree:
    """Tokens by their bytes, so that the oracle is asked once for what begins alike."""

    ids: list[int] = field(default_factory=list)
    children: dict[int, Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, vocabulary: Vocabulary, tokens: Iterable[int]) -> Tree:
        root = cls()
        for token in tokens:
            node = root
            for byte in vocabulary[token] or b"":
                node = node.children.setdefault(byte, cls())
            node.ids.append(token)
        root.ids.clear()
        return root

    def allowed(self, oracle: Grammar, state: grammar.State) -> Iterator[int]:
        yield from self.ids
        for byte in oracle.allowed_at(state).next_bytes & self.children.keys():
            following = oracle.advance(state, byte)
            assert following is not None
            yield from self.children[byte].allowed(oracle, following)


@dataclass
class Walk:
    """One walk in both machines."""

    automaton: Automaton
    oracle: Grammar
    vocabulary: Vocabulary
    state: State
    reference: grammar.State = field(default_factory=grammar.State)
    text: bytes = b""

    @classmethod
    def of(cls, tables: Tables, pool: PlanPool, vocabulary: Vocabulary) -> Walk:
        automaton = Automaton(tables, pool)
        return cls(automaton, Grammar(pool), vocabulary, automaton.start())

    @property
    def allowed(self) -> frozenset[int]:
        return ids_in(self.automaton.allowed(self.state))

    @property
    def may_end(self) -> bool:
        return self.oracle.allowed_at(self.reference).may_end

    def wanted(self, tree: Tree) -> frozenset[int]:
        """What the oracle allows of the tokens in the tree."""
        return frozenset(tree.allowed(self.oracle, self.reference))

    def take(self, token: int) -> None:
        text = self.vocabulary[token]
        assert text
        self.state = self.automaton.advance(self.state, token)
        for byte in text:
            following = self.oracle.advance(self.reference, byte)
            assert following is not None, f"the oracle knows no {text!r} after {self.text!r}"
            self.reference = following
        self.text += text


def pick(chance: random.Random, allowed: Iterable[int], vocabulary: Vocabulary) -> int:
    """Evenly over kinds of token, so that heads, ends of lines and odd characters come up."""
    kinds: dict[tuple[bool, ...], list[int]] = {}
    for token in sorted(allowed):
        text = vocabulary[token] or b""
        odd = text[:1] > b"\x7f", text[-1:] > b"\x7f", text[:1] == b" "
        kinds.setdefault((text[-1:] == b"\n", *odd, len(text) > 9), []).append(token)
    return chance.choice(kinds[chance.choice(sorted(kinds))])
