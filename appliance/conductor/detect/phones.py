"""Telephone numbers: with their `+` anywhere, and those of some regions as they are dialled there.

Whether digits are a number that somebody may have is for Google's metadata (`phonenumbers`); the
shape, the words around and the region say how likely it is one here.
"""

from __future__ import annotations

import re

from conductor.core import Likelihood
from conductor.detect.context import in_fraction, in_identifier, in_longer_number, near
from conductor.detect.rules import Rule

_MARK = r"[ ().\-/]"
_PLUS = rf"(?:^|[^0-9A-Za-z+])(\+[1-9](?:{_MARK}{{0,3}}[0-9]){{6,14}})(?:[^0-9A-Za-z]|$)"
_ZEROS = rf"(?:^|[^0-9A-Za-z+.])(00[1-9](?:{_MARK}{{0,3}}[0-9]){{7,14}})(?:[^0-9A-Za-z]|$)"
_DIALLED = rf"(?:^|[^0-9A-Za-z+.,\-/])(\(?[0-9](?:{_MARK}{{0,2}}[0-9]){{6,12}})(?:[^0-9A-Za-z]|$)"

_WORDS = (
    "phone", "telephone", "tel", "tel.", "mobile", "cell", "cellphone", "fax", "call", "dial",
    "whatsapp", "sms", "telefon", "telefonnummer", "handy", "handynummer", "mobil", "rufnummer",
    "anrufen", "telefono", "cellulare", "cell.", "recapito", "chiamare", "chiama", "portable",
    "mobiles", "appeler", "appelez", "movil", "m\u00f3vil", "llamar", "llame", "llama",
    "tel\u00e9fono", "t\u00e9l\u00e9phone", "t\u00e9l", "telephone_number", "phone_number",
)  # fmt: skip
_told = near(_WORDS, 40)
_CALLED = (
    r"(?i)(?:tele(?:ph|f)on[eo]?|phone|tel|fax|mobile?|cell|handy|cellulare|portable|movil)"
    r"(?:[ _]?(?:number|nummer|no|nr))?[.\"']{0,2}[ :=]{1,4}[\"']?"
)
_IN_TEXT = rf"{_CALLED}(\(?[0-9](?:{_MARK}{{0,2}}[0-9]){{6,12}})(?:[^0-9A-Za-z]|$)"

_YEAR_AND_NUMBER = re.compile(rb"^(?:19|20)[0-9]{2}/|/(?:19|20)[0-9]{2}(?![0-9])")


def _valid(number: str, region: str | None) -> bool:
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False


def _number(text: bytes, start: int, end: int) -> str:
    return text[start:end].decode("ascii")


def weigh_international(text: bytes, start: int, end: int) -> Likelihood | None:
    """A `+` and a number that may be somebody's are enough; `00` begins all sorts of numbers.

    A number with `+` that none has is one with a slip of the pen, if it is called a number.
    """
    number, told = _number(text, start, end), _told(text, start, end)
    if number.startswith("+"):
        if _valid(number, None):
            return Likelihood.VERY_LIKELY
        return Likelihood.LIKELY if told else None
    if _is_part(text, start, end) or not _valid("+" + number[2:], None):
        return None
    return Likelihood.VERY_LIKELY if told else Likelihood.POSSIBLE


def _is_part(text: bytes, start: int, end: int) -> bool:
    return in_longer_number(text, start, end) or in_fraction(text, start, end)


def phone_rules() -> tuple[Rule, ...]:
    """The rules that hold in every region."""
    return (
        Rule("phone", _PLUS, (_PLUS,), weigh=weigh_international),
        Rule("phone", _ZEROS, (_ZEROS,), weigh=weigh_international),
        Rule("phone", _IN_TEXT, (_IN_TEXT,), weigh=_likely),
    )


def _likely(text: bytes, start: int, end: int) -> Likelihood | None:
    """What is called a number and is as long as one, in whatever region."""
    return Likelihood.LIKELY


def regional_rules(regions: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules for numbers as they are dialled within `regions`; none without regions."""
    if not regions:
        return ()

    def accept(text: bytes, start: int, end: int) -> bool:
        if _is_part(text, start, end):
            return False
        number = _number(text, start, end)
        return any(_valid(number, region) for region in regions) and not in_identifier(
            text, start, end
        )

    return (Rule("phone", _DIALLED, (_DIALLED,), accept, weigh_dialled, look_inside=True),)


def weigh_dialled(text: bytes, start: int, end: int) -> Likelihood | None:
    """Digits that are grouped as numbers are spoken are likelier one; a year beside a slash is that
    of a file or an order. Mobile numbers are written with a slash too (333/1234567 in Italy)."""
    if _told(text, start, end):
        return Likelihood.VERY_LIKELY
    number = text[start:end]
    grouped = not number.isdigit() and _YEAR_AND_NUMBER.search(number) is None
    if number.startswith((b"0", b"(")):
        return Likelihood.LIKELY if grouped else Likelihood.POSSIBLE
    return Likelihood.POSSIBLE if grouped else Likelihood.UNLIKELY
