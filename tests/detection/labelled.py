"""Sentences with one sensitive thing each, and ordinary ones, in five languages.

Every sentence was written for this set, every value is drawn at random from a fixed seed. Used to
measure how many things are found, and how many are found that are none.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from detection.numbers import KINDS, draw

SEED = 20240
EACH = 12
"""Samples of each kind in each language."""


@dataclass(frozen=True)
class Sample:
    """A text and the detector that must fire on it; none for an ordinary one."""

    language: str
    kind: str | None
    text: str


FRAMES = {
    "en": (
        "Could you check {name} {value} before the call tomorrow?",
        "We still have {name}: {value} on file, please update the record.",
        "The form says {name} {value}, which does not look right to me.",
    ),
    "it": (
        "Puoi controllare {name} {value} prima della riunione di domani?",
        "In archivio abbiamo ancora {name}: {value}, va aggiornato.",
        "Sul modulo c'è scritto {name} {value}, ma non mi torna.",
    ),
    "de": (
        "Kannst du vor dem Termin morgen noch {name} {value} prüfen?",
        "Bei uns steht noch {name}: {value}, bitte den Eintrag ändern.",
        "Auf dem Bogen steht {name} {value}, das kommt mir falsch vor.",
    ),
    "fr": (
        "Peux-tu vérifier {name} {value} avant le rendez-vous de demain ?",
        "Nous avons toujours {name} : {value} dans le dossier, merci de corriger.",
        "Le formulaire indique {name} {value}, cela me paraît étrange.",
    ),
    "es": (
        "¿Puedes comprobar {name} {value} antes de la llamada de mañana?",
        "Todavía tenemos {name}: {value} en la ficha, hay que actualizarla.",
        "En el impreso pone {name} {value}, y no me cuadra.",
    ),
}

_LANGUAGES = tuple(FRAMES)
_NAMES = {
    "iban": "account|il conto|das Konto|le compte|la cuenta",
    "payment_card": "the card|la carta|die Karte|la carte|la tarjeta",
    "email": "mail to|la posta|die Post an|le courriel|el correo",
    "phone": "phone|telefono|Telefon|téléphone|teléfono",
    "ip": "the address|indirizzo|Adresse|adresse|host",
    "secret.aws": "key|chiave|Schlüssel|clé|clave",
    "secret.token": "this|questo|das|ceci|esto",
    "secret.generic": "password|password|Passwort|password|contraseña",
}
NAMES = {
    kind: dict(zip(_LANGUAGES, words.split("|"), strict=True)) for kind, words in _NAMES.items()
}

ORDINARY = {
    "en": (
        "Order {d8} was split into {d2} parcels and left the warehouse on {date}.",
        "Page {d2} of the {d4} edition compares {d3} towns over {d2} years.",
        "Release {d1}.{d2}.{d1} fixes {d3} faults; build {d6} is on the mirror.",
        "The secret of the recipe is patience, and an internal clock for the oven.",
        "Nobody here keeps a password in a note any more, let alone a token.",
    ),
    "it": (
        "L'ordine {d8} è partito il {date} in {d2} colli dal magazzino centrale.",
        "A pagina {d2} l'edizione {d4} confronta {d3} comuni in {d2} anni.",
        "La versione {d1}.{d2}.{d1} corregge {d3} difetti, compilazione {d6}.",
        "Il segreto della ricetta è la pazienza, dice la nonna da anni.",
        "Un ufficio riservato ai soci occupa il secondo piano.",
    ),
    "de": (
        "Auftrag {d8} ging am {date} in {d2} Paketen aus dem Lager.",
        "Seite {d2} der Ausgabe {d4} vergleicht {d3} Orte über {d2} Jahre.",
        "Fassung {d1}.{d2}.{d1} behebt {d3} Fehler, Stand {d6}.",
        "Das geheim gehaltene Rezept braucht vor allem Zeit.",
        "Ein Passwort schreibt hier schon lange niemand mehr auf.",
    ),
    "fr": (
        "La commande {d8} est partie le {date} en {d2} colis.",
        "La page {d2} de l'édition {d4} compare {d3} villes sur {d2} ans.",
        "La version {d1}.{d2}.{d1} corrige {d3} défauts, révision {d6}.",
        "Le secret de la recette, c'est la patience, disait la tante.",
        "Personne ne note plus son mot de passe sur un papier.",
    ),
    "es": (
        "El pedido {d8} salió el {date} en {d2} paquetes del almacén.",
        "La página {d2} de la edición {d4} compara {d3} pueblos en {d2} años.",
        "La versión {d1}.{d2}.{d1} corrige {d3} fallos, compilación {d6}.",
        "El secreto de la receta es la paciencia, decía la abuela.",
        "Ya nadie apunta su contraseña en un papel pegado a la pantalla.",
    ),
}

MARKED = {
    "marking.tlp.red": "TLP:RED",
    "marking.tlp.amber": "TLP:AMBER",
    "marking.tlp.amber-strict": "TLP:AMBER+STRICT",
    "marking.tlp.green": "TLP: GREEN",
    "marking.tlp.clear": "TLP:CLEAR",
    "marking.uk.official": "OFFICIAL",
    "marking.uk.official-sensitive": "OFFICIAL-SENSITIVE",
    "marking.uk.secret": "UK SECRET",
    "marking.uk.top-secret": "TOP SECRET",
    "marking.us.cui": "CUI//SP-PRVCY",
    "marking.us.confidential": "CONFIDENTIAL//NOFORN",
    "marking.us.secret": "SECRET//REL TO USA, FVEY",
    "marking.us.top-secret": "TOP SECRET//SI//NOFORN",
    "marking.eu.restricted": "RESTREINT UE/EU RESTRICTED",
    "marking.eu.confidential": "CONFIDENTIEL UE/EU CONFIDENTIAL",
    "marking.eu.secret": "SECRET UE/EU SECRET",
    "marking.eu.top-secret": "TRES SECRET UE/EU TOP SECRET",
    "marking.nato.restricted": "NATO RESTRICTED",
    "marking.nato.confidential": "NATO CONFIDENTIAL",
    "marking.nato.secret": "NATO SECRET",
    "marking.nato.top-secret": "COSMIC TOP SECRET",
    "marking.it.riservato": "RISERVATO",
    "marking.it.riservatissimo": "RISERVATISSIMO",
    "marking.it.segreto": "SEGRETO",
    "marking.it.segretissimo": "SEGRETISSIMO",
    "marking.de.vs-nfd": "VS – NUR FÜR DEN DIENSTGEBRAUCH",
    "marking.de.vs-vertraulich": "VS-VERTRAULICH",
    "marking.de.geheim": "GEHEIM – amtlich geheimgehalten",
    "marking.de.streng-geheim": "STRENG GEHEIM",
    "marking.legal.privileged": "ATTORNEY-CLIENT PRIVILEGED",
    "marking.business.confidential": "COMPANY CONFIDENTIAL",
    "marking.business.strictly-confidential": "STRICTLY CONFIDENTIAL",
    "marking.business.internal": "FOR INTERNAL USE ONLY",
    "marking.business.msip": "MSIP_Label_8a1d0f52-4b6e-4c3a-9d77-2f10c5b6e3aa_Name=General",
    "marking.medical.record": "MEDICAL-IN-CONFIDENCE",
}


def samples() -> Iterator[Sample]:
    """The whole set, the same each time."""
    source = random.Random(SEED)
    for language, frames in FRAMES.items():
        for kind, names in NAMES.items():
            for _ in range(EACH):
                frame = frames[1] if kind == "secret.generic" else source.choice(frames)
                text = frame.format(name=names[language], value=VALUES[kind](source))
                yield Sample(language, kind, text)
        for kind, (_, _, name) in KINDS.items():
            for _ in range(EACH // 4):
                text = source.choice(frames).format(name=name, value=draw(kind, source))
                yield Sample(language, f"id.{kind}", text)
        for kind, banner in MARKED.items():
            yield Sample(language, kind, f"{banner}\n\n{_ordinary(language, source)}")
        for _ in range(40 * EACH):
            yield Sample(language, None, _ordinary(language, source))


def _ordinary(language: str, source: random.Random) -> str:
    digits = {f"d{n}": str(source.randrange(10 ** (n - 1), 10**n)) for n in (1, 2, 3, 4, 6, 8)}
    date = f"{source.randint(1, 28)}.{source.randint(1, 12)}.{source.randint(1990, 2030)}"
    return source.choice(ORDINARY[language]).format(date=date, **digits)


def _letters(source: random.Random, size: int, among: str) -> str:
    return "".join(source.choices(among, k=size))


_ALNUM = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + string.digits


def _iban(source: random.Random) -> str:
    country, size = source.choice((("DE", 18), ("IT", 0), ("FR", 23), ("ES", 20), ("NL", 0)))
    digits = _letters(source, size, string.digits)
    if country == "IT":
        digits = "X" + _letters(source, 22, string.digits)
    if country == "NL":
        digits = "ABNA" + _letters(source, 10, string.digits)
    plain = "".join(str(int(c, 36)) for c in digits + country + "00")
    whole = f"{country}{98 - int(plain) % 97:02}{digits}"
    if source.random() < 0.5:
        return whole
    return " ".join(whole[i : i + 4] for i in range(0, len(whole), 4))


def _card(source: random.Random) -> str:
    head, size = source.choice((("4", 16), ("52", 16), ("37", 15), ("6011", 16)))
    body = head + _letters(source, size - 1 - len(head), string.digits)
    doubled = [int(d) * (2 if i % 2 == 0 else 1) for i, d in enumerate(reversed(body))]
    total = sum(n - 9 if n > 9 else n for n in doubled)
    whole = body + str(-total % 10)
    if size == 15:
        return f"{whole[:4]} {whole[4:10]} {whole[10:]}"
    between = source.choice(("", " ", "-"))
    return between.join(whole[i : i + 4] for i in range(0, 16, 4))


def _email(source: random.Random) -> str:
    name = _letters(source, source.randint(3, 9), string.ascii_lowercase)
    host = _letters(source, source.randint(3, 9), string.ascii_lowercase)
    return f"{name}.{source.randint(1, 99)}@{host}.{source.choice(('com', 'it', 'de', 'fr', 'es'))}"


def _phone(source: random.Random) -> str:
    head, tail = source.choice(
        (
            ("+39 06 69", 5),
            ("+49 89 2180", 4),
            ("+33 1 42 68", 5),
            ("+34 91 21", 5),
            ("+44 20 79", 6),
        )
    )
    return head + _letters(source, tail, string.digits)


def _ip(source: random.Random) -> str:
    first = source.choice((81, 93, 151, 185, 212))
    return f"{first}.{source.randint(16, 240)}.{source.randint(0, 255)}.{source.randint(1, 254)}"


def _token(source: random.Random) -> str:
    head, size = source.choice(
        (("ghp_", 36), ("glpat-", 20), ("npm_", 36), ("hf_", 34), ("gsk_", 52), ("dckr_pat_", 27))
    )
    return head + _letters(source, size - 4, _ALNUM) + "4a7B"


def _password(source: random.Random) -> str:
    return _letters(source, source.randint(8, 16), _ALNUM) + source.choice("!#%&") + "7q"


VALUES: dict[str, Callable[[random.Random], str]] = {
    "iban": _iban,
    "payment_card": _card,
    "email": _email,
    "phone": _phone,
    "ip": _ip,
    "secret.aws": lambda source: "AKIA" + _letters(source, 16, _UPPER[:26] + "234567"),
    "secret.token": _token,
    "secret.generic": _password,
}
