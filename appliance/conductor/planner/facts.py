"""What a pocket conductor was trained on, in numbers: `pocket/facts.json` of its bundle.

    format         version of this form
    features       sentence: width of the encoder's vector; lexical: names, in their order
    domains        the kinds of questions: name, family (what cards call it that do not know the
                   domain), output_tokens (mean answer) and level (mean skill) of training's workers
    cost_weights   lowest and highest lambda of training
    max_calls      most calls a request had in training
    max_rounds     most rounds

The build stage writes it (`encode`), the planner process reads it (`decode`). No numpy here.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from conductor.errors import BundleError
from conductor.plan.language import MAX_TOTAL_STEPS
from conductor.planner import fields as read
from conductor.planner.fields import Fields, WireError
from conductor.planner.manifest import Refusal

FORMAT = 1
FILE = "pocket/facts.json"
MAX_DOMAINS = 64

_MAX_LEXICAL = 1024
_MAX_WIDTH = 65_536
_MOST_TOKENS = 1e6
_MOST_WEIGHT = 1e6
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Domain:
    """A kind of question."""

    name: str
    family: str
    output_tokens: float
    level: float


@dataclass(frozen=True)
class Facts:
    """All of `facts.json`."""

    sentence: int
    lexical: tuple[str, ...]
    domains: tuple[Domain, ...]
    cost_weights: tuple[float, float]
    max_calls: int
    max_rounds: int

    @property
    def width(self) -> int:
        """Numbers of a prompt."""
        return self.sentence + len(self.lexical)


def encode(facts: Facts) -> bytes:
    """The file's bytes. Raises `BundleError` when `decode` would refuse them."""
    record = {
        "format": FORMAT,
        "features": {"sentence": facts.sentence, "lexical": facts.lexical},
        "domains": [asdict(domain) for domain in facts.domains],
        "cost_weights": facts.cost_weights,
        "max_calls": facts.max_calls,
        "max_rounds": facts.max_rounds,
    }
    data = orjson.dumps(record, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    decode(data)
    return data


def decode(data: bytes) -> Facts:
    """Read the file. Raises `BundleError` (`features`)."""
    try:
        fields = read.read_object(data)
        read.only(fields, ("format", "features", *_NUMBERS), "the file")
        read.whole(fields, "format", FORMAT, FORMAT)
        features = read.as_object(fields["features"], "'features'")
        read.only(features, ("sentence", "lexical"), "'features'")
        return Facts(
            sentence=read.whole(features, "sentence", 1, _MAX_WIDTH),
            lexical=_names(features),
            domains=_domains(fields),
            cost_weights=_weights(fields),
            max_calls=read.whole(fields, "max_calls", 1, MAX_TOTAL_STEPS),
            max_rounds=read.whole(fields, "max_rounds", 1, MAX_TOTAL_STEPS),
        )
    except WireError as fault:
        raise BundleError(
            Refusal.FEATURES, f"{FILE} cannot be used: {fault}; train it again"
        ) from None


_NUMBERS = ("domains", "cost_weights", "max_calls", "max_rounds")


def _names(features: Fields) -> tuple[str, ...]:
    names = tuple(_word(name, "lexical") for name in read.array(features, "lexical", _MAX_LEXICAL))
    if len(set(names)) < len(names):
        raise WireError("'lexical' names a feature twice")
    return names


def _domains(fields: Fields) -> tuple[Domain, ...]:
    domains = tuple(map(_domain, read.array(fields, "domains", MAX_DOMAINS)))
    if not domains or len({domain.name for domain in domains}) < len(domains):
        raise WireError("'domains' has at least one, each with a name of its own")
    return domains


def _domain(item: Any) -> Domain:
    fields = read.as_object(item, "a domain")
    read.only(fields, Domain.__dataclass_fields__, "a domain")
    return Domain(
        name=_word(fields["name"], "name"),
        family=_word(fields["family"], "family"),
        output_tokens=read.amount(fields, "output_tokens", highest=_MOST_TOKENS),
        level=read.amount(fields, "level", highest=1.0),
    )


def _weights(fields: Fields) -> tuple[float, float]:
    both = read.array(fields, "cost_weights", 2)
    if len(both) != 2:
        raise WireError("'cost_weights' has two numbers, the lowest and the highest")
    low, high = (
        read.amount({"weight": one}, "weight", shown="cost_weights", highest=_MOST_WEIGHT)
        for one in both
    )
    if not 0 < low <= high:
        raise WireError("'cost_weights' rises, from more than 0")
    return low, high


def _word(value: Any, name: str) -> str:
    if type(value) is not str or not _WORD.fullmatch(value):
        raise WireError(f"{name!r} must be a lower case word")
    return value
