"""Nothing fires on ordinary text: every false hit keeps a harmless request off the best worker."""

from __future__ import annotations

import base64
import binascii
import random
import uuid
from collections.abc import Callable

import pytest

from conductor.core import Likelihood, Scan
from conductor.detect.scan import scan_value
from support.ordinary_text import CODE, EVERYTHING, PROSE, RECORDS


def kinds(value: object) -> set[str]:
    """What is found that a policy counts unless it says otherwise."""
    return told(scan_value(value))


def told(scan: Scan) -> set[str]:
    return {f.detector for f in scan.findings if f.likelihood >= Likelihood.POSSIBLE}


@pytest.mark.parametrize("line", [line for line in EVERYTHING.splitlines() if line.strip()])
def test_a_line_of_ordinary_text_gives_no_finding(line: str) -> None:
    scan = scan_value({"messages": [{"role": "user", "content": line}]})
    assert (told(scan), scan.unscanned) == (set(), ())


@pytest.mark.parametrize("text", [PROSE, RECORDS, CODE, EVERYTHING])
def test_a_page_of_ordinary_text_gives_no_finding(text: str) -> None:
    scan = scan_value({"messages": [{"role": "user", "content": text}]})
    assert (told(scan), scan.unscanned) == (set(), ())


def test_lines_of_ordinary_text_as_messages_give_no_finding() -> None:
    messages = [{"role": "user", "content": line} for line in PROSE.splitlines()]
    scan = scan_value({"messages": messages})
    assert (told(scan), scan.unscanned) == (set(), ())


def test_a_thousand_identifiers_give_no_finding() -> None:
    draw = random.Random(3)
    rows = [
        {
            "id": str(uuid.UUID(int=draw.getrandbits(128), version=4)),
            "commit": draw.randbytes(20).hex(),
            "digest": "sha256:" + draw.randbytes(32).hex(),
            "at": 1_700_000_000_000_000 + draw.randrange(10**12),
            "order": f"{draw.randrange(10**10):010}",
            "score": draw.random(),
        }
        for _ in range(1000)
    ]
    scan = scan_value({"messages": [{"role": "user", "content": str(rows)}], "metadata": rows})
    # One order number in a hundred has the check digit of somebody's number, somewhere in Europe.
    assert {f.detector for f in scan.findings if f.likelihood >= Likelihood.LIKELY} == set()


@pytest.mark.parametrize("encode", [base64.b64encode, base64.encodebytes, binascii.hexlify])
def test_random_bytes_encoded_are_neither_a_finding_nor_unscanned(
    encode: Callable[[bytes], bytes],
) -> None:
    blob = encode(random.Random(5).randbytes(2_000_000)).decode()
    scan = scan_value({"messages": [{"role": "user", "content": blob}]})
    assert (told(scan), scan.unscanned) == (set(), ())


def test_tool_definitions_that_speak_of_secrets_give_no_finding() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "rotate_api_key",
            "description": "Rotates the api key; password: the account's password.",
            "parameters": {
                "type": "object",
                "properties": {
                    "password": {"type": "string", "minLength": 8, "format": "password"},
                    "content": {"type": "array", "items": {"type": "image"}},
                    "email": {"type": "string", "format": "email"},
                },
                "required": ["password", "email"],
            },
        },
    }
    scan = scan_value({"messages": [{"role": "user", "content": "go on"}], "tools": [tool]})
    assert (told(scan), scan.unscanned) == (set(), ())


@pytest.mark.parametrize("heading", ["ASIA PACIFIC REGION REPORT", "ASIA-PACIFIC SALES OVERVIEW 2"])
def test_a_heading_in_capitals_is_no_key(heading: str) -> None:
    assert kinds({"content": heading}) == set()


def test_a_key_without_a_digit_is_found_where_it_stands_whole() -> None:
    assert kinds({"content": "use ASIA" + "QWERTZUIOPASDFGH" + " for it"}) == {"secret.aws"}
