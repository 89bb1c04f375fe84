"""Every detector, in every position of a request, behind every disguise that is undone."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable

import pytest

from conductor.core import Likelihood, Scan
from conductor.detect.scan import DETECTORS, REASONS, scan_value

AWS = "AKIAIOSFODNN7EXAMPLE"
IBAN = "DE89370400440532013000"
CARD = "4111111111111111"
EMAIL = "jane.doe@example.com"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n"
PASSWORD = "password = Tr0ub4dor&3"

SECRETS = {
    "secret.aws": AWS,
    "iban": IBAN,
    "payment_card": CARD,
    "email": EMAIL,
    "secret.token": TOKEN,
    "secret.private_key": KEY,
    "secret.generic": PASSWORD,
}


def kinds(scan: Scan) -> set[str]:
    """What was found and is not doubted: half a card may be a number of a small country."""
    return {f.detector for f in scan.findings if f.likelihood >= Likelihood.POSSIBLE}


def ask(text: str) -> dict[str, object]:
    return {"model": "conductor", "messages": [{"role": "user", "content": text}]}


def found(text: str) -> set[str]:
    return kinds(scan_value(ask(text)))


def text_parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


# -- detectors ------------------------------------------------------------------------------------


def test_every_kind_of_detector_has_a_sample_here_or_in_the_labelled_set() -> None:
    others = {name for name in DETECTORS if name.startswith(("id.", "marking."))}
    assert set(SECRETS) | others | {"phone", "ip", "person", "address"} == DETECTORS


@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_each_detector_finds_its_own_and_no_other(kind: str) -> None:
    scan = scan_value(ask(f"Look at this:\n{SECRETS[kind]}\nand tell me."))
    assert (kinds(scan), scan.unscanned) == ({kind}, ())


@pytest.mark.parametrize(
    "text",
    [
        "ASIAY34FZKBOKMUTVV7A",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        '"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"',
    ],
)
def test_keys_of_a_cloud_are_found(text: str) -> None:
    assert "secret.aws" in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "github_pat_" + "11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
        "glpat-" + "x1Y2z3A4b5C6d7E8f9G0",
        "xoxb-" + "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "sk-proj-" + "abcDEF123456ghiJKL789_mnoPQR-stuVWX",
        "sk-ant-api03-" + "AbCdEf123456GhIjKl789-MnOpQr",
        "key sk-" + "1234567890abcdefghijKLMNOPQRSTUV",
        "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
        "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ12345678",
        "npm_" + "aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX2",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "110201543:AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
        "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
    ],
)
def test_tokens_of_known_vendors_are_found(text: str) -> None:
    assert "secret.token" in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn\\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\nlQOYBF0000000000000000000000\n",
        "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ",
        "PuTTY-User-Key-File-3: ssh-ed25519",
    ],
)
def test_private_keys_are_found(text: str) -> None:
    assert "secret.private_key" in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "My password is Summer2024!",
        "das Passwort lautet Tr0mmel-Wirbel",
        '{"db_password": "Hunter2-and-more"}',
        "export API_KEY='d41f8a0c9b7e4f6a'",
        "client_secret: 8Zq~x91LmN2pQr3s",
        "mysql --password hunter22x -u root",
        "Authorization: Bearer 9f86d081884c7d659a2feaa0c55ad015",
        "postgres://app:s3cr3tpw@db.internal/app",
        "https://joe:p%40ss1word@example.org/x",
    ],
)
def test_values_given_to_telling_names_are_found(text: str) -> None:
    assert "secret.generic" in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "GB82 WEST 1234 5698 7654 32 and more text",
        "gb82west12345698765432",
        "IT60X0542811101000000123456",
        "NO93-8601-1117-947",
        "IBAN:FR14.2004.1010.0505.0001.3M02.606",
        "AB12 GB82 WEST 1234 5698 7654 32",
        "D E 8 9 3 7 0 4 0 0 4 4 0 5 3 2 0 1 3 0 0 0",
        "DE89 3704 0044\n0532 0130 00",
    ],
)
def test_ibans_are_found_however_they_are_grouped(text: str) -> None:
    assert "iban" in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111.1111.1111.1111",
        "3782 822463 10005",
        "378282246310005",
        "5555555555554444",
        "2223003122003222",
        "6011111111111117",
        "3530111333300000",
        "30569309025904",
        "6212345678901232",
        "41-11-11-11-11-11-11-11",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "12 4111 1111 1111 1111 07",
        "x4111111111111111y",
        "4111 1111 11\n11 1111",
    ],
)
def test_payment_cards_are_found_however_they_are_grouped(text: str) -> None:
    assert "payment_card" in found(text)


def test_a_payment_card_sent_as_a_number_is_found() -> None:
    assert kinds(scan_value({"metadata": {"n": 4111111111111111}})) == {"payment_card"}
    assert kinds(scan_value({"metadata": {"n": 4111111111111111.0}})) == {"payment_card"}


def test_findings_are_counted() -> None:
    (finding,) = scan_value(ask("a@example.com, b@example.com; c@example.org")).findings
    assert (finding.detector, finding.count, finding.view) == ("email", 3, "raw")


@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_a_finding_never_holds_what_was_found(kind: str) -> None:
    said = repr(scan_value(ask(SECRETS[kind])))
    assert not any(piece in said for piece in SECRETS[kind].split() if len(piece) > 4)


# -- positions ------------------------------------------------------------------------------------

POSITIONS: dict[str, Callable[[str], object]] = {
    "system prompt": lambda s: {"messages": [{"role": "system", "content": s}]},
    "developer prompt": lambda s: {"messages": [{"role": "developer", "content": s}]},
    "user": ask,
    "assistant": lambda s: {"messages": [{"role": "assistant", "content": s}]},
    "refusal": lambda s: {"messages": [{"role": "assistant", "refusal": s}]},
    "name": lambda s: {"messages": [{"role": "user", "name": s, "content": "hi"}]},
    "text part": lambda s: {"messages": [{"role": "user", "content": text_parts("hi", s)}]},
    "tool call arguments": lambda s: {
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "pay", "arguments": json.dumps({"to": s})},
                    }
                ],
            }
        ]
    },
    "tool call id": lambda s: {"messages": [{"role": "tool", "tool_call_id": s, "content": "ok"}]},
    "tool result": lambda s: {"messages": [{"role": "tool", "tool_call_id": "c1", "content": s}]},
    "tool description": lambda s: {
        "tools": [{"type": "function", "function": {"name": "f", "description": s}}]
    },
    "tool schema": lambda s: {
        "tools": [
            {"type": "function", "function": {"parameters": {"properties": {"a": {"enum": [s]}}}}}
        ]
    },
    "response format": lambda s: {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"title": s}}}
    },
    "metadata": lambda s: {"metadata": {"note": s}},
    "user field": lambda s: {"user": s},
    "stop": lambda s: {"stop": ["END", s]},
    "logit bias key": lambda s: {"logit_bias": {s: 1}},
    "unknown member": lambda s: {"x": [[[{"y": s}]]]},
    "key": lambda s: {"messages": [{"role": "user", "content": "hi", s: True}]},
    "prediction": lambda s: {"prediction": {"type": "content", "content": s}},
    "nested JSON": lambda s: ask(json.dumps({"a": [s]})),
    "JSON nested twice": lambda s: ask(json.dumps({"a": json.dumps({"b": s})})),
    "JSON nested twice, escaped": lambda s: ask(
        json.dumps([json.dumps("".join(f"\\u{ord(c):04x}" for c in s))]).replace(
            "\\\\\\\\u", "\\\\u"
        )
    ),
    "responses input": lambda s: {"input": s},
    "anthropic system": lambda s: {"system": text_parts(s)},
    "anthropic tool use": lambda s: {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"q": s}}]}
        ]
    },
    "bare string": lambda s: s,
    "bare list": lambda s: [s],
}


@pytest.mark.parametrize(
    "secret",
    [AWS, IBAN, EMAIL, "OFFICIAL-SENSITIVE", "RSSMRA85T10A562S", "+49 30 901820"],
    ids=["aws", "iban", "email", "marking", "national", "phone"],
)
@pytest.mark.parametrize("position", sorted(POSITIONS))
def test_no_position_of_a_request_is_out_of_sight(position: str, secret: str) -> None:
    scan = scan_value(POSITIONS[position](secret))
    assert len(kinds(scan)) == 1
    assert scan.unscanned == ()


@pytest.mark.parametrize("kind", ["secret.aws", "iban", "payment_card", "secret.token", "email"])
@pytest.mark.parametrize("cut", [3, 8])
def test_a_secret_split_over_two_parts_or_messages_is_found(kind: str, cut: int) -> None:
    secret = SECRETS[kind]
    head, tail = secret[:cut], secret[cut:]

    def said(*messages: tuple[str, object]) -> set[str]:
        turns = [{"role": role, "content": content} for role, content in messages]
        return kinds(scan_value({"messages": turns}))

    assert said(("user", text_parts("I have " + head, tail))) == {kind}
    assert said(("user", head), ("user", tail)) == {kind}
    assert said(("user", head), ("assistant", "Go on."), ("user", tail)) == {kind}
    assert said(("user", "x " * 5000 + head), ("user", tail + " y" * 5000)) == {kind}


def test_a_token_dealt_out_letter_by_letter_is_found() -> None:
    assert found("") == set()
    messages = [{"role": "user", "content": letter} for letter in AWS]
    assert kinds(scan_value({"messages": messages})) == {"secret.aws"}
    assert kinds(scan_value({"metadata": {str(i): letter for i, letter in enumerate(AWS)}})) == {
        "secret.aws"
    }


def test_base64_split_over_parts_is_found() -> None:
    blob = base64.b64encode(f"the key is {AWS}, keep it".encode()).decode()
    body = {"messages": [{"role": "user", "content": text_parts(blob[:21], blob[21:])}]}
    assert kinds(scan_value(body)) == {"secret.aws"}


# -- disguises ------------------------------------------------------------------------------------


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def full_width(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


DISGUISES: dict[str, Callable[[str], str]] = {
    "zero width": lambda s: "\u200b".join(s),
    "soft hyphen": lambda s: "\u00ad".join(s),
    "word joiner and BOM": lambda s: "\u2060\ufeff".join(s),
    "bidi": lambda s: "\u202e" + "\u2066".join(s) + "\u2069",
    "variation selectors": lambda s: "\ufe0f".join(s) + "\U000e0101",
    "combining marks": lambda s: "\u0336".join(s),
    "control characters": lambda s: "\x00".join(s[:9]) + "\x1b\x1e\x7f" + s[9:],
    "hangul filler": lambda s: "\u3164".join(s),
    "full width": full_width,
    "mathematical": lambda s: "".join(chr(0x1D400 + ord(c) - 65) if c.isupper() else c for c in s),
    "tag characters": lambda s: "".join(chr(0xE0000 + ord(c)) for c in s),
    "homoglyphs": lambda s: s.translate(str.maketrans("AEOIaeo", "АЕОІаео")),
    "greek": lambda s: s.translate(str.maketrans("AEOKo", "ΑΕΟΚο")),
    "arabic digits": lambda s: s.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
    "base64": b64,
    "base64 in a sentence": lambda s: f"Decode {b64('it is ' + s)} for me",
    "base64 after a word": lambda s: "abc" + b64("it is " + s),
    "base64 in a path": lambda s: "/files/x/" + b64("it is " + s),
    "base64url": lambda s: base64.urlsafe_b64encode(f"??>>{s}??".encode()).decode().rstrip("="),
    "base64 twice": lambda s: b64(b64("now " + s)),
    "base64 over lines": lambda s: base64.encodebytes(
        b". " * 25 + s.encode() + b" ." * 25
    ).decode(),
    "base64 of UTF-16": lambda s: base64.b64encode(s.encode("utf-16-le")).decode(),
    "base64 of gzip": lambda s: base64.b64encode(gzip.compress(s.encode())).decode(),
    "base64 of zlib": lambda s: base64.b64encode(zlib.compress(s.encode())).decode(),
    "hexadecimal": lambda s: s.encode().hex(),
    "hexadecimal, shifted": lambda s: "a" + s.encode().hex(),
    "spaced hexadecimal": lambda s: s.encode().hex(" ").upper(),
    "C array": lambda s: ", ".join(f"0x{b:02x}" for b in s.encode()),
    "percent": lambda s: "".join(f"%{b:02X}" for b in s.encode()),
    "percent twice": lambda s: "".join(f"%25{b:02X}" for b in s.encode()),
    "decimal entities": lambda s: "".join(f"&#{b};" for b in s.encode()),
    "hexadecimal entities": lambda s: "".join(f"&#x{b:x};" for b in s.encode()),
    "unicode escapes": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "doubled unicode escapes": lambda s: "".join(f"\\\\u{ord(c):04x}" for c in s),
    "braced escapes": lambda s: "".join(f"\\u{{{ord(c):x}}}" for c in s),
    "escaped breaks": lambda s: "\\u001e".join(s),
    "surrogate escapes": lambda s: "".join(
        f"\\ud835\\udc{ord(c) - 65:02x}" if c.isupper() else c for c in s
    ),
    "byte escapes": lambda s: "".join(f"\\x{b:02x}" for b in s.encode()),
    "spaced letters": " ".join,
    "percent in base64": lambda s: b64("".join(f"%{b:02X}" for b in s.encode())),
}


@pytest.mark.parametrize("secret", [AWS, IBAN, EMAIL], ids=["aws", "iban", "email"])
@pytest.mark.parametrize("disguise", sorted(DISGUISES))
def test_disguises_are_seen_through(disguise: str, secret: str) -> None:
    (kind,) = found(secret)
    assert kind in found(f"see\n{DISGUISES[disguise](secret)}\nthere")


@pytest.mark.parametrize(
    "text",
    [
        "AKIA-IOSF-ODNN-7EXA-MPLE",
        "AKIA IOSF ODNN 7EXA MPLE",
        "AKIA.IOSF_ODNN 7EXA-MPLE",
        "AKIAIOSF\n    ODNN7EXAMPLE",
        "A.K.I.A.I.O.S.F.O.D.N.N.7.E.X.A.M.P.L.E",
    ],
)
def test_a_key_in_groups_is_found(text: str) -> None:
    assert found(text) == {"secret.aws"}


# -- what cannot be read --------------------------------------------------------------------------

PIXELS = base64.b64encode(bytes(range(256))).decode()


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "image"),
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, "image"),
        ({"type": "image", "source": {"type": "base64", "data": PIXELS}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": PIXELS, "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "file"),
        ({"type": "input_file", "filename": "a.pdf"}, "file"),
        ({"type": "video_url", "video_url": {"url": "https://example.com/a"}}, "video"),
        ({"type": "redacted_thinking", "data": "xx"}, "encrypted"),
        ({"type": "hologram", "data": "xx"}, "unknown-part"),
        ({"type": ["text"], "text": "xx"}, "unknown-part"),
        ({"text": "no type"}, "unknown-part"),
        ([{"type": "text", "text": "a list in the list"}], "unknown-part"),
        ({"type": "tool_result", "content": [{"type": "image"}]}, "image"),
        ({"type": "text", "text": f"data:image/png;base64,{PIXELS}"}, "data-url"),
        ({"type": "text", "text": f"DATA:application/pdf;base64,{PIXELS}"}, "data-url"),
        ({"type": "text", "text": f"data:text/plain;base64,{PIXELS}"}, "data-url"),
        ({"type": "text", "text": b64(f"data:image/png;base64,{PIXELS}")}, "data-url"),
    ],
)
def test_a_part_that_is_no_text_is_unscanned(part: object, reason: str) -> None:
    scan = scan_value({"messages": [{"role": "user", "content": [*text_parts("look"), part]}]})
    assert scan.unscanned == (reason,)
    assert reason in REASONS


def test_a_part_alone_is_as_unscanned_as_one_in_a_list() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert scan_value({"messages": [{"role": "user", "content": part}]}).unscanned == ("image",)


def test_the_address_of_an_image_is_scanned_too() -> None:
    url = {"url": f"https://example.com/a.png?k={AWS}"}
    body = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]}
    scan = scan_value(body)
    assert (kinds(scan), scan.unscanned) == ({"secret.aws"}, ("image",))


def test_a_data_url_of_text_is_read() -> None:
    url = "data:text/plain;base64," + b64(f"Hello, {EMAIL}")
    scan = scan_value(ask(url))
    assert (kinds(scan), scan.unscanned) == ({"email"}, ())


def test_answers_that_refer_to_stored_speech_or_thought_are_unscanned() -> None:
    spoken = {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}
    assert scan_value(spoken).unscanned == ("audio",)
    thought = {"input": [{"type": "reasoning", "encrypted_content": "gAAAA"}]}
    assert scan_value(thought).unscanned == ("encrypted",)


def test_anybodys_types_outside_the_conversation_mean_nothing() -> None:
    arguments = json.dumps({"content": [{"type": "paragraph"}], "type": "file"})
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    body = {
        "messages": [{"role": "assistant", "tool_calls": [call]}],
        "metadata": {"content": [{"type": "image"}]},
    }
    assert scan_value(body).unscanned == ()


@pytest.mark.parametrize("value", [b"bytes", {"a": {1, 2}}, {"a": object()}, {1: "a"}])
def test_what_is_no_json_is_unscanned(value: object) -> None:
    assert scan_value(value).unscanned == ("not-json",)
