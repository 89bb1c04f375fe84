"""A labelled set of texts with persons and addresses in nine languages, made from word lists.

`names_XX.txt` holds a language: lists of names, streets and towns, texts with places for them, and
plain texts that hold neither. The same texts come out every time.

The tagger never saw them. The rules around it did: how words are joined, and from which probability
on a word counts, were settled while looking at these texts. So the numbers flatter a little, most
of all in precision; a score on texts that nobody has looked at says more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

LANGUAGES = ("en", "it", "de", "fr", "es", "nl", "pt", "pl", "da")
DRAWS = 4
"""Texts that are made from each template."""

_FOLDER = Path(__file__).parent
_PLACE = re.compile(r"\{(person|given|surname|street|town)\}")
_KINDS = {"street": "address", "town": "address"}


@dataclass(frozen=True)
class Gold:
    """A person or an address in a text; offsets in characters."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Sample:
    """A text, its language, and what is in it."""

    language: str
    text: str
    gold: tuple[Gold, ...]


def samples(language: str, *, lower: bool = False) -> Iterator[Sample]:
    """All samples of a language, on request in lower case, as people type in a hurry."""
    words, texts, plain = _read(_FOLDER / f"names_{language}.txt")
    for template in texts:
        for draw in range(DRAWS):
            random = Random(f"{language} {template} {draw}")
            sample = _filled(language, template, words, random)
            yield Sample(language, sample.text.lower(), sample.gold) if lower else sample
    for text in plain:
        yield Sample(language, text.lower() if lower else text, ())


def _read(path: Path) -> tuple[dict[str, list[str]], list[str], list[str]]:
    words: dict[str, list[str]] = {}
    texts: list[str] = []
    plain: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(": ")
        if key in ("text", "plain"):
            (texts if key == "text" else plain).append(value.replace("\\n", "\n"))
        else:
            # A flat or a state has a comma of its own, and belongs to what stands before it.
            words[key] = re.split(r", (?!Flat|OR |TX )", value)
    return words, texts, plain


def _filled(language: str, template: str, words: dict[str, list[str]], random: Random) -> Sample:
    text, at, gold = "", 0, []
    for place in _PLACE.finditer(template):
        text += template[at : place.start()]
        at, value = place.end(), _drawn(place[1], words, random)
        kind = _KINDS.get(place[1], "person")
        if kind == "person" and text[-1:] == " " and gold and gold[-1].end == len(text) - 1:
            gold.append(Gold(gold.pop().start, len(text) + len(value), kind))
        else:
            gold.append(Gold(len(text), len(text) + len(value), kind))
        text += value
    return Sample(language, text + template[at:], tuple(gold))


def _drawn(place: str, words: dict[str, list[str]], random: Random) -> str:
    if place == "person":
        return f"{random.choice(words['given'])} {random.choice(words['surname'])}"
    return random.choice(words[place])
