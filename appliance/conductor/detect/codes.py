"""Texts whose characters are written as numbers: hexadecimal, octal, decimal, binary, base 32.

Rows of codes may be separated by anything that people and programs put between numbers. Sources:
RFC 4648 (base 32), RFC 2045 section 6.7 (quoted-printable).
"""

from __future__ import annotations

import base64
import binascii
import re
import string
from collections.abc import Callable, Mapping

_BETWEEN = r"[ ,;:\-\r\n\t|]{1,3}"

PATTERNS: Mapping[str, str] = {
    "spaced_hex": rf"(?:(?:0x|\\x)?[0-9A-Fa-f]{{2}}{_BETWEEN}){{7,}}(?:0x|\\x)?[0-9A-Fa-f]{{2}}",
    "octal": r"(?:\\[0-3][0-7]{2}){8,}",
    "decimal": rf"(?:[0-9]{{2,3}}{_BETWEEN}){{9,}}[0-9]{{2,3}}",
    "binary": rf"(?:[01]{{7,8}}(?:{_BETWEEN})?){{9,}}[01]{{7,8}}",
    "quoted": r"(?:=[0-9A-Fa-f]{2}(?:=\r?\n)?){8,}",
    "base32": r"[A-Z2-7]{24,}|[a-z2-7]{24,}",
}
"""RE2 patterns of a row in each writing."""

_WRITTEN = b" ,.@-_\r\n" + (string.ascii_letters + string.digits).encode()
_MOST_MARKS = 0.15
"""Of a text: the share of characters that are neither letters and digits nor common marks."""

_HEX_FILLING = re.compile(rb"0x|\\x|[^0-9A-Fa-f]")
_NUMBER = re.compile(rb"[0-9]+")
_BYTE = re.compile(rb"[01]{8}")
_SEVEN_BITS = re.compile(rb"[01]+")


def _octal(row: bytes) -> bytes:
    return bytes(int(code, 8) for code in _NUMBER.findall(row))


def _decimal(row: bytes) -> bytes:
    """Nothing for a table of numbers: as characters, most of them are marks, and by chance a few
    are an address."""
    data = bytes(code for number in _NUMBER.findall(row) if (code := int(number)) < 256)
    marks = len(data.translate(None, _WRITTEN))
    return data if marks < len(data) * _MOST_MARKS else b""


def _binary(row: bytes) -> bytes:
    groups = _SEVEN_BITS.findall(row)
    if len(groups) == 1:
        groups = _BYTE.findall(row)
    return bytes(int(group, 2) for group in groups if len(group) <= 8)


def _quoted(row: bytes) -> bytes:
    return binascii.a2b_qp(row)


def _base32(row: bytes) -> bytes:
    """Cut to whole characters: three digits, or six, or one, over a multiple of eight say none."""
    whole = len(row) // 8 * 8
    rest = {2: 2, 3: 2, 4: 4, 5: 5, 6: 5, 7: 7}.get(len(row) - whole, 0)
    text = row.upper()[: whole + rest]
    return base64.b32decode(text + b"=" * (-len(text) % 8))


READERS: Mapping[str, Callable[[bytes], bytes]] = {
    "octal": _octal,
    "decimal": _decimal,
    "binary": _binary,
    "quoted": _quoted,
    "base32": _base32,
}
"""From a row to its bytes. `spaced_hex` is read with the other hexadecimal."""


def hex_digits(row: bytes) -> bytes:
    """The digits of a row of hexadecimal codes."""
    return _HEX_FILLING.sub(b"", row)
