"""Every text of a JSON value is rewritten where it stands, and nothing else is touched."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify.leaftexts import API_WORDS, leaves, replaced, rewritten
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.detect.spans import Span
from conductor.labels import Clearance, Label

NAME = 'Anna "Nuni" Rossi\\'
CLEARED = Clearance(1)


def is_json(value: str) -> bool:
    try:
        orjson.loads(value)
    except ValueError:
        return False
    return True


def as_text(value: Any) -> str:
    """A value as JSON in a string, or what is no JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_json(text) else text[:-1]


flat = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
values = st.recursive(
    flat | st.text('{}[]",:\\ 1a', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | inner.map(as_text)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, with types, NaN included."""
    return repr(one) == repr(other)


@given(values)
def test_texts_put_back_where_they_were_give_an_equal_copy(value: Any) -> None:
    before = copy.deepcopy(value)
    assert same(replaced(value, leaves(value)), before)
    assert same(value, before)


@given(values)
def test_new_texts_stand_where_the_old_ones_stood(value: Any) -> None:
    texts = leaves(value)
    new = [f"⟦T:{place}⟧\n\"'\\" for place in range(len(texts))]
    assert leaves(replaced(value, new)) == new


def strings(value: Any) -> list[str]:
    """All strings and names of a value, as an onlooker would list them."""
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in strings(one)]
    if isinstance(value, list):
        return [text for one in value for text in strings(one)]
    return [value] if isinstance(value, str) else []


@given(values)
def test_no_text_is_missed(value: Any) -> None:
    texts = leaves(value)
    for text in strings(value):
        if text and text not in API_WORDS and not is_json(text):
            assert text in texts


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_number_of_texts_is_refused(change: int) -> None:
    texts = ["x"] * (2 + change)
    with pytest.raises(ValueError, match="texts than"):
        replaced(["a", "b"], texts)


def conversation(name: str) -> list[dict[str, Any]]:
    """A name in every place that a request may hold one."""
    arguments = json.dumps({name: [name, 1.50, {"deep": json.dumps({"who": name})}]})
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "system", "content": f"You are {name}."},
        {"role": "user", "name": name, "content": [{"type": "text", "text": f"I, {name}"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": name}]},
        {"role": "assistant", "content": "", "refusal": name},
    ]


def found(text: str) -> list[Span]:
    places = [at for at in range(len(text)) if text.startswith(NAME, at)]
    return [Span(at, at + len(NAME), "person") for at in places]


def test_a_name_is_masked_in_every_place_and_comes_back_escaped() -> None:
    pseudonyms = Pseudonyms()
    messages = conversation(NAME)
    hidden = rewritten(messages, lambda ts: [pseudonyms.mask(t, found(t), Label(1)) for t in ts])
    written = orjson.dumps(hidden).decode()
    assert "Anna" not in written
    assert written.count("⟦PERSON:") == 8
    assert pseudonyms.counts.minted == 1
    arguments = hidden[2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments)
    back = rewritten(hidden, lambda ts: [pseudonyms.restore(t, CLEARED) for t in ts])
    was, now = messages[2].pop("tool_calls"), back[2].pop("tool_calls")
    assert back == messages
    assert json.loads(was[0]["function"]["arguments"]) == json.loads(
        now[0]["function"]["arguments"]
    )


def test_what_is_not_masked_in_arguments_keeps_its_spelling() -> None:
    arguments = '{ "n": 1.50,\n"big": 0.1e-7, "d": "\\u0061", "d": "Anna" }'
    (new,) = replaced([arguments], ["n", "big", "d", "a", "d", "X"])
    assert new == arguments.replace("Anna", "X")


def test_a_number_that_is_masked_becomes_a_string() -> None:
    value = {"card": 4111111111111111, "n": 12, "text": '{"card":4111111111111111}'}
    assert "4111111111111111" in leaves(value)
    new = rewritten(value, lambda ts: [t.replace("4111111111111111", "⟦C⟧") for t in ts])
    assert new == {"card": "⟦C⟧", "n": 12, "text": '{"card":"⟦C⟧"}'}


def test_two_names_that_become_one_lose_nothing() -> None:
    assert replaced({"Anna": 1, "ANNA": 2}, ["T", "T"]) == {"T": 1, "T (2)": 2}


def test_the_words_of_the_api_are_no_texts() -> None:
    assert leaves({"role": "user", "type": "text", "content": "hello"}) == ["hello"]
