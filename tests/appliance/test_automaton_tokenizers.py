"""The automaton over a real tokenizer: the oracle, the engines that others use, forced text."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from conductor.core import Flow
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.mask import LabelMask
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool
from conductor.plan.writing import State, only_byte
from support.automata import Tree, Vocabulary, Walk, ids_in, pick, tokenizer_in
from support.engines import Guidance, XGrammar, ebnf, regex
from support.gguf import GgufTokenizer

pytestmark = pytest.mark.model
VEILED = PlanPool(2, mask=LabelMask(Flow(
    question=1, control=1, heard=(), joins=((0, 1), (1, 1)), redacted=(0, 0),
    sees=(frozenset({0, 1}), frozenset({0})),
)))  # fmt: skip
"""Worker 1 may see redacted text and templates only."""


OURS, QWEN = "smollm2-135m", "qwen2.5-coder-0.5b"
"""The model that `make test` pulls, and one that is larger than tests may fetch."""


@cache
def source(model: str = OURS) -> GgufTokenizer:
    return tokenizer_in(model)


@cache
def compiled(model: str = OURS) -> tuple[Tables, Vocabulary]:
    vocabulary = source(model).bytes_per_id
    return compile(vocabulary, [source(model).eos]), vocabulary


@cache
def tokenizer() -> Tokenizer:
    """The same as the model's own: byte-level BPE, every digit apart."""
    merges = [(left, right) for left, right in map(str.split, source().merges)]
    made = Tokenizer(models.BPE({p: i for i, p in enumerate(source().pieces)}, merges))
    digits = pre_tokenizers.Split(Regex(r"\d"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(False)])
    made.decoder = decoders.ByteLevel()
    return made


def encode(text: str) -> list[int]:
    return list(tokenizer().encode(text).ids)


@pytest.mark.parametrize("model", [OURS, QWEN])
@pytest.mark.parametrize("pool", [PlanPool(12), VEILED], ids=["open", "veiled"])
def test_a_sample_of_all_tokens_meets_the_oracle(pool: PlanPool, model: str) -> None:
    tables, vocabulary = compiled(model)
    eos = source(model).eos
    chance = random.Random(7)
    usual = [t for t in tables.walked if tables.length[t] < 9]
    for _ in range(3):
        sample = {*usual, *chance.sample(range(len(vocabulary)), 200)}
        tree = Tree.of(vocabulary, (t for t in sample if vocabulary[t]))
        walk = Walk.of(tables, pool, vocabulary)
        for _ in range(12):
            allowed = walk.allowed - {eos}
            assert allowed & sample == walk.wanted(tree), walk.text
            assert (eos in walk.allowed) == walk.may_end
            if not allowed:
                break
            walk.take(pick(chance, allowed, vocabulary))


@pytest.mark.parametrize("model", [OURS, QWEN])
def test_the_automaton_and_llguidance_allow_the_same_tokens(model: str) -> None:
    """Where the text is forced, llguidance allows only its own spelling of it."""
    _, vocabulary = compiled(model)
    engine = Guidance(regex(3, 3), vocabulary, source(model).eos)

    def compare(ours: frozenset[int], theirs: frozenset[int], state: State, text: bytes) -> None:
        forced = only_byte(state) is not None
        assert theirs and (theirs <= ours if forced else theirs == ours), text

    _side_by_side(engine, compare, model)


@pytest.mark.parametrize("model", [OURS, QWEN])
def test_the_automaton_and_xgrammar_allow_the_same_tokens(model: str) -> None:
    """Halves of surrogate pairs aside, which are no UTF-8 and which xgrammar lets pass."""
    _, vocabulary = compiled(model)
    engine = XGrammar(ebnf(3, 3), vocabulary, source(model).eos)

    def compare(ours: frozenset[int], theirs: frozenset[int], state: State, text: bytes) -> None:
        assert ours <= theirs, text
        for token in theirs - ours:
            written = text + (vocabulary[token] or b"")
            assert written[written.rindex(b"\xed") :] >= b"\xed\xa0", text

    _side_by_side(engine, compare, model)


def _side_by_side(
    engine: Guidance | XGrammar,
    compare: Callable[[frozenset[int], frozenset[int], State, bytes], None],
    model: str,
) -> None:
    tables, vocabulary = compiled(model)
    eos, chance = source(model).eos, random.Random(11)
    for _ in range(4):
        automaton, text = Automaton(tables, PlanPool(3, max_steps=3)), b""
        state = automaton.start()
        engine.restart()
        for _ in range(40):
            ours = ids_in(automaton.allowed(state))
            compare(ours, ids_in(engine.mask()), state, text)
            if ours <= {eos}:
                break
            token = pick(chance, ours - {eos}, vocabulary)
            state, text = automaton.advance(state, token), text + (vocabulary[token] or b"")
            engine.take(token)


def _after(automaton: Automaton, text: str) -> State:
    state = automaton.start()
    for token in encode(text):
        state = automaton.advance(state, token)
    return state


def test_a_template_is_forced_in_the_tokenizers_own_spelling() -> None:
    tables, _ = compiled()
    automaton = Automaton(tables, VEILED, encode)
    for template in Template:
        words = template.split(" ")
        begun = " ".join(words[:3])
        run = automaton.forced(_after(automaton, f"redact q -\n1 0 {begun}"))
        assert run == encode(template[len(begun) :] + "\n")


def test_no_run_is_forced_where_a_longer_token_might_be_meant() -> None:
    tables, _ = compiled()
    automaton = Automaton(tables, PlanPool(1, frozenset(), max_steps=1), encode)
    assert automaton.forced(automaton.start()) == encode("0")
    assert automaton.forced(_after(automaton, "0 q")) == []  # " Solve" is one token
    assert automaton.forced(_after(automaton, "0 q -\n")) == [source().eos]
    assert automaton.forced(_after(automaton, "0 q Solve")) == []


def test_without_an_encoder_a_text_is_forced_in_the_fewest_tokens() -> None:
    tables, _ = compiled()
    own, shortest = Automaton(tables, VEILED, encode), Automaton(tables, VEILED)
    for template in Template:
        state = _after(own, f"redact q -\n1 0 {template[:12]}")
        run = shortest.forced(state)
        assert b"".join(map(tables.bytes_of, run)).decode() == template[12:] + "\n"
        assert len(run) <= len(own.forced(state))


def test_runs_are_the_same_walk_as_single_tokens() -> None:
    tables, vocabulary = compiled()
    chance = random.Random(3)
    for _ in range(6):
        automaton = Automaton(tables, VEILED, encode)
        state, written = automaton.start(), 0
        while written < 40 and (allowed := ids_in(automaton.allowed(state)) - {source().eos}):
            for token in automaton.forced(state) or [pick(chance, allowed, vocabulary)]:
                state, written = automaton.advance(state, token), written + 1
