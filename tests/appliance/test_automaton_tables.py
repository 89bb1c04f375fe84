"""What is compiled from a tokenizer: the tables, their file, the bytes of each token."""

from __future__ import annotations

import json

import pytest

from conductor.errors import PlanError
from conductor.plan.automaton import Automaton, compile
from conductor.plan.byteshape import DEAD, PLACES
from conductor.plan.tablefile import pack, unpack
from conductor.plan.tokens import of_tokenizer
from conductor.plan.validate import PlanPool
from support.automata import BYTES, EOS, ODD

FIELDS = ("class_of", "next", "length", "fixed_start", "fixed_token", "fixed_next", "walked", "eos",
          "spelling")  # fmt: skip


def test_the_table_is_small_and_classes_differ() -> None:
    tables = compile(ODD, [EOS])
    assert len(PLACES) < 60 and tables.classes < 80
    size = tables.classes
    columns = [tuple(tables.next[c::size]) for c in range(size)]
    plain = {tables.class_of[t] for t in range(len(ODD))} - {
        tables.class_of[t] for t in tables.walked
    }
    assert len({columns[c] for c in plain}) == len(plain)
    assert set(columns[tables.class_of[EOS]]) == {DEAD}


def test_two_ids_of_one_spelling_are_one_class() -> None:
    tables = compile((*BYTES, b"12", b"12", b"the", b"the"), [EOS])
    assert tables.class_of[257] == tables.class_of[258] != tables.class_of[259]
    assert tables.class_of[259] == tables.class_of[260]


def test_tables_come_back_from_a_file_as_they_were() -> None:
    tables = compile(ODD, [EOS])
    again = unpack(pack(tables))
    assert all(getattr(again, name) == getattr(tables, name) for name in FIELDS)
    one, other = Automaton(tables, PlanPool(4)), Automaton(again, PlanPool(4))
    assert one.allowed(one.start()) == other.allowed(other.start())


def test_a_damaged_file_is_refused() -> None:
    data = pack(compile(BYTES, [EOS]))
    line, _, body = data.partition(b"\n")
    head = json.loads(line)

    def file(**changes: object) -> bytes:
        return json.dumps(head | changes).encode() + b"\n" + body

    bad = [
        b"", b"{}", b"[1]\n", b"\xff\n", data[:-1], data + b"x", data[: len(line) + 40],
        file(format="another"), file(language="another"), file(arrays=[]),
        file(arrays=[[name, kind, -1] for name, kind, _ in head["arrays"]]),
        line + b"\n" + b"\xff" * len(body), line + b"\n" + b"\x7f" * len(body),
    ]  # fmt: skip
    for one in bad:
        with pytest.raises(PlanError, match="compile the tables again"):
            unpack(one)
    assert unpack(file()).eos[0] == EOS


@pytest.mark.parametrize("missing", [b"0", b"q", b"\n", b" ", b"\x9f", b"T"])
def test_a_tokenizer_that_cannot_write_every_plan_is_refused(missing: bytes) -> None:
    with pytest.raises(PlanError, match="falls back to bytes"):
        compile([None if text == missing else text for text in BYTES], [EOS])


@pytest.mark.parametrize("eos", [[], [-1], [257]])
def test_end_tokens_must_be_there(eos: list[int]) -> None:
    with pytest.raises(PlanError, match="end token"):
        compile(BYTES, eos)


def test_any_of_several_end_tokens_ends_a_plan() -> None:
    tables = compile((*BYTES, b"<end>"), [257, 256])
    automaton = Automaton(tables, PlanPool(1, may_stop=True, max_steps=0))
    for eos in (256, 257):
        assert not any(automaton.allowed(automaton.advance(automaton.start(), eos)))
    assert automaton.forced(automaton.start()) == [257]


def _json(model: dict[str, object], **rest: object) -> bytes:
    return json.dumps({"model": model, **rest}).encode()


def test_byte_level_pieces_are_read() -> None:
    added = [{"id": 4, "content": "<|end|>", "special": True},
             {"id": 5, "content": "  ", "special": False}]  # fmt: skip
    data = _json(
        {"type": "BPE", "vocab": {"Ġthe": 0, "Ċ": 1, "Ã©": 2, "!": 3}},
        decoder={"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
        added_tokens=added,
    )
    assert of_tokenizer(data, 8) == (b" the", b"\n", "é".encode(), b"!", None, b"  ", None, None)


@pytest.mark.parametrize("model", [
    {"type": "Unigram", "vocab": [["▁the", -1.0], ["<0x0A>", -2.0], ["é", -3.0]]},
    {"vocab": {"▁the": 0, "<0x0A>": 1, "é": 2}},
])  # fmt: skip
def test_sentencepiece_pieces_are_read(model: dict[str, object]) -> None:
    assert of_tokenizer(_json(model)) == (b" the", b"\n", "é".encode())


@pytest.mark.parametrize("data", [
    b"", b"[]", b"{}", b"\xff", _json({"type": "WordPiece", "vocab": {"##a": 0}}),
    _json({"type": "BPE", "vocab": 3}), _json({"type": "BPE", "vocab": {"a": 1 << 40}}),
    _json({"type": "BPE", "vocab": {"a": -1}}), _json({"type": "Unigram", "vocab": [3]}),
    _json({"type": "BPE", "vocab": {"a": 0}}, added_tokens=[{}]),
])  # fmt: skip
def test_what_is_no_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(PlanError):
        of_tokenizer(data)
