"""Restoring in streams: the same however the answer is cut."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Body
from conductor.declassify.heldback import HeldBack, JsonText, PlainText
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.declassify.stream import Restorer, restore_body
from conductor.detect.spans import Span
from conductor.labels import Clearance, Label
from conductor.run.plain import shape_plain
from conductor.run.stream import ChunkShaper

CLEARED = Clearance(1)
NAME = 'Anna "Nuni"\nRossi\\'


class Workflow:
    """Pseudonyms that have seen one name."""

    def __init__(self) -> None:
        self.pseudonyms = Pseudonyms(bytes(32))
        self.token = self.pseudonyms.mask(NAME, [Span(0, len(NAME), "person")], Label(1))
        self.body = self.token[1:-1]

    def value_of(self, body: str) -> str | None:
        return self.pseudonyms.value_of(body, CLEARED)


WORK = Workflow()
T = WORK.token
ESCAPED = T.replace("⟦", "\\u27e6").replace("⟧", "\\u27E7")
SPACED = f"⟦{' '.join(WORK.body):^30}⟧"
"""A token mangled to the longest that can still be repaired."""
IN_JSON = json.dumps(NAME, ensure_ascii=False)[1:-1]


def joined(text: HeldBack, *pieces: str) -> str:
    return "".join([*map(text.feed, pieces), text.flush()])


PLAIN = [
    (f"Dear {T}, dear {T}!", f"Dear {NAME}, dear {NAME}!"),
    (f"⟦⟦{T}⟧ ⟦e⟧", f"⟦⟦{NAME}⟧ ⟦e⟧"),
    (f"{SPACED}, ⟦ {SPACED[1:]}", f"{NAME}, ⟦ {SPACED[1:]}"),
    (T[:-1], T[:-1]),
    (f"{T[:-1]} {T} 日本🎉", f"{T[:-1]} {NAME} 日本🎉"),
    ("⟦" + "x" * 40 + T, "⟦" + "x" * 40 + NAME),
    ("⟦PERSON:bbbbbb⟧", "⟦PERSON:bbbbbb⟧"),
]
JSON = [
    (f'{{"to": "{T}"}}', f'{{"to": "{IN_JSON}"}}'),
    (f'{{"{T}": ["{ESCAPED}"]}}', f'{{"{IN_JSON}": ["{IN_JSON}"]}}'),
    (r'{"a": "\\u27e6", "b": "\\"}' + T[:9], r'{"a": "\\u27e6", "b": "\\"}' + T[:9]),
    (f'{{"a": "x\\\\{T}"}}', f'{{"a": "x\\\\{IN_JSON}"}}'),
    (f'["{SPACED}", "⟦ {SPACED[1:]}"]', f'["{IN_JSON}", "⟦ {SPACED[1:]}"]'),
    (f"not {T} json", f"not {IN_JSON} json"),
]


@pytest.mark.parametrize(("text", "wanted"), PLAIN)
def test_plain_text_is_right_at_every_three_way_split(text: str, wanted: str) -> None:
    for one, two in combinations(range(len(text) + 1), 2):
        assert joined(PlainText(WORK.value_of), text[:one], text[one:two], text[two:]) == wanted


@pytest.mark.parametrize(("text", "wanted"), JSON)
def test_json_text_is_right_at_every_three_way_split(text: str, wanted: str) -> None:
    for one, two in combinations(range(len(text) + 1), 2):
        assert joined(JsonText(WORK.value_of), text[:one], text[one:two], text[two:]) == wanted


def test_json_in_a_string_of_json_stays_json_at_every_split() -> None:
    inner = json.dumps({'a"b': ["\\", T, {"t": T}], "n": T}, ensure_ascii=False)
    outer = {"note": f'He said "{T}"', "json": inner, "list": f" [1] {T}"}
    text = json.dumps(outer, ensure_ascii=False)
    wanted = {
        "note": f'He said "{NAME}"',
        "json": {'a"b': ["\\", NAME, {"t": NAME}], "n": NAME},
        "list": f" [1] {NAME}",
    }
    for at in range(len(text)):
        got = json.loads(joined(JsonText(WORK.value_of), text[:at], text[at:]))
        assert {**got, "json": json.loads(got["json"])} == wanted


hostile = st.lists(
    st.sampled_from([T, T[:5], T[5:], ESCAPED, "⟦", "⟧", "\\", '"', "\\u27", "e6", "{", " ", "a"])
    | st.text(max_size=4),
    max_size=20,
)


@given(hostile, st.booleans(), st.data())
def test_what_comes_out_does_not_depend_on_the_cuts(
    parts: list[str], is_json: bool, data: st.DataObject
) -> None:
    text, kind = "".join(parts), JsonText if is_json else PlainText
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert joined(kind(WORK.value_of), *pieces) == joined(kind(WORK.value_of), text)
    if not is_json:
        assert joined(kind(WORK.value_of), text) == WORK.pseudonyms.restore(text, CLEARED)


@given(hostile, st.booleans())
def test_no_more_than_a_token_is_held_back(parts: list[str], is_json: bool) -> None:
    held = JsonText(lambda body: None) if is_json else PlainText(lambda body: None)
    came = went = ""
    for letter in "".join(parts):
        came += letter
        went += held.feed(letter)
        assert came.startswith(went)
        assert len(came.replace("\\u27e6", "⟦")) - len(went.replace("\\u27e6", "⟦")) <= 36
        assert is_json or len(came) - len(went) < 32
    assert went + held.flush() == came


def deltas(*pieces: Body, finish: str = "stop", usage: bool = True) -> list[Body]:
    """An answer as serve's shaper gives it."""
    shaper = ChunkShaper("chatcmpl-1", 1, "m", usage)
    out: list[Body] = []
    for piece in pieces:
        out += shaper.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": None, **piece}]})
    out += shaper.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return out + shaper.finish()


