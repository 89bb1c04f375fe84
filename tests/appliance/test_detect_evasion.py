"""Twenty-one disguises of four things: nearly all are seen through, and prose looks like none."""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Callable
from urllib.parse import quote

from conductor.core import Likelihood
from conductor.detect.scan import scan_value
from support.ordinary_text import PROSE

THINGS = {
    "secret.aws": "AKIAIOSFODNN7EXAMPLE",
    "iban": "DE89370400440532013000",
    "marking.us.secret": "SECRET//NOFORN",
    "email": "jane.doe@example.com",
}
BAR = 76
"""Of 84: what a hand-written prototype of these views reached."""


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def full_width(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def homoglyphs(text: str) -> str:
    return text.translate(str.maketrans("AEOCPSaeocp", "АЕОСРЅаеоср"))


TRANSFORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "zero width": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "word joiners": "\u2060".join,
    "variation selectors": "\ufe0f".join,
    "combining marks": "\u0335".join,
    "bidi controls": lambda s: f"\u2067{s}\u2069",
    "tag characters": lambda s: "".join(chr(0xE0000 + ord(c)) for c in s),
    "full width": full_width,
    "homoglyphs": homoglyphs,
    "base64": lambda s: b64(f"so: {s} :so"),
    "base64url": lambda s: base64.urlsafe_b64encode(f"so: {s} :so".encode()).decode().rstrip("="),
    "base64 twice": lambda s: b64(b64(f"so: {s} :so")),
    "hexadecimal": lambda s: s.encode().hex(),
    "percent": lambda s: "".join(f"%{b:02x}" for b in s.encode()),
    "entities": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "unicode escapes": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "deflated": lambda s: base64.b64encode(zlib.compress(f"so: {s} :so".encode())).decode(),
    "spaced letters": " ".join,
    "joined lines": lambda s: f"{s[:7]}\n{s[7:]}",
    "entities in percent": lambda s: quote(html.escape("".join(f"&#{ord(c)};" for c in s))),
}


def found(text: str) -> set[str]:
    scan = scan_value({"messages": [{"role": "user", "content": text}]})
    return {f.detector for f in scan.findings if f.likelihood >= Likelihood.POSSIBLE}


def test_nearly_all_disguises_are_seen_through() -> None:
    assert len(TRANSFORMS) == 21
    missed = [
        (name, kind)
        for name, transform in TRANSFORMS.items()
        for kind, thing in THINGS.items()
        if kind not in found(f"see\n{transform(thing)}\nthere")
    ]
    assert 84 - len(missed) >= BAR, missed


def test_ordinary_prose_holds_none_of_them() -> None:
    lines = [line for line in PROSE.splitlines() if line.strip()]
    assert [line for line in lines if not found(line).isdisjoint(THINGS)] == []
