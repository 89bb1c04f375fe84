"""Numbers that states give to people: of the EU, of its neighbours, of the UK and of the US.

A shape first, then the check digits of python-stdnum, then the words around. How often digits
drawn at random pass decides what a number proves alone (`reference` rates: IBAN-like 0, Luhn-like
a tenth, a US social security number nine tenths). Left out: numbers of companies, save those that
sole traders bear.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from conductor.core import Likelihood
from conductor.detect.context import in_fraction, in_identifier, in_longer_number, near, weighed
from conductor.detect.rules import Accept, Rule

_Strength = tuple[Likelihood | None, Likelihood]
"""How likely a number is what it looks like: alone, and beside a telling word."""

STRONG: _Strength = (Likelihood.VERY_LIKELY, Likelihood.VERY_LIKELY)  # random: below 0.5 %
SHAPED: _Strength = (Likelihood.LIKELY, Likelihood.VERY_LIKELY)  # letters among them, or < 1 %
FAIR: _Strength = (Likelihood.POSSIBLE, Likelihood.VERY_LIKELY)  # digits alone, about 1 %
WEAK: _Strength = (Likelihood.UNLIKELY, Likelihood.LIKELY)  # about 10 %
BARE: _Strength = (None, Likelihood.LIKELY)  # almost any digits


@dataclass(frozen=True)
class _Number:
    """One kind of number. `module` is its validator in `stdnum`; without one the shape decides."""

    id: str
    shape: str
    strength: _Strength
    words: tuple[str, ...]
    module: str = ""
    weights: tuple[int, ...] = ()
    """Of its digits, if their sum so weighted must be a multiple of `modulus`: a hundred times as
    quick as the validator, and turns most other numbers away."""
    modulus: int = 11


_TAX = ("tax", "tin", "vat")
_PERSON = ("person", "personal", "national id", "identity", "id number")
_DATE = r"(?:0[1-9]|[12][0-9]|3[01])"
_MONTH = r"(?:0[1-9]|1[0-2])"

_NUMBERS = (
    _Number("at.vnr", rf"[1-9][0-9]{{3}} ?{_DATE}{_MONTH}[0-9]{{2}}", WEAK,
            ("svnr", "sv-nummer", "sozialversicherungsnummer", "versicherungsnummer"), "at.vnr"),
    _Number("be.nn", r"[0-9]{2}\.?[0-9]{2}\.?[0-9]{2}[.\-]?[0-9]{3}[.\-]?[0-9]{2}",
            STRONG, ("rijksregister", "registre national", "insz", "niss"), "be.nn"),
    _Number("bg.egn", rf"[0-9]{{2}}(?:[024][1-9]|[135][0-2]){_DATE}[0-9]{{4}}", FAIR,
            ("egn", "edinen"), "bg.egn"),
    _Number("ch.ssn", r"756\.?[0-9]{4}\.?[0-9]{4}\.?[0-9]{2}", STRONG, ("ahv", "avs"), "ch.ssn"),
    _Number("cy.tic", r"[0-9]{8}[A-Z]", WEAK, ("tic", *_TAX), "cy.vat"),
    _Number("cz.rc", rf"[0-9]{{2}}(?:[0257][1-9]|[1368][0-2]){_DATE}/?[0-9]{{3,4}}", WEAK,
            ("rodne cislo", "rodn\u00e9 \u010d\u00edslo", "rc", "rodne cislo:"), "cz.rc"),
    _Number("de.idnr", r"[1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}", SHAPED,
            ("steuer-id", "idnr", "steueridentifikationsnummer", "steuer-identifikationsnummer"),
            "de.idnr"),
    _Number("de.stnr", r"[0-9]{2,3}[ /][0-9]{3,4}[ /][0-9]{4,5}|[0-9]{13}", BARE,
            ("steuernummer", "st.-nr", "steuer-nr", "stnr"), "de.stnr"),
    _Number("de.vat", r"DE ?[0-9]{9}", WEAK,
            ("ust-id", "ust-idnr", "umsatzsteuer", *_TAX), "de.vat"),
    _Number("dk.cpr", rf"{_DATE}{_MONTH}[0-9]{{2}}-[0-9]{{4}}", FAIR, ("cpr", "personnummer"),
            "dk.cpr"),
    _Number("ee.ik", rf"[1-8][0-9]{{2}}{_MONTH}{_DATE}[0-9]{{4}}", FAIR, ("isikukood",), "ee.ik"),
    _Number("es.dni", r"[0-9]{8}[ \-]?[A-HJ-NP-TV-Z]", SHAPED,
            ("dni", "nif", "documento nacional"), "es.dni"),
    _Number("es.nie", r"[XYZ][ \-]?[0-9]{7}[ \-]?[A-HJ-NP-TV-Z]", STRONG, ("nie",), "es.nie"),
    _Number("fi.hetu", r"[0-3][0-9][01][0-9]{3}[\-+A-FU-Y][0-9]{3}[0-9A-FHJ-NPR-Y]", STRONG,
            ("hetu", "henkil\u00f6tunnus"), "fi.hetu"),
    _Number("fr.nif", r"[0-3][0-9] ?[0-9]{2} ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}", FAIR,
            ("numero fiscal", "num\u00e9ro fiscal", "spi", "reference fiscale"), "fr.nif"),
    _Number("fr.nir",
            r"[123478] ?[0-9]{2} ?[0-9]{2} ?[0-9][0-9AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}",
            STRONG, ("securite sociale", "s\u00e9curit\u00e9 sociale", "nir"), "fr.nir"),
    _Number("fr.siren", r"[0-9]{3} ?[0-9]{3} ?[0-9]{3}", WEAK, ("siren", "rcs"), "fr.siren"),
    _Number("gb.nhs", r"[0-9]{3}[ \-]?[0-9]{3}[ \-]?[0-9]{4}", WEAK, ("nhs",), "gb.nhs",
            weights=(10, 9, 8, 7, 6, 5, 4, 3, 2, 1)),
    _Number("gb.nino",
            r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]",
            SHAPED, ("national insurance", "nino", "ni number", "insurance number")),
    _Number("gb.utr", r"[0-9]{5} ?[0-9]{5}", WEAK, ("utr", "taxpayer reference"), "gb.utr"),
    _Number("gr.amka", rf"{_DATE}{_MONTH}[0-9]{{7}}", STRONG, ("amka",), "gr.amka"),
    _Number("gr.afm", r"[0-9]{9}", WEAK, ("afm", *_TAX), "gr.vat"),
    _Number("hr.oib", r"[0-9]{11}", WEAK, ("oib",), "hr.oib"),
    _Number("hu.anum", r"[0-9]{8}", WEAK, ("adoszam", "ad\u00f3sz\u00e1m"), "hu.anum",
            weights=(9, 7, 3, 1, 9, 7, 3, 1), modulus=10),
    _Number("ie.pps", r"[0-9]{7}[A-W][A-IW]?", SHAPED, ("pps", "ppsn", "public service"), "ie.pps"),
    _Number("it.codicefiscale",
            r"(?i:[A-Z]{3} ?[A-Z]{3} ?[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2} "
            r"?[A-Z][0-9LMNP-V]{3}[A-Z])",
            STRONG, ("codice fiscale", "cod. fisc", "c.f."), "it.codicefiscale"),
    _Number("it.iva", r"[0-9]{11}", FAIR, ("partita iva", "p.iva", "p. iva", "piva"), "it.iva"),
    _Number("lt.asmens", rf"[3-6][0-9]{{2}}{_MONTH}{_DATE}[0-9]{{4}}", FAIR,
            ("asmens kodas", "kodas"), "lt.asmens"),
    _Number("lv.pk", rf"{_DATE}{_MONTH}[0-9]{{2}}-[0-9]{{5}}", SHAPED,
            ("personas kods", "kods"), "lv.pvn"),
    _Number("mt.vat", r"MT ?[0-9]{8}", WEAK, _TAX, "mt.vat"),
    _Number("nl.bsn", r"[0-9]{4}\.?[0-9]{2}\.?[0-9]{3}", WEAK,
            ("bsn", "burgerservicenummer", "sofinummer"), "nl.bsn",
            weights=(9, 8, 7, 6, 5, 4, 3, 2, -1)),
    _Number("no.fodselsnummer", r"[0-7][0-9][0-9]{4} ?[0-9]{5}", STRONG,
            ("fodselsnummer", "f\u00f8dselsnummer", "personnummer"), "no.fodselsnummer"),
    _Number("pl.nip", r"[0-9]{3}-?[0-9]{3}-?[0-9]{2}-?[0-9]{2}", WEAK, ("nip",), "pl.nip",
            weights=(6, 5, 7, 2, 3, 4, 5, 6, 7, -1)),
    _Number("pl.pesel", rf"[0-9]{{2}}(?:[0248][1-9]|[1359][0-2]){_DATE}[0-9]{{5}}", FAIR,
            ("pesel",), "pl.pesel", weights=(1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1), modulus=10),
    _Number("pt.nif", r"[0-9]{3} ?[0-9]{3} ?[0-9]{3}", WEAK, ("nif", "contribuinte"), "pt.nif"),
    _Number("ro.cnp", rf"[1-8][0-9]{{2}}{_MONTH}{_DATE}[0-9]{{6}}", STRONG,
            ("cnp", "cod numeric"), "ro.cnp"),
    _Number("se.personnummer", rf"(?:19|20)?[0-9]{{2}}{_MONTH}{_DATE}[\-+][0-9]{{4}}", SHAPED,
            ("personnummer", "samordningsnummer"), "se.personnummer"),
    _Number("se.personnummer", rf"(?:19|20)?[0-9]{{2}}{_MONTH}[0-9]{{6}}", FAIR,
            ("personnummer", "samordningsnummer"), "se.personnummer"),
    _Number("si.emso", rf"{_DATE}{_MONTH}[09][0-9]{{8}}", STRONG, ("emso", "em\u0161o"), "si.emso"),
    _Number("sk.rc", rf"[0-9]{{2}}(?:[05][1-9]|[16][0-2]){_DATE}/[0-9]{{3,4}}", WEAK,
            ("rodne cislo", "rodn\u00e9 \u010d\u00edslo"), "sk.rc"),
    _Number("us.ein", r"[0-9]{2}-[0-9]{7}", BARE, ("ein", "employer identification"), "us.ein"),
    _Number("us.itin", r"9[0-9]{2}[ \-]?[5-9][0-9][ \-]?[0-9]{4}", BARE,
            ("itin", *_TAX), "us.itin"),
    _Number("us.mbi",
            r"[1-9][AC-HJKMNP-RT-Y][0-9AC-HJKMNP-RT-Y][0-9]-?[AC-HJKMNP-RT-Y][0-9AC-HJKMNP-RT-Y]"
            r"[0-9]-?[AC-HJKMNP-RT-Y]{2}[0-9]{2}",
            SHAPED, ("medicare", "mbi", "beneficiary")),
    _Number("us.ssn", r"[0-8][0-9]{2}[ \-][0-9]{2}[ \-][0-9]{4}", FAIR,
            ("ssn", "social security", "social sec", *_PERSON), "us.ssn"),
    _Number("us.ssn", r"[0-8][0-9]{8}", BARE, ("ssn", "social security", "social sec"), "us.ssn"),
    _Number("br.cpf", r"[0-9]{3}\.?[0-9]{3}\.?[0-9]{3}-?[0-9]{2}", FAIR, ("cpf",), "br.cpf"),
    _Number("ca.sin", r"[0-9]{3}[ \-]?[0-9]{3}[ \-]?[0-9]{3}", WEAK,
            ("sin", "social insurance"), "ca.sin"),
)  # fmt: skip

NATIONAL = frozenset(f"id.{number.id}" for number in _NUMBERS)


@cache
def _validator(module: str) -> Callable[[str], bool]:
    is_valid: Callable[[str], bool] = importlib.import_module(f"stdnum.{module}").is_valid
    return is_valid


def _accept(number: _Number) -> Accept:
    """Whether a match stands for itself and its check digits hold."""
    told = near(number.words) if number.strength[0] is None else None

    def accept(text: bytes, start: int, end: int) -> bool:
        if in_longer_number(text, start, end) or in_fraction(text, start, end):
            return False
        if told is not None and not told(text, start, end):
            return False
        match = text[start:end]
        if number.weights and not _adds_up(match, number.weights, number.modulus):
            return False
        if number.module and not _validator(number.module)(match.decode("ascii").upper()):
            return False
        return not in_identifier(text, start, end)

    return accept


def _adds_up(match: bytes, weights: tuple[int, ...], modulus: int) -> bool:
    digits = match.translate(None, b" .-/")
    total = sum(weight * (digit - 48) for weight, digit in zip(weights, digits, strict=True))
    return total % modulus == 0


def _rule(number: _Number) -> Rule:
    pattern = rf"(?:^|[^0-9A-Za-z])({number.shape})(?:[^0-9A-Za-z]|$)"
    return Rule(
        f"id.{number.id}",
        pattern,
        (pattern,),
        _accept(number),
        weighed(number.words, *number.strength),
        look_inside=True,
    )


def spelled_rules() -> tuple[Rule, ...]:
    """Rules for numbers that can be told where spaces and marks have been removed: no sentence
    turns into one. Letters in the place of digits, which a tax code may have, many would."""
    shape = r"(?i:[A-Z]{6}[0-9]{2}[A-EHLMPRST][0-9]{2}[A-Z][0-9]{3}[A-Z])"
    valid = _validator("it.codicefiscale")

    def accept(text: bytes, start: int, end: int) -> bool:
        return valid(text[start:end].decode("ascii").upper())

    return (Rule("id.it.codicefiscale", shape, (shape,), accept, look_inside=True),)


def national_rules() -> tuple[Rule, ...]:
    """The rules of this room."""
    return tuple(map(_rule, _NUMBERS))
