"""Numbers of persons, drawn at random from their shapes until their check digits hold.

The same each time. Shapes: `d` a digit, `A` a capital, `t` two digits of a day, `m` of a month,
anything else stands for itself. Nobody's number is meant; some may be somebody's by chance.
"""

from __future__ import annotations

import importlib
import random
import string

# Detector, shape, validator of stdnum; and what people call it.
KINDS = {
    "at.vnr": ("dddd tmdd", "at.vnr", "SVNR"),
    "be.nn": ("ddmtddddd", "be.nn", "rijksregister"),
    "bg.egn": ("ddmtdddd", "bg.egn", "EGN"),
    "br.cpf": ("ddd.ddd.ddd-dd", "br.cpf", "CPF"),
    "ca.sin": ("ddd-ddd-ddd", "ca.sin", "social insurance"),
    "ch.ssn": ("756.dddd.dddd.dd", "ch.ssn", "AHV"),
    "cy.tic": ("ddddddddA", "cy.vat", "TIC"),
    "cz.rc": ("ddmt/dddd", "cz.rc", "rodne cislo"),
    "de.idnr": ("dd ddd ddd ddd", "de.idnr", "Steuer-ID"),
    "de.stnr": ("dd/ddd/ddddd", "de.stnr", "Steuernummer"),
    "de.vat": ("DEddddddddd", "de.vat", "USt-IdNr"),
    "dk.cpr": ("tmdd-dddd", "dk.cpr", "CPR"),
    "ee.ik": ("dddmtdddd", "ee.ik", "isikukood"),
    "es.dni": ("ddddddddA", "es.dni", "DNI"),
    "es.nie": ("XdddddddA", "es.nie", "NIE"),
    "fi.hetu": ("tmdd-dddA", "fi.hetu", "hetu"),
    "fr.nif": ("dd dd ddd ddd ddd", "fr.nif", "numero fiscal"),
    "fr.nir": ("1 dd m dd ddd ddd dd", "fr.nir", "NIR"),
    "fr.siren": ("ddd ddd ddd", "fr.siren", "SIREN"),
    "gb.nhs": ("ddd ddd dddd", "gb.nhs", "NHS"),
    "gb.nino": ("JG dd dd dd C", "", "National Insurance"),
    "gb.utr": ("dddddddddd", "gb.utr", "UTR"),
    "gr.afm": ("ddddddddd", "gr.vat", "AFM"),
    "gr.amka": ("tmddddddd", "gr.amka", "AMKA"),
    "hr.oib": ("ddddddddddd", "hr.oib", "OIB"),
    "hu.anum": ("dddddddd", "hu.anum", "adoszam"),
    "ie.pps": ("dddddddA", "ie.pps", "PPS"),
    "it.codicefiscale": ("AAAAAAddEddAdddA", "it.codicefiscale", "codice fiscale"),
    "it.iva": ("ddddddddddd", "it.iva", "partita iva"),
    "lt.asmens": ("3ddmtdddd", "lt.asmens", "asmens kodas"),
    "lv.pk": ("tmdd-ddddd", "lv.pvn", "personas kods"),
    "mt.vat": ("MTdddddddd", "mt.vat", "VAT"),
    "nl.bsn": ("ddddddddd", "nl.bsn", "BSN"),
    "no.fodselsnummer": ("tmddddddd", "no.fodselsnummer", "personnummer"),
    "pl.nip": ("ddd-ddd-dd-dd", "pl.nip", "NIP"),
    "pl.pesel": ("ddmtddddd", "pl.pesel", "PESEL"),
    "pt.nif": ("ddd ddd ddd", "pt.nif", "NIF"),
    "ro.cnp": ("1ddmtdddddd", "ro.cnp", "CNP"),
    "se.personnummer": ("ddmt-dddd", "se.personnummer", "personnummer"),
    "si.emso": ("tm9dd500ddd", "si.emso", "EMSO"),
    "sk.rc": ("ddmt/dddd", "sk.rc", "rodne cislo"),
    "us.ein": ("dd-ddddddd", "us.ein", "EIN"),
    "us.itin": ("9dd-7d-dddd", "us.itin", "ITIN"),
    "us.mbi": ("1AA9AA5AAdd", "", "Medicare"),
    "us.ssn": ("ddd-dd-dddd", "us.ssn", "SSN"),
}
_LETTERS = {"us.mbi": "ACDEFGHJKMNPQRTUVWXY", "it.codicefiscale": "BCDFGMNPRSTV"}
_TRIES = 200_000


def draw(kind: str, source: random.Random) -> str:
    """A number of this kind that its country could have given out."""
    shape, module, _ = KINDS[kind]
    letters = _LETTERS.get(kind, string.ascii_uppercase)
    is_valid = importlib.import_module(f"stdnum.{module}").is_valid if module else bool
    for _ in range(_TRIES):
        number = "".join(_character(form, letters, source) for form in shape)
        if is_valid(number):
            return number
    raise AssertionError(f"no {kind} in {_TRIES} tries")


def _character(form: str, letters: str, source: random.Random) -> str:
    match form:
        case "d":
            return str(source.randrange(10))
        case "A":
            return source.choice(letters)
        case "t":
            return f"{source.randint(1, 28):02}"
        case "m":
            return f"{source.randint(1, 12):02}"
    return form
