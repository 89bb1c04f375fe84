"""The oracle and the parser were written apart; here each is held to the other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.errors import PlanError
from conductor.plan.grammar import Allowed, Grammar, State
from conductor.plan.language import MAX_SUBTASK_BYTES, Builtin, Plan, View, parse, show
from conductor.plan.mask import Head
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate
from support.plans import ClearedMask, NobodyAfterRedaction, TextOnly, fitting, plans, pools


def fits(text: bytes, pool: PlanPool) -> bool:
    """What the parser and the validator say."""
    try:
        validate(parse(text.decode(), pool.first), pool)
    except (PlanError, UnicodeDecodeError):
        return False
    return True


@settings(deadline=None)
@given(plans(), pools())
def test_oracle_and_parser_agree_on_every_plan(plan: Plan, pool: PlanPool) -> None:
    text = show(plan).encode()
    assert Grammar(pool).accepts(text) == fits(text, pool)


@settings(max_examples=200, deadline=None)
@given(fitting())
def test_a_plan_that_fits_is_accepted_byte_for_byte(case: tuple[Plan, PlanPool]) -> None:
    plan, pool = case
    if not plan.steps and not pool.may_stop:
        return
    text = show(plan).encode()
    assert fits(text, pool)
    grammar, state = Grammar(pool), State()
    for byte in text:
        assert byte in grammar.allowed_at(state).next_bytes
        advanced = grammar.advance(state, byte)
        assert advanced is not None
        state = advanced
    assert grammar.allowed_at(state).may_end


@settings(deadline=None)
@given(pools(), st.randoms(use_true_random=False), st.integers(1, 40))
def test_random_walks_never_get_stuck_and_end_in_plans_that_fit(
    pool: PlanPool, chance: random.Random, patience: int
) -> None:
    grammar, state, text = Grammar(pool), State(), bytearray()
    if grammar.allowed_at(state) == Allowed(frozenset(), False):
        return  # nothing at all can be planned in this pool, and the oracle says so at once
    while True:
        allowed = grammar.allowed_at(state)
        if allowed.may_end and (not allowed.next_bytes or chance.random() < 0.2):
            break
        assert allowed.next_bytes, f"stuck after {bytes(text)!r}"
        tired = len(text) > patience * (text.count(b"\n") + 1)
        byte = 0x0A if tired and 0x0A in allowed.next_bytes else pick(chance, allowed.next_bytes)
        advanced = grammar.advance(state, byte)
        assert advanced is not None
        state = advanced
        text.append(byte)
    assert fits(bytes(text), pool)
    assert grammar.accepts(bytes(text))


def pick(chance: random.Random, allowed: frozenset[int]) -> int:
    """Evenly over kinds of byte, so that odd lead bytes and separators do come up."""
    kinds = [
        [b for b in allowed if b < 0x80],
        [b for b in allowed if 0x80 <= b < 0xC0],
        [b for b in allowed if b in (0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF4)],
        [b for b in allowed if b >= 0xC0],
    ]
    return chance.choice(sorted(chance.choice([kind for kind in kinds if kind])))


_PIECES = [
    *(bytes([b]) for b in b"0159q*-, \nxrv"),
    b"\x00", b"\x7f", b"\x80", b"\xa0", b"\xa8", b"\xc0", b"\xc2", b"\xe0", b"\xe2\x80",
    b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f", b"\xf4\x90\x80\x80", b"\xff",
    b"vote", b"redact", b"0 q -\n", b"redact q -\n", "é".encode(), "🙂".encode(),
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(fitting(), st.data())
def test_oracle_and_parser_agree_on_mutated_texts(
    case: tuple[Plan, PlanPool], data: st.DataObject
) -> None:
    plan, pool = case
    text = bytearray(show(plan).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text[at : at + cut] = data.draw(st.sampled_from([b"", *_PIECES]))
    assert Grammar(pool).accepts(bytes(text)) == fits(bytes(text), pool)


@settings(deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=14), pools())
def test_oracle_and_parser_agree_on_texts_from_scratch(pieces: list[bytes], pool: PlanPool) -> None:
    text = b"".join(pieces)
    assert Grammar(pool).accepts(text) == fits(text, pool)


@pytest.mark.parametrize("code", [*range(0x100), 0x7FF, 0x800, 0x2027, 0x2028, 0x2029, 0x202A,
                                  0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF])  # fmt: skip
def test_oracle_and_parser_agree_on_every_kind_of_character(code: int) -> None:
    pool = PlanPool(1)
    for text in [f"0 q {chr(code)}\n", f"0 q a{chr(code)}\n", f"0 q {chr(code)}a\n"]:
        assert Grammar(pool).accepts(text.encode()) == fits(text.encode(), pool), repr(text)


@pytest.mark.parametrize("lead", range(0x80, 0x100))
def test_oracle_and_python_agree_on_every_pair_of_bytes_beyond_ascii(lead: int) -> None:
    grammar = Grammar(PlanPool(1))
    for second in range(0x80, 0xC0):
        for tail in (b"", b"\x80", b"\xa8", b"\x80\x80"):
            text = b"0 q " + bytes([lead, second]) + tail + b"\n"
            assert grammar.accepts(text) == fits(text, PlanPool(1)), text


@pytest.mark.parametrize("last", ["a", "é", "漢", "🙂", " a"])
def test_the_bound_on_a_subtask_is_met_to_the_byte(last: str) -> None:
    grammar, pool = Grammar(PlanPool(1)), PlanPool(1)
    for length in range(MAX_SUBTASK_BYTES - 5, MAX_SUBTASK_BYTES + 2):
        text = f"0 q {'a' * length}{last}\n".encode()
        assert grammar.accepts(text) == fits(text, pool)


def test_what_may_come_next_is_exact_at_places_that_matter() -> None:
    grammar = Grammar(PlanPool(12, max_steps=3))

    def after(prefix: bytes) -> tuple[bytes, bool]:
        allowed = grammar.allowed(prefix)
        return bytes(sorted(allowed.next_bytes)), allowed.may_end

    assert after(b"") == (b"0123456789r", False)  # no vote: nothing to vote on
    assert after(b"1") == (b" 01", False)
    assert after(b"0") == (b" ", False)
    assert after(b"0 ") == (b"*-q", False)
    assert after(b"0 q") == (b" ", False)
    assert after(b"redact q ") == (b"-", False)
    assert after(b"redact q -") == (b"\n", False)
    assert after(b"redact q -\n")[1] is False
    assert after(b"0 q -\n") == (b"0123456789rv", True)
    assert after(b"0 q -\n1 q -\n") == (b"0123456789v", True)  # no redact: it would be last
    assert after(b"0 q -\n1 q -\nvote ") == (b"*01q", False)
    assert after(b"0 q -\n1 q -\nvote q") == (b",", False)
    assert after(b"0 q -\n1 q -\nvote 0,1 -\n") == (b"", True)
    assert after(b"0 q -\n1 q -\n2 1") == (b" ", False)
    assert after(b"nonsense") == (b"", False)


def test_masks_reach_every_byte() -> None:
    cleared = Grammar(PlanPool(2, mask=ClearedMask(frozenset({0}))))
    assert cleared.allowed(b"1 ").next_bytes == frozenset(b"-")
    templates = [template.value.encode() for template in Template]
    assert cleared.allowed(b"1 - ").next_bytes == {ord("-"), *(text[0] for text in templates)}
    assert cleared.allowed(b"redact q -\n1 ").next_bytes == frozenset(b"0-")
    assert cleared.allowed(b"0 q -\n1 ").next_bytes == frozenset(b"-")
    worded = Grammar(PlanPool(1, mask=TextOnly()))
    assert 0x0A not in worded.allowed(b"0 q -").next_bytes
    assert 0x0A in worded.allowed(b"0 q --").next_bytes
    stranded = Grammar(PlanPool(1, mask=NobodyAfterRedaction()))
    assert stranded.allowed(b"").next_bytes == frozenset(b"0")


@pytest.mark.parametrize("template", Template)
def test_who_is_not_cleared_for_the_planners_words_gets_a_template_to_the_letter(
    template: Template,
) -> None:
    grammar = Grammar(PlanPool(2, mask=ClearedMask(frozenset({0}))))
    line = f"redact q -\n1 0 {template}".encode()
    assert grammar.accepts(line + b"\n")
    assert not grammar.accepts(line[:-1] + b"\n")
    assert not grammar.allowed(line + b"x").next_bytes
    assert grammar.accepts(f"0 q {template} Or so.\n".encode())


def test_a_worker_that_must_be_given_words_of_its_own_gets_no_template() -> None:
    grammar = Grammar(PlanPool(1, mask=TextOnly()))
    for template in Template:
        text = f"0 q {template}".encode()
        assert not grammar.accepts(text + b"\n")
        assert grammar.accepts(text + b"!\n")


def test_a_pool_of_two_hundred_and_fifty_five_is_spelled_to_the_last_digit() -> None:
    grammar = Grammar(PlanPool(255))
    assert grammar.allowed(b"25").next_bytes == frozenset(b" 01234")
    assert grammar.allowed(b"26").next_bytes == frozenset(b" ")


def test_nothing_may_be_written_where_nothing_is_permitted() -> None:
    nothing = Allowed(frozenset(), False)
    assert Grammar(PlanPool(0)).allowed(b"") != nothing  # redact the question, vote for that
    assert Grammar(PlanPool(0, max_steps=1)).allowed(b"") == nothing
    assert Grammar(PlanPool(0, frozenset({Builtin.REDACT}))).allowed(b"") == nothing
    assert Grammar(PlanPool(3, max_calls=0, max_steps=1)).allowed(b"") == nothing
    assert Grammar(PlanPool(0, max_steps=1, may_stop=True)).allowed(b"").may_end


def test_in_a_further_round_steps_of_all_rounds_can_be_named_and_calls_are_counted() -> None:
    asked = Head(0, View(True, ()), free_text=False)
    grammar = Grammar(
        PlanPool(2, frozenset({Builtin.VOTE}), 2, max_calls=1, may_stop=True, earlier=(asked,) * 3)
    )

    def after(prefix: bytes) -> tuple[bytes, bool]:
        allowed = grammar.allowed(prefix)
        return bytes(sorted(allowed.next_bytes)), allowed.may_end

    assert after(b"") == (b"01v", True)
    assert after(b"vote ") == (b"*012q", False)
    assert after(b"vote 2 -\n") == (b"01v", True)
    assert after(b"0 q -\n") == (b"v", True)  # the one call is spent
    assert after(b"0 q -\nvote 2") == (b" ,", False)
    assert after(b"0 q -\nvote 3 -\n") == (b"", True)


@pytest.mark.parametrize("first", [5, 9])
def test_oracle_and_parser_agree_up_to_the_last_step_that_has_a_number(first: int) -> None:
    pool = PlanPool(1, max_steps=10 - first, earlier=(Head(0, View(True, ()), True),) * first)
    for step in range(10):
        text = f"0 {step} -\n".encode()
        assert Grammar(pool).accepts(text) == fits(text, pool) == (step < first)
    everything = b"vote * -\n" * (10 - first)
    assert Grammar(pool).accepts(everything) and fits(everything, pool)
    assert not Grammar(pool).accepts(everything + b"vote * -\n")


def test_a_pool_that_could_only_redact_is_given_up_at_once() -> None:
    seen = (Head(0, View(True, ()), True),) * 5
    for pool in [
        PlanPool(0, frozenset({Builtin.REDACT}), earlier=seen),
        PlanPool(12, frozenset({Builtin.REDACT}), max_calls=0, earlier=seen),
    ]:
        assert Grammar(pool).allowed(b"") == Allowed(frozenset(), False)
