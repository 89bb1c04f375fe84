"""Which prompts a conductor was trained on, without the prompts: `pocket/seen.bin` of a bundle.

A prompt is known by the first 16 bytes of a SHA-256 over its normalised question, the file is those
digests in rising order and nothing else. The id of a prompt is left out: the same question under
another id was seen all the same. Normalised means NFKC, case folded, invisible format characters
dropped, runs of white space made one space; signs and digits stay, since "x+1" is not "x-1".

Digests hide no question from somebody who guesses it: a bundle tells those who hold it whether a
prompt that they already have was in its training.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from conductor.errors import BundleError
from conductor.planner.manifest import Refusal

PATH = "pocket/seen.bin"
DIGEST_BYTES = 16

_DOMAIN = b"conductor seen v1\x00"


def seen_digest(question: str) -> bytes:
    """The 16 bytes by which a prompt is known. Defined for every string, in linear time."""
    text = normalise(question).encode("utf-8", "surrogatepass")
    return hashlib.sha256(_DOMAIN + text).digest()[:DIGEST_BYTES]


def normalise(question: str) -> str:
    """One spelling for what asks the same: case, width and white space do not count."""
    if not question.isascii():
        question = unicodedata.normalize("NFKC", question)
        question = "".join(c for c in question if unicodedata.category(c) != "Cf")
    folded = question.casefold()
    # Folding can undo the form: once more, for a result that normalising leaves as it is.
    return " ".join(unicodedata.normalize("NFKC", folded).split())


@dataclass(frozen=True)
class Seen:
    """The prompts of one training."""

    digests: frozenset[bytes]

    @classmethod
    def of(cls, questions: Iterable[str]) -> Seen:
        return cls(frozenset(map(seen_digest, questions)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Seen:
        """Read `seen.bin`. Raises `BundleError` (`tampered`) when it is not in its one form."""
        cuts = range(0, len(data), DIGEST_BYTES)
        seen = cls(frozenset(data[at : at + DIGEST_BYTES] for at in cuts))
        if len(data) % DIGEST_BYTES or seen.to_bytes() != data:
            raise BundleError(Refusal.TAMPERED, f"{PATH} is no rising row of digests: train again")
        return seen

    def to_bytes(self) -> bytes:
        """The same for the same prompts, in whatever order they came."""
        return b"".join(sorted(self.digests))

    def contains(self, question: str) -> bool:
        """Whether training saw this question, up to spelling."""
        return seen_digest(question) in self.digests

    def __len__(self) -> int:
        return len(self.digests)
