"""The detectors that a policy defines, as rules. Patterns and words are RE2's, read as UTF-8."""

from __future__ import annotations

import re
from collections.abc import Iterable

from conductor.core import Likelihood
from conductor.detect.canonical import fold
from conductor.detect.entropy import entropy
from conductor.detect.profile import Custom, Hotwords
from conductor.detect.rules import Accept, Rule, Weigh, certain, options

_MAX_PROGRAM = 20_000
"""Instructions of a compiled pattern: more, and a page of text may exhaust the automaton."""

_WORD = r"\pL\pN_"
_SPACE = r"\s+"


def custom_fault(pattern: str) -> str | None:
    """Why a policy's pattern cannot be used, or None: not RE2's, too large, or it finds nothing."""
    import re2

    try:
        compiled = re2.compile(pattern.encode(), options("utf8"))
    except re2.error:
        return "RE2 does not take this: no look-around, back-references or counts over 1000"
    if compiled.groups > 1:
        return "a pattern has at most one group, which is what is meant; write (?:...) for others"
    if compiled.programsize > _MAX_PROGRAM:
        return "the pattern is too large: use smaller repetition counts"
    if compiled.search(b"") is not None:
        return "the pattern finds an empty text, so it would find one everywhere"
    return None


def custom_rules(customs: Iterable[Custom]) -> tuple[Rule, ...]:
    """One rule for each detector."""
    return tuple(map(_rule, customs))


def _rule(custom: Custom) -> Rule:
    pattern = custom.pattern or _any_of(custom.words)
    accept = _accept(custom.exclude, custom.min_entropy)
    return Rule(custom.id, pattern, (pattern,), accept, _weigh(custom))


def _any_of(words: Iterable[str]) -> str:
    """Words and phrases in any case, also without their accents, whatever space is in them."""
    forms = {form for word in words for form in (word, fold(word.encode()).decode())}
    alternatives = "|".join(
        _SPACE.join(map(re.escape, form.split())) for form in sorted(forms) if form.strip()
    )
    return rf"(?i)(?:^|[^{_WORD}])({alternatives})(?:[^{_WORD}]|$)"


def _accept(exclude: tuple[str, ...], min_entropy: float) -> Accept:
    excluded = frozenset(text.casefold() for text in exclude)

    def accept(text: bytes, start: int, end: int) -> bool:
        match = text[start:end]
        if excluded and match.decode("utf-8", "replace").casefold() in excluded:
            return False
        return not min_entropy or entropy(match) >= min_entropy

    return accept


def _weigh(custom: Custom) -> Weigh:
    likelihood, without = custom.likelihood, custom.without_hotword
    if custom.hotwords is None:
        return certain if likelihood is Likelihood.VERY_LIKELY else lambda *_: likelihood
    is_near = _near(custom.hotwords)

    def weigh(text: bytes, start: int, end: int) -> Likelihood | None:
        return likelihood if is_near(text, start, end) else without

    return weigh


def _near(hotwords: Hotwords) -> Accept:
    """Whether a hotword stands within so many characters; UTF-8 takes up to four bytes for one."""
    alternatives = "|".join(map(re.escape, sorted({*hotwords.any, *map(_plain, hotwords.any)})))
    pattern = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)
    within = hotwords.within_chars

    def is_near(text: bytes, start: int, end: int) -> bool:
        before = text[max(0, start - 4 * within) : start].decode("utf-8", "ignore")[-within:]
        after = text[end : end + 4 * within].decode("utf-8", "ignore")[:within]
        return pattern.search(before) is not None or pattern.search(after) is not None

    return is_near


def _plain(word: str) -> str:
    return fold(word.encode()).decode()
