"""Reading the detectors that a site defines itself, and which of all detectors need what.

    - {id: custom.project-names, words: [bluebird, "red heron"], likelihood: likely}
    - {id: custom.staff-number, pattern: 'E[0-9]{6}',
       hotwords: {any: [employee, staff], within_chars: 80}, without_hotword: unlikely}

Patterns are RE2's: no look-around, no back-references, so that no text can make them slow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from conductor.core import Likelihood
from conductor.detect.custom import custom_fault
from conductor.detect.profile import Custom, Hotwords, Profile
from conductor.strictyaml.values import Section, Unique, Value

LIKELIHOODS = tuple(likelihood.word for likelihood in Likelihood)
NAMED_BY_MODEL = frozenset({"person", "address"})
"""Detectors that need the model for names: it is run only for a policy that speaks of them."""

_ID = re.compile(r"custom\.[a-z][a-z0-9-]{0,55}")
_REGION = re.compile(r"[A-Z]{2}")
_MOST_WORDS = 10_000


def read_likelihood(section: Section, key: str, default: Likelihood) -> Likelihood:
    """A likelihood in its word, `very_unlikely` to `very_likely`."""
    word = section.choice(key, LIKELIHOODS, default.word)
    return Likelihood.of(word) if word else default


def read_custom_detectors(items: list[Value]) -> tuple[Custom, ...]:
    """The section `detectors`."""
    ids = Unique()
    found = []
    for item in items:
        section = item.mapping()
        found.append(_custom(section))
        ids.check(section, "id", found[-1].id)
        section.done()
    return tuple(found)


def read_phone_regions(items: list[Value]) -> tuple[str, ...]:
    """Two-letter regions whose telephone numbers are known without their `+`."""
    want = 'a region in two capital letters, such as IT; write "NO" in quotes'
    return tuple(filter(None, (item.text(_REGION, want) for item in items)))


def profile_of(
    custom: tuple[Custom, ...], phone_regions: tuple[str, ...], mentioned: Collection[str]
) -> Profile:
    """What the scanner must seek. `mentioned`: the detectors that a policy speaks of."""
    return Profile(custom, phone_regions, not NAMED_BY_MODEL.isdisjoint(mentioned))


def _custom(section: Section) -> Custom:
    name = section.text("id", pattern=_ID, want="custom. and lower case letters, digits and '-'")
    form = section.exactly_one("words", "pattern")
    hotwords = _hotwords(section) if "hotwords" in section else None
    without = section.find("without_hotword") if hotwords else None
    return Custom(
        id=name,
        words=tuple(_words(section, "words")) if form == "words" else (),
        pattern=_pattern(section) if form == "pattern" else "",
        likelihood=read_likelihood(section, "likelihood", Likelihood.LIKELY),
        hotwords=hotwords,
        without_hotword=_of(without) if without else None,
        exclude=section.texts("exclude", ()),
        min_entropy=section.number("min_entropy", 0.0, high=8.0),
    )


def _of(value: Value) -> Likelihood | None:
    word = value.choice(LIKELIHOODS)
    return Likelihood.of(word) if word else None


def _words(section: Section, key: str) -> Iterator[str]:
    items = section.items(key, some=True)
    if len(items) > _MOST_WORDS:
        section.fault("bad-value", f"{key} may have at most {_MOST_WORDS} entries", key)
    for item in items:
        text = item.text()
        if text and not any(character.isalnum() for character in text):
            item.fault("bad-value", "a word needs at least one letter or digit")
        elif text:
            yield text


def _pattern(section: Section) -> str:
    value = section.find("pattern")
    pattern = value.text() if value else ""
    if value and pattern and (fault := custom_fault(pattern)):
        value.fault("bad-pattern", fault)
    return pattern


def _hotwords(section: Section) -> Hotwords:
    body = section.mapping("hotwords")
    words = tuple(_words(body, "any"))
    hotwords = Hotwords(words, body.integer("within_chars", 80, low=1, high=1000))
    body.done()
    return hotwords
