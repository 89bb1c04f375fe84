"""Whether two texts share a long run, from hashes alone.

What is compared is a text's *letters*: Unicode compatibility forms and case folded, and everything
dropped that is no letter or digit, so that other line breaks, quotes, lists or emphasis change
nothing. A fingerprint is the hash of `LENGTH` bytes of that.

Two texts must be hashed at places that meet. Of every `PERIOD` places the one that is kept is
hashed at the first `KEPT`, the one that is looked up at every `KEPT`-th; whatever they are shifted
by, one place of a period is in both (a difference cover, see Colbourn and Ling, "Quorums from
difference covers", IPL 2000). So

    any shared run of at least GUARANTEE = LENGTH + PERIOD - 1 letters is found.

Winnowing (Schleimer, Wilkerson and Aiken, SIGMOD 2003) guarantees the same with fewer hashes, but
has to compute one at every letter first: too slow without numpy, of which `serve` is free. A text
shorter than GUARANTEE is hashed at every letter when it is kept, and found wherever `ALIGNED`
letters of it stand.

Python's own hash is used: 64 bits, and keyed anew in every process (SipHash; PYTHONHASHSEED must
not be set). Two texts that share nothing meet by chance once in some 10^7 of a megabyte each.

Left out, on purpose: encodings (base64 and the like, which `detect/` undoes for its own patterns),
translations and paraphrases. They share no run; there the labels that callers declare must do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct

LENGTH = 40
"""Bytes of a fingerprint: no shorter run is ever found. With 32, stock phrases are ("here is a
summary of the document you provided" has 38); longer, and fewer changes break a quotation up."""
KEPT, LOOKED_UP = 3, 16
"""In a period `LOOKED_UP` places in a row, one in `KEPT` of all, are hashed to be kept; every
`LOOKED_UP`-th is to be looked up. Requests are longer and more frequent than what is kept of them,
hence the uneven shares; their product is in the guarantee."""
PERIOD = KEPT * LOOKED_UP
GUARANTEE = LENGTH + PERIOD - 1
"""Letters of a shared run that is always found: 87, about 16 words."""
ALIGNED = LENGTH + LOOKED_UP - 1

_RECORD = Struct(f"{LENGTH}s{PERIOD - LENGTH}x")
_DROPPED = bytes(code for code in range(128) if not chr(code).isalnum())
_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
_ASCII = re.compile(r"[\0-\x7f]")
_PIECE = 64 << 10
# Beyond ASCII: quotes, dashes, bullets, and what cannot be seen.
_MARKS = re.compile("[\xa0-\xbf\u2000-\u206f\u3000-\u301f\ufe00-\ufe0f\ufeff\ufffd]+")


def letters(text: str) -> bytes:
    """The text's letters, in UTF-8."""
    if text.isascii():
        return text.encode().translate(_LOWER, _DROPPED)
    return b"".join(map(_folded, _pieces(text)))


def kept(of: bytes) -> set[int]:
    """The fingerprints by which letters are remembered."""
    short = len(of) < GUARANTEE
    return set(_hashes(of, range(PERIOD) if short else range(LOOKED_UP)))


def looked_up(of: bytes) -> list[int]:
    """The fingerprints by which letters are looked up. 1 MB gives about 50,000."""
    return list(_hashes(of, range(0, PERIOD, LOOKED_UP)))


def unlike(of: bytes, shown: bytes) -> set[int]:
    """Of `kept(of)`, those that are nowhere in `shown`: what `of` says by itself."""
    return kept(of) - set(_hashes(shown, range(PERIOD)))


def _folded(piece: str) -> bytes:
    folded = _MARKS.sub("", unicodedata.normalize("NFKC", piece).casefold())
    return folded.encode("utf-8", "replace").translate(None, _DROPPED)


def _pieces(text: str) -> Iterator[str]:
    """The text cut where folding does not mind, before an ASCII character. Folding all of a long
    one would keep every other thread waiting: half a second for 30 MB."""
    start = 0
    while len(text) - start > _PIECE:
        cut = _ASCII.search(text, start + _PIECE)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def _hashes(of: bytes, first: Iterable[int]) -> Iterator[int]:
    """Hashes at these places and a period on, each time, as long as there are `LENGTH` letters."""
    padded = memoryview(of + bytes(PERIOD))
    ends = ((place, len(of) - LENGTH - place) for place in first)
    parts = (padded[at : at + (rest // PERIOD + 1) * PERIOD] for at, rest in ends if rest >= 0)
    return chain.from_iterable(map(hash, _RECORD.iter_unpack(part)) for part in parts)
