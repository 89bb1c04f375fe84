"""Names of persons and postal addresses, in texts that are written in Latin letters.

A small tagger (Rampart, National Design Studio, CC BY 4.0; see NOTICE) reads a text in windows and
says of every piece what it could be; pieces become words, words become spans. Its other kinds
(phone, e-mail, bank account, ...) are left to the rules, which have checksums, and a town on its
own is no address. Not found: organisations, and names in other scripts, which is said of the text.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conductor.detect.namesgraph import MAX_TOKENS, Floats, Network
from conductor.detect.nameswindows import foreign, windows
from conductor.detect.nameswords import ADDRESS, KINDS, PERSON, Word, merged, spans_of
from conductor.detect.spans import Span
from conductor.errors import StartError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

GRAPH, TOKENIZER, CONFIG = (
    "rampart-names-q4.onnx",
    "rampart-names-tokenizer.json",
    "rampart-names-config.json",
)
"""The files under the names that the model catalogue gives them."""
LIMIT = 0.2
"""A word may be part of a name from this probability on. Chosen on other texts than those of
tests/detection: of a public set's persons 0.4 finds 80 in 100, 0.2 finds 84, 0.15 still 84."""

_CACHED = 4096
"""Windows whose words are kept: some megabytes at most. Histories repeat, word for word."""
_LABELS = tuple(KINDS)
_LETTERS = re.compile(r"[^\W\d_]{2}")


@dataclass(frozen=True)
class Reading:
    """What a text holds. Not `complete`: some of it is in another script, or time was up."""

    spans: tuple[Span, ...]
    complete: bool


@dataclass(frozen=True)
class Tagged:
    """The words of a window that are part of a name. Not `whole`: it had too many pieces."""

    words: tuple[Word, ...]
    whole: bool


class NameFinder:
    """Finds persons and addresses. One thread at a time."""

    def __init__(self, network: Network, tokenizer: Tokenizer, labels: tuple[str, ...]) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._sums = np.array([[own == label for label in _LABELS] for own in labels], np.float32)
        self._first, self._last = (_mark(tokenizer, name) for name in ("[CLS]", "[SEP]"))
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Tagged] = OrderedDict()

    @classmethod
    def open(cls, folder: Path, *, threads: int = 2) -> NameFinder:
        """Read the files in the models directory. Raises `StartError` if one cannot be used."""
        try:
            labels = _labels(folder / CONFIG)
            network = Network.open(folder / GRAPH, threads=threads)
            finder = cls(network, _tokenizer(folder / TOKENIZER), labels)
        except OSError:
            raise StartError(
                "rampart-names is not here: run 'conductor models pull rampart-names'"
            ) from None
        except Exception as error:  # noqa: BLE001  both libraries raise bare or private classes
            kind = type(error).__name__
            raise StartError(f"the tagger of names cannot be loaded ({kind})") from None
        _return_freed_memory()
        return finder

    def spans(self, text: str) -> list[Span]:
        """Spans of persons and addresses in order, as far as the text could be read."""
        return list(self.read(text).spans)

    def read(self, text: str, deadline: float | None = None) -> Reading:
        """Spans, and whether the whole text was read; windows stop at `deadline` (monotonic)."""
        # Half a surrogate pair is no character; one that stands for it keeps offsets right.
        text = text.encode("utf-8", "replace").decode()
        complete, words = not foreign(text), list[Word]()
        for start, end in windows(text):
            if deadline is not None and time.monotonic() >= deadline:
                complete = False
                break
            tagged = self._tagged(text[start:end])
            complete = complete and tagged.whole
            words += [word.moved(start) for word in tagged.words]
        return Reading(tuple(spans_of(text, merged(words))), complete)

    def forget(self) -> None:
        """Drop what is remembered of earlier texts."""
        self._known.clear()

    def _tagged(self, window: str) -> Tagged:
        """What is in a window, remembered under a keyed hash of it and never with its text."""
        if not _LETTERS.search(window):
            return Tagged((), whole=True)
        key = hashlib.blake2b(window.encode(), digest_size=16, key=self._key).digest()
        tagged = self._known.get(key)
        if tagged is not None:
            self._known.move_to_end(key)
            return tagged
        tagged = self._known[key] = self._tag(window)
        if len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return tagged

    def _tag(self, window: str) -> Tagged:
        encoding = self._tokenizer.encode(window, add_special_tokens=False)
        ids = encoding.ids[: MAX_TOKENS - 2]
        if not ids:
            return Tagged((), whole=True)
        logits = self._network.logits([self._first, *ids, self._last])[1:-1]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        return Tagged(self._of_pieces(window, encoding, odds), len(ids) == len(encoding.ids))

    def _of_pieces(self, window: str, encoding: Encoding, odds: Floats) -> tuple[Word, ...]:
        """The words among the pieces that are part of a name; a word takes its best piece."""
        begins = np.flatnonzero(np.diff(np.array(encoding.word_ids[: len(odds)]), prepend=-1))
        best = np.maximum.reduceat(odds @ self._sums, begins, axis=0)
        found = []
        for row in np.flatnonzero(best.max(axis=1) > LIMIT / len(KINDS)):
            label, probability = _choice(best[row])
            if probability >= LIMIT:
                last = begins[row + 1] - 1 if row + 1 < len(begins) else len(odds) - 1
                start, end = encoding.offsets[begins[row]][0], encoding.offsets[last][1]
                if not foreign(window[start:end]):  # what it says there is chance
                    found.append(Word(start, end, label, probability))
        return tuple(found)


def _choice(row: Floats) -> tuple[str, float]:
    """The kind that a word's labels add up to most, by its best label; and that sum."""
    totals = dict.fromkeys((PERSON, ADDRESS), 0.0)
    for value, label in zip(row, _LABELS, strict=True):
        totals[KINDS[label]] += float(value)
    kind = max(totals, key=totals.__getitem__)
    inside = [n for n, label in enumerate(_LABELS) if KINDS[label] == kind]
    return _LABELS[max(inside, key=row.__getitem__)], min(1.0, totals[kind])


def _return_freed_memory() -> None:
    """Rewriting the weights leaves tens of megabytes that are free and still ours."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _labels(path: Path) -> tuple[str, ...]:
    """The tagger's labels by number, without the mark of where one begins."""
    names = json.loads(path.read_bytes())["id2label"]
    return tuple(names[str(n)].partition("-")[2] for n in range(len(names)))


def _mark(tokenizer: Tokenizer, name: str) -> int:
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ValueError("a tokenizer of another kind")
    return int(number)


def _tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(path.read_bytes())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a text that spells out a mark is only a text
    return tokenizer
