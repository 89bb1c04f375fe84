"""Decodings: what a text says in base64, in codes, in escapes, or letter by letter.

`decode` gives what is hidden in a text, one layer down; the caller repeats it for the next layer.
A blob that decodes to no text (an image) gives nothing, and that is no fault. All blobs of a text
are decoded in one go, because a page of source code holds thousands of words that could be base64.
"""

from __future__ import annotations

import binascii
import html
import re
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

from conductor.detect.canonical import BREAK
from conductor.detect.codes import PATTERNS, READERS, hex_digits
from conductor.detect.rules import ALWAYS, fired

_ESCAPE = re.compile(
    rb"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2}))"
)
_BETWEEN_PIECES = b"=\"'\\ \t\r\n,."
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_BASE64_ONLY = bytes(
    _URL_SAFE[byte] if chr(byte).isascii() and (chr(byte).isalnum() or byte in b"+/-_") else 32
    for byte in range(256)
)
_LETTER = re.compile(rb"[\"']([!-~])\\*[\"']")
_AFTER_LETTER = re.compile(rb"([!-~])[ \t\-_.]")
_DEFLATED = (b"H4sI", b"eJ", b"eA", b"eF", b"eN")
_DEFLATED_HEX = (b"1f8b08", b"7801", b"785e", b"789c", b"78da")
"""How gzip (RFC 1952) and zlib (RFC 1950) begin in base64 and in hexadecimal."""

_LARGE = 4096
"""From this many characters on a blob is seldom text, and needs longer runs to count as such."""

_CHARACTER = (
    r"(?:[\t\n\r -~]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
)
_WIDE = r"(?:[\t\n\r -~]\x00{1,3}){8,}|(?:\x00{1,3}[\t\n\r -~]){8,}"
"""UTF-16 and UTF-32, either end first."""

_PATTERNS = {
    **PATTERNS,
    "escaped": r"%[0-9A-Fa-f]{2}|&(?:#|[A-Za-z]{2})|\\[uUx][0-9A-Fa-f{]",
    # Both alphabets of RFC 4648; wrapped: over several lines.
    "base64": r"[A-Za-z0-9+/_\-]{16}",
    "wrapped": r"[A-Za-z0-9+/_\-]{16,}(?:=?\r?\n[ \t]*[A-Za-z0-9+/_\-]{4,})+",
    # A literal in pieces: `"SVQ2" + "MFgw"`, or a list of them.
    "pieces": r"[A-Za-z0-9+/_\-]{4,}=?(?:[\"'\\]+[ \t\r\n,+.]{1,8}[\"'\\]+[A-Za-z0-9+/_\-]{2,})+",
    "hex": r"[0-9A-Fa-f]{16,}",
    "spaced": r"(?:^|[^0-9A-Za-z])(?:[!-~][ \t\-_.]){7,}[!-~](?:[^0-9A-Za-z]|$)",
    # A list of letters within other text, which so is no JSON: `["I", "T", "6", "0"]`.
    "letters": r"(?:\\*[\"'][!-~]\\*[\"'][ \t\r\n]{0,4},[ \t\r\n]{0,4}){7,}\\*[\"'][!-~]\\*[\"']",
    # RFC 2397; the second group is the payload. A dozen bytes hold no picture: that is a template.
    "data_head": "(?i)data:",
    "data_url": r"(?i)data:([\w.+\-]+/[\w.+\-]+)?(?:;[\w.+=\"\-]+)*,([A-Za-z0-9+/_\-=%]{16,})",
    # What counts as text among decoded bytes.
    "text": rf"{_WIDE}|{_CHARACTER}{{10,}}",
    "long_text": rf"{_WIDE}|{_CHARACTER}{{24,}}",
}
_SOUGHT = ("escaped", "base64", "wrapped", "pieces", "hex", "spaced", "letters", *PATTERNS)
_TEXT_TYPE = re.compile(rb"(?i)(?:text/.*|application/(?:json|xml|yaml)|image/svg\+xml|)\Z")


class TooLarge(Exception):
    """Decoding gave more text than allowed: the rest was not read."""


@cache
def _pattern(name: str) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(_PATTERNS[name].encode("latin-1"), options)


