"""A secret in a disguise that a model would see through: found, or at least not taken for read."""

from __future__ import annotations

import base64
import binascii
import codecs
import gzip
import json
import random
from collections.abc import Callable
from functools import reduce

import pytest

from conductor.core import Likelihood
from conductor.detect.scan import DECODE_DEPTH, scan_value
from support.places import SECRETS, Body, user

Spelling = Callable[[str], str]

DETECTORS = {"iban": "iban", "aws": "secret.aws", "card": "payment_card", "email": "email"}


def digits(zero: int) -> Spelling:
    return lambda s: "".join(chr(zero + int(c)) if c.isdigit() else c for c in s)


def letters(first: int) -> Spelling:
    return lambda s: "".join(chr(first + ord(c) - 65) if "A" <= c <= "Z" else c for c in s)


def by_byte(form: str, between: str = "") -> Spelling:
    return lambda s: between.join(form.format(byte) for byte in s.encode())


def in_groups(between: str, size: int = 4) -> Spelling:
    return lambda s: between.join(s[i : i + size] for i in range(0, len(s), size))


def base64_of(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(f"pay {text} now".encode(encoding)).decode()


def layered(times: int) -> Spelling:
    def spell(secret: str) -> str:
        raw = f"pay {secret} now".encode()
        return reduce(lambda text, _: base64.b64encode(text), range(times), raw).decode()

    return spell


EVERY = frozenset(SECRETS)
NUMBERS = frozenset({"iban", "card"})
SPELLINGS: dict[str, tuple[Spelling, frozenset[str]]] = {
    # What looks like it.
    "Arabic digits": (digits(0x660), EVERY),
    "Devanagari digits": (digits(0x966), EVERY),
    "mathematical digits": (digits(0x1D7CE), EVERY),
    "keycaps": (lambda s: "".join(c + "\ufe0f\u20e3" if c.isdigit() else c for c in s), EVERY),
    "white on black": (
        lambda s: "".join("⓿❶❷❸❹❺❻❼❽❾"[int(c)] if c.isdigit() else c for c in s), EVERY
    ),
    "flags": (letters(0x1F1E6), EVERY),
    "squared letters": (letters(0x1F170), EVERY),
    "round letters": (letters(0x1F150), EVERY),
    # What is not seen at all.
    "tag characters": (lambda s: "".join(chr(0xE0000 + ord(c)) for c in s), EVERY),
    "variation selectors": (
        lambda s: "x" + "".join(chr(0xE0100 + byte - 16) for byte in s.encode()), EVERY
    ),
    "right-to-left override": (lambda s: f"\u202e{s[::-1]}\u202c", EVERY),
    "right-to-left marks": ("\u200f".join, EVERY),
    # Numbers for characters.
    "base 32": (lambda s: base64.b32encode(s.encode()).decode(), EVERY),
    "base 32, small": (lambda s: base64.b32encode(s.encode()).decode().lower(), EVERY),
    "hexadecimal, a line each": (by_byte("{:02x}", "\n"), EVERY),
    "octal escapes": (by_byte("\\{:03o}"), EVERY),
    "decimal codes": (by_byte("{}", " "), EVERY),
    "a list of codes as text": (lambda s: str(list(s.encode())), EVERY),
    "binary": (by_byte("{:08b}", " "), EVERY),
    "binary without spaces": (by_byte("{:08b}"), EVERY),
    "quoted-printable": (by_byte("={:02X}"), EVERY),
    "percent, four times": (by_byte("%252525{:02X}"), EVERY),
    "UTF-32 in base64": (lambda s: base64_of(s, "utf-32-le"), EVERY),
    "base64, four times": (layered(4), EVERY),
    "gzip in hexadecimal": (lambda s: gzip.compress(s.encode()).hex(), EVERY),
    "base64 in a list": (
        lambda s: json.dumps([base64_of(s)[i : i + 12] for i in range(0, 60, 12)]), EVERY
    ),
    # In pieces.
    "concatenated": (in_groups("' + '"), EVERY),
    "bold in between": (in_groups("**"), EVERY),
    "tags in between": (in_groups("<b></b>"), EVERY),
    "comments in between": (in_groups("<!-- -->"), EVERY),
    "two spaces": (in_groups("  "), NUMBERS | {"aws"}),
    "tabs": (in_groups("\t"), NUMBERS | {"aws"}),
    "slashes": (in_groups("/"), frozenset({"iban", "aws"})),
    "commas": (in_groups(","), frozenset({"iban", "aws"})),
    "a word before it": (lambda s: "account" + s, frozenset({"iban", "aws", "card"})),
    "[at]": (lambda s: s.replace("@", " [at] ").replace(".", " [dot] "), EVERY),
}  # fmt: skip
"""By name: how, and which secrets stay what they are by it."""


def findings(value: object) -> set[str]:
    return {finding.detector for finding in scan_value(value).findings}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_secret_is_found_in_every_spelling(name: str) -> None:
    spell, kinds = SPELLINGS[name]
    missed = {
        kind for kind in kinds
        if DETECTORS[kind] not in findings(user(f"Take {spell(SECRETS[kind])} and go on."))
    }  # fmt: skip
    assert missed == set()


@pytest.mark.parametrize("kind", SECRETS)
def test_what_hides_below_the_last_layer_is_not_taken_for_read(kind: str) -> None:
    scan = scan_value(user(layered(DECODE_DEPTH + 1)(SECRETS[kind])))
    assert scan.findings or "decoded-too-deep" in scan.unscanned


def arguments(value: object) -> Body:
    call = {"id": "c", "type": "function", "function": {"name": "pay"}}
    call["function"] = {"name": "pay", "arguments": json.dumps(value)}
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}


