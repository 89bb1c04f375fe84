"""Identifiers of people and their money: IBAN, payment card, e-mail address.

A shape alone proves little, so each is judged: check digits, the issuer's ranges, a domain that can
be one. Other rooms: national numbers, telephone numbers, machines, names and addresses.
"""

from __future__ import annotations

import re
from functools import cache

from conductor.core import Likelihood
from conductor.detect.context import in_fraction, in_identifier, near
from conductor.detect.rules import Rule

_GAP = r"[ .\-]?"
"""One separator between digits: how people group account and card numbers."""

# Country and length, from the SWIFT IBAN registry, release 101.
_IBAN_LENGTHS = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28
EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26
IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28
NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25
SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""

# What a machine, not a person, is found behind: `getty@tty1.service`, `logo@2x.png`, `git@host`.
_NOT_A_DOMAIN = frozenset(
    b"service socket timer target mount slice png jpg jpeg gif svg webp ico css js ts".split()
)

_CARD_SHAPES = (
    # As printed: 4-4-4-4, with 3 more for the longest, then 4-6-5 and 4-6-4.
    rf"(?:^|[^0-9])([0-9]{{4}}(?:{_GAP}[0-9]{{4}}){{3}}(?:{_GAP}[0-9]{{3}})?)(?:[^0-9]|$)",
    rf"(?:^|[^0-9])([0-9]{{4}}{_GAP}[0-9]{{6}}{_GAP}[0-9]{{4,5}})(?:[^0-9]|$)",
    r"(?:^|[^0-9])([0-9]{14,19})(?:[^0-9]|$)",
    # Grouped in any way, but only if the whole row of digits is one card: a table has many.
    r"(?:^|[^0-9 .\t\-][ .\t\-]{0,3}|[^0-9 \t][ .\-])"
    r"([0-9](?:[ \t\-]{0,3}[0-9]){13,18})"
    r"(?:[ .\t\-]{0,3}(?:$|[^0-9 .\t\-])|[ .\-][^0-9 \t])",
)

# ISO 7064 counts A as 10, Z as 35.
_LETTER_VALUES = {ord("A") + i: str(10 + i) for i in range(26)}

# Ages, hours, humidities: one row of eight in ten would pass Luhn's test.
_ROW_OF_PAIRS = re.compile(rb"(?=[0-9 \t]*[0-9]{2})[0-9]{1,2}(?:[ \t]{1,3}[0-9]{1,2}){6,}\Z")


@cache
def _iban_lengths() -> dict[str, int]:
    return {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}


def _iban_gate() -> str:
    countries = "|".join(f"{c[0]}{_GAP}{c[1]}" for c in sorted(_iban_lengths()))
    head = rf"(?:^|[^A-Za-z0-9])(?:IBAN)?(?:{countries}){_GAP}[0-9]{_GAP}[0-9]"
    return rf"(?i){head}(?:{_GAP}[A-Z0-9]){{11}}"


def _iban_pattern() -> str:
    countries = "|".join(f"{c[0]}{_GAP}{c[1]}" for c in sorted(_iban_lengths()))
    body = rf"(?:{countries}){_GAP}[0-9]{_GAP}[0-9](?:{_GAP}[A-Z0-9]){{11,29}}"
    return rf"(?i)(?:^|[^A-Za-z0-9])(?:IBAN)?({body})"


def is_iban(text: bytes, start: int, end: int) -> bool:
    """Whether an IBAN begins at `start`: the country says how long, ISO 7064 whether it is one.

    Words that follow after a space are not part of it, so only the country's length is read.
    """
    number = text[start:end].translate(None, b" .-").decode("ascii").upper()
    length = _iban_lengths().get(number[:2])
    if length is None:
        return False
    number = number[:length]
    if int((number[4:] + number[:4]).translate(_LETTER_VALUES)) % 97 != 1:
        return False
    from stdnum import iban

    return bool(iban.is_valid(number, check_country=False))


def is_iban_anywhere(text: bytes, start: int, end: int) -> bool:
    """`is_iban`, also for one that begins in the middle of a word: then it must stand without gaps,
    and not within a hexadecimal digest."""
    before = text[max(0, start - 4) : start]
    if before[-1:].isalnum() and before.upper() != b"IBAN":
        length = _iban_lengths().get(text[start : start + 2].decode("ascii"))
        if length is None or end - start < length:
            return False
        if _inside_other_number(text, start, start + length):
            return False
    return is_iban(text, start, end)