def restored(chunks: list[Body], clearance: Clearance = CLEARED, **more: Any) -> list[Body]:
    restorer = Restorer(WORK.pseudonyms, clearance, **more)
    out = [sent for chunk in chunks for sent in restorer.feed(chunk)]
    assert restorer.flush() == []
    return out


def text_of(chunks: list[Body], field: str, index: int = 0) -> str:
    return "".join(
        entry["delta"].get(field) or ""
        for chunk in chunks
        for entry in chunk["choices"]
        if entry["index"] == index
    )


def arguments_of(chunks: list[Body], call: int) -> str:
    return "".join(
        one.get("function", {}).get("arguments", "")
        for chunk in chunks
        for entry in chunk["choices"]
        for one in entry["delta"].get("tool_calls", [])
        if one["index"] == call
    )


@pytest.mark.parametrize("field", ["content", "refusal", "reasoning", "reasoning_content"])
def test_every_text_of_a_stream_is_restored_letter_by_letter(field: str) -> None:
    text = f"Dear {T}, and ⟦PERSON:bb"
    out = restored(deltas(*({"delta": {field: letter}} for letter in text)))
    assert text_of(out, field) == f"Dear {NAME}, and ⟦PERSON:bb"


def test_no_closing_chunk_is_lost_and_nothing_comes_after_it() -> None:
    chunks = deltas({"delta": {"content": "a ⟦PER"}})
    out = restored(chunks)
    assert out[-1] == chunks[-1]
    assert out[-1]["usage"]
    assert [c["choices"][0]["finish_reason"] for c in out[:-1]] == [None, None, None, "stop"]
    assert text_of(out, "content") == "a ⟦PER"
    assert {(c["id"], c["model"]) for c in out} == {("chatcmpl-1", "m")}
    assert all("usage" in c for c in out)


def test_what_waits_does_not_hold_up_the_rest() -> None:
    restorer = Restorer(WORK.pseudonyms, CLEARED)
    seen = [
        text_of(restorer.feed(chunk), "content")
        for chunk in deltas({"delta": {"content": "Dear ⟦PER"}}, {"delta": {"content": "haps"}})
    ]
    assert seen[:3] == ["", "Dear ", ""]


