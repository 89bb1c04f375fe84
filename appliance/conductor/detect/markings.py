"""Markings that people put on documents: protective levels, privilege, trade secrets, records.

A marking is a banner, not a word (`banners.py`). What has a form that prose never takes
(`//NOFORN`, `TLP:RED`) counts anywhere, but less. Sources: FIRST TLP 2.0; UK Government Security
Classifications 2023; US 32 CFR 2001 and 2002; EU Council Decision 2013/488; NATO C-M(2002)49;
Italian DPCM 5/2015; German VSA 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from conductor.core import Likelihood
from conductor.detect.banners import banner, is_whole, is_whole_form
from conductor.detect.rules import Rule, Weigh


def _else(otherwise: Likelihood) -> Weigh:
    """Very likely as a banner, `otherwise` within other text."""

    def weigh(text: bytes, start: int, end: int) -> Likelihood | None:
        return max(banner(text, start, end) or otherwise, otherwise)

    return weigh


@dataclass(frozen=True)
class _Marking:
    """`form` is found anywhere, `words` only as banners. Both are patterns."""

    id: str
    form: str = ""
    words: str = ""
    within_text: Likelihood = Likelihood.LIKELY


_S = r"[ \t]{0,3}"
_DASH = r"[ \t]{0,2}[\-\x96\x97][ \t]{0,2}|[ \t]{1,2}"
_CAVEAT = (
    rf"{_S}//{_S}(?:NOFORN|ORCON|REL{_S}TO|SI\b|TK\b|HCS|FVEY|PROPIN|IMCON|FGI|RELIDO|[A-Z]{{2,8}})"
)
_PORTION = r"//(?:NF|REL|SI|TK|HCS|OC|FVEY|FOUO|PR|NOFORN)\b[^()\n]{0,20}\)"
_UNLIKELY, _POSSIBLE = Likelihood.UNLIKELY, Likelihood.POSSIBLE

_MARKINGS = (
    # Traffic light protocol
    _Marking("tlp.red", rf"(?i)\bTLP{_S}[:\-]{_S}RED\b"),
    _Marking("tlp.amber", rf"(?i)\bTLP{_S}[:\-]{_S}AMBER(?:$|[^+A-Z])"),
    _Marking("tlp.amber-strict", rf"(?i)\bTLP{_S}[:\-]{_S}AMBER{_S}\+{_S}STRICT\b"),
    _Marking("tlp.green", rf"(?i)\bTLP{_S}[:\-]{_S}GREEN\b"),
    _Marking("tlp.clear", rf"(?i)\bTLP{_S}[:\-]{_S}(?:CLEAR|WHITE)\b"),
    # United Kingdom
    _Marking("uk.official-sensitive", rf"\bOFFICIAL{_S}[\-:]{_S}SENSITIVE\b"),
    _Marking("uk.official", words=r"\bOFFICIAL\b"),
    _Marking("uk.secret", r"\bUK SECRET\b|\bSECRET UK EYES ONLY\b", r"\bSECRET\b"),
    _Marking("uk.top-secret", r"\bUK TOP SECRET\b|\bTOP SECRET UK EYES ONLY\b", r"\bTOP SECRET\b"),
    # United States
    _Marking("us.cui", r"\bCUI//[A-Z]|\(CUI\)|\bCONTROLLED UNCLASSIFIED INFORMATION\b"
             r"|\b(?:UNCLASSIFIED|U)//FOUO\b|\bFOR OFFICIAL USE ONLY\b", r"\bCUI\b"),
    _Marking("us.confidential", rf"\bCONFIDENTIAL{_CAVEAT}|\(C{_PORTION}"),
    _Marking("us.secret", rf"\bSECRET{_CAVEAT}|\(S{_PORTION}", r"\bSECRET\b"),
    _Marking("us.top-secret", rf"\bTOP SECRET{_CAVEAT}|\(TS{_PORTION}", r"\bTOP SECRET\b"),
    # European Union and NATO
    _Marking("eu.restricted", r"\bRESTREINT UE\b|\bEU RESTRICTED\b"),
    _Marking("eu.confidential", r"\bCONFIDENTIEL UE\b|\bEU CONFIDENTIAL\b"),
    _Marking("eu.secret", r"\bSECRET UE\b|\bEU SECRET\b"),
    _Marking("eu.top-secret", "\\bTR(?:E|\xc3\x88)S SECRET UE\\b|\\bEU TOP SECRET\\b"),
    _Marking("nato.restricted", r"\bNATO RESTRICTED\b"),
    _Marking("nato.confidential", r"\bNATO CONFIDENTIAL\b"),
    _Marking("nato.secret", r"\bNATO SECRET\b"),
    _Marking("nato.top-secret", r"\bCOSMIC TOP SECRET\b"),
    # Italy and Germany
    _Marking("it.riservato", words=r"\bRISERVATO\b"),
    _Marking("it.riservatissimo", words=r"\bRISERVATISSIMO\b"),
    _Marking("it.segreto", words=r"\bSEGRETO\b"),
    _Marking("it.segretissimo", words=r"\bSEGRETISSIMO\b"),
    _Marking("de.vs-nfd", rf"(?i)\bVS{_S}-{_S}NfD\b"
             rf"|\bVS{_S}[^A-Za-z0-9\n]{{0,4}}{_S}nur f\S{{1,2}}r den Dienstgebrauch\b"),
    _Marking("de.vs-vertraulich", rf"(?i)\bVS{_S}[^A-Za-z0-9\n]{{0,4}}{_S}vertraulich\b"),
    _Marking("de.geheim", "(?i)\\bgeheim[ \\-\xe2\x80\x93]{1,5}amtlich geheimgehalten\\b",
             r"\bGEHEIM\b"),
    _Marking("de.streng-geheim",
             "(?i)\\bstreng geheim[ \\-\xe2\x80\x93]{1,5}amtlich geheimgehalten\\b",
             r"\bSTRENG GEHEIM\b"),
    # Law
    _Marking("legal.privileged",
             r"(?i)\battorney[ \-/]{1,3}client[ \-]{1,3}(?:privileged?|communication|confidential)"
             r"|\battorney work[ \-]product\b|\bprivileged (?:and|&|&amp;) confidential\b"
             r"|\blegally privileged\b|\bsolicitor[ \-]client privileged?\b"
             r"|\bsegreto professionale\b|\bsecreto profesional\b|\bsecret professionnel\b"
             r"|\banwaltsgeheimnis\b|\banwaltlich privilegiert\b",
             r"\bPRIVILEGED\b|\bWITHOUT PREJUDICE\b", _POSSIBLE),
    # Business
    _Marking("business.strictly-confidential",
             r"(?i)\bstrictly (?:private and )?confidential\b|\bstreng vertraulich\b"
             r"|\bstrettamente (?:riservato|confidenziale)\b|\bestrictamente confidencial\b"
             r"|\bstrictement confidentiel\b", "", _UNLIKELY),
    _Marking("business.confidential",
             r"(?i)\b(?:company|commercial(?:ly)?|business|proprietary and|highly) confidential\b"
             r"|\bcommercial[ \-]in[ \-]confidence\b|\bconfidential (?:and|&) proprietary\b"
             r"|\btrade secret information\b|\bbetriebs- und gesch\S{1,2}ftsgeheimnis\b",
             r"\bCONFIDENTIAL\b|\bVERTRAULICH\b|\bCONFIDENZIALE\b|\bCONFIDENTIEL\b"
             r"|\bCONFIDENCIAL\b", _POSSIBLE),
    _Marking("business.internal",
             r"(?i)\bfor internal use only\b|\binternal use only\b|\bnur f\S{1,2}r den internen "
             r"gebrauch\b|\b(?:solo|esclusivamente) (?:per )?uso interno\b|\busage interne"
             r"(?: uniquement)?\b|\bnot for (?:external )?distribution\b",
             r"\bINTERNAL (?:USE|ONLY)\b|\bCOMPANY INTERNAL\b", _UNLIKELY),
    _Marking("business.msip", r"\bMSIP_Label_[0-9A-Fa-f\-]{8,36}"),
    # Medicine
    _Marking("medical.record",
             r"(?i)\bmedical[ \-]in[ \-]confidence\b|\bprotected health information\b"
             r"|\bmedical record (?:no|number|nr)\b|\bpatient (?:id|identifier|record number)\b"
             r"|\b\S{1,2}rztliche schweigepflicht\b|\bpatientenakte\b|\bcartella clinica\b"
             r"|\bdossier m\S{1,2}dical\b|\bhistoria cl\S{1,2}nica\b|\bsegreto medico\b"
             r"|\bsecret m\S{1,2}dical\b",
             r"\bPATIENT RECORD\b|\bMEDICAL RECORD\b|\bDISCHARGE SUMMARY\b|\bARZTBRIEF\b"
             r"|\bENTLASSUNGSBRIEF\b|\bLETTERA DI DIMISSIONE\b", _UNLIKELY),
)  # fmt: skip

MARKINGS = frozenset(f"marking.{marking.id}" for marking in _MARKINGS)


def marking_rules() -> tuple[Rule, ...]:
    """The rules of this room."""
    rules: list[Rule] = []
    for marking in _MARKINGS:
        detector = f"marking.{marking.id}"
        if marking.form:
            weigh = _else(marking.within_text)
            rules.append(Rule(detector, marking.form, accept=is_whole_form, weigh=weigh))
        if marking.words:
            rules.append(Rule(detector, f"(?i:{marking.words})", accept=is_whole, weigh=banner))
    return tuple(rules)