@cache
def _gates() -> Any:
    """One set that says which of `_SOUGHT` occur: most texts hold none."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    gates = re2.Set.SearchSet(options)
    gates.Add(ALWAYS)
    for name in _SOUGHT:
        gates.Add(_PATTERNS[name].encode("latin-1"))
    gates.Compile()
    return gates


def _every(name: str, text: bytes) -> Iterator[bytes]:
    return (match.group() for match in _pattern(name).finditer(text))


def decode(text: bytes, limit: int) -> bytes:
    """The texts hidden in `text`, one layer down, with a break between each two.

    Raises `TooLarge` beyond `limit` bytes.
    """
    texts: list[bytes] = []
    left = limit
    for hidden in _decodings(text, limit):
        left -= len(hidden) + 1
        if left < 0:
            raise TooLarge
        texts.append(hidden)
    return BREAK.encode().join(texts)


def _decodings(text: bytes, limit: int) -> Iterator[bytes]:
    sought = {_SOUGHT[index] for index in fired(_gates(), text)}
    if "escaped" in sought:
        unescaped = _unescape(text)
        if unescaped != text:
            yield unescaped
    if "base64" in sought:
        yield from _base64(_base64_runs(text, wrapped="wrapped" in sought), limit)
    if "pieces" in sought:
        pieces = (run.translate(_URL_SAFE, _BETWEEN_PIECES) for run in _every("pieces", text))
        yield from _base64([run for run in pieces if len(run) >= 16], limit)
    if "hex" in sought:
        yield from _hex(runs := list(_every("hex", text)))
        for run in runs:
            if run.lower().startswith(_DEFLATED_HEX):
                packed = binascii.unhexlify(run[: len(run) // 2 * 2])
                yield from _readable(_inflate(packed, limit), "text")
    if "spaced_hex" in sought:
        yield from _hex([hex_digits(row) for row in _every("spaced_hex", text)])
    if "spaced" in sought:
        yield from (_AFTER_LETTER.sub(rb"\1", row) for row in _every("spaced", text))
    if "letters" in sought:
        yield from (b"".join(_LETTER.findall(row)) for row in _every("letters", text))
    for name in sought & READERS.keys():
        rows = (READERS[name](row) for row in _every(name, text))
        yield from _readable(b"\0\0".join(rows), "text")


def _unescape(text: bytes) -> bytes:
    """HTML entities, then `\\uXXXX` and its kin, then percent encoding (RFC 3986)."""
    if b"&" in text:
        plain = html.unescape(text.decode("utf-8", "ignore"))
        text = plain.encode("utf-8", "ignore")
    if b"\\" in text:
        while b"\\\\" in text:
            text = text.replace(b"\\\\", b"\\")
        escaped = _ESCAPE.sub(_escaped_character, text).decode("utf-8", "surrogatepass")
        pairs = escaped.encode("utf-16", "surrogatepass")
        text = pairs.decode("utf-16", "ignore").encode()
    if b"%" in text:
        text = unquote_to_bytes(text.replace(b"%1e", b"").replace(b"%1E", b""))
    return text


def _escaped_character(match: re.Match[bytes]) -> bytes:
    code = int(next(group for group in match.groups() if group), 16)
    visible = code >= 0x20 or code in (0x09, 0x0A, 0x0D)
    return chr(code).encode("utf-8", "surrogatepass") if visible and code < 0x110000 else b""


def _base64_runs(text: bytes, *, wrapped: bool) -> list[bytes]:
    """The words of a text that could be base64, each once, in the standard alphabet.

    Base64 of 12 bytes and more has capitals, save once in thousands; most long words have none.
    """
    words = text.translate(_BASE64_ONLY).split()
    runs = dict.fromkeys(word for word in words if len(word) >= 16 and not word.islower())
    if wrapped:
        for lines in _every("wrapped", text):
            runs[lines.translate(_URL_SAFE, b"=\r\n \t")] = None
    return list(runs)


def _base64(runs: list[bytes], limit: int) -> Iterator[bytes]:
    """Texts in runs whose true start is not known: a word before it shifts it by up to three."""
    for group, text in _by_size(runs):
        for shift in range(4):
            parts = (run[shift:].ljust((len(run) - shift + 7) // 4 * 4, b"A") for run in group)
            yield from _readable(binascii.a2b_base64(b"".join(parts)), text)
    for run in runs:
        if run.startswith(_DEFLATED):
            packed = binascii.a2b_base64(run[: len(run) // 4 * 4])
            yield from _readable(_inflate(packed, limit), "text")


def _hex(runs: list[bytes]) -> Iterator[bytes]:
    for group, text in _by_size(runs):
        for shift in (0, 1):
            parts = (run[shift : len(run) - ((len(run) - shift) & 1)] for run in group)
            yield from _readable(b"\x00\x00".join(map(binascii.unhexlify, parts)), text)


def _by_size(runs: list[bytes]) -> Iterator[tuple[list[bytes], str]]:
    """Small and large runs apart, each with the pattern of what counts as text in them."""
    for large, text in ((False, "text"), (True, "long_text")):
        group = [run for run in runs if (len(run) >= _LARGE) is large]
        if group:
            yield group, text


def _readable(raw: bytes, pattern: str) -> Iterator[bytes]:
    """The runs of text in decoded bytes, UTF-8, UTF-16 or UTF-32."""
    return (run.replace(b"\x00", b"") for run in _every(pattern, raw))


def _inflate(packed: bytes, limit: int) -> bytes:
    """Decompress what was encoded, as far as it goes. Raises `TooLarge` beyond `limit` bytes."""
    try:
        plain = zlib.decompressobj(wbits=47).decompress(packed, limit + 1)
    except zlib.error:
        return b""
    if len(plain) > limit:
        raise TooLarge
    return plain


def holds_opaque_data(text: bytes) -> bool:
    """Whether `text` has a `data:` URL of something other than text, whatever it claims to be."""
    if _pattern("data_head").search(text) is None:
        return False
    for match in _pattern("data_url").finditer(text):
        media_type, payload = match.groups(default=b"")
        if not _TEXT_TYPE.match(media_type):
            return True
        if b";base64," in text[match.start() : match.start(2)].lower() and not _is_text(payload):
            return True
    return False


def _is_text(payload: bytes) -> bool:
    run = unquote_to_bytes(payload).translate(_URL_SAFE, b"=")
    try:
        raw = binascii.a2b_base64(run + b"=" * (-len(run) % 4))
        return b"\x00" not in raw.decode("utf-8").encode()
    except (binascii.Error, UnicodeDecodeError):
        return False