CARD, IBAN = SECRETS["card"], SECRETS["iban"]
IN_JSON: dict[str, tuple[object, str]] = {
    "card as an integer": ({"card": int(CARD)}, "payment_card"),
    "card as a negative integer": ({"card": -int(CARD)}, "payment_card"),
    "card as a float": ({"card": float(CARD)}, "payment_card"),
    "card with an exponent": (json.loads(f'{{"card": {CARD[0]}.{CARD[1:]}e15}}'), "payment_card"),
    "card with cents": ({"card": 378282246310005.25}, "payment_card"),
    "card in four strings": ({"card": in_groups(" ")(CARD).split()}, "payment_card"),
    "card in four members": (
        dict(zip("abcd", in_groups(" ")(CARD).split(), strict=True)), "payment_card"
    ),
    "card digit by digit": ({"card": [int(digit) for digit in CARD]}, "payment_card"),
    "IBAN in strings": ({"iban": in_groups(" ")(IBAN).split()}, "iban"),
    "IBAN letter by letter": ([*IBAN], "iban"),
    "IBAN in character codes": ({"text": list(IBAN.encode())}, "iban"),
    "IBAN in pieces of base64": (
        [base64_of(IBAN)[i : i + 8] for i in range(0, 60, 8)], "iban"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_JSON)
@pytest.mark.parametrize("place", [arguments, lambda value: {"metadata": value}])
def test_a_secret_is_found_in_every_shape_of_json(
    name: str, place: Callable[[object], Body]
) -> None:
    value, detector = IN_JSON[name]
    assert detector in findings(place(value))


def table(between: str, most: int = 9999) -> str:
    draw = random.Random(4)
    rows = ([str(draw.randint(1, most)) for _ in range(12)] for _ in range(4000))
    return "\n".join(between.join(row) for row in rows)


ORDINARY = {
    "boxes": {"boxes": [[412, 3301, 512, 3401], [4032, 3024, 4032, 3024]]},
    "sizes": {"w": 4032, "h": 3024, "w2": 4032, "h2": 3024},
    "pixels": {"row": [12, 200, 31, 40, 55, 61, 70, 82, 90, 101, 111, 125] * 20},
    "packages": {"needs": ["lodash@4.17.21", "react.js", "left-pad@1.3.0"]},
    "names": {"enum": ["celsius", "fahrenheit", "kelvin"]},
    "table": user("1234  5678  9012\n2345  6789  0123\n"),
    "a large table, tabs": user(table("\t")),
    "a large table, two spaces": user(table("  ")),
    "a large table of small numbers": user(table("\t", 99)),
    "a large list of bytes": {"pixels": [n * n % 251 for n in range(20_000)]},
    "flags": user("🇮🇹 beats 🇩🇪 4 to 3 after 120 minutes"),
    "emphasis": user("**Bold** and __strong__ and `code` (at noon) [at the door]"),
    "binary": user("01010101 10101010 11110000 00001111 11001100 00110011 01010101 10101010 1"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_data_of_these_shapes_gives_no_finding(name: str) -> None:
    scan = scan_value(ORDINARY[name])
    told = {f.detector for f in scan.findings if f.likelihood >= Likelihood.POSSIBLE}
    assert (told, scan.unscanned) == (set(), ())


def test_an_iban_is_counted_once_by_whatever_rule() -> None:
    scan = scan_value(user(f"from {IBAN} to account{IBAN}"))
    assert [(finding.detector, finding.count) for finding in scan.findings] == [("iban", 2)]


BEYOND: dict[str, Spelling] = {
    "rot13": lambda s: codecs.encode(s, "rot13"),
    "backwards": lambda s: s[::-1],
    "base 85": lambda s: base64.b85encode(s.encode()).decode(),
    "uuencode": lambda s: binascii.b2a_uu(s.encode()).decode(),
    "one large number": lambda s: str(int.from_bytes(s.encode(), "big")),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_no_detector_undoes_is_known_and_documented(name: str) -> None:
    """See docs/threats.md. Whoever makes one of these found moves it up, and out of there."""
    assert "iban" not in findings(user(BEYOND[name](IBAN)))


def test_a_set_of_rules_that_gives_up_is_no_clean_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    from conductor.detect import scan as module
    from conductor.detect.rules import RuleSet

    class GivesUp:
        def Match(self, text: bytes) -> list[int]:
            return []

    rules = RuleSet(())
    monkeypatch.setattr(rules, "_gates", GivesUp())
    monkeypatch.setattr(module, "rule_set", lambda: rules)
    assert scan_value(user("Hello")).unscanned == ("detector-error",)
