"""What a policy adds to detection: its own detectors, the regions of its phone numbers, names.

A profile is made when a policy is read, travels to the scanning processes as JSON, and is part of
the key under which scans are cached. Left out: what a finding means; classifiers say that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from conductor.core import Likelihood


@dataclass(frozen=True)
class Hotwords:
    """Words that tell what a match is: any of them within `within_chars` of it, before or after.

    They are compared without regard to case, and as whole words.
    """

    any: tuple[str, ...]
    within_chars: int = 80


@dataclass(frozen=True)
class Custom:
    """A detector that a policy defines: words, or an RE2 pattern whose group 1, if any, is meant.

    Words are sought without regard to case and accents, and as whole words. A match is as likely
    as `likelihood` says; where there are hotwords and none is near, as `without_hotword`, and it
    is no finding if that is None. `exclude` lists matches that are none.
    """

    id: str
    words: tuple[str, ...] = ()
    pattern: str = ""
    likelihood: Likelihood = Likelihood.LIKELY
    hotwords: Hotwords | None = None
    without_hotword: Likelihood | None = None
    exclude: tuple[str, ...] = ()
    min_entropy: float = 0.0
    """Least Shannon entropy of the match, in bits a byte: what is drawn at random has over 3."""


@dataclass(frozen=True)
class Profile:
    """What is sought beside the built-in detectors."""

    custom: tuple[Custom, ...] = ()
    phone_regions: tuple[str, ...] = ()
    """Two-letter regions (CLDR) whose telephone numbers are known without their `+`."""
    names: bool = False
    """Whether persons and addresses are sought, which takes the model of `names.py`."""

    @cached_property
    def encoded(self) -> bytes:
        """The profile as JSON; `Profile.decode` reads it."""
        return orjson.dumps((list(map(_custom_json, self.custom)), self.phone_regions, self.names))

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal profiles alone: 16 bytes of BLAKE2 (RFC 7693)."""
        return hashlib.blake2b(self.encoded, digest_size=16).digest()

    @classmethod
    def decode(cls, data: bytes) -> Profile:
        """The profile that `encoded` came from. Raises `ValueError` for what is no JSON."""
        custom, regions, names = orjson.loads(data)
        return cls(tuple(map(_custom_of, custom)), tuple(regions), names)


DEFAULT_PROFILE = Profile()


def _custom_json(custom: Custom) -> tuple[object, ...]:
    hotwords = custom.hotwords and (custom.hotwords.any, custom.hotwords.within_chars)
    return (
        custom.id,
        custom.words,
        custom.pattern,
        int(custom.likelihood),
        hotwords,
        custom.without_hotword and int(custom.without_hotword),
        custom.exclude,
        custom.min_entropy,
    )


def _custom_of(data: list[Any]) -> Custom:
    name, words, pattern, likelihood, hotwords, without, exclude, min_entropy = data
    return Custom(
        name,
        tuple(words),
        pattern,
        Likelihood(likelihood),
        hotwords and Hotwords(tuple(hotwords[0]), hotwords[1]),
        without and Likelihood(without),
        tuple(exclude),
        min_entropy,
    )
