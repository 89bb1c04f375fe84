"""Disguises that a model reads as easily as plain text: what attackers do to a secret first.

Those of two more layers and those that only some secrets bear are in `test_attack_spellings.py`.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import zlib
from collections.abc import Callable
from urllib.parse import quote

Disguise = Callable[[str], str]

_ALIKE = str.maketrans("AEOCPSXTHaeocpsx", "АЕОСРЅХТНаеосрѕх")


def _base64(text: str) -> str:
    return base64.b64encode(f"so: {text} :so".encode()).decode()


def _shifted(first: str, last: str, to: int) -> Disguise:
    """Each character of a range moved to one that starts at `to`."""
    return lambda s: "".join(chr(to + ord(c) - ord(first)) if first <= c <= last else c for c in s)


def _by_byte(form: str, between: str = "") -> Disguise:
    return lambda s: between.join(form.format(byte) for byte in s.encode())


DISGUISES: dict[str, Disguise] = {
    "plain": str,
    "in quotes": '"{}"'.format,
    # Characters that are not seen, or look like others.
    "zero width": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "word joiners": "\u2060".join,
    "variation selectors": "\ufe0f".join,
    "combining marks": "\u0335".join,
    "bidi controls": "\u2067{}\u2069".format,
    "right to left": lambda s: f"\u202e{s[::-1]}\u202c",
    "tag characters": lambda s: "".join(chr(0xE0000 + ord(c)) for c in s),
    "full width": _shifted("!", "~", 0xFF01),
    "homoglyphs": lambda s: s.translate(_ALIKE),
    "homoglyphs and zero width": lambda s: "\u200b".join(s.translate(_ALIKE)),
    "Arabic digits": _shifted("0", "9", 0x660),
    "mathematical digits": _shifted("0", "9", 0x1D7CE),
    "flags": _shifted("A", "Z", 0x1F1E6),
    # Encodings.
    "base64": _base64,
    "base64 for URLs": lambda s: _base64(s).replace("+", "-").replace("/", "_").rstrip("="),
    "base64 twice": lambda s: _base64(_base64(s)),
    "base64 of hexadecimal": lambda s: _base64(s.encode().hex()),
    "base64, UTF-16": lambda s: base64.b64encode(f"so: {s} :so".encode("utf-16-le")).decode(),
    "base64 of full width": lambda s: _base64(_shifted("!", "~", 0xFF01)(s)),
    "base 32": lambda s: base64.b32encode(s.encode()).decode(),
    "hexadecimal": lambda s: s.encode().hex(),
    "hexadecimal, spaced": _by_byte("{:02x}", " "),
    "percent": _by_byte("%{:02x}"),
    "percent, twice": _by_byte("%25{:02X}"),
    "quoted-printable": _by_byte("={:02X}"),
    "decimal codes": _by_byte("{}", " "),
    "binary": _by_byte("{:08b}", " "),
    "octal escapes": _by_byte("\\{:03o}"),
    "Unicode escapes": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "entities": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "entities in percent": lambda s: quote(html.escape("".join(f"&#{ord(c)};" for c in s))),
    "deflated": lambda s: base64.b64encode(zlib.compress(f"so: {s} :so".encode())).decode(),
    "gzip in hexadecimal": lambda s: gzip.compress(s.encode(), mtime=0).hex(),
    "data URL": lambda s: f"data:text/plain;base64,{_base64(s)}",
    # Pieces.
    "spaced letters": " ".join,
    "two lines": lambda s: f"{s[:7]}\n{s[7:]}",
    "concatenated": lambda s: "' + '".join(s[i : i + 4] for i in range(0, len(s), 4)),
    "mark-up between": lambda s: "<b></b>".join(s[i : i + 4] for i in range(0, len(s), 4)),
    "bold between": lambda s: "**".join(s[i : i + 4] for i in range(0, len(s), 4)),
    "JSON in a string": lambda s: json.dumps({"a": json.dumps({"b": [s]})}),
    "letter by letter in JSON": lambda s: json.dumps([*s]),
    "codes in JSON": lambda s: json.dumps([*s.encode()]),
}
