"""The automaton allows just what the oracle does, token for token, in every kind of pool."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Flow
from conductor.errors import PlanError
from conductor.plan.automaton import Automaton, Tables, compile
from conductor.plan.language import MAX_SUBTASK_BYTES, Builtin, Plan, View, parse, show
from conductor.plan.mask import Head, LabelMask
from conductor.plan.openings import first_line
from conductor.plan.sights import index_of, view_at
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate
from support.automata import BYTES, EOS, ODD, Tree, Vocabulary, Walk, ids_in, pick
from support.plans import ClearedMask, TextOnly, fitting, flows, pools

TABLES = {"bytes": compile(BYTES, [EOS]), "odd": compile(ODD, [EOS])}
VOCABULARIES: dict[str, Vocabulary] = {"bytes": BYTES, "odd": ODD}
TREES = {
    name: Tree.of(words, (t for t in range(len(words)) if t != EOS))
    for name, words in VOCABULARIES.items()
}


def taken(walk: Walk, token: int) -> bool:
    try:
        walk.automaton.advance(walk.state, token)
    except PlanError:
        return False
    return True


def agree(walk: Walk, tree: Tree) -> frozenset[int]:
    """Holds the whole mask to the oracle, and every step to the mask; returns what goes on."""
    allowed, ends = walk.allowed, frozenset([EOS]) if walk.may_end else frozenset()
    assert allowed == walk.wanted(tree) | ends, walk.text
    assert allowed == {t for t in range(len(walk.vocabulary)) if taken(walk, t)}, walk.text
    return allowed - {EOS}


@settings(max_examples=50, deadline=None)
@given(pools(), st.sampled_from(["bytes", "odd", "odd"]), st.randoms(use_true_random=False))
def test_random_walks_meet_the_oracles_tokens_at_every_step(
    pool: PlanPool, kind: str, chance: random.Random
) -> None:
    walk = Walk.of(TABLES[kind], pool, VOCABULARIES[kind])
    for _ in range(14):
        going_on = agree(walk, TREES[kind])
        if not going_on:
            break
        walk.take(pick(chance, going_on, walk.vocabulary))


@settings(max_examples=60, deadline=None)
@given(pools(), st.randoms(use_true_random=False))
def test_walks_end_in_plans_that_fit(pool: PlanPool, chance: random.Random) -> None:
    automaton = Automaton(TABLES["odd"], pool)
    state, text = automaton.start(), b""
    for turn in range(10_000):
        allowed = ids_in(automaton.allowed(state))
        if not allowed and not text:
            return  # nothing at all can be planned in this pool
        assert allowed, f"stuck after {text!r}"
        ending = turn > 40 and [t for t in allowed if t == EOS or (ODD[t] or b"")[-1:] == b"\n"]
        token = chance.choice(ending) if ending else pick(chance, allowed, ODD)
        state, text = automaton.advance(state, token), text + (ODD[token] or b"")
        if token == EOS:
            break
    validate(parse(text.decode(), pool.first), pool)
    assert not any(automaton.allowed(state))


@settings(max_examples=12, deadline=None)
@given(fitting(), st.randoms(use_true_random=False))
def test_every_spelling_of_a_plan_that_fits_can_be_written(
    case: tuple[Plan, PlanPool], chance: random.Random
) -> None:
    plan, pool = case
    if not plan.steps and not pool.may_stop:
        return
    automaton, text = Automaton(TABLES["odd"], pool), show(plan).encode()
    state = automaton.start()
    while text:
        longer = [t for t in range(EOS + 1, len(ODD)) if text.startswith(ODD[t] or b"?")]
        token = chance.choice([text[0], *longer])
        if chance.random() < 0.02:
            assert token in ids_in(automaton.allowed(state))
        state, text = automaton.advance(state, token), text[len(ODD[token] or b"") :]
    assert EOS in ids_in(automaton.allowed(state))


@pytest.mark.parametrize("last", ["a", "é", "漢", "🙂", " a", " "])
@pytest.mark.parametrize("kind", ["bytes", "odd"])
def test_the_bound_on_a_subtask_is_met_to_the_byte(kind: str, last: str) -> None:
    for length in range(MAX_SUBTASK_BYTES - 6, MAX_SUBTASK_BYTES + 1):
        walk = Walk.of(TABLES[kind], PlanPool(1), VOCABULARIES[kind])
        for byte in b"0 q " + b"a" * length:
            walk.take(byte)
        for byte in last.encode():
            if byte not in agree(walk, TREES[kind]):
                break
            walk.take(byte)
        agree(walk, TREES[kind])


@pytest.mark.parametrize("pool", [
    PlanPool(2, mask=ClearedMask(frozenset({0}))), PlanPool(1, mask=TextOnly()), PlanPool(1),
])  # fmt: skip
def test_along_every_template_the_oracle_is_met(pool: PlanPool) -> None:
    tables, tree = TABLES["odd"], TREES["odd"]
    chance, lead = random.Random(1), b"0 q " if pool.workers == 1 else b"redact q -\n1 0 "
    for template in Template:
        walk = Walk.of(tables, pool, ODD)
        for byte in lead + template.encode():
            if chance.random() < 0.02:
                agree(walk, tree)
            walk.take(byte)
        agree(walk, tree)


def test_a_token_that_is_not_allowed_is_refused() -> None:
    automaton = Automaton(TABLES["odd"], PlanPool(2))
    start = automaton.start()
    for token in [ord("2"), ord(" "), ord("v"), EOS, -1, len(ODD), ODD.index(b"\xff\xff")]:
        with pytest.raises(PlanError, match="not allowed"):
            automaton.advance(start, token)


def test_masks_are_whole_words_and_name_no_token_beyond_the_vocabulary() -> None:
    automaton = Automaton(TABLES["odd"], PlanPool(3))
    mask = automaton.allowed(automaton.start())
    assert len(mask) == (len(ODD) + 31) // 32 * 4
    assert max(ids_in(mask)) < len(ODD)


def test_where_only_the_end_is_left_nothing_else_is_allowed() -> None:
    automaton = Automaton(TABLES["bytes"], PlanPool(1, max_steps=1))
    state = automaton.start()
    for byte in b"0 q -\n":
        state = automaton.advance(state, byte)
    assert ids_in(automaton.allowed(state)) == {EOS}
    ended = automaton.advance(state, EOS)
    assert not any(automaton.allowed(ended)) and not automaton.forced(ended)
    with pytest.raises(PlanError):
        automaton.advance(ended, ord("0"))


@given(st.integers(0, 9), st.data())
def test_views_and_their_numbers_are_one_to_one(number: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, (2 << number) - 1))
    assert index_of(view_at(index, number), number) == index


@settings(deadline=None)
@given(flows(0), st.lists(st.booleans(), max_size=4))
def test_the_table_for_kernels_says_what_the_mask_says(flow: Flow, redactions: list[bool]) -> None:
    pool = PlanPool(3, mask=LabelMask(flow), builtins=frozenset({Builtin.VOTE, Builtin.REDACT}))
    earlier: tuple[Head, ...] = ()
    line = first_line(pool)
    for redacts in redactions:
        row = line.rows.get(b"redact" if redacts else b"vote")
        view = next((v for v in range(2 << line.number) if row and row.views >> v & 1), None)
        if row is None or view is None:
            return
        earlier = (*earlier, Head(row.worker, view_at(view, line.number), False))
        line = line.after(row, view, worded=False)
    table, size = line.table(), 2 << line.number
    assert len(table) == 5 * size
    for worker in range(3):
        for view in range(size):
            bare, worded = (
                pool.mask.permits(earlier, Head(worker, view_at(view, line.number), free))
                for free in (False, True)
            )
            assert table[worker * size + view] == bare | worded << 1
    assert table[3 * size + index_of(View(True, ()), line.number)] in (0, 1)


def test_requests_share_what_depends_on_the_tokenizer_alone() -> None:
    tables: Tables = TABLES["bytes"]
    one, other = Automaton(tables, PlanPool(1)), Automaton(tables, PlanPool(7))
    states = []
    for automaton in (one, other):
        state = automaton.start()
        for byte in b"0 q ab":
            state = automaton.advance(state, byte)
        states.append(automaton.allowed(state))
    assert states[0] is states[1]