def has_issuer(number: str) -> bool:
    """Whether a card network issues numbers of this beginning and length (ISO/IEC 7812).

    Visa's 13 digits are left out: none is in use, and every German article number looks like one.
    """
    two, three, four, length = int(number[:2]), int(number[:3]), int(number[:4]), len(number)
    if number[0] == "4":  # Visa
        return length in (16, 19)
    if 51 <= two <= 55 or 2221 <= four <= 2720 or 2200 <= four <= 2204:  # Mastercard, Mir
        return length == 16
    if two in (34, 37):  # American Express
        return length == 15
    if 300 <= three <= 305 or three == 309 or two in (36, 38, 39):  # Diners Club
        return length in (14, 16, 19)
    if 3528 <= four <= 3589 or two in (60, 62, 64, 65, 81, 82):  # JCB, Discover, UnionPay, RuPay
        return 16 <= length <= 19
    return (
        four in (5018, 5020, 5038, 5893, 6304, 6759, 6761, 6762, 6763) and length >= 16
    )  # Maestro


def is_payment_card(text: bytes, start: int, end: int) -> bool:
    """Whether these digits are a card: an issuer's range, Luhn, and not part of something else."""
    number = text[start:end].translate(None, b" \t.-").decode("ascii")
    if not has_issuer(number) or _ROW_OF_PAIRS.match(text, start, end):
        return False
    from stdnum import luhn

    return bool(luhn.is_valid(number)) and not _inside_other_number(text, start, end)


def _inside_other_number(text: bytes, start: int, end: int) -> bool:
    """Decimals of a fraction, a piece of a hexadecimal digest, or of a UUID."""
    plain = end - start >= 14 and text[start:end].isdigit()
    return (plain and in_fraction(text, start, end)) or in_identifier(text, start, end)


_CARD_WORDS = (
    "card", "visa", "mastercard", "amex", "credit", "debit", "cvv", "cvc", "pan", "karte",
    "kreditkarte", "carta", "carte", "tarjeta", "bancaria", "bancaire", "maestro",
)  # fmt: skip
_is_called_card = near(_CARD_WORDS)


def weigh_card(text: bytes, start: int, end: int) -> Likelihood | None:
    """As printed or called one: very likely. A bare row of digits: likely."""
    printed = re.fullmatch(
        rb"[0-9]{4}(?:[ \-][0-9]{4,6}){2,3}(?:[ \-][0-9]{1,3})?", text[start:end]
    )
    called = printed or _is_called_card(text, start, end)
    return Likelihood.VERY_LIKELY if called else Likelihood.LIKELY


def iban_extent(text: bytes, start: int, end: int) -> tuple[int, int]:
    """An IBAN without the words that follow: as many letters and digits as its country says."""
    left = _iban_lengths()[re.sub(rb"[ .\-]", b"", text[start : start + 3])[:2].decode().upper()]
    for position in range(start, end):
        left -= text[position : position + 1].isalnum()
        if not left:
            return start, position + 1
    return start, end


def is_email(text: bytes, start: int, end: int) -> bool:
    """Whether `local@domain` can be somebody's address rather than a unit, a file or a remote."""
    local, _, domain = text[start:end].partition(b"@")
    if domain.rpartition(b".")[2].lower() in _NOT_A_DOMAIN:
        return False
    return not (local.lower() == b"git" and text[end : end + 1] in (b":", b"/"))


def iban_rules() -> tuple[Rule, ...]:
    """An IBAN as a word of its own, and a plain one that some other word runs into."""
    run_into = r"[A-Z]{2}[0-9]{2}[A-Z]{0,4}[0-9]{10}"
    gate = f"(?:{_iban_gate()})|{run_into}"
    patterns = (_iban_pattern(), f"({run_into}[A-Z0-9]{{0,20}})")
    return (Rule("iban", gate, patterns, is_iban_anywhere, extent=iban_extent, look_inside=True),)


def identifier_rules() -> tuple[Rule, ...]:
    """The rules of this room."""
    word = r"[A-Za-z0-9._%+'\-]"
    label = r"[A-Za-z0-9\-\x80-\xff]"
    return (
        *iban_rules(),
        Rule(
            "payment_card",
            r"[0-9](?:[ \t.\-]{0,3}[0-9]){13}",
            _CARD_SHAPES,
            is_payment_card,
            weigh_card,
            look_inside=True,
        ),
        Rule(
            "email",
            rf"{word}@{label}+\.",
            (rf"{word}{{1,64}}@(?:{label}{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}",),
            is_email,
        ),
    )
