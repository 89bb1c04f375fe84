"""Pseudonyms of one workflow: tokens in place of values, and the way back.

A token's id is an HMAC (RFC 2104) of the value under a key that lives as long as the workflow: all
its steps, branches and retries agree, two workflows have nothing in common, and phone numbers
cannot be tried out. The values stay here: they are never sent, logged or shown, and are restored
only for a sink that is cleared for the label they came with. A program replaces, never a model.

Text that looks like a token and is none of ours becomes the value of a token itself, and so comes
back as it was: nothing that a client or a worker writes can pull somebody else's value.

Left out on purpose: surviving a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from conductor.declassify.heldback import PlainText
from conductor.declassify.kinds import LITERAL, canonical, kind_of
from conductor.declassify.mentions import with_mentions
from conductor.declassify.pieces import Change, changed, cuts
from conductor.declassify.redact import marker
from conductor.declassify.tokens import (
    ALPHABET,
    CANDIDATE,
    ID_LETTERS,
    OPEN,
    Nearby,
    is_like,
    normal,
    token,
)
from conductor.detect.spans import Span
from conductor.labels import Clearance, Label

MAX_VALUES = 20_000
"""Values that one workflow keeps. What goes beyond is redacted, and does not come back."""


@dataclass
class Counts:
    """What happened to tokens so far; fit for metrics."""

    minted: int = 0
    restored: int = 0
    mangled: int = 0
    """Of `restored`: tokens that a worker had not repeated letter by letter."""
    unknown: int = 0
    """Look like a token of ours and are none, or could be several."""
    withheld: int = 0
    """Ours, and not restored: the sink is not cleared for the value."""
    overflowed: int = 0
    """Values that were redacted because there were too many."""


@dataclass(repr=False)
class _Value:
    text: str
    detector: str
    label: Label


class Pseudonyms:
    """The pseudonyms of one workflow. Not for several threads; `wipe` when the workflow ends."""

    def __init__(self, key: bytes | None = None, max_values: int = MAX_VALUES) -> None:
        """`key`: 32 random bytes, drawn here unless a test gives them."""
        self._key = bytearray(key or secrets.token_bytes(32))
        self._max_values = max_values
        self._bodies: dict[tuple[str, str], str] = {}
        self._values: dict[str, _Value] = {}
        self._nearby = Nearby()
        self.counts = Counts()

    def __repr__(self) -> str:
        return f"<Pseudonyms of {len(self._values)} values>"

    def mask(self, text: str, spans: Iterable[Span], label: Label) -> str:
        """`text` with a token for every span, and for what looks like a token. Tokens of ours stay.

        `label` is the text's: a value seen under several labels keeps their join. Raises
        `ValueError` after `wipe`.
        """
        if not self._key:
            raise ValueError("these pseudonyms are wiped: their workflow has ended")
        ours, foreign = self._tokens_in(text)
        found = cuts(text, [*spans, *foreign], [(start, end) for start, end, _ in ours])
        minted = [(cut.start, cut.end, self._stand_in(text, cut, label)) for cut in found]
        return changed(text, [*ours, *minted])

    def mask_all(
        self, texts: Sequence[str], found: Sequence[Iterable[Span]], label: Label
    ) -> list[str]:
        """All texts of one body, with the spans found in each. What one of them, or an earlier
        body of the workflow, gave away is masked in all."""
        known = {value.text: value.detector for value in self._values.values()}
        pairs = zip(texts, with_mentions(texts, found, known), strict=True)
        return [self.mask(text, spans, label) for text, spans in pairs]

    def as_redacted(self, text: str) -> str:
        """`text` with markers in place of our tokens, as repeated letter by letter: for detectors.

        To a tagger of names the letters of an id look like a name, and to a rule what stands in a
        URL like a password. They tell nothing of the value, so what has to be clean is the rest.
        """
        if OPEN not in text:
            return text
        return CANDIDATE.sub(self._marked, text)

    def restore(self, text: str, clearance: Clearance) -> str:
        """`text` with the values of our tokens, as far as the sink's clearance allows."""
        whole = PlainText(lambda body: self.value_of(body, clearance))
        return whole.feed(text) + whole.flush()

    def value_of(self, body: str, clearance: Clearance) -> str | None:
        """The value of the token with that body, repaired if need be. None: it stays a token."""
        known = self._resolve(body)
        if known is None:
            self.counts.unknown += is_like(body)
            return None
        value = self._values[known]
        if not value.label.flows_to(clearance):
            self.counts.withheld += 1
            return None
        self.counts.restored += 1
        self.counts.mangled += token(known)[1:-1] != body
        return value.text

    def wipe(self) -> None:
        """Forget key and values. What was not restored yet stays a token for ever."""
        self._key[:] = bytes(len(self._key))
        self._key.clear()
        self._bodies.clear()
        self._values.clear()
        self._nearby.clear()

    def _marked(self, match: re.Match[str]) -> str:
        body = match[1].upper()
        ours = body in self._values and token(body) == match[0]
        return marker(body.partition(":")[0]) if ours else match[0]

    def _tokens_in(self, text: str) -> tuple[list[Change], list[Span]]:
        """Our own tokens, as they should read, and what looks like one and is none."""
        ours: list[Change] = []
        foreign = []
        for match in CANDIDATE.finditer(text) if OPEN in text else ():
            known = self._resolve(match[1])
            if known is not None:
                ours.append((match.start(), match.end(), token(known)))
            elif is_like(match[1]):
                foreign.append(Span(match.start(), match.end(), LITERAL))
        return ours, foreign

    def _resolve(self, body: str) -> str | None:
        """The minted body that is meant, if there is no doubt."""
        plain = normal(body)
        if plain in self._values:
            return plain
        return self._nearby.only(plain) if is_like(body) else None

    def _stand_in(self, text: str, cut: Span, label: Label) -> str:
        """The token for a value, minted when it is new."""
        value, kind = text[cut.start : cut.end], kind_of(cut.detector)
        meaning = kind, canonical(kind, value)
        body = self._bodies.get(meaning)
        if body is None:
            if len(self._values) >= self._max_values:
                self.counts.overflowed += 1
                return marker(kind)
            body = self._mint(*meaning)
            self._bodies[meaning] = body
            self._values[body] = _Value(value, cut.detector, label)
        known = self._values[body]
        known.label = known.label.join(label)
        return token(body)

    def _mint(self, kind: str, value: str) -> str:
        """A body that no other is like, so that no slip of a letter turns one into another."""
        for attempt in count():
            body = f"{kind}:{self._id(kind, value, attempt)}".upper()
            if not self._nearby.all(body):
                break
        self._nearby.add(body)
        self.counts.minted += 1
        return body

    def _id(self, kind: str, value: str, attempt: int) -> str:
        message = "\0".join((str(attempt), kind, value)).encode("utf-8", "surrogatepass")
        number = int.from_bytes(hmac.digest(self._key, message, hashlib.sha256))
        letters = []
        for _ in range(ID_LETTERS):
            number, place = divmod(number, len(ALPHABET))
            letters.append(ALPHABET[place])
        return "".join(letters)