def test_an_answer_without_an_end_gives_up_what_it_holds() -> None:
    restorer = Restorer(WORK.pseudonyms, CLEARED)
    chunks = deltas({"delta": {"content": "Dear ⟦PER"}})[:2]
    assert [text_of(restorer.feed(chunk), "content") for chunk in chunks] == ["", "Dear "]
    (last,) = restorer.flush()
    assert text_of([last], "content") == "⟦PER"


def call(index: int, arguments: str, **more: Any) -> Body:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments, **more}}]}


def test_arguments_of_parallel_calls_are_restored_apart_and_escaped() -> None:
    texts = [json.dumps({"to": T, "n": n}, ensure_ascii=n == 1) for n in range(2)]
    pieces = [call(n, "", name=f"f{n}") for n in range(2)]
    pieces += [call(n, texts[n][at]) for at in range(30) for n in range(2)]
    pieces += [call(n, texts[n][30:]) for n in range(2)]
    out = restored(deltas(*({"delta": piece} for piece in pieces), finish="tool_calls"))
    for n in range(2):
        assert json.loads(arguments_of(out, n)) == {"to": NAME, "n": n}


def test_choices_are_restored_apart() -> None:
    restorer = Restorer(WORK.pseudonyms, CLEARED)
    out: list[Body] = []
    for letter in T:
        entries = [{"index": n, "delta": {"content": letter}} for n in range(2)]
        out += restorer.feed({"id": "x", "choices": entries})
    assert text_of(out, "content", 0) == text_of(out, "content", 1) == NAME


def test_a_sink_that_is_not_cleared_gets_tokens() -> None:
    out = restored(deltas({"delta": {"content": f"Dear {T}"}}), Clearance(0))
    assert text_of(out, "content") == f"Dear {T}"


def test_json_content_is_escaped_when_the_client_asked_for_json() -> None:
    out = restored(deltas({"delta": {"content": f'{{"a": "{T}"}}'}}), json_content=True)
    assert json.loads(text_of(out, "content")) == {"a": NAME}


def test_chunks_without_tokens_are_passed_on_as_they_are() -> None:
    chunks = deltas({"delta": {"content": "hello"}}, {"delta": call(0, "{}", name="f")})
    chunks += [{"choices": []}, {"error": {"message": "no"}}, {"choices": ["x"]}]
    assert restored(chunks) == chunks


MESSAGE = {
    "role": "assistant",
    "content": f"Dear {T}",
    "refusal": None,
    "reasoning": f"{T}?",
    "annotations": [{"title": T}],
    "tool_calls": [
        {"id": "c0", "type": "function", "function": {"name": "f", "arguments": f'{{"a":"{T}"}}'}},
        {"id": "c1", "type": "custom", "custom": {"name": "g", "input": f"say {T}"}},
    ],
}


def test_a_plain_answer_is_restored_in_all_its_texts() -> None:
    body, _ = shape_plain({"choices": [{"index": 0, "message": MESSAGE}]}, "x", 1, "m")
    got = restore_body(body, WORK.pseudonyms, CLEARED)["choices"][0]["message"]
    assert got["content"] == f"Dear {NAME}"
    assert got["reasoning"] == f"{NAME}?"
    assert got["annotations"] == [{"title": NAME}]
    assert json.loads(got["tool_calls"][0]["function"]["arguments"]) == {"a": NAME}
    assert got["tool_calls"][1]["custom"]["input"] == f"say {NAME}"
    assert T not in json.dumps(got, ensure_ascii=False)
    untouched = {key: value for key, value in body.items() if key != "choices"}
    assert untouched.items() <= restore_body(body, WORK.pseudonyms, CLEARED).items()


def test_a_plain_answer_without_tokens_is_the_same() -> None:
    body, _ = shape_plain({"choices": [{"message": {"content": "hi"}}]}, "x", 1, "m")
    assert restore_body(body, WORK.pseudonyms, CLEARED) == body
    assert restore_body({"error": {}}, WORK.pseudonyms, CLEARED) == {"error": {}}
