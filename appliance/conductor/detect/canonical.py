"""Canonical views: what a text says once its disguises are taken off.

`fold` undoes what looks the same to a reader (full width, zero width, look-alike letters); the
squeezes undo what merely spreads a token out (line breaks, spaces, dashes). Only shadow copies are
changed, never what is sent on. Left out: the Unicode confusables skeleton, because it folds I, l
and 1 into one and so hides keys instead of finding them.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any

BREAK = "\x1e"
"""Stands between unrelated texts of one document. Rules never match across it."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\t\n\r" + BREAK)

# Letters of other scripts that are drawn like a Latin one, case preserved.
_ALIKE = dict(
    zip(
        "АВЕЅІЈКМНОРСТУХԌԚԜѴҮаеѕіјкорсухһԁԛԝѵүв"  # Cyrillic
        "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυχϲϳω"  # Greek
        "ՍՕԼօոսհցԱ"  # Armenian
        "ᎪᏴᏟᎬᏀᎻᎫᏦᏞᎷᏢᏚᎢᏙᎳᏃ"  # Cherokee
        "ıɡɑʟɪ"
        "‐‑‒–—―−﹘⁃֊᠆・·。．⁄∕∶꞉",
        "ABESIJKMHOPCTYXGQWVYaesijkopcyxhdqwvyb"
        "ABEZHIKMNOPTYXaiknopuxcjw"
        "UOLonuhgU"
        "ABCEGHJKLMPSTVWZ"
        "igali"
        "-----------....//::",
        strict=True,
    )
)


# Ranges that mirror a stretch of ASCII but do not decompose to it: first, last, what the first
# stands for. Tags and variation selectors are unseen, and carry text all the same.
_MIRRORS = (
    (0xE0020, 0xE007E, " "),
    (0xE0110, 0xE016E, " "),
    (0x1F1E6, 0x1F1FF, "A"),  # regional indicators: flags
    (0x1F150, 0x1F169, "A"),  # white on black, round and square
    (0x1F170, 0x1F189, "A"),
    (0x2776, 0x277E, "1"),
    (0x24FF, 0x24FF, "0"),
)

_PUNCTUATION = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_INLINE_TAG = re.compile(
    rb"<(?:/?(?:a|b|bdo|code|em|font|i|mark|s|small|span|strong|sub|sup|tt|u|wbr)\b[^<>]{0,200}"
    rb"|!--[^<>]{0,200}--)>",
    re.IGNORECASE,
)
_CONCATENATION = re.compile(rb"[\"'][ \t\r\n]{0,8}\+[ \t\r\n]{0,8}[\"']")
_EMPHASIS = (b"**", b"__", b"~~", b"`")
_BRACKETED_AT = rb"(?i)[\[({<][ \t]?at[ \t]?[\])}>]"
_SPOKEN_AT = re.compile(rb"[ \t]?[\[({<][ \t]?at[ \t]?[\])}>][ \t]?", re.IGNORECASE)
_SPOKEN_DOT = re.compile(rb"[ \t]?[\[({<][ \t]?(?:dot|\.)[ \t]?[\])}>][ \t]?", re.IGNORECASE)

_LONGEST = 4
"""Ligatures of whole words (U+FDFA is 18 characters) stay: a text could grow elevenfold."""


_REMEMBERED = 50_000
"""Characters whose folding is kept: more than any language has, less than Unicode."""


class _Folding(dict[int, str]):
    """Code point to its folded form, worked out once for each that occurs."""

    def __missing__(self, code: int) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        folded = self[code] = _fold_character(chr(code))
        return folded


_FOLDING = _Folding()


def _fold_character(character: str) -> str:
    """What one character stands for: possibly nothing, possibly several characters."""
    code = ord(character)
    for first, last, stands_for in _MIRRORS:
        if first <= code <= last:
            return chr(ord(stands_for) + code - first)
    if code in (0x2028, 0x2029, 0x85):
        return "\n"
    if code in (0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800, 0x180E):  # blank letters
        return ""
    parts = unicodedata.normalize("NFKD", character)
    if len(parts) > _LONGEST:
        return character
    return "".join(map(_fold_part, parts))


def _fold_part(character: str) -> str:
    """One character of a compatibility decomposition (Unicode Standard Annex 15)."""
    category = unicodedata.category(character)
    if category in ("Mn", "Me", "Cf", "Cc", "Cs"):
        return "" if category != "Cc" or character > "\x7f" else character
    if category == "Zs":
        return " "
    if category == "Nd":
        return str(unicodedata.decimal(character))
    return _ALIKE.get(character, character)


def fold(text: bytes) -> bytes:
    """UTF-8 text in plain characters where it has any; quick when all are plain already.

    Tag characters, full width, ligatures, accents, invisible characters, control characters,
    foreign digits and look-alike letters are folded; letters of other scripts stay.
    """
    if not text.isascii():
        decoded = text.decode("utf-8", "ignore")
        folded = _NOT_ASCII.sub(lambda run: run.group().translate(_FOLDING), decoded)
        text = folded.encode("utf-8", "ignore")
    return text.translate(None, _CONTROLS)


def unwrap(text: bytes) -> bytes:
    """Lines joined: what was wrapped in the middle is whole again."""
    return text.translate(None, b"\r\n")


def squeeze(text: bytes) -> tuple[bytes, bytes]:
    """The text without white space, and without dashes, dots and underscores either.

    `A K I A` is `AKIA`, and so are `AK-IA` and `"AK" + "IA"`. Only for what no sentence can turn
    into by this.
    """
    compact = text.translate(None, b" \t\r\n")
    return compact, compact.translate(None, _PUNCTUATION)


def undressed(text: bytes) -> bytes:
    """The text as shown: without mark-up within words, literals put together, `[at]` read aloud."""
    if b"<" in text:
        text = _INLINE_TAG.sub(b"", text)
    if _may_speak(text) and _bracketed_at().search(text):
        text = _SPOKEN_DOT.sub(b".", _SPOKEN_AT.sub(b"@", text))
    if b"+" in text:
        text = _CONCATENATION.sub(b"", text)
    for mark in _EMPHASIS:
        if mark[:1] in text:  # one byte is sought ten times as fast as two
            text = text.replace(mark, b"")
    return text


def _may_speak(text: bytes) -> bool:
    return any(mark in text for mark in (b"[", b"(", b"{", b"<"))


@cache
def _bracketed_at() -> Any:
    """Compiled by RE2, which reads a page without brackets three times as fast as `re`."""
    import re2

    return re2.compile(_BRACKETED_AT)


def overridden(text: bytes) -> bool:
    """Whether a right-to-left override (U+202E) has some of the text shown backwards."""
    return not text.isascii() and b"\xe2\x80\xae" in text
