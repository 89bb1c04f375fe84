"""Things in pieces that a reader puts together: letters of a list, wrapped lines, turns."""

from __future__ import annotations

import json

import pytest

from conductor.core import Likelihood
from conductor.detect.scan import scan_value
from support.attacks_secrets import KINDS, Mint
from support.places import Body, user

MINT = Mint(5)
SECRETS = {kind: MINT.make(kind).text for kind in KINDS}


def told(body: object) -> set[str]:
    found = scan_value(body).findings
    return {one.detector for one in found if one.likelihood >= Likelihood.POSSIBLE}


@pytest.mark.parametrize("kind", SECRETS)
def test_letter_by_letter_in_a_list(kind: str) -> None:
    letters = json.dumps([*SECRETS[kind]])
    assert told({"letters": [*SECRETS[kind]]})
    for text in (letters, f"Pay {letters} now", json.dumps(letters), letters.replace('"', "'")):
        assert told(user(text)), text


@pytest.mark.parametrize("kind", SECRETS)
def test_spaced_letters_beside_whatever_mark(kind: str) -> None:
    spaced = " ".join(SECRETS[kind])
    for text in (spaced, f"({spaced})", f"to: {spaced}.", f"a\n{spaced}\nb"):
        assert told({"messages": [*user(text)["messages"], *user("And now?")["messages"]]}), text


def test_a_tax_code_that_is_wrapped_or_grouped() -> None:
    code = SECRETS["id"]
    for text in (f"{code[:7]}\n{code[7:]}", "-".join(code), f"{code[:5]} {code[5:11]} {code[11:]}"):
        assert "id.it.codicefiscale" in told(user(f"It is {text} so"))


def turns(*texts: str) -> Body:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("pieces", [2, 3])
def test_what_is_said_before_and_after_hides_no_seam(kind: str, pieces: int) -> None:
    secret = SECRETS[kind]
    size = -(-len(secret) // pieces)
    parts = [secret[at : at + size] for at in range(0, len(secret), size)]
    assert told(turns("Look at this.", *parts, "And now?"))
    assert told(turns(*parts, "word " * 400))
    assert told(turns("word " * 400, *parts))


def test_texts_alone_follow_one_another() -> None:
    code = SECRETS["id"]
    assert "id.it.codicefiscale" in told([code[:8], code[8:]])


ORDINARY = {
    "letters of a word list": ["a", "b", "c", "d", "e", "f", "g", "h", "i"],
    "options": user('Choose one of "A", "B", "C", "D", "E", "F", "G", "H", "I" or none.'),
    "a long number cut by a seam": turns("0.4532015112830366 " + "x" * 60, "and", "so", "on"),
    "numbers at the ends": turns("It was 4.5320151", "12830366 are here", "and 17 there"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_pieces_give_no_finding(name: str) -> None:
    assert told(ORDINARY[name]) == set()
